"""German forms for all genders, which models copy or break, and the forms read instead."""

from __future__ import annotations

import re
from collections.abc import Iterator

from serving.text.edits import Edit

_BEFORE, _AFTER = r"(?<![\w/.:@*\\-])", r"(?![*:/_.]?\w)"
"""Around a word that is no part of an address, a path or a number with its unit."""
_NOUN = re.compile(
    rf"{_BEFORE}[A-ZÄÖÜ][\w-]+[a-zäöüß](?P<sign>[*:/]-?|_(?=innen)|(?P<opening>\())"
    rf"in(?:nen[a-zäöüß]*)?(?P<closing>(?(opening)\))){_AFTER}"
)
"""`Kund*innen`, `Lehrer:in`, `Schüler/-innen`, `Autor_innen` and `Verkäufer(in)`; `Log_in` is a
name."""
_ENDING = re.compile(
    rf"{_BEFORE}(?:[A-ZÄÖÜ]?[a-zäöüß]+e(?P<own>[*:/]-?[rn])"
    r"|(?i:[kmds]?ein|ihr|unser|euer)(?P<added>[*:/]-?)e"
    rf"|(?i:[kmds]?einer|ihrer|jeder|dieser|welcher)(?P<case>[*:/]-?[mn])){_AFTER}"
)
"""`jede*r`, `eine/n`, `ein:e` and `einer*m`."""
_TWO = re.compile(rf"{_BEFORE}(?P<one>[^\W\d_]+)(?P<sign>[*:/])(?P<other>[^\W\d_]+){_AFTER}")
_ARTICLES = (("der", "die"), ("den", "die"), ("dem", "der"), ("des", "der"))
_ENDINGS = (("", "e"), ("en", "e"), ("em", "er"), ("es", "er"))
_INDEFINITE = ("ein", "kein", "mein", "dein", "sein")
_FEMININE = {frozenset(both): both[1] for both in _ARTICLES} | {
    frozenset((stem + masculine, stem + feminine)): stem + feminine
    for stem in _INDEFINITE
    for masculine, feminine in _ENDINGS
}
"""By both articles: `der*die`, `einem/einer`."""
_EITHER = {
    frozenset(both)
    for both in (
        *(("er", "sie"), ("ihm", "ihr"), ("ihn", "sie"), ("sein", "ihr")),
        *((f"seine{ending}", f"ihre{ending}") for ending in ("", "r", "n", "m", "s")),
    )
}
"""`er/sie`: each is said."""
_PAIR = re.compile(
    r"(?<![\w-])(?:(?P<before>(?P<stem>(?!Kolleg)[A-ZÄÖÜ][a-zäöüß]{2,}?)innen (?:und|oder|sowie) )"
    r"(?=(?P=stem)(?:e?n)?(?![\w-]))"
    r"|(?P<other>(?!Kolleg)[A-ZÄÖÜ][a-zäöüß]{2,}?)(?:e?n)?"
    r"(?P<behind> (?:und|oder|sowie) (?P=other)innen)(?![\w-]))"
)
"""`Bürgerinnen und Bürger`, which English has one word for; `Kolleginnen und Kollegen` is a form of
address (`ladies and gentlemen`)."""


def gender_edits(sentence: str, target: str) -> Iterator[Edit]:
    """Edits that make the feminine form of German words with a sign for all genders, which is
    always a word, as it is not without its ending; of two forms that English does not tell apart,
    the masculine one stays."""
    for noun in _NOUN.finditer(sentence):
        yield Edit(noun.span("sign"), "")
        if noun["closing"]:
            yield Edit(noun.span("closing"), "")
    for word in _ENDING.finditer(sentence):
        yield Edit(word.span(word.lastgroup or 0), "")
    for two in _TWO.finditer(sentence):
        both = frozenset((two["one"].lower(), two["other"].lower()))
        if both in _EITHER:
            yield Edit(two.span("sign"), " oder ")
        elif feminine := _FEMININE.get(both):
            yield Edit(two.span(), feminine.capitalize() if two[0][0].isupper() else feminine)
    if target == "en":
        for pair in _PAIR.finditer(sentence):
            yield Edit(pair.span("before" if pair["before"] else "behind"), "")
