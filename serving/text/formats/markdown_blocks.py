"""Extensions of Markdown beyond CommonMark: containers (`::: tip`), admonitions (`!!! note`), MDX
imports, formulas, shortcodes, definitions, footnotes, abbreviations, bars in the code of a table.
Each such line is replaced by a CommonMark line that is parsed in its place. The number of lines
stays the same, and each ends with the same text, apart from the bars."""

from __future__ import annotations

import re
from collections.abc import Sequence

_HINT = re.compile(
    r"^[ \t]*(?::|[!?]{3}|===|\$\$|\{[{%:]|import\s|export\s|\\\[|\\begin)|`[^`\n]*\|"
    r"|^[ \t>]*\*?\[[^\[\]\n]+\]:",
    re.MULTILINE,
)
_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})")
_CONTAINER = re.compile(
    r"(?P<indent>[ \t]*):{3,}(?:[ \t]*\{[^{}]*\}|[ \t]*[\w-]+(?:[ \t]*\{[^{}]*\})?)?"
    r"(?:\[(?P<title>[^\]\n]*)\][ \t]*|[ \t]+(?P<rest>.*))?$"
)
_ADMONITION = re.compile(
    r"(?P<indent>[ \t]*)(?:[!?]{3}\+?[ \t]+[\w-]+(?: [\w-]+)*|===[!+]?)"
    r"(?:[ \t]+\"(?P<title>[^\"]*)\")?\s*$"
)
_DEFINITION = re.compile(r"\A {0,3}:[ \t]+(?=\S)")
_NAMED = re.compile(
    r"(?P<before> {0,3}(?:> {0,3})*)"
    r"(?:(?P<note>\[\^[^\[\]\s]+\]:[ \t]*)|(?P<abbreviation>\*\[[^\[\]\n]+\]:[ \t]*)"
    r"|(?=\[[^\[\]\n]+\]:[ \t]*(?:<[^<>\n]*>|(?=\S*(?:[/#:]|\w\.\w))[^\s<]\S*)"
    r"(?:[ \t]+(?:\"[^\"\n]*\"|'[^'\n]*'|\([^()\n]*\)))?\s*\Z))"
)
"""Pattern of definitions of a footnote, an abbreviation or the address of links. In the words of
a speaker (`[Anna]: Ja.`) there is no address."""
_IMPORT = re.compile(
    r"(?:import[ \t]+(?:[\w*{},$ \t]+[ \t]from[ \t]+)?['\"][^'\"]+['\"]"
    r"|export[ \t]+(?:\*|\{[^{}]*\})[ \t]+from[ \t]+['\"][^'\"]+['\"]);?\s*$"
)
_EXPORT = re.compile(r"export[ \t]+(?:default|const|let|var|function|class|async)\b")
_FORMULA = re.compile(r"[ \t]*(\$\$|\\\[|\\begin\{\w+\*?\})")
_END_OF_FORMULA = {"$$": "$$", "\\[": "\\]"}
_LONGEST = 100
"""Most lines of a formula; a longer one is text."""
_DELIMITERS = re.compile(r"[ \t>]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$")
"""Second line of a table; a table without bars has one column."""
_CODE = re.compile(r"(?<!`)(`+)(?!`).+?(?<!`)\1(?!`)")
_BAR = re.compile(r"(?<!\\)\|")
_ALONE = re.compile(
    r"[ \t]*(?:\{\{[<%][^\n]*[>%]\}\}|\{%[^%\n]*%\}|\{:[^{}\n]*\}|\[\[?_?(?i:toc)_?\]?\])\s*$"
)


def as_commonmark(lines: Sequence[str]) -> list[str]:
    """The lines as CommonMark: unknown constructs become a heading, a list or an empty line."""
    if not _HINT.search("".join(lines)):
        return list(lines)
    found: list[str] = []
    fence = ""
    number, inside = 0, ""  # indentation of an admonition's text
    while number < len(lines):
        line = lines[number]
        if inside and (line.isspace() or line.startswith(inside)):
            line = line.removeprefix(inside)
        elif inside:
            inside = ""
        opened = _FENCE.match(line)
        if fence or opened:
            if not fence and opened:
                fence = opened[1]
            elif opened and opened[1].startswith(fence) and not line[opened.end() :].strip():
                fence = ""
            found.append(line)
            number += 1
            continue
        if block := _ADMONITION.match(line):
            inside = block["indent"] + "    "
            found.append(_heading(block["indent"], block["title"]))
        elif block := _CONTAINER.match(line):
            title = block["title"] or block["rest"] or ""
            found.append(_heading(block["indent"], title.strip(" \t\r:")))
        elif _IMPORT.match(line) or _ALONE.match(line):
            found.append("\n")
        elif length := _hidden(lines, number):
            found += ["\n"] * length
            number += length - 1
        else:
            found.append(_definition(line))
        number += 1
    return _with_whole_cells(found)


def _definition(line: str) -> str:
    """The line as a block that ends the paragraph before it, if it is a definition."""
    named = _NAMED.match(line)
    if named is None:
        return _DEFINITION.sub("- ", line)
    sign = "> "  # a quotation, in which an address is defined for the whole text
    if named["note"]:
        sign = "-   "  # to which indented paragraphs belong
    elif named["abbreviation"]:
        sign = "# "
    return named["before"] + sign + line[named.end() :]


def _with_whole_cells(lines: list[str]) -> list[str]:
    """The lines with bars in the code of tables escaped; they would divide the cells."""
    inside = False
    for number, line in enumerate(lines):
        if not inside and "|" in line and _DELIMITERS.match(line) and number:
            inside = True
            lines[number - 1] = _with_bars_escaped(lines[number - 1])
        inside = inside and not line.isspace()
        if inside:
            lines[number] = _with_bars_escaped(line)
    return lines


def _with_bars_escaped(line: str) -> str:
    return _CODE.sub(lambda code: _BAR.sub(r"\\|", code[0]), line)


def _heading(indent: str, title: str | None) -> str:
    return f"{indent}# {title}\n" if title else "\n"


def _hidden(lines: Sequence[str], first: int) -> int:
    """Number of lines of the formula or export that begins here; 0 if none does."""
    line = lines[first]
    formula = _FORMULA.match(line)
    if formula:
        begins = formula[1]
        ends = _END_OF_FORMULA.get(begins, begins.replace("begin", "end"))
        if line.rstrip().endswith(ends) and line.strip() != ends:
            return 1
        for number in range(first + 1, min(len(lines), first + _LONGEST)):
            if lines[number].rstrip().endswith(ends):
                return number + 1 - first
            if lines[number].isspace():
                break
    elif _EXPORT.match(line):
        return _end_of_paragraph(lines, first) - first
    return 0


def _end_of_paragraph(lines: Sequence[str], first: int) -> int:
    numbers = range(first, len(lines))
    return next((number for number in numbers if lines[number].isspace()), len(lines))
