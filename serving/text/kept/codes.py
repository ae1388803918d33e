"""Patterns of codes: of games, chats, mail merges, LaTeX and dates. Also finds the ends of LaTeX
commands around words."""

from __future__ import annotations

import re
from collections.abc import Iterator

from serving.text.alignment import Span

_MERGED = r"(?:IF|IFNOT|ELSE|ELSEIF|END|INTERESTED|MC)"
SIGNS = rf"""
    \\(?:[cCiI]|[fF][sS]|[pP][xXyY])\[\d{{1,4}}\]                       # colours of games
    | \u00a7(?:[a-fk-orA-FK-OR](?!\w\.)|[0-9](?=[^\W\d]))
    | (?<![\w&])(?:&[0-9a-fk-or])+(?=[^\W\da-z_])
    | \|c[0-9a-fA-F]{{8}} | \|[rRnN](?![^\W_])
    | (?<!\S)[:;]['\u2019]?-?[()DPp|](?!\w)                             # faces
    | <a?:\w{{1,50}}:\d{{1,25}}>                                        # pictures of chats
    | \*\|{_MERGED}(?::[^|\n]{{0,80}})?\|\*
    | \{{\{{~?[\#/]\s*(?:each|with|let|section)\b[^{{}}\n]{{0,200}}\}}\}}
    | \{{/?(?:foreach|section|literal|strip|block|capture|while|for)\b[^{{}}\n]{{0,200}}\}}
    | \\(?:label|vspace|hspace|begin|end)\*?\{{[^{{}}\n]{{0,80}}\}}(?:\[[^\]\n]{{0,40}}\])?
    | \\(?:item|noindent|newline|newpage|clearpage|maketitle|centering|hline|par|\\)(?![A-Za-z])
"""
"""Pattern of codes that stand between words."""
_DATE = r"%[-\#_]?[aAbBcdDeFgGHIjklmMnpPrRSTuUVwWxXyYzZ]"
WORDS = rf"""
    \\[A-Za-z]{{1,3}}\[\d{{1,4}}\]                                          # names of games
    | (?<![\w.,])(?:\d[\d.,]*[\ \u00a0\u202f]?)?[\u00b5\u03bc][A-Za-z]{{0,3}}(?!\w)  # 5 µm
    | (?<![\w/])/?[ru]/[A-Za-z]\w{{1,30}}(?![\w/])                        # r/name
    | (?<![\w:])(?:[A-Za-z_]\w*(?:::~?\w+)+(?:\(\))?(?![\w:])|[a-z_]\w*::(?![\w:]))   # a::b
    | \*\|[A-Z][^|\n]{{0,80}}\|\*                                         # of mail merges
    | <(?:[\#@][^<>\s]{{1,80}}(?:\ [^<>\n]{{0,40}})?|![a-z][^<>\n]{{0,60}}
      |t:\d{{1,12}}(?::[a-zA-Z])?|/[^<>:\n]{{1,60}}:\d{{1,25}}|https?://[^<>\s|]{{1,300}}\|[^<>\n]{{1,100}})>
    | \\[A-Za-z]*(?:cite|ref|url|graphics|input|footnotemark)[A-Za-z]*\*?
      (?:\[[^\]\n]{{0,80}}\]){{0,2}}\{{[^{{}}\n]{{0,200}}\}}
    | \\(?:LaTeX|TeX|ldots|dots|today|copyright)(?![A-Za-z])(?:\{{\}})?
    | \$\$[^$\n]{{1,300}}\$\$ | \\\((?=[^\n]{{0,99}}[\\^_=<>+])[^\n]{{1,300}}?\\\)  # formulas
    | \\\[(?=[^\n\\]{{0,99}}(?:[\^_=<>+]|\\[A-Za-z]))[^\n]{{1,300}}?\\\]
    | (?<![\w$\\])\$(?=[^\s$])(?=[^$\n]{{0,100}}[\\^_=<>+*/{{}}]|[A-Za-z]\$)
      (?!\d[\d.,]*\s|\{{)[^$\n]{{1,100}}(?<![\s\\])\$(?![\w$])
    | (?<![\w%]){_DATE}(?:(?:[-/.:]|[.,]?\ (?=%[-\#_]?[aAbBHIMmpyY])){_DATE})+(?!\w)
"""
"""Pattern of codes that are read as a word."""
_COMMAND = re.compile(
    r"""\\(?:text[a-z]{2,5}|emph|underline|uline|enquote|title|author|(?:sub)*section|chapter|part
    |(?:sub)?paragraph|caption|footnote|mbox|textcolor\{\w+\}|href\{[^{}\s]*\}|item)\*?
    (?:\[[^\]\n]{0,80}\])?\{""",
    re.VERBOSE,
)
_BRACE = re.compile(rf"(?P<command>{_COMMAND.pattern})|(?<!\\)[{{}}]", re.VERBOSE)


def commands(text: str) -> Iterator[tuple[Span, str, bool]]:
    """The start and end of each LaTeX command around words, in order: its span, a name that both
    ends share, and whether it is the start."""
    if not _COMMAND.search(text):
        return
    opened: list[re.Match[str]] = []
    for sign in _BRACE.finditer(text):
        if sign[0] != "}":
            opened.append(sign)
        elif opened and (begin := opened.pop())["command"]:
            name = f"{{{begin.start()}"
            yield begin.span(), name, True
            yield sign.span(), name, False
