"""Tokenizes Markdown: CommonMark with tables and strikethrough, parsed by markdown-it-py.

The parser gives the lines of each block but not the positions of inline markup, so its inline rules
are wrapped to record them. Everything but the text of paragraphs, headings and cells is kept.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Iterator, Sequence

from markdown_it import MarkdownIt, rules_inline
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token as Parsed

from serving.text.alignment import Span
from serving.text.formats.markdown_blocks import as_commonmark
from serving.text.formats.markup import html_tokens, is_verbatim, piece_tokens
from serving.text.formats.tags import html_pieces
from serving.text.passages.tokens import Kind, Token

_FRONT_MATTER = re.compile(
    r"\ufeff?(---|\+\+\+)[ \t]*\r?\n(?![ \t]*\r?\n).*?^(?:\1|\.\.\.)[ \t]*\r?(?:\n|\Z)",
    re.DOTALL | re.MULTILINE,
)
_NO_START = re.compile(r"\s|---|\+\+\+")
"""Pattern of beginnings that are read differently at the start of a text: as code, or as front
matter."""
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|\Z)")
_LINE_END = re.compile(r"\r\n?")
_NOTE = re.compile(r"\[![A-Z]+\]\s*")
_BRACKETS = re.compile(r"(?<![\\!\]\[])\[([^\W\d_]{2}[^\[\]\n]*)(?<!\\)\](?![\[({:])")
_CLOSING = re.compile(r"\[/([^\[\]\n]*)\]")
_LINKED = re.compile(r"(?!\^|![A-Z]+\Z).*?[^\W\d_]{2}", re.DOTALL)
"""Pattern of a link's text, as opposed to a footnote mark."""
_FORMULA = re.compile(
    r"\$\$[^$\n]{1,300}\$\$|(?<![\w$\\])\$(?=[^$\n]{0,100}[\\^_=<>+*/{}]|[A-Za-z]\$)(?![\s{])"
    r"(?!\d[\d.,]*\s)[^$\n]{1,200}(?<![\s\\])\$(?![\w$])"
)
_WIKI = re.compile(r"!?\[\[[^\[\]|\n]{1,200}\\?\|(?P<text>[^\[\]|\n]{1,200})\]\](?!\()")
_INNER = r"(?:[^\[\]\\\n]|\\.)"
_LABEL = re.compile(rf"(?:{_INNER}|\[(?:{_INNER}|\[{_INNER}*\])*\])*\](?=[(\[])")
"""Pattern of a picture's alternative text with its closing bracket; brackets within it are
balanced."""
_FAR = 64
"""Number of tokens after a tag that are searched for the closing one."""
_SPAN = "span"
_KEPT = "kept"
_Rule = Callable[[StateInline, bool], bool]


def markdown_tokens(source: str) -> list[Token]:
    """Tokens of a Markdown text: inline markup belongs to its line; blocks separate passages."""
    lines, blocks = _blocks(source)
    found: list[Token] = []
    cell = (0, 0)  # line of the table, and end of the last known cell in it
    before = ""
    for block in blocks:
        if block.type == "html_block" and block.map and block.level == 0:
            first, last = lines[block.map[0]][0], lines[block.map[1] - 1][1]
            found += [
                Token(token.kind, (token.span[0] + first, token.span[1] + first), token.name)
                for token in html_tokens(source[first:last])
            ]
        elif block.type == "inline" and block.map and block.content:
            line = block.map[0]
            if before in ("th_open", "td_open"):
                if line != cell[0]:
                    cell = (line, lines[line][0])
                places = _cell_places(source, block.content, (cell[1], lines[line][1]))
                if places:
                    cell = (line, places[-1])
            else:
                places = _places(source, lines[line:], block.content)
            if places:
                found += _inline(source, block, places)
        before = block.type
    return list(_covering(found, len(source)))


def picture_texts(source: str) -> Iterator[Span]:
    """The spans of the alternative texts of pictures, `![here](address)` or `![here][name]`, on one
    line. Those of `![name]` are left out, because the address is found by that name."""
    for token in markdown_tokens(source):
        begin, end = token.span
        if token.kind == "thing" and source.startswith("![", begin):
            label = _LABEL.match(source, begin + 2, end)
            if label and (source[label.end()] == "(" or label.end() + 2 < end):
                yield begin + 2, label.end() - 1


def block_starts(source: str) -> list[int]:
    """Positions of blocks, list items and table rows that would be read in the same way if nothing
    preceded them."""
    lines, blocks = _blocks(source)
    numbers = set[int]()
    for block in blocks:
        if not block.map or not block.map[0]:
            continue
        number = block.map[0]
        blank = block.level == 0 and source[slice(*lines[number - 1])].isspace()
        row = block.type == "tr_open" and source[lines[number][0]] == "|"
        if blank or row or (block.type == "list_item_open" and block.level == 1):
            numbers.add(number)
    starts = [lines[number][0] for number in sorted(numbers)]
    return [start for start in starts if not _NO_START.match(source, start)]


def _blocks(source: str) -> tuple[list[Span], list[Parsed]]:
    """The lines after the front matter, and the parsed blocks."""
    front = _FRONT_MATTER.match(source)
    begin = front.end() if front else 0
    lines = [line.span() for line in _LINE.finditer(source, begin) if line.end() > line.start()]
    texts = [_LINE_END.sub("\n", source[slice(*line)]) for line in lines]
    return lines, _parser().parse("".join(as_commonmark(texts)))


def _covering(tokens: Sequence[Token], length: int) -> Iterator[Token]:
    """The tokens, with boundaries in the gaps."""
    done = 0
    for token in tokens:
        if token.span[0] > done:
            yield Token("boundary", (done, token.span[0]))
        yield token
        done = token.span[1]
    if done < length:
        yield Token("boundary", (done, length))


def _places(source: str, lines: Sequence[Span], content: str) -> list[int] | None:
    """Source position of each character of a block's content, and of its end; None if it cannot be
    found. Each line of the content must be the end of a source line, apart from white space and the
    signs that close a heading."""
    places: list[int] = []
    for (begin, end), part in zip(lines, content.split("\n"), strict=False):
        line = source[begin:end].rstrip("\r\n")
        if not line.endswith(part):
            line = line.rstrip()
        at = len(line) - len(part) if line.endswith(part) else line.find(part)
        if at < 0:
            return None
        places += range(begin + at, begin + at + len(part) + 1)
    return places if len(places) == len(content) + 1 else None


def _cell_places(source: str, content: str, line: Span) -> list[int] | None:
    """`_places` for a table cell, in which bars are escaped."""
    pattern = "".join(r"\\?\|" if sign == "|" else re.escape(sign) for sign in content)
    match = re.compile(pattern).search(source, *line)
    if match is None:
        return None
    places, at = [], match.start()
    for sign in content:
        places.append(at)
        at += 2 if source[at] != sign else 1
    return [*places, at]


def _inline(source: str, block: Parsed, places: Sequence[int]) -> Iterator[Token]:
    """Tokens of a block's content."""
    content, done = block.content, 0
    closed = frozenset(_CLOSING.findall(content))
    for kind, (begin, end), name in _marks(content, block.children or []):
        if begin < done:
            continue
        yield from _text(content, (done, begin), places, closed)
        yield Token(kind, (places[begin], places[end]), name)
        done = end
    yield from _text(content, (done, len(content)), places, closed)


def _text(
    content: str, span: Span, places: Sequence[int], closed: Collection[str]
) -> Iterator[Token]:
    """Text without markup. Words in brackets may be a link whose address is defined elsewhere,
    unless they are a BBCode tag with its name in `closed`."""
    done, end = span
    for match in _BRACKETS.finditer(content, done, end):
        if _tag_name(match[1]) in closed:
            continue
        begin, last = match.start(), match.end() - 1
        if begin > done:
            yield Token("text", (places[done], places[begin]))
        yield Token("open", (places[begin], places[begin + 1]), "[")
        yield Token("text", (places[begin + 1], places[last]))
        yield Token("close", (places[last], places[last + 1]), "[")
        done = last + 1
    if done < end:
        yield Token("text", (places[done], places[end]))


def _tag_name(words: str) -> str:
    """Name of the BBCode tag in brackets."""
    return re.split(r"[=\s]", words, maxsplit=1)[0]


def _marks(content: str, children: Sequence[Parsed]) -> Iterator[tuple[Kind, Span, str]]:
    """Inline markup of a block's content, with spans in the content."""
    for index, child in enumerate(children):
        span = child.meta.get(_SPAN)
        if span is None:
            continue
        begin, end = span
        match child.type:
            case "em_open" | "s_open" | "link_open":
                yield "open", span, child.tag
            case "em_close" | "s_close" | "link_close":
                yield "close", span, child.tag
            case "strong_open":
                yield "open", (begin - 1, end), child.tag
            case "strong_close":
                yield "close", (begin, end + 1), child.tag
            case "code_inline" | "kept":
                yield "kept", span, ""
            case "image":
                yield "thing", span, ""
            case "softbreak" if _NOTE.fullmatch(content, 0, begin):
                yield "boundary", span, ""
            case "softbreak":
                yield "space", (len(content[:begin].rstrip(" ")), end), ""
            case "hardbreak":
                yield "boundary", span, ""
            case "html_inline":
                yield from _html(
                    content, span, [c.meta.get(_SPAN) for c in children[index : index + _FAR]]
                )


def _html(
    content: str, span: Span, following: Sequence[Span | None]
) -> Iterator[tuple[Kind, Span, str]]:
    """An HTML tag; if its content is not translated, the whole element."""
    piece, *others = html_pieces(content[slice(*span)])
    if others:  # a section or comment that ends earlier in HTML than in Markdown
        yield "thing", span, ""
        return
    if is_verbatim(piece, ()):
        end = f"</{piece.name}"
        for other in following:
            if other and content[slice(*other)].lower().startswith(end):
                yield "kept", (span[0], other[1]), ""
                return
    for token in piece_tokens(content[slice(*span)], piece):
        yield token.kind, span, token.name


@functools.cache
def _parser() -> MarkdownIt:
    """A CommonMark parser that records the span of each inline token."""
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    parser.disable(["fragments_join", "text_join"])
    parser.inline.ruler.before("escape", "math", _watched(_math))
    parser.inline.ruler.before("link", "wiki", _wiki)
    for name, rule in _WATCHED.items():
        parser.inline.ruler.at(name, _watched(rule))
    return parser


def _watched(rule: _Rule) -> _Rule:
    """Wrap a rule to record the span of each token that it creates."""

    def watched(state: StateInline, silent: bool) -> bool:
        begin, count = state.pos, len(state.tokens)
        if not rule(state, silent):
            return False
        made = state.tokens[count:]
        if silent or not made:
            return True
        kinds = [token.type for token in made]
        if "link_open" in kinds and kinds[-1] == "link_close":
            _note_link(state, made[kinds.index("link_open") :], (begin, state.pos))
        elif made[-1].type != "text":
            made[-1].meta[_SPAN] = (begin, state.pos)
        else:
            end = state.pos
            for token in reversed(made):  # pending text may stand before them
                if end > begin:
                    token.meta[_SPAN] = (end - len(token.content), end)
                    end -= len(token.content)
        return True

    return watched


def _math(state: StateInline, silent: bool) -> bool:
    """Rule for formulas, which contain no markup."""
    match = _FORMULA.match(state.src, state.pos)
    if match is None:
        return False
    if not silent:
        state.push("kept", "", 0)
    state.pos = match.end()
    return True


def _wiki(state: StateInline, silent: bool) -> bool:
    """Rule for wiki links with a text of their own, which is translated."""
    match = _WIKI.match(state.src, state.pos)
    if match is None:
        return False
    if not silent:
        state.push("link_open", "[[", 1).meta[_SPAN] = (match.start(), match.start("text"))
        state.push("text", "", 0).content = match["text"]
        state.push("link_close", "[[", -1).meta[_SPAN] = (match.end("text"), match.end())
    state.pos = match.end()
    return True


def _note_link(state: StateInline, made: Sequence[Parsed], span: Span) -> None:
    """Translate a link's text, unless it is its address or the name of a reference."""
    begin, end = span
    closed = end
    if state.src[begin] == "[":
        pos, state.pos = state.pos, begin
        closed = state.md.helpers.parseLinkLabel(state, begin, True)
        state.pos = pos
    if state.src[closed:end] in ("", "]", "][]"):
        made[0].type = _KEPT
        made[0].meta[_SPAN] = span
        for token in made[1:]:
            token.meta.pop(_SPAN, None)
    else:
        made[0].meta[_SPAN] = (begin, begin + 1)
        made[-1].meta[_SPAN] = (closed, end)


class _AnyReference(dict[str, dict[str, str]]):
    """A dictionary that defines every reference."""

    def get(self, name: str, default: object = None) -> dict[str, str]:
        """A definition for any name."""
        return {"href": name, "title": ""}


def _referring(rule: _Rule) -> _Rule:
    """Extend the rule of links or images to references that are defined elsewhere, because requests
    often contain only part of a document."""

    def referring(state: StateInline, silent: bool) -> bool:
        begin = state.pos
        opened = begin + (state.src[begin] == "!")
        if state.src[opened : opened + 1] != "[":
            return False
        end = state.md.helpers.parseLinkLabel(state, opened, opened == begin)
        if end < 0:  # otherwise the rule would repeat the search
            return False
        if rule(state, silent):
            return True
        text = state.src[opened + 1 : end]
        if state.src[end + 1 : end + 2] != "[" or not _LINKED.match(text):
            return False
        if f"[/{_tag_name(text)}]" in state.src:
            return False
        known = state.env.get("references", {})
        state.env["references"] = _AnyReference()
        try:
            return rule(state, silent)
        finally:
            state.env["references"] = known

    return referring


_WATCHED: dict[str, _Rule] = {
    "newline": rules_inline.newline,
    "escape": rules_inline.escape,
    "backticks": rules_inline.backtick,
    "strikethrough": rules_inline.strikethrough.tokenize,
    "emphasis": rules_inline.emphasis.tokenize,
    "link": _referring(rules_inline.link),
    "image": _referring(rules_inline.image),
    "autolink": rules_inline.autolink,
    "html_inline": rules_inline.html_inline,
}
