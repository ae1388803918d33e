"""German forms for all genders, which models copy or break, and the forms read instead."""

from __future__ import annotations

import re
from collections.abc import Iterator

from serving.text.edits import Edit

_SIGN = r"(?:[*:/]-?|_|\()"
_NOUN = re.compile(
    rf"(?<![\w/.:@*\\-])[A-ZÄÖÜ][\w-]+[a-zäöüß](?P<sign>{_SIGN}in)(?P<more>nen[a-zäöüß]*)?"
    r"(?P<closing>(?<=in)\)|(?<=innen)\))?(?![*:/_.]?\w)"
)
"""`Kund*innen`, `Lehrer:in`, `Schüler/-innen`, `Autor_innen` and `Verkäufer(in)`."""
_ENDING = re.compile(
    r"(?<![\w/.:@*\\-])(?:[A-ZÄÖÜ]?[a-zäöüß]+e(?P<own>[*:/]-?[rn])"
    r"|(?i:[kmds]?ein|ihr|unser|euer)(?P<added>[*:/]-?)e"
    r"|(?i:[kmds]?einer|ihrer|jeder|dieser|welcher)(?P<case>[*:/]-?[mn]))(?![*:/_.]?\w)"
)
"""`jede*r`, `eine/n`, `ein:e` and `einer*m`."""
_ARTICLE = re.compile(
    r"(?<![\w/.:@*\\-])(?P<capital>D|d)(?:er[*:/]die|ie[*:/]der|en[*:/]die|ie[*:/]den"
    r"|em[*:/]der|er[*:/]dem|es[*:/]der|er[*:/]des)(?![*:/_.]?\w)"
)
_BOTH = re.compile(
    r"(?<![\w/.:@*\\-])(?P<one>[KkMmDdSs]?[Ee]in)(?:e[ms][*:/](?i:(?P=one))er|(?:en)?[*:/](?i:(?P=one))e"
    r"|er[*:/](?i:(?P=one))e[ms]|e[*:/](?i:(?P=one))(?:en)?)(?![*:/_.]?\w)"
)
"""`einem*einer` and `eine/einen`."""
_OR = re.compile(
    r"(?<![\w/])(?i:er(?P<a>/)sie|sie(?P<b>/)er|ihm(?P<c>/)ihr|ihr(?P<d>/)ihm|ihn(?P<e>/)sie"
    r"|sie(?P<f>/)ihn|sein(?:e[rnms]?)?(?P<g>/)ihr(?:e[rnms]?)?|ihr(?:e[rnms]?)?(?P<h>/)sein(?:e[rnms]?)?)"
    r"(?![\w/])"
)
"""`er/sie`."""
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
        sign, closing = noun["sign"], noun["closing"]
        if (sign[0] == "(") is not bool(closing) or (sign[0] == "_" and not noun["more"]):
            continue  # `Log_in` is a name
        begin = noun.start("sign")
        yield Edit((begin, begin + len(sign) - 2), "")
        if closing:
            yield Edit(noun.span("closing"), "")
    for word in _ENDING.finditer(sentence):
        yield Edit(word.span(word.lastgroup or 0), "")
    for article in _ARTICLE.finditer(sentence):
        one = article[0][1:]
        yield Edit(
            (article.start() + 1, article.end()), "er" if "em" in one or "es" in one else "ie"
        )
    for both in _BOTH.finditer(sentence):
        case = "er" if both[0].endswith(("er", "em", "es")) else "e"
        yield Edit((both.end("one"), both.end()), case)
    for choice in _OR.finditer(sentence):
        yield Edit(choice.span(choice.lastgroup or 0), " oder ")
    if target == "en":
        for pair in _PAIR.finditer(sentence):
            yield Edit(pair.span("before" if pair["before"] else "behind"), "")
