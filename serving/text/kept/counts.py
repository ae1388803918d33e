"""Placeholders that models read as a number, because they would take a word after a name for a part
of it: those that count that word, by their type or name, and those before the subject of a
sentence."""

from __future__ import annotations

import re

from serving.text.alignment import Span

_PRINTF = re.compile(r"%(?:\(\w+\)|\d+\$)?[-+,']*\d*(?:hh|h|ll|l|z|j|t|q)?[diu]")
_NAMED = re.compile(
    r"[^\w|]*(?:[A-Za-z_]\w*\.)*(?P<name>[A-Za-z_]\w*)\s*(?:\|[^{}]*)?\W*(?<![})\s][%€$])"
)
_PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_COUNTS = frozenset(
    """
    count counter num number total amount quantity qty nb length anzahl zahl nombre cantidad
    seconds minutes hours days weeks months years
    """.split()  # noqa: SIM905
)
_COUNTED = re.compile(
    r"(?:</[^<>]*>|[*_]+)*[ \u00a0\u202f]+"
    r"(?:(?P<part>(?:of|out|from|von|aus|sur|de|du|des|del)\b)|[^\W\d_])"
)
"""Pattern of a word after a number of things. The group `part` is a word such as `of`, before which
the number names a part, as in `page 3 of 4`."""
_WORD = re.compile(r"[^\W\d_]")
_AROUND = re.compile(r"</?[A-Za-z][^<>]*>|\*+")
_LONGEST = 60
"""Largest number of characters of a variable."""
_FUNCTION = (
    r"(?!(?:and|or|but|also|who|which|that|this|it|there|he|she|they|you|we|now|then|here|just|only"
    r"|still|not|never|always|already|to|of|for|from|in|on|at|by|with|as|if|when|is|are|was|were|has"
    r"|have|had|will|can|must|should|does|do|did|a|an|the)\b)"
)
_SUBJECT = re.compile(
    rf"[ \u00a0](?:{_FUNCTION}[a-z]+[ ]){{1,2}}(?:is|are|was|were|has|have|had|will|would|can"
    r"|cannot|could|must|should|may|does|do|did)(?:n['\u2019]t)?\b(?![-'\u2019])"
)
"""Pattern of the text after a placeholder that begins the subject of an English sentence."""
_VARIABLE = re.compile(r"[{%$#@\[<\\:](?!.*://)")


def reads_as_number(source: str, span: Span) -> bool:
    """Whether models read a number for a placeholder of the source: it `counts`, or a subject
    begins with it, as in `{name} item was found`."""
    return counts(source, span) or _begins_subject(source, span)


def _begins_subject(source: str, span: Span) -> bool:
    begin, end = span
    if not _SUBJECT.match(source, end) or end - begin > _LONGEST:
        return False
    before = source[max(0, begin - 3) : begin].rstrip(" \u00a0\"'(\u201c")
    starts = not before or before[-1] in ".!?:;\n>"
    return starts and _VARIABLE.match(source[begin:end]) is not None


def counts(source: str, span: Span) -> bool:
    """Whether a placeholder of the source is a whole number before the things it counts: `%d
    files`, `{{count}} items`. These are `%d`, `%lld`, `n`, and names that begin or end with a word
    such as `count`. `{0}` and `%s` may stand for anything."""
    behind = _COUNTED.match(source, span[1])
    if behind is None or (behind["part"] and _WORD.search(source, 0, span[0])):
        return False
    placeholder = _AROUND.sub("", source[slice(*span)])
    if len(placeholder) > _LONGEST:
        return False
    if _PRINTF.fullmatch(placeholder):
        return True
    named = _NAMED.fullmatch(placeholder)
    if named is None or named["name"] == placeholder:
        return False
    parts = [part.lower() for part in _PARTS.findall(named["name"])]
    return parts == ["n"] or bool(parts and {parts[0], parts[-1]} & _COUNTS)
