"""Symbols between words that end a sentence: arrows between the steps of a path through menus, and
pictures after which a new sentence begins."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from serving.text.alignment import Span
from serving.text.splitting.abbreviations import begins_sentence

_ARROW = re.compile(r"=?>|[→⇒➔➜▸▶]")
_GREETINGS = {
    "de": frozenset("bis viel viele vielen liebe guten gute schönen schöne hab habt".split()),  # noqa: SIM905
    "en": frozenset("see have thank thanks let can are is do did good happy talk".split()),  # noqa: SIM905
    "es": frozenset("nos hasta muchas mucho feliz te les buenas buenos gracias".split()),  # noqa: SIM905
    "fr": frozenset("merci bonne bon à bonjour joyeux bisous".split()),  # noqa: SIM905
}
"""More words with which sentences after pictures begin."""
_BEFORE_ARROW = re.compile(r"[^\W\d_]{2}[\"'”“’»)\]]*(\s+-?)$")
"""A word and white space, with the rest of `->`, which is no symbol."""
_PICTURE = re.compile(r"[\u2600-\u27bf\U0001f300-\U0001faff]")
_WORD = re.compile(r"[^\W\d_]{2,}")
_NEXT = re.compile(r"[\s\"'„“”«»()\[\]]*([^\W\d_]+)?")
_END = re.compile(r"[.!?…](?=\s|$)|[\t\n\v\f\r|;:]")
"""End of what follows a symbol."""
_STEP_WORDS = 4
"""Largest number of words of a step, such as the name of a menu; what is longer goes on as a
sentence."""


def endings(text: str, symbols: Iterable[tuple[int, str]], language: str) -> Iterator[Span]:
    """The symbols of a text that end a sentence, as spans without words around their places.
    `symbols` are places between characters, in order, with what stands there."""
    symbols = list(symbols)
    places = [place for place, _ in symbols]
    for number, (place, symbol) in enumerate(symbols):
        before = text[places[number - 1] if number else 0 : place]
        after = text[place : places[number + 1] if number + 1 < len(places) else len(text)]
        if _ARROW.fullmatch(symbol):
            word = _BEFORE_ARROW.search(before)
            if word and _is_step(after):
                yield place - len(word[1]), place
        elif _PICTURE.match(symbol) and _begins(before, after, language):
            yield place, place


def _is_step(after: str) -> bool:
    """Whether the name of a step stands after an arrow."""
    end = _END.search(after)
    step = after[: end.start()] if end else after
    found = _NEXT.match(step)
    return (
        found is not None
        and bool(found[1])
        and found[1][0].isupper()
        and len(found[1]) > 1
        and len(step.split()) <= _STEP_WORDS
    )


def _begins(before: str, after: str, language: str) -> bool:
    """Whether a sentence begins after a picture: with a mark that only begins sentences, or in
    capitals with a word that often does."""
    if not before[-1:].isspace() or not _WORD.search(before):
        return False
    if after.lstrip()[:1] in ("¿", "¡"):
        return True
    found = _NEXT.match(after)
    word = found[1] if found and found[1] else ""
    often = begins_sentence(word, language) or word.lower() in _GREETINGS.get(language, ())
    return word[:1].isupper() and often
