"""Finds text that must stay unchanged in a translation: variables, links, symbols."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from serving.text.alignment import Span
from serving.text.kept import clock, weekdays
from serving.text.kept.codes import SIGNS, WORDS, commands
from serving.text.kept.figures import ADDRESS, FIGURE, HINT, IDENTIFIER, is_numbering
from serving.text.kept.messages import CONDITION, MESSAGE, message_branches
from serving.text.kept.pairs import UNIT, Mark, pairs
from serving.text.symbols import SCRIPTS, SPECIAL, SYMBOLS

TagKind = Literal["open", "close", "thing"]

_BROKEN = 8
"""Number of incomplete messages after which the search stops, because each costs a scan of the
rest."""
LONGEST_WORD = 100
"""Length from which a word is a key or an encoded file, rather than a word of a language."""
_PRINTF = (
    r"%(?:\(\w+\)|<\w+>|\d+\$)?[-+\#0']*(?:\d+|\*)?(?:\.(?:\d+|\*))?"
    r"(?:(?:hh|h|ll|l|z|j|t|q)?[sSdiufFxXeEgGcCpoaAn@]|[tT][A-Za-z])(?!\w)"
)
_PRINTF_BESIDE_WORDS = rf"""
    (?<=[^\W\d_])%(?:\d+\$|\(\w+\))?[sSd@](?!\w) | (?<=[^\W\d_])%\d{{1,2}}(?![\w%$]|\.\d)
    | (?<!%)%(?:\d+\$|\(\w+\))[sSd@](?=[^\W_])
    | (?<![\w%])(?<!\d\s) %
    (?: [\d.]*l{{0,2}}[sdufi](?={UNIT})
      | [s@](?=(?:\d[\d.,]*+\ )?[^\W\d_]{{2}}[^%\n]{{0,200}}(?<=\S)%[s@](?!\w))
      | \d{{1,2}}(?=[^\W\d_]{{2}}[^%\n]{{0,200}}(?<=\S)%\d{{1,2}}(?!\w))
    )
"""
_LINK = r"""
    (?<![\w.+-]) (?: [A-Za-z][A-Za-z0-9+.-]{1,20}:// | (?:mailto|tel|sms|geo): | www\.)
      (?:[^\s<>"\[]|\[(?!/))+
    | (?<![\w.@/-]) (?:[A-Za-z0-9-]++\.)+[A-Za-z]{2,}+/[^\s<>"]*
"""
_DOMAIN = r"""
    (?<![\w.@/-]) (?:[^\W_][\w-]*+\.)+
    (?: ai|app|ar|at|au|berlin|bg|biz|blog|br|ca|cc|ch|cl|cloud|cn|com|cz|de|dev|dk|edu|ee|eu|fi
      | fm|fr|gg|gov|gr|hk|hr|hu|ie|il|info|int|io|jp|kr|li|lt|lu|lv|mil|mx|net|nl|nz|online|org
      | page|pl|pt|ro|rs|ru|se|shop|site|sk|store|tech|tr|tv|tw|ua|uk|wiki|wien|xyz|za
      | bat|bmp|cfg|conf|cpp|css|csv|dll|docx?|epub|exe|gif|gz|html?|ini|iso|java|jpe?g|js|json|log
      | md|mkv|mov|mp3|mp4|odt|ods|ogg|pdf|php|png|pptx?|py|rar|rs|sh|sql|svg|tar|tiff?|ts|txt|wav
      | webp|xlsx?|xml|ya?ml|zip )
    (?::\d{2,5})?+ (?![\w@]|\.[a-z])
"""
"""Hosts without a scheme, and file names. A sentence rarely begins with small letters after a full
stop; top-level domains that are common words, such as `in` or `so`, are left out."""
_BBCODE = r"""
    \[[A-Za-z][\w*-]{0,20}+(?:=[^\[\]\n]{0,300}|(?:\s+[\w-]+=(?:"[^"\[\]]*"|'[^'\[\]]*'
      |[^\s\[\]"']+))+\s*/?)?\](?!\() | \[/[A-Za-z][\w*-]{0,20}+\]
    | (?:&lt;|<)/?[A-Za-z][\w:-]{0,20}+(?:\s[^<>\n]{0,200}?)?/?(?:&gt;|>)    # a tag, escaped
"""
_BBCODE_KEPT = r"""
    \[(?i:code)\][^\[]{0,500}\[/(?i:code)\]
    | \[(?i:url|email)\][^\[\]\s]{0,300}\[/(?i:url|email)\]
    | \[(?i:img)[^\[\]\n]{0,50}\][^\[\]\n]{0,300}\[/(?i:img)\]
"""
_MARK = r"""
    \{\\[^{}\n]*\}                                                      # subtitles
    | \{%[^{}\n]{0,200}%\} | \{\#[^{}\n]{0,200}\#\} | <%(?!=)[^%]{0,200}%>   # templates
    | (?:\x1b|\\x1b|\\033|\\e|\\u001[bB])\[[0-9;?]*[A-Za-z]             # colours of a terminal
    | (?<![\w%])%%(?!\w) | (?<=\d)%%
    | (?<![\w:]):[a-z][a-z0-9_+-]*:(?![\w:])                            # :smile:
    | (?<!\[)\[(?:\d{1,3}|[*a-z])\](?![(:]|\[(?!\^|\d{1,3}\])) | \[\^[\w-]{1,50}\]:?     # [1], [^1]
    | \[[\ xX]\](?=\s) | \[![A-Z]+\] | \{[\#.][A-Za-z][^{}\n]{0,200}\}   # tasks, notes, attributes
"""
_ESCAPE = r"""
    &(?:[A-Za-z][A-Za-z0-9]{1,31}|\#[0-9]{1,7}|\#[xX][0-9a-fA-F]{1,6});
    | \\(?:u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|[ntrabfvNh0-9"'\\|])
"""
_VARIABLE = r"""
    (?<![\w.+*-])[\w.+-]++\*?@[\w-]+(?:\.[\w-]+)+                       # e-mail addresses
    | (?<![\w*./~-])(?:[\w.~*-]*/)*+[\w-]*\*(?:\.[A-Za-z]\w*+)+(?![\w*])    # *.txt, src/*.py
    | (?<![\w@.])@[\w.-]*\w@[\w-]+(?:\.[\w-]+)+                         # @name@host
    | \{\{\{\{[^{}\n]{0,200}\}\}\}\} | \{\{\{[^{}\n]{0,200}\}\}\}       # Handlebars
    | \{\{[^{}\n]{0,200}\}\}                                            # Jinja, Vue
    | (?:[$\#%@]|@:)\{[^{}\n]{0,200}\}                                  # shells, Ruby, JavaScript
    | (?<![\w`])`(?![\s`])[^`\n]{1,200}(?<!\s)`(?![\w`])                # code
    | \{\s*\d+\s*(?:,\s*-?\d+\s*)?:[^{}\n]{1,60}\}                     # {0:dd MMM yyyy}
    | \{[\w.]+(?:,-?\d+)?:[-dMyHhmsfFtzGgKaEQwuXx0-9\#.,:;/'"%$ABbjpcISY\ ]{1,60}\}
    | \{\s?[^{}\s]{0,100}\s?\} | \{\s?[A-Z]+\([^{}()\n]{0,100}\)\s?\}   # Python, ICU, Fluent
    | \{\s*[\w.-]+\s*,\s*[a-zA-Z]+\s*(?:,[^{}\n]{0,100})?\}             # {0,number}
    | <%=[^%]{0,200}%> | <\?[^?]{0,200}\?>
    | \$t\([^()\n]{0,100}\) | \$\([A-Za-z_]\w*+\) | \$[A-Za-z_]\w*+\$?
    | \[\[[^\[\]\n]{1,100}\]\] | \[%[^\[\]\n]{1,100}%\]
    | \\\([A-Za-z_][\w.\[\]?!]*+(?:\([^()\n]{0,60}\))?\)                # Swift
    | (?<![\w%])%%[A-Za-z_]\w*+%%(?![\w%])
    | (?<![\w%])%[A-Za-z_]\w*+% | (?<!\w)@[A-Za-z_]\w*+@(?!\w)
    | (?<!\w)(?:\#\#\w++\#\#|@@\w++@@)(?!\w)
    | \A![A-Za-z_]\w*+ | (?<![^\s(])!                                  # !name
      (?:[A-Za-z]+(?=[A-Z_\d-])[\w-]*+
      | (?:author|count|date|email|file|id|link|mail|name|node|number
        |page|path|site|size|text|time|title|type|url|user|username|value|version)(?![\w-]))
    | (?<!%)%(?:\d+\$)?\#@\w+@ | (?<![\w%])%arg(?!\w)                   # Apple's plurals
    | (?<![\w%])%L?\d{1,2}(?![\w$]|\.\d) | (?<!\w)__[A-Za-z0-9](?:\w*?[A-Za-z0-9])?__(?!\w)
    | (?<![\w@./])@:?\w(?:[\w.-]*\w)? | (?<![\w\#&/])\#\w++(?!\ufe0f?\u20e3)  # mentions, hashtags
    | (?<![\w:/)]):[A-Za-z_]\w*+(?!:)                                   # :name
    | (?<![^\s(\[„"'])\.(?:[A-Z]{2,}|[a-z][\w-]*\w)(?!\w|\.\w)              # .NET, .pdf
    | (?<!\w)[A-Za-z]:\\[^\s"<>|]* | (?<![\w/.~<])[~.]{0,2}/[\w.-]++/[\w./-]*     # paths
    | (?<!\w)[^\W_]++(?:[&@\#=]++(?!\w{2,31};)[^\W_]++)+(?!\w) | (?<!\w)[A-Z]\#(?!\w) # AT&T, C#
    | (?<!\w)[^\W_]++(?:_++(?!innen)[^\W_]++)+(?!\w)(?:\.[a-z]\w*+)*+   # snake_case, a_b.txt
"""
_FOR_ALL_GENDERS = r"""(?!
    (?<=[^\W\d_])\*(?:innen|in(?!\w)) | (?:(?<=[dhnlrtugb]e)|(?<=diese))\*[rn](?!\w)
    | (?<=[Ee]in)\*e(?:ine)?(?!\w) | (?<=[Ee]in(?:e[rnms]))\*(?:[mn]|eine[rnm]?)(?!\w)
    | (?<=[Dd](?:er|ie|en|em|es))\*d(?:ie|e[rnms])(?!\w)
)"""
"""Where no asterisk of German words stands: `Kund*innen`, `jede*r`, `ein*e`, `der*die`."""
_PATTERN = rf"""
    (?P<icu> {MESSAGE})
    | (?P<code> {_BBCODE_KEPT})
    | (?P<mark> {SIGNS})
    | (?P<coded> {WORDS})
    | (?P<tag> {_BBCODE})
    | (?P<link> {_LINK} | {ADDRESS})
    | (?P<figure> {FIGURE})
    | (?P<sign> {CONDITION} | {_MARK})
    | (?P<escape> {_ESCAPE})
    | (?P<word> {_PRINTF_BESIDE_WORDS} | (?<![A-Za-z%])(?={_PRINTF})(?:{_PRINTF}|%%)+
        | {_DOMAIN} | {_VARIABLE} | {IDENTIFIER}
        | (?<!\S)[!-~\u00a1-\u024f]{{{LONGEST_WORD},}}(?!\S)
        | (?<!\w)[A-Za-z][^\W{SCRIPTS}]*+(?:[{SCRIPTS}]++[^\W{SCRIPTS}]++)+(?!\w)   # H₂O
        | (?<![\w.])[A-Za-z]\w*+\.NET(?!\w)
        | (?<!\w)[A-Za-z]{{1,6}}[\u2080-\u2089]++(?!\w)                # CO₂
        | (?<![\w.,])\d[\d.,]*+[\ \u00a0\u202f]?[A-Za-z]{{1,2}}[\u00b2\u00b3](?!\w)   # 5 m²
      )
    | (?P<script> (?<=[^\s{SCRIPTS}])[{SCRIPTS}]++ )
    | (?P<symbol> {SYMBOLS} | {_FOR_ALL_GENDERS}[*=~^\#&<>\\`@{SCRIPTS}]++
        | (?<![^\W_])_++ | _++(?![^\W_]) )
    """
"""Pattern of everything that a text has to keep, with a named group for each kind."""
_ANY = re.compile(rf"{SPECIAL}|[:;/!|][A-Za-z_.~/:()|'’-]|[\u00b5\u03bc]|\.(?:[a-z]|[A-Z]{{2}})")
_CONDITION = re.compile(rf"{CONDITION}|{_MARK}", re.VERBOSE)
_DIGITS_TOO = re.compile(f"{_ANY.pattern.replace('[', '[0-9', 1)}|{clock.HINT}|{weekdays.HINT}")
"""`_ANY` extended by digits, few of which are figures, times in words and weekdays. One search
shows that most texts have none of them."""
_FIGURE = re.compile(HINT)
_NUMBERED_TAG = re.compile(r"<(/?)(\d{1,4})\s?(/?)>")
_TAG = re.compile(
    r"""(?<!%)<(/?)([A-Za-z][\w:.-]*+(?:=(?:"[^"<>\n]{0,80}"|[^<>"'=\s]{1,80}))?|\d{1,4})(?:\s+[\w:.-]+="[^"<>]*"|\s+[\w:.-]+='[^'<>]*')*+\s?(/?)>"""
    r"|<!--(?:(?!--).)*+-->",
    re.DOTALL,
)
_BETWEEN = re.compile(r"[-–/:.,+|=]{1,2}")
"""Separators between variables that form one word: `{day}/{month}`."""
_UNIT = re.compile(r"[ \u00a0\u202f]?[%€$](?![\w{(<%$#@-])")
"""Suffixes that belong to the variable before them."""
_UNPAIRED = re.compile(r"\[(?:/.+|[*a-z]|[^=]+=.*)\]|(?:&lt;|<).*")
"""BBCode and HTML tags that stand alone; `[word]` is text."""
_TRAILING = re.compile(r"[.,;:!?'\"»”’)\]]+$")


@functools.cache
def _pattern() -> re.Pattern[str]:
    """`_PATTERN`, compiled at the first use: that takes some 50 ms."""
    return re.compile(_PATTERN, re.VERBOSE)


@dataclass(frozen=True)
class Placeholder:
    """A part of a text that is kept unchanged."""

    span: Span
    kind: Literal["word", "figure", "symbol", "script", "open", "close"]
    """`word`: read as a word of the sentence; `figure`: read as a number; `symbol`: stands between
    or beside words; `script`: belongs to the text before it; `open`, `close`: stand around words,
    as tags do."""
    branches: tuple[Span, ...] = ()
    """Spans within it that are translated separately."""


def is_plain(text: str) -> bool:
    """Whether a text certainly has no placeholder and no invisible character."""
    if len(text) >= LONGEST_WORD:
        return False
    return not _DIGITS_TOO.search(text) or not (_ANY.search(text) or _FIGURE.search(text))


def placeholders(text: str, *, escapes: bool = True) -> Iterator[Placeholder]:
    """The placeholders of a text, in order, each with the characters that form one word with it:
    `{n}px`, `{a}/{b}` or `{n} %`. Punctuation after a link belongs to the sentence.

    If `escapes` is false, character references and backslashes are ordinary text.
    """
    if is_plain(text):  # nor is the pattern compiled before it is needed
        return
    held: Placeholder | None = None
    done = 0
    for found in _found(text, escapes=escapes):
        if held and held.kind == found.kind == "word" and _touch(text, held.span, found.span):
            found = Placeholder(
                (held.span[0], max(held.span[1], found.span[1])),
                "word",
                held.branches + found.branches,
            )
        elif held and found.span[0] < held.span[1]:
            if held.kind == "word" or found.kind != "word":
                continue  # part of a word that is already kept
            found = Placeholder((min(held.span[0], found.span[0]), found.span[1]), "word")
        elif held:
            yield held
            done = held.span[1]
        if found.span[0] < done:  # overlaps the placeholder before it
            found = dataclasses.replace(found, span=(done, found.span[1]))
        held = found
    if held:
        yield held


def _found(text: str, *, escapes: bool) -> Iterator[Placeholder]:
    marks = list(_marks(text, escapes=escapes))
    tags = pairs(text, marks)
    ends = iter([*(marks[index].span[0] for index in sorted(tags)), len(text)])
    floor, ceiling = 0, next(ends)  # single words lie between paired placeholders, never within one
    for index, mark in enumerate(marks):
        begin, end = mark.span
        if index in tags:
            floor, ceiling = end, next(ends)
            yield Placeholder(mark.span, tags[index])
        elif mark.kind == "icu":
            yield Placeholder(mark.span, "word", mark.branches)
        elif mark.kind == "tag":
            if _UNPAIRED.fullmatch(text, begin, end):
                yield Placeholder(mark.span, "symbol")
        elif mark.kind in ("link", "code", "word"):
            first, last = _whole_word(text, begin, end)
            if mark.kind == "word":
                first, last = _with_unit(text, first, last)
            yield Placeholder((max(floor, first), min(last, ceiling)), "word")
        elif mark.kind in ("figure", "script"):
            yield Placeholder(mark.span, "figure" if mark.kind == "figure" else "script")
        else:
            yield Placeholder(mark.span, "symbol")


def _marks(text: str, *, escapes: bool) -> Iterator[Mark]:
    """The matches of the pattern, each on its own."""
    search = _pattern().search
    at, broken = 0, 0
    while match := search(text, at):
        begin, end = match.span()
        at, kind = end, match.lastgroup or ""
        if kind == "icu":
            message = message_branches(text, begin) if broken < _BROKEN else None
            if message is None:
                at, broken = begin + 1, broken + 1
                if condition := _CONDITION.match(text, begin):
                    at = condition.end()
                    yield Mark(condition.span(), "sign")
                continue
            at = message[0]
            yield Mark((begin, at), kind, tuple(message[1]))
            continue
        if kind == "figure" and is_numbering(text, (begin, end)):
            continue
        if kind == "coded":
            kind = "word"
        if kind == "link":
            at = end = end - _closing_punctuation(match[0])
        if kind == "escape":
            if not escapes:
                at = begin + 1
                continue
            kind = "word" if _spells(text, begin, end) else "symbol"
        yield Mark((begin, end), kind)


def numbered_tags(text: str) -> Iterator[tuple[Span, str, TagKind]]:
    """Each `<0>`, `</0>` or `<0/>` of a plain text: its span, its number and its kind; a tag that
    stands alone is a `thing`."""
    for match in _NUMBERED_TAG.finditer(text):
        kind: TagKind = "close" if match[1] else "thing" if match[3] else "open"
        yield match.span(), match[2], kind


def likely_tags(text: str) -> Iterator[tuple[Span, str, TagKind]]:
    """`numbered_tags`, and everything else that looks like a tag or comment of HTML or XML, or like
    a LaTeX command around words. Attribute values, if any, are quoted."""
    found: list[tuple[Span, str, TagKind]] = []
    for match in _TAG.finditer(text) if "<" in text else ():
        kind: TagKind = "close" if match[1] else "open"
        if match[3] or not match[2]:
            kind = "thing"
        found.append((match.span(), (match[2] or "").partition("=")[0], kind))
    tags = len(found)
    found += [(span, name, "open" if begins else "close") for span, name, begins in commands(text)]
    yield from sorted(found) if len(found) > tags else found


def _closing_punctuation(link: str) -> int:
    """Punctuation at the end that is not part of a link; a bracket that the link opens is part of
    it."""
    match = _TRAILING.search(link)
    if match is None:
        return 0
    tail = match[0]
    if tail[0] == ")" and "(" in link:
        tail = tail[1:]
    return len(tail)


def _spells(text: str, begin: int, end: int) -> bool:
    """Whether a reference or escape is a letter of a word."""
    if text.startswith(("\\u", "\\x"), begin):
        return chr(int(text[begin + 2 : end], 16)).isalpha()
    inside = _is_word(text[begin - 1 : begin]) and _is_word(text[end : end + 1])
    return inside and text[begin] == "&"


def _touch(text: str, first: Span, second: Span) -> bool:
    """Whether two words are joined: at most signs stand between them."""
    return second[0] <= first[1] or _BETWEEN.fullmatch(text, first[1], second[0]) is not None


def _with_unit(text: str, begin: int, end: int) -> Span:
    """A variable with an adjacent currency sign or per cent sign."""
    if text[begin - 1 : begin] in ("$", "€"):
        begin -= 1
    unit = _UNIT.match(text, end)
    return begin, unit.end() if unit else end


def _whole_word(text: str, begin: int, end: int) -> Span:
    while begin and _is_word(text[begin - 1]):
        begin -= 1
    while end < len(text) and _is_word(text[end]):
        end += 1
    return begin, end


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"
