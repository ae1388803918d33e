"""LaTeX: the words of its paragraphs and of the arguments of known commands."""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from serving.documents.raw.encoding import Declaration, decoded
from serving.documents.texts.markup import Inline, Words
from serving.documents.typeset.prose import (
    Prose,
    ProsePiece,
    ProsePlace,
    Signs,
    Syntax,
    file_with_prose,
    filled,
    prose_of,
)
from serving.documents.unit import FileInUnits
from serving.text.alignment import Span

_STYLES = frozenset(
    """
    textbf textit textsl textsc textsf textrm textup textmd textnormal emph underline uline sout
    enquote mbox text alert foreignquote uppercase hl so structure only onslide uncover visible
    invisible action
    """.split()  # noqa: SIM905
)
"""Commands around words of a sentence."""
_SECOND = frozenset(("textcolor", "href", "hyperref", "colorbox", "foreignlanguage"))
"""Such commands whose last argument contains the words."""
_THIRD = frozenset(("multicolumn", "multirow"))
"""Commands for table cells, whose third argument contains the words."""
_OVERLAY = (
    r"[ \t]*\+?<(?:[-+.*,|:@()\d \t]|[a-z]+(?=[:@])"
    r"|(?:all|article|beamer|handout|presentation|second|trans)(?![\w:@]))*>"
)
"""Slides of beamer on which a command holds, such as `<2-| alert@3>`."""
_OPTIONS = rf"(?:[ \t]*\[[^\]]{{0,1000}}\]|{_OVERLAY})*"
_WITHIN = r"(?:[^{}]|\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\})*"
_BRACES = rf"\{{{_WITHIN}\}}"
_BEHIND = rf"(?:[ \t]*\[[^\]]{{0,1000}}\]|{_OVERLAY}|{_BRACES})*"
_ARGUMENTS = re.compile(rf"\*?{_BEHIND}")
_TITLED = re.compile(
    rf"\\begin\{{(?:(?P<frame>frame)|block|alertblock|exampleblock)\*?\}}{_OPTIONS}"
    rf"\{{(?P<title>{_WITHIN})\}}(?(frame)(?:\{{(?P<subtitle>{_WITHIN})\}})?)"
    r"|\\begin\{(?:theorem|lemma|corollary|proposition|definition|proof|remark|example)\*?\}"
    rf"(?:{_OVERLAY})?[ \t]*\[(?P<brackets>[^\]]*)\]"
)
"""Environments with arguments that are paragraphs of their own."""
_MARK = re.compile(rf"(?:{_OVERLAY})?[ \t]*\[(?P<brackets>[^\]]{{0,1000}})\]")
"""Pattern of the label that replaces an item's number."""
_BLOCKS = frozenset(
    """
    title subtitle part chapter section subsection subsubsection paragraph subparagraph caption
    frametitle framesubtitle subcaption
    """.split()  # noqa: SIM905
)
"""Commands whose argument is a paragraph of its own."""
_NOTES = frozenset(("footnote", "footnotetext", "thanks", "marginpar", "marginnote", "sidenote"))
_SILENT = frozenset(
    """
    label index vspace hspace noindent centering newpage clearpage pagebreak linebreak maketitle
    tableofcontents hline toprule midrule bottomrule bigskip medskip smallskip par hfill vfill
    cline cmidrule footnotemark
    """.split()  # noqa: SIM905
)
"""Commands that do not stand for a word."""
_DIVIDING = frozenset(
    """
    item par maketitle tableofcontents newpage clearpage hline toprule midrule bottomrule
    includegraphics bigskip medskip smallskip centering cline cmidrule input include bibliography
    addplot onslide pause
    """.split()  # noqa: SIM905
)
"""Commands after which no sentence continues."""
_SHORT = re.compile(r"\[(?P<short>(?!\s*\w+\s*=)[^\]]{0,1000})\]")
"""Pattern of the short title for a list of contents; brackets with `=` contain options."""
_NUMBER = r"\d[\d.,]*(?:\\,\d{3})*(?<![.,])"
_REFERENCE = r"\\[A-Za-z]+\{[^{}\s]*\}"
_TIED = re.compile(
    rf"(?<![\w.])(?<!\d,)(?P<left>{_NUMBER}|{_REFERENCE})(?P<behind>~|\\,)(?=\S)"
    rf"|(?<=\S)(?P<before>~|\\,)(?P<right>{_NUMBER}|{_REFERENCE}|[^\W\da-z_]\w+)(?!\w)"
)
"""Pattern of non-breaking and thin blanks beside text that a translation keeps, such as numbers."""
_FORMULAS = re.compile(r"\$(?:[^$\\]|\\.)+\$|\\\((?:(?!\\[()]).)*\\\)", re.DOTALL)
_VERBATIM = "|".join(
    """
    verbatim Verbatim BVerbatim LVerbatim SaveVerbatim VerbatimOut verbatimtab spverbatim alltt
    comment filecontents thebibliography algorithm algorithmic pseudocode
    lstlisting minted code tcblisting luacode python pycode pyblock pyconsole pyverbatim pylabcode
    pylabblock sympycode sympyblock sageblock sagesilent sageverbatim sageexample Sinput Soutput
    Schunk knitrout gnuplot
    math displaymath equation align alignat xalignat xxalignat flalign gather multline eqnarray
    subeqnarray IEEEeqnarray dmath dseries dgroup darray empheq numcases subnumcases mathpar
    prooftree reaction reactions
    tikzpicture tikzcd circuitikz pgfpicture picture pspicture psmatrix xy forest dependency
    asy asydef mplibcode mpost dot2tex texdraw fmffile fmfgraph bytefield lilypond abc
    """.split()  # noqa: SIM905
)
"""Environments of code, formulas and drawings, each of which may have a star."""
_ACCENTS = {
    "`": "\u0300", "'": "\u0301", "^": "\u0302", "~": "\u0303", '"': "\u0308", "=": "\u0304",
    ".": "\u0307", "c": "\u0327", "v": "\u030c", "u": "\u0306", "H": "\u030b", "r": "\u030a",
    "k": "\u0328",
}  # fmt: skip
_LETTERS = {
    "ss": "ß", "ae": "æ", "AE": "Æ", "oe": "œ", "OE": "Œ", "o": "ø", "O": "Ø", "aa": "å", "AA": "Å",
    "l": "ł", "L": "Ł", "dots": "…", "ldots": "…", "glqq": "„", "grqq": "“",
}  # fmt: skip
_TOKEN = re.compile(
    rf"""(?P<verbatim>\\begin\{{(?P<name>(?:{_VERBATIM})\*?)\}}(?:(?!\\begin\{{(?P=name)\}}).)*?\\end\{{(?P=name)\}}
      | \\schemestart(?![A-Za-z])(?:(?!\\schemestart).)*?\\schemestop(?![A-Za-z]))
    | (?P<verb>\\(?:verb|lstinline)\*?(?P<bar>[^\sA-Za-z*\[{{]).*?(?P=bar))
    | (?P<display>\$\$.*?\$\$|\\\[(?:(?!\\[\[\]]).)*\\\])
    | (?P<math>\$(?:[^$\\]|\\.)+\$|\\\((?:(?!\\[()]).)*\\\))
    | (?P<comment>%[^\n]*(?:\n[ \t]*(?=\S))?)
    | (?P<blank>\r?\n[ \t]*\r?\n\s*)
    | (?P<row>\\\\\*?(?:\[[^\]]{{0,1000}}\])?)
    | (?P<accent>\\(?:[`'^~"=.](?:\{{\\?[A-Za-z]\}}|\\?[A-Za-z])|[cvuHrk]\{{[A-Za-z]\}}))
    | (?P<escape>\\(?:[&%#_${{}}]|[\^~]\{{\}}))
    | (?P<environment>\\(?:begin|end)\{{[^}}]*\}}{_BEHIND})
    | (?P<command>\\(?P<word>[A-Za-z@]+)\*?)
    | (?P<other>\\.(?:\{{\}})?)
    | (?P<cell>&)
    | (?P<open>\{{)
    | (?P<close>\}})
    | (?P<quote>``|'')
    | (?P<tie>~)""",
    re.VERBOSE | re.DOTALL,
)
_INPUTENC = re.compile(
    r"^[^%\n]*\\(?:usepackage|RequirePackage)[ \t]*\[([\w-]+)\][ \t]*\{inputenc\}", re.MULTILINE
)
_LATEX = Declaration(
    (_INPUTENC,),
    utf_8="utf8",
    own_names={
        "utf8x": "utf-8",
        "ansinew": "cp1252",
        "applemac": "mac_roman",
        "macce": "mac_latin2",
    },
)
_BODY = re.compile(r"\\begin\{document\}")
_END = re.compile(r"\\end\{document\}")
_TITLE = re.compile(rf"\\(?:title|subtitle){_OPTIONS}(?=\{{)")
_GROUPS = 64
"""Braces within each other that are read."""
_NESTED = 8
"""Largest depth of nested blocks and notes; deeper ones stay."""


def read_latex(content: bytes) -> FileInUnits:
    """Read paragraphs, titles, captions, items, cells and footnotes. Formulas, commands, comments,
    code and the preamble stay, except the title."""
    source = decoded(content, _LATEX)
    text = source.text
    body = _BODY.search(text)
    places = []
    if body:
        for title in _TITLE.finditer(text, 0, body.start()):
            reader = _Reader(text, title.start(), _closing(text, title.end()) + 1)
            places += reader.places
    end = _END.search(text, body.end() if body else 0)
    reader = _Reader(text, body.end() if body else 0, end.start() if end else len(text))
    return file_with_prose(source, [*places, *reader.places])


@dataclass
class _Group:
    """The inlines since an opening brace that is not closed yet."""

    before: str
    found: list[Inline] = field(default_factory=list)


class _Reader:
    """Reads a part of a text into paragraphs."""

    def __init__(self, text: str, begin: int, end: int, depth: int = 0) -> None:
        self._depth = depth
        self.places: list[ProsePlace] = []
        self._text = text
        self._start(begin)
        at = begin
        while at < end:
            match = _TOKEN.search(text, at, end)
            stop = match.start() if match else end
            self._say(text[at:stop])
            if match is None:
                break
            at = self._token(match, end)
        self._finish(end)

    def _start(self, begin: int) -> None:
        self._begin, self._signs = begin, Signs()
        self._groups = [_Group("")]

    def _finish(self, end: int) -> None:
        """End the paragraph here. If its braces do not close within it, it stays as it is."""
        if len(self._groups) == 1:
            source = self._text[self._begin : end]
            prose = prose_of(self._groups[0].found, self._signs, SYNTAX)
            if any(True for _ in prose.proses()):
                head = source[: len(source) - len(source.lstrip())]
                tail = source[len(source.rstrip()) :]
                begin, stop = self._begin + len(head), end - len(tail)
                inner = self._text[begin:stop]
                prose = _stripped(prose)
                # A text with a comment keeps its lines, because the end of a comment matters.
                lines = "" if "%" in inner else inner
                line = self._text[self._text.rfind("\n", 0, begin) + 1 : begin]
                indent = line if line.isspace() else ""
                laid = functools.partial(_laid_out, source=inner, lines=lines, indent=indent)
                self.places.append(ProsePlace(begin, stop, prose, laid))
        self._start(end)

    def _say(self, text: str) -> None:
        if text:
            self._groups[-1].found.append(Words(re.sub(r"[ \t\r\n]+", " ", text)))

    def _thing(self, source: str, word: str = "") -> None:
        self._groups[-1].found.append(self._signs.thing(source, word=word))

    def _divide(self, match_begin: int, match_end: int, titles: Iterable[Span] = ()) -> int:
        """Begin another paragraph; `titles` are paragraphs between the two."""
        self._finish(match_begin)
        for title in titles if self._depth < _NESTED else ():
            self.places += _Reader(self._text, *title, self._depth + 1).places
        self._start(match_end)
        return match_end

    def _token(self, match: re.Match[str], limit: int) -> int:
        """Read a token; returns the position after it."""
        source, begin, end = match[0], match.start(), match.end()
        kind = match.lastgroup if match.lastgroup not in ("name", "bar", "word") else None
        if match["environment"]:
            titled = _TITLED.match(self._text, begin, end)
            return self._divide(begin, end, _spans(titled, "title", "subtitle", "brackets"))
        if match["verbatim"] or match["blank"] or match["display"]:
            return self._divide(begin, end)
        if match["row"] or match["cell"]:
            return self._divide(begin, end)
        if match["command"]:
            return self._command(match, limit)
        if match["math"] or match["verb"]:
            self._thing(source, word=source)
        elif source == r"\,":
            self._say("\u202f")
        elif match["comment"] or kind == "other":
            self._thing(source)
        elif match["accent"]:
            self._say(_letter(source))
        elif match["escape"]:
            self._say(source[1])
        elif match["quote"]:
            self._say("“" if source == "``" else "”")
        elif match["tie"]:
            self._say("\u00a0")
        elif match["open"] and len(self._groups) < _GROUPS:
            self._groups.append(_Group("{"))
        elif match["close"] and len(self._groups) > 1:
            group = self._groups.pop()
            if group.found:
                self._groups[-1].found.append(self._signs.wrap(group.before, group.found, "}"))
            else:
                self._thing(group.before + "}")
        else:
            self._thing(source)
        return end

    def _command(self, match: re.Match[str], limit: int) -> int:
        name, begin, end = match["word"], match.start(), match.end()
        if name in _LETTERS:
            after = re.compile(r"\{\}| ?").match(self._text, end)
            self._say(_LETTERS[name])
            return after.end() if after else end
        words = re.compile(rf"{_OPTIONS}(?=\{{)").match(self._text, end)
        if name in _SECOND:
            words = re.compile(rf"{_OPTIONS}(?:{_BRACES}(?=\{{))?(?=\{{)").match(self._text, end)
        if name in _THIRD:
            words = re.compile(rf"(?:{_BRACES}){{2}}(?=\{{)").match(self._text, end)
        around = name in _STYLES or name in _SECOND or name in _THIRD
        if words and around and len(self._groups) < _GROUPS:
            self._groups.append(_Group(self._text[begin : words.end() + 1]))
            return words.end() + 1
        if words and name in _BLOCKS | _NOTES and self._depth < _NESTED:
            stop = min(_closing(self._text, words.end()), limit)
            inner = _Reader(self._text, words.end() + 1, stop, self._depth + 1)
            if name in _BLOCKS:
                self._finish(begin)
                for short in _SHORT.finditer(self._text, end, words.end()):
                    self.places += _Reader(self._text, *short.span("short"), self._depth + 1).places
                self.places += inner.places
                self._start(min(stop + 1, limit))
            else:
                self._note(self._text[begin : words.end() + 1], inner.places)
            return min(stop + 1, limit)
        arguments = _ARGUMENTS.match(self._text, end, limit)
        stop = arguments.end() if arguments else end
        begun = len(self._groups) > 1 or any(
            not isinstance(inline, Words) or inline.text.strip() for inline in self._groups[0].found
        )
        if name in _DIVIDING or (name in _SILENT and not begun):
            mark = _MARK.match(self._text, end, stop) if name == "item" else None
            return self._divide(begin, stop, _spans(mark, "brackets"))
        silent = name in _SILENT or (stop == end and self._text[stop : stop + 1] == " ")
        if silent and stop == end and self._text[stop : stop + 1] == " ":
            stop += 1  # which belongs to the command
        self._thing(self._text[begin:stop], "" if silent else name)
        return stop

    def _note(self, before: str, places: list[ProsePlace]) -> None:
        """Read a note of one paragraph; a note of several stays as it is."""
        if len(places) == 1:
            place = places[0]
            start = place.begin
            head = self._text[self._text.rfind(before, 0, start) + len(before) : start]
            self._groups[-1].found.append(self._signs.note(before + head, place.prose, "}"))
        else:
            start = self._text.find(before, self._begin)
            stop = _closing(self._text, start + len(before) - 1)
            self._thing(self._text[start : stop + 1])


def _spans(match: re.Match[str] | None, *names: str) -> list[Span]:
    """The spans of those groups that are in a match."""
    return [match.span(name) for name in names if match[name] is not None] if match else []


def _stripped(prose: Prose) -> Prose:
    """A paragraph without the blanks at both ends."""
    line = prose.line
    inlines = [*line.before, *line.inside, *line.behind]
    if inlines and isinstance(inlines[0], Words):
        inlines[0] = Words(inlines[0].text.lstrip(" "))
    if inlines and isinstance(inlines[-1], Words):
        inlines[-1] = Words(inlines[-1].text.rstrip(" "))
    return prose_of(inlines, prose.signs, SYNTAX)


def _laid_out(text: str, source: str, lines: str, indent: str) -> str:
    """A paragraph formatted for the place of `source`, with lines as long as in `lines`."""
    return filled(_with_ties(text, source), lines, indent)


def _with_ties(text: str, source: str) -> str:
    """The text with the source's `~` and `\\,` beside numbers, references and names, because models
    write all blanks as one."""
    for tied in _TIED.finditer(_FORMULAS.sub("$", source)):
        if tied["left"]:
            blank = re.compile(rf"(?<![\w.])(?<!\d,)(?:{_same(tied['left'])})(?P<blank> )(?=\S)")
        else:
            blank = re.compile(rf"(?<=\S)(?P<blank> )(?:{_same(tied['right'])})(?![\w{{]|[.,]\d)")
        if found := blank.search(text):
            begin, end = found.span("blank")
            text = text[:begin] + (tied["behind"] or tied["before"]) + text[end:]
    return text


def _same(word: str) -> str:
    """Pattern of a word, or of a number with the decimal and thousands separators of either
    language."""
    return re.sub(r"\\\.|,", "[.,]", re.escape(word)) if word[0].isdecimal() else re.escape(word)


def _closing(text: str, begin: int) -> int:
    """Position of the brace that closes the first opening one, or the end of the text."""
    depth = 0
    for match in _brackets(text, begin):
        depth += 1 if match[0] == "{" else -1
        if depth == 0:
            return match.start()
    return len(text)


def _brackets(text: str, begin: int) -> Iterator[re.Match[str]]:
    return (m for m in re.compile(r"\\.|[{}]", re.DOTALL).finditer(text, begin) if len(m[0]) == 1)


def _letter(source: str) -> str:
    letter = source[2:].strip("{}\\")
    return unicodedata.normalize("NFC", letter + _ACCENTS[source[1]])


def _escaped(text: str) -> str:
    text = re.sub(r"([&%#_${}])", r"\\\1", text.replace("\\", r"\textbackslash{}"))
    text = text.replace(r"\textbackslash\{\}", r"\textbackslash{}")
    for sign, written in {
        "~": r"\~{}",
        "\u00a0": "~",
        "\u202f": r"\,",
        "“": "``",
        "”": "''",
        "^": r"\^{}",
    }.items():
        text = text.replace(sign, written)
    return text


def _between(left: ProsePiece, right: ProsePiece) -> str:
    """Braces after a command whose name a following letter would continue."""
    ends = left.is_markup and re.search(r"\\[A-Za-z]+\Z", left.text)
    return "{}" if ends and right.text[:1].isalpha() else ""


SYNTAX = Syntax(_escaped, _between)
