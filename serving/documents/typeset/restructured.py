"""reStructuredText: its paragraphs, titles, lists and fields, line by line."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

from serving.documents.raw.encoding import decoded
from serving.documents.texts.markup import Inline, Words
from serving.documents.typeset.drawn import drawn_table
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
from serving.documents.unit import FileInUnits

_TABLES = (
    "Tables of reStructuredText between lines of `=`, and drawn ones with cells over several "
    "columns or rows, stay as they are; other drawn tables and those that are lists are translated."
)
_LEAST = 60
"""Line width in columns that a paragraph on several lines may always use, even if the lines of its
source are shorter."""
_READ = frozenset(
    """
    attention caution danger error hint important note tip warning admonition seealso todo topic
    sidebar epigraph highlights pull-quote compound container figure list-table only rst-class
    class centered rubric versionadded versionchanged versionremoved deprecated deprecated-removed
    glossary hlist tab-item tab-set grid grid-item card dropdown details collapse table parsed-text
    """.split()  # noqa: SIM905
)
"""Directives whose content is read; others stay as they are."""
_TITLED = frozenset(("admonition", "topic", "sidebar", "rubric", "centered", "list-table", "table"))
"""Directives whose argument is read."""
_VERSIONED = frozenset(
    ("versionadded", "versionchanged", "versionremoved", "deprecated", "deprecated-removed")
)
_BOXED = frozenset(
    "attention caution danger error hint important note tip warning seealso todo".split()  # noqa: SIM905
)
"""Directives whose content may begin on the line of their name."""
_UNREAD_FIELDS = frozenset(
    """
    type rtype vartype author authors date version revision organization address contact copyright
    status orphan tocdepth nocomments nosearch
    """.split()  # noqa: SIM905
)
_DIRECTIVE = re.compile(r"\.\. (?:\|[^|\n]+\| +)?(?P<name>[\w:.+-]+?)::(?: +|\s*$)")
_NOTE = re.compile(r"\.\. \[[^\]\n]+\] +")
_ADORNMENT = re.compile(r"([!-/:-@\[-`{-~])\1*\s*\Z")
_ITEM = re.compile(
    r"(?:[-*+•] +|(?:\d{1,3}|#|[A-Za-z]|[ivxlcIVXLC]{1,5})[.)] +|\((?:\d+|#|[A-Za-z])\) +)"
)
_LINE_BLOCK = re.compile(r"\| +")
_FIELD = re.compile(r":(?P<name>(?![: ])(?:[^:\n\\]|\\.|:(?![ \n`]))+):(?: +|\s*$)")
_OPTION = re.compile(r"(?:-\w|--\w|/[A-Z])\S*(?:[ =,]+\S+)* {2,}")
_INLINE = re.compile(
    r"""(?P<literal>``(?=\S).+?(?<=\S)``)
    | (?::(?P<role>[\w:+.-]+):)?`(?P<text>(?=[^\s`])(?:[^`\\<]|\\.|<(?![^`<>]*>`))*?)
      (?:(?P<target>\s*<[^`<>]*>))?`(?P<link>__?(?!\w))?(?P<suffix>:[\w:+.-]+:)?
    | (?P<strong>\*\*)(?=\S)(?P<bold>(?:[^*\\]|\\.|\*(?!\*))+?)(?<=\S)\*\*
    | (?P<em>\*)(?=[^\s*])(?P<italic>(?:[^*\\]|\\.)+?)(?<=\S)\*
    | (?P<kept>\|(?=\S)[^|\n]+?(?<=\S)\|_{0,2}
      | \b[A-Za-z0-9][\w.-]*?__?(?=[\s'")\]}>/\\:.,;!?…”\u2019“»-]|\Z))
    | (?P<note>\s?\[(?:\#?[\w.-]*|\*)\]_(?!\w))
    | (?P<escape>\\(?:\s|.))""",
    re.VERBOSE | re.DOTALL,
)
_BEFORE = frozenset(" \n'\"([{<-/:–—„“\u201a\u2018«»")
_BEHIND = frozenset(" \n'\")]}>-/\\:.,;!?…”\u2019“»")
"""Characters that may stand before markup, and characters that may stand after it."""


def read_rst(content: bytes) -> FileInUnits:
    """Read paragraphs, titles, lists, definitions, fields, notes, the content of directives such as
    `note`, and cells of tables drawn with `+`. Literal blocks, code, comments, targets and other
    tables stay."""
    source = decoded(content)
    reader = _Reader(source.text)
    places = list(reader.places())
    return file_with_prose(source, places, [_TABLES] if reader.tables else [])


class _Reader:
    """Reads the lines of a text once."""

    def __init__(self, text: str, least: int = _LEAST) -> None:
        self.text, self._least = text, least
        self.tables = False
        self._lines, self._begins = lines_of(text)

    def places(self) -> Iterator[ProsePlace]:
        """The paragraphs, in order."""
        number = 0
        while number < len(self._lines):
            line = self._lines[number]
            shown = line.strip()
            indent = _indent(line)
            if not shown:
                number += 1
            elif shown == ".." or shown.startswith((".. ", "__ ")):
                place, number = self._explicit(number, indent)
                yield from place
            elif self._is_title(number):
                yield self._title(number)
                number += 2
            elif _ADORNMENT.match(shown) and len(shown) > 3:
                number += 1  # a title with a line above it as well is read at the title's own line
            elif re.match(r"\+[-=+]{3,}", shown):
                end = self._blank(number)
                yield from self._drawn(number, end, indent)
                number = end
            elif re.match(r"={2,} +=|>>> ", shown):
                self.tables = self.tables or not shown.startswith(">>>")
                number = self._blank(number) if shown[0] != "=" else self._end_of_table(number)
            else:
                place, number = self._paragraph(number, indent)
                yield from place

    def _drawn(self, first: int, end: int, indent: int) -> Iterator[ProsePlace]:
        """The table on these lines, if its cells can be read."""
        lines = self._lines[first:end]
        head = lines[0][:indent]
        whole = len(lines[0].rstrip("\r\n"))
        table = None
        if all(line.startswith(head) for line in lines):
            shown = [line[indent:].rstrip() for line in lines]
            table = drawn_table(shown, lines[0][whole:] + head, self._cell)
        if table is None:
            self.tables = True
        else:
            begin = self._begins[first] + indent
            stop = self._begins[end - 1] + len(lines[-1].rstrip())
            yield ProsePlace(begin, stop, table)

    def _cell(self, text: str, wide: int) -> list[ProsePlace]:
        reader = _Reader(text, wide)
        places = list(reader.places())
        self.tables = self.tables or reader.tables
        return places

    def _is_title(self, number: int) -> bool:
        below = self._lines[number + 1].rstrip() if number + 1 < len(self._lines) else ""
        title = self._lines[number].rstrip()
        wide = len(below) >= min(width(title), 4)
        return (
            _ADORNMENT.match(below) is not None
            and wide
            and not _ADORNMENT.match(title.strip())
            and any(map(str.isalpha, title))
            and _indent(below) == 0
            and (
                number == 0
                or not self._lines[number - 1].strip()
                or _ADORNMENT.match(self._lines[number - 1].rstrip()) is not None
            )
        )

    def _title(self, number: int) -> ProsePlace:
        """Read a title, with the lines above and below it, which are as long as the title."""
        line, below = self._lines[number], self._lines[number + 1].rstrip()
        above = self._lines[number - 1].rstrip() if number else ""
        over = above == below and above != ""
        begin = self._begins[number - 1] if over else self._begins[number]
        end = self._begins[number + 1] + len(below)
        title = line.strip()
        space, ending = line[: _indent(line)], line[len(line.rstrip()) :]

        def laid_out(text: str) -> str:
            extra = max(0, len(below) - width(title)) if over else 0
            rule = below[0] * max(width(text) + extra, 1)
            return (rule + ending if over else "") + space + text + ending + rule

        return ProsePlace(begin, end, _prose(title), laid_out)

    def _explicit(self, number: int, indent: int) -> tuple[list[ProsePlace], int]:
        """Read markup that begins with two dots. Returns its places, and the index of the line from
        which reading continues."""
        line = self._lines[number]
        directive = _DIRECTIVE.match(line, indent)
        note = _NOTE.match(line, indent)
        if note:
            return self._paragraph(number, indent, note.end())
        if directive is None:
            return [], self._behind(number, indent)
        name = directive["name"]
        begin = directive.end()
        replaces = name == "replace"
        if not (name in _READ or replaces or ":" in name):
            return [], self._behind(number, indent)
        if name in _BOXED or replaces:
            if line[begin:].strip() and not line[begin:].startswith(":"):
                return self._paragraph(number, indent, begin)
        elif name in _VERSIONED:
            version = re.compile(r"\S+[ \t]+(?=\S)").match(line, begin)
            if version:
                return self._paragraph(number, indent, version.end())
        places = []
        if name in _TITLED and line[begin:].strip():
            places.append(self._place(number, begin, number + 1, 0))
        number += 1
        while number < len(self._lines) and _FIELD.match(self._lines[number].strip() + " "):
            number += 1
        return places, number

    def _behind(self, number: int, indent: int) -> int:
        """Index after a block: that of the next line that has words and is not indented further."""
        number += 1
        while number < len(self._lines):
            line = self._lines[number]
            if line.strip() and _indent(line) <= indent:
                break
            number += 1
        return number

    def _blank(self, number: int) -> int:
        while number < len(self._lines) and self._lines[number].strip():
            number += 1
        return number

    def _end_of_table(self, number: int) -> int:
        """Index after the last line of a table of `=`, which stands before a blank one."""
        rule = re.compile(r"[= ]+\Z")
        for last in range(number + 1, len(self._lines)):
            below = self._lines[last + 1].strip() if last + 1 < len(self._lines) else ""
            if rule.match(self._lines[last].strip()) and self._lines[last].strip() and not below:
                return last + 1
        return self._blank(number)

    def _paragraph(
        self, number: int, indent: int, begin: int | None = None
    ) -> tuple[list[ProsePlace], int]:
        """Read a paragraph, or an item with a marker, which ends at a blank line or where the
        indentation changes. Returns it and the index after it."""
        line = self._lines[number]
        begin = indent if begin is None else begin
        field = None
        listed = 0  # the column where the text of an item begins
        marked = True
        while marked:
            field = _FIELD.match(line, begin) or field
            item = _ITEM.match(line, begin)
            listed = item.end() if item else listed
            marker = next(
                (m for p in (_ITEM, _LINE_BLOCK, _FIELD, _OPTION) if (m := p.match(line, begin))),
                None,
            )
            marked = marker is not None and marker.end() > begin
            begin = marker.end() if marker else begin
        if not line[begin:].strip():
            return [], number + 1
        end = number + 1
        inside = _indent(self._lines[end]) if end < len(self._lines) else 0
        is_marked = begin > indent
        while end < len(self._lines) and self._lines[end].strip():
            below = self._lines[end]
            starts = _LINE_BLOCK.match(below, inside) or (is_marked and _indent(below) <= indent)
            if begin == listed < inside:  # a term; the lines that are indented further define it
                break
            if _indent(below) != inside or starts or (not is_marked and inside != indent):
                break
            if listed and inside < listed:  # an item of the list that the first line begins too
                break
            end += 1
        place = self._place(number, begin, end, inside if end > number + 1 else begin)
        literal = self._lines[end - 1].rstrip().endswith("::")
        if field and field["name"].split()[0].lower() in _UNREAD_FIELDS:
            return [], end
        behind = self._behind_literal(end, indent) if literal else end
        return [place], behind

    def _behind_literal(self, end: int, indent: int) -> int:
        """Index after the literal block that a paragraph announces with `::`."""
        while end < len(self._lines) and not self._lines[end].strip():
            end += 1
        if end < len(self._lines) and _indent(self._lines[end]) > indent:
            return self._behind(end, indent)
        return end

    def _place(self, first: int, begin: int, last: int, inside: int) -> ProsePlace:
        """The place from column `begin` of one line up to another line, without the end of a
        literal block's announcement."""
        start = self._begins[first] + begin
        stop = self._begins[last - 1] + len(self._lines[last - 1].rstrip())
        source = self.text[start:stop]
        if source.endswith("::"):
            source = source[:-2].rstrip()  # a blank before them says that no colon is shown
            stop = start + len(source)
        space = self._lines[last - 1][:inside] if last > first + 1 else " " * inside
        laid_out = functools.partial(filled, source=source, indent=space, least=self._least)
        return ProsePlace(start, stop, _prose(source), laid_out)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" \t"))


def _prose(source: str) -> Prose:
    signs = Signs()
    return prose_of(_inlines(" ".join(source.split()), signs), signs, SYNTAX)


def _inlines(text: str, signs: Signs) -> list[Inline]:
    """Yield the inlines of a text; markup where none may begin is text."""
    found: list[Inline] = []
    done = at = 0
    while match := _INLINE.search(text, at):
        before = text[match.start() - 1 : match.start()]
        if before and before not in _BEFORE and not match["escape"] and not match["note"]:
            at = match.start() + 1
            continue
        found.append(Words(text[done : match.start()]))
        done = at = match.end()
        if match["escape"]:
            found.append(Words(match["escape"][1:].strip()))
        else:
            found.append(_sign(match, signs))
    return [*found, Words(text[done:])]


def _sign(match: re.Match[str], signs: Signs) -> Inline:
    source = match[0]
    if match["strong"]:
        return signs.wrap("**", _inlines(match["bold"], signs), "**")
    if match["em"]:
        return signs.wrap("*", _inlines(match["italic"], signs), "*")
    if match["note"]:
        return signs.thing(source)
    if match["text"] and match["target"]:  # without a text, `<a>` is not a target
        begin = f":{match['role']}:`" if match["role"] else "`"
        end = f"{match['target']}`{match['link'] or ''}{match['suffix'] or ''}"
        return signs.wrap(begin, [Words(_unescaped(match["text"]))], end)
    return signs.thing(source, word=match["text"] or source)


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def _escaped(text: str) -> str:
    text = re.sub(r"([\\*`|])", r"\\\1", text)
    return re.sub(r"(?<=\w)_(?!\w)", r"\\_", text)


def _between(left: ProsePiece, right: ProsePiece) -> str:
    """An escaped blank, which is not shown, where markup beside a letter would not be
    recognised."""
    ok = (not right.is_markup or left.text[-1] in _BEFORE) and (
        not left.is_markup or right.text[0] in _BEHIND
    )
    return "" if ok else "\\ "


SYNTAX = Syntax(_escaped, _between)
