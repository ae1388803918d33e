"""AsciiDoc: its paragraphs, titles, lists, tables and admonitions, line by line."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

from serving.documents.raw.encoding import decoded
from serving.documents.texts.markup import Inline, Words
from serving.documents.typeset.prose import (
    Prose,
    ProsePiece,
    ProsePlace,
    Signs,
    Syntax,
    file_with_prose,
    filled,
    lines_of,
    prose_of,
    width,
)
from serving.documents.unit import FileInUnits, Unit, check_lengths

_TABLES = "Tables of CSV and DSV, and cells with blocks in them, stay as they are."
_VERBATIM = re.compile(
    r"\[(?:(?:source|listing|literal|stem|latexmath|asciimath|pass|plantuml|ditaa|mermaid|graphviz)"
    r"\b|,)[^\]]*\]|\[[^\]]*\bformat\s*="
)
"""Pattern of the attributes of a block whose content stays."""
_CLOSED = re.compile(r"(?:-{4,}|\.{4,}|\+{4,}|/{4,}|```\w*|[,:]===+)\s*\Z")
"""Pattern of the lines around a block that stays."""
_OPEN = re.compile(r"(?:={4,}|\*{4,}|_{4,}|--|\"\"|'''+|<<<+|\+|---|\* ?\* ?\*)\s*\Z")
"""Pattern of the lines around a block that is read, and of lines that stand alone."""
_TABLE = re.compile(r"[|!]={3,}\s*\Z")
_KEPT = re.compile(r":!?[\w-]+!?:(?:\s|\Z)|//(?!/)|\[.*\]\s*\Z|[\w-]+::[^\s\[]*\[.*\]\s*\Z")
"""Pattern of lines that stay: attributes, comments, attributes of blocks, and macros."""
_TITLE = re.compile(r"(?:={1,6}|#{1,6})[ \t]+(?=\S)")
_BLOCK_TITLE = re.compile(r"\.(?=[^\s.])")
_ITEM = re.compile(
    r"[ \t]*(?:\*{1,6}|-|\.{1,6}|\d+\.|[A-Za-z]\.|<(?:\d+|\.)>)[ \t]+(?:\[[ xX*]\][ \t]+)?(?=\S)"
)
_TERM = re.compile(r"[ \t]*(?P<term>\S.*?)(?:::{1,3}|;;)(?:[ \t]+|\s*\Z)")
_ADMONITION = re.compile(r"(?:NOTE|TIP|IMPORTANT|CAUTION|WARNING):[ \t]+")
_CELL = re.compile(
    r"(?:(?<=\s)(?:\d*(?:\.\d+)?[+*])?[<^>]?(?:\.[<^>])?(?P<style>[aedhlms]?)|(?<!\\))\|",
)
_BREAKS = {"\n": "\x00", "\r\n": "\x01"}
"""Placeholders for line breaks that stay, by the line break."""
# Bounds, and classes without what opens: a text of openers that nothing closes is read in a time
# that grows with its length, not with its square.
_INLINE = re.compile(
    r"""(?P<escape>\\(?=[*_`#^~+{<\[]))
    | (?P<break>[\x00\x01])
    | (?P<kept>\{[\w:-]+\} | \[\[[^\[\]]*\]\] | \(\(\([^()]*\)\)\) | <<[^,<>]+>>
      | (?:pass|stem|latexmath|asciimath|image|icon|kbd|btn|menu|anchor|indexterm)
        :[^\s\[\]]{0,2000}\[[^\[\]]*\] | <\d+>(?=\s*\Z))
    | (?P<code>\b\w{1,12}(?:~[^\s~]{1,20}~|\^[^\s^]{1,20}\^)+(?=\w)\w+(?:[~^][^\s~^]{1,20}[~^])*
      | \+\+\+.+?\+\+\+ | ``.+?`` | (?<![\w;:}"'`])`\S(?:[^`]*\S)?`(?![\w"'`])
      | (?<![\w;:}+])\+\S(?:[^+]*\S)?\+(?![\w+]) | \^[^\s^]+\^ | ~[^\s~]+~)
    | (?P<note>footnote:[\w-]{0,100}\[)(?P<about>[^\]]{1,5000})\]
    | (?P<link>(?:(?:link|xref|mailto):[^\s\[\]]{1,2000}|(?:https?|ftp|irc)://[^\s\[\]<>]{1,2000})\[)
      (?P<shown>[^\]]{0,2000})\]
    | (?P<address>(?:https?|ftp|irc)://[^\s\[\]<>]*[\w/])
    | (?P<ref><<[^,<>]+,\s*)(?P<named>[^<>]+)>>
    | (?P<index>\(\()(?P<entry>[^()]+)\)\)
    | (?P<quoted>["']`)(?=\S)(?P<quote>[^`]+)`["']
    | (?P<role>\[[\w.,#% -]+\])?(?P<sign>\*\*|__|\#\#)(?=\S)(?P<wide>.+?)(?P=sign)
    | (?<![\w;:}])(?P<part>\[[\w.,#% -]+\])?(?P<mark>[*_\#])(?=\S)
      (?P<words>(?:(?!(?P=mark)).|(?P=mark)(?=\w)){1,300}?)(?<=\S)(?P=mark)(?!\w)""",
    re.VERBOSE | re.DOTALL,
)


def read_asciidoc(content: bytes) -> FileInUnits:
    """Read paragraphs, titles, lists, descriptions, cells, admonitions and footnotes. Attributes,
    macros, comments, code and passthroughs stay."""
    source = decoded(content)
    reader = _Reader(source.text)
    places = list(reader.places())
    return file_with_prose(source, places, [_TABLES] if reader.tables else [])


class _Reader:
    """Reads the lines of a text once."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tables = False
        """Whether there are tables that stay."""
        self._lines, self._begins = lines_of(text)

    def places(self) -> Iterator[ProsePlace]:
        """The paragraphs, in order."""
        number = 0
        verbatim = False
        while number < len(self._lines):
            line = self._lines[number]
            title = _TITLE.match(line)
            if not line.strip():
                number, verbatim = number + 1, False
            elif _CLOSED.match(line) or (verbatim and (_OPEN.match(line) or _TABLE.match(line))):
                self.tables = self.tables or line.lstrip(",:!|").startswith("===")
                number, verbatim = self._behind_block(number), False
            elif self._is_underlined(number):
                yield self._underlined(number)
                number += 2
            elif _TABLE.match(line):
                end = self._behind_block(number)
                yield from self._cells(number + 1, end - 1)
                number = end
            elif _KEPT.match(line):
                verbatim = verbatim or _VERBATIM.match(line) is not None
                number = self._behind_kept(number)
            elif _OPEN.match(line):
                number += 1
            elif title:
                yield self._place(number, title.end(), number + 1)
                number = self._behind_header(number + 1) if title[0].strip() == "=" else number + 1
            elif _BLOCK_TITLE.match(line):
                yield self._place(number, 1, number + 1)
                number += 1
            elif verbatim or (line[0] in " \t" and not _ITEM.match(line) and not _TERM.match(line)):
                number, verbatim = self._blank(number), False
            else:
                found, number = self._paragraph(number)
                yield from found

    def _is_underlined(self, number: int) -> bool:
        """Whether a line is a title in the older form, with a line of the same length below it."""
        title = self._lines[number].rstrip()
        below = self._lines[number + 1].rstrip() if number + 1 < len(self._lines) else ""
        return (
            re.match(r"\w.*\w", title) is not None
            and re.fullmatch(r"([=~^+-])\1+", below) is not None
            and abs(len(below) - len(title)) <= 1
        )

    def _underlined(self, number: int) -> ProsePlace:
        title, below = self._lines[number], self._lines[number + 1].rstrip()
        text = title.rstrip()
        end = self._begins[number + 1] + len(below)

        def laid_out(translation: str) -> str:
            return translation + title[len(text) :] + below[0] * width(translation)

        return ProsePlace(self._begins[number], end, _prose(text), laid_out)

    def _behind_block(self, number: int) -> int:
        fence = self._lines[number].rstrip()
        fence = "```" if fence.startswith("```") else fence
        for last in range(number + 1, len(self._lines)):
            if self._lines[last].rstrip() == fence:
                return last + 1
        return len(self._lines)

    def _behind_kept(self, number: int) -> int:
        """Index after a line that stays and its continuation lines."""
        while self._lines[number].rstrip().endswith(" \\") and number + 1 < len(self._lines):
            number += 1
        return number + 1

    def _behind_header(self, number: int) -> int:
        """Index after the author and revision lines, which follow the document's title."""
        while number < len(self._lines) and self._lines[number].strip():
            number = self._behind_kept(number)
        return number

    def _blank(self, number: int) -> int:
        while number < len(self._lines) and self._lines[number].strip():
            number += 1
        return number

    def _paragraph(self, number: int) -> tuple[list[ProsePlace], int]:
        """Read a paragraph, a list item, or a term with its description. Returns it and the index
        after it."""
        line = self._lines[number]
        item, term = _ITEM.match(line), _TERM.match(line)
        places = []
        begin = 0
        if item:
            begin = item.end()
        elif term:
            places.append(self._place(number, term.start("term"), number + 1, term.end("term")))
            begin = term.end()
            if not line[begin:].strip():
                number += 1
                if number == len(self._lines) or self._ends(number, listed=True):
                    return places, number
                begin = len(self._lines[number]) - len(self._lines[number].lstrip())
        admonition = _ADMONITION.match(self._lines[number], begin)
        begin = admonition.end() if admonition else begin
        end = number + 1
        attached = number > 0 and self._lines[number - 1].strip() == "+"
        listed = bool(item or term) or attached
        while end < len(self._lines) and not self._ends(end, listed=listed):
            end += 1
        return [*places, self._place(number, begin, end)], end

    def _ends(self, number: int, *, listed: bool) -> bool:
        """Whether a line ends the paragraph before it."""
        line = self._lines[number]
        block = _CLOSED.match(line) or _OPEN.match(line) or _TABLE.match(line) or _KEPT.match(line)
        return (
            not line.strip()
            or block is not None
            or (listed and bool(_ITEM.match(line) or _TERM.match(line)))
        )

    def _place(self, first: int, begin: int, last: int, end: int | None = None) -> ProsePlace:
        """The place from column `begin` of one line up to another line, or up to a column of the
        first line."""
        start = self._begins[first] + begin
        stop = self._begins[last - 1] + len(self._lines[last - 1].rstrip())
        if end is not None:
            stop = self._begins[first] + end
        return self._written(start, stop)

    def _written(self, start: int, stop: int) -> ProsePlace:
        source = self.text[start:stop]
        below = source.splitlines()[1:2]
        indent = below[0][: len(below[0]) - len(below[0].lstrip())] if below else ""
        # No line may begin with a sign, so a paragraph with a line break keeps each line.
        lines = "" if re.search(r" \+[ \t]*\r?\n", source) else source
        laid = functools.partial(filled, source=lines, indent=indent)
        return ProsePlace(start, stop, _prose(source), laid)

    def _cells(self, first: int, last: int) -> Iterator[ProsePlace]:
        """Yield the paragraphs of the cells between two lines."""
        begin, end = self._begins[first], self._begins[max(first, last)]
        marks = list(_CELL.finditer(self.text, max(0, begin - 1), end))
        ends = [mark.start() for mark in marks[1:]] + [end]
        for mark, stop in zip(marks, ends, strict=False):
            text = self.text[mark.end() : stop]
            inner = text.splitlines()[1:]
            if any(_CLOSED.match(line) or _OPEN.match(line) or _ITEM.match(line) for line in inner):
                self.tables = True
            elif mark["style"] not in ("l", "m"):
                for part in re.finditer(r"\S(?:(?!\n[ \t]*\n).)*", text, re.DOTALL):
                    start = mark.end() + part.start()
                    prose = _prose(part[0].rstrip().replace("\\|", "|"))
                    yield ProsePlace(start, start + len(part[0].rstrip()), prose, _in_cell)


def _in_cell(text: str) -> str:
    return text.replace("|", "\\|")


def _prose(source: str) -> Prose:
    check_lengths([Unit(source)])
    signs = Signs()
    text = re.sub(r"[ \t]\+[ \t]*(\r?\n)[ \t]*", lambda found: _BREAKS[found[1]], source)
    return prose_of(_inlines(" ".join(text.split()), signs), signs, SYNTAX)


def _inlines(text: str, signs: Signs) -> list[Inline]:
    """Yield the inlines of a text; markup after a backslash is text."""
    found: list[Inline] = []
    at = 0
    while match := _INLINE.search(text, at):
        found.append(Words(text[at : match.start()]))
        at = match.end()
        if match["escape"]:
            shown = _INLINE.match(text, at)
            found.append(Words(shown[0] if shown else "\\"))
            at = shown.end() if shown else at
        else:
            found.append(_sign(match, signs))
    return [*found, Words(text[at:])]


def _sign(match: re.Match[str], signs: Signs) -> Inline:
    if match["break"]:
        written = next(line for line, sign in _BREAKS.items() if sign == match["break"])
        return signs.thing(f" +{written}", divides=True)
    if match["note"]:
        return signs.note(match["note"], _prose(match["about"]), "]")
    for name in ("shown", "named", "entry", "quote", "wide", "words"):
        if match[name]:
            begin, end = match.span(name)
            before = match.string[match.start() : begin]
            behind = match.string[end : match.end()]
            return signs.wrap(before, _inlines(match[name], signs), behind)
    word = match["code"] or match["address"] or match["kept"] or ""
    return signs.thing(match[0], word="" if word.startswith(("[[", "(((")) else word)


def _escaped(text: str) -> str:
    return _INLINE.sub(lambda match: "\\" + match[0], text)


def _between(left: ProsePiece, right: ProsePiece) -> str:
    """A blank without width, where markup beside a letter would not be recognised."""
    first, last = right.text[0], left.text[-1]
    begins = right.is_markup and first in "*_#`+[" and right.text[:2] not in _WIDE
    ends = left.is_markup and last in "*_#`+" and left.text[-2:] not in _WIDE
    beside = (begins and (last.isalnum() or last in "_;:}")) or (ends and first.isalnum())
    return "\u200b" if beside else ""


_WIDE = frozenset(("**", "__", "##", "``"))
SYNTAX = Syntax(_escaped, _between)
