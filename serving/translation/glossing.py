"""Puts the terms of a glossary into a translation.

The model translates freely. Then the words that its attention links to a term's source are replaced
by the term. Constrained beams would put rare terms anywhere (docs/how-to/store.md).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from serving.checking.letters import fold
from serving.text.alignment import Link, Span
from serving.text.edits import Edit, edited, edited_links
from serving.text.glossary import Match, TermWord, is_acronym, tokens
from serving.translation.results import TextHypothesis, Translation

_MISSING = "constraints"
"""Warning for a translation that lacks a required term."""
_INDEFINITE = re.compile(r"\b([Aa])n? $")
_ELIDED = re.compile(r"(?:[cdjlmnst]|qu)['’](?=\w)", re.IGNORECASE)
_ELISION = re.compile(
    r"(?<!\w)(?P<before>(?:de|à) (?=l['’]))?(?P<word>[ld]['’]|(?:le|la|de|du|au) )\Z", re.IGNORECASE
)
_CONTRACTED = {"de": "du ", "à": "au "}
_FEMININE = re.compile(
    r"(?:[st]ion|té|[ae]nce|ure|ie|ée|ette|esse|ude|[ei]lle|euse|ère|ine|ise)s?\Z"
)
"""Ends of French nouns most of which are feminine."""
_SIGNS_BEFORE, _SIGNS_AFTER = re.compile(r"[^\w\s.]+"), re.compile(r"[^\w\s.]+\Z")
_PLURAL = re.compile(r"[^\W\d_](?<![siu])s\Z")
"""Pattern of the ends of English plurals."""
_SMALL_WORDS = {
    "de": "der die das den dem des ein eine einen einem einer eines von zu",
    "en": "the a an of to have has had is are was were be been",
    "es": "el la los las un una unos unas de",
    "fr": "le la les un une des du de",
    "it": "il lo la i gli le un uno una di",
    "nl": "de het een van",
    "pt": "o a os as um uma uns umas de",
}
"""Words around a noun that are often linked to the source's noun; they are not replaced."""
_PREPOSITIONS = {
    "de": "in im am an auf aus bei beim mit nach um zum zur für und oder als wie",
    "en": "at by for from in into on with and or as",
    "es": "del al a en con por para y o",
    "fr": "à au aux en dans avec pour par et ou",
}
"""More of them, which a glossary's term may have within, and a dictionary's word has not."""


def with_terms(
    translation: Translation, text: str, terms: Sequence[Match], target: str
) -> Translation:
    """The translation of `text` into the language `target` with the given terms.

    Needs hypotheses with word links. A term that occurs in some inflected form stays in that form.
    If the term does not occur and the links do not show its place, there is a warning.
    """
    if not terms or not translation.hypotheses:
        return translation
    put = [put_terms(hypothesis, text, terms, target) for hypothesis in translation.hypotheses]
    hypotheses = tuple(hypothesis for hypothesis, _ in put)
    warnings = translation.warnings
    if any(missing for _, missing in put):
        warnings = tuple(dict.fromkeys((*warnings, _MISSING)))
    return replace(translation, text=hypotheses[0].text, hypotheses=hypotheses, warnings=warnings)


def put_terms(
    hypothesis: TextHypothesis, text: str, terms: Sequence[Match], target: str
) -> tuple[TextHypothesis, int]:
    """A hypothesis with its terms, at least one, and the number of missing ones."""
    first, links = terms[0], hypothesis.alignment or ()
    looked_up = bool(first.others)  # in a dictionary; all terms are, or none
    alone = _between_signs(text) == first.span
    # The text is just a term of a glossary, which is given as it is written there.
    if not looked_up and text.strip() == first.source == text[slice(*first.span)]:
        whole = [Edit((0, len(hypothesis.text)), first.target)]
        return replace(hypothesis, text=first.target, alignment=edited_links(links, whole)), 0
    words, taken = tokens(hypothesis.text, target), _Taken()
    lacking = [term for term in terms if not taken.claim(places_of(term, words, target))]
    large = [
        link
        for link in links
        if is_large(hypothesis.text[slice(*link.target)], target, noun=looked_up)
    ]
    edits, partly = [], 0
    for term in lacking:
        if not looked_up:
            span = _linked(term.span, large) or _linked(term.span, links)
        elif alone:
            span = _between_signs(hypothesis.text)
        else:
            span = _place_of_word(term, large, target)
        if span is not None and looked_up:
            replaced = hypothesis.text[slice(*span)]
            if not alone and _is_part(replaced, term, target):
                partly += 1
                continue
            term = _in_number(term, replaced, target)
        if span is not None and _language(target) == "fr":
            span = _behind_elision(span, hypothesis.text, term)
        if span is not None:
            span = _with_signs(span, hypothesis.text, text[slice(*term.span)])
        if span is None or not taken.claim([span]):
            continue
        edits.append(_edit(hypothesis.text, span, text, term))
    edits.sort(key=lambda edit: edit.span)
    fitted = {"en": _with_article, "fr": _with_elision}.get(_language(target))
    if fitted is not None:
        edits = [fitted(hypothesis.text, edit) for edit in edits]
    changed = replace(
        hypothesis, text=edited(hypothesis.text, edits), alignment=edited_links(links, edits)
    )
    return changed, len(lacking) - len(edits) - partly


class _Taken:
    """Spans of a translation that belong to terms."""

    def __init__(self) -> None:
        self._spans: list[Span] = []

    def claim(self, places: Iterable[Span]) -> bool:
        """Take the first free span; returns False if none is free."""
        for place in places:
            if all(place[1] <= begin or end <= place[0] for begin, end in self._spans):
                self._spans.append(place)
                return True
        return False


def places_of(term: Match, words: Sequence[TermWord], language: str) -> list[Span]:
    """Spans of a term's translations among words, in any inflected form."""
    found = []
    for written in dict.fromkeys((term.target, *term.others)):
        wanted = [token.stem for token in tokens(written, language)]
        count = len(wanted)
        found += [
            (words[start].span[0], words[start + count - 1].span[1])
            for start in range(len(words) - count + 1)
            if [word.stem for word in words[start : start + count]] == wanted
            and (not is_acronym(written) or all(w.text.isupper() for w in words[start:][:count]))
        ]
    return found


def _between_signs(text: str) -> Span | None:
    """The span of a text without the signs around it; None if it has no words."""
    places = [place for place, letter in enumerate(text) if letter.isalnum()]
    return (places[0], places[-1] + 1) if places else None


def _place_of_word(term: Match, large: Sequence[Link], language: str) -> Span | None:
    """The words of a translation that stand for a dictionary's word; None if they are not known.
    They are no more than its longest translation has, so that nothing else is lost."""
    span = _linked(term.span, large)
    if span is None:
        return None
    count = sum(span[0] <= link.target[0] < span[1] for link in large)
    most = max(len(tokens(other, language)) for other in term.others)
    return span if count <= most else None


def _is_part(words: str, term: Match, language: str) -> bool:
    """Whether words are some of a translation, or a compound that ends with one: `capital` of
    `capital city`, `Kundenzufriedenheit` for `Zufriedenheit`."""
    given = {token.stem for token in tokens(words, language)}
    return any(
        given <= {each.stem for each in tokens(whole, language)}
        or words.casefold().endswith(whole.casefold())
        for whole in term.others
    )


def _in_number(term: Match, replaced: str, language: str) -> Match:
    """The term in the number of the words that it replaces, if the text does not say it."""
    many = _language(language) == "en" and _PLURAL.search(replaced)
    return replace(term, target=term.plural) if many and term.plural else term


def is_large(word: str, language: str, *, noun: bool) -> bool:
    """Whether a word is neither a function word nor a sign; for a `noun` alone, prepositions are
    function words, too."""
    small = _small_words(_language(language), noun)
    return word.lower() not in small and any(map(str.isalnum, word))


@functools.cache
def _small_words(language: str, noun: bool) -> frozenset[str]:
    more = _PREPOSITIONS.get(language, "") if noun else ""
    return frozenset(f"{_SMALL_WORDS.get(language, '')} {more}".split())


def _language(code: str) -> str:
    return code.partition("-")[0].lower()


def _linked(source: Span, links: Sequence[Link]) -> Span | None:
    """The adjacent words that translate a span of the source; if there are several groups, the one
    with the most attention; None if there is none."""
    best, best_weight = None, 0.0
    begin, weight = -1, 0.0
    for link in sorted(links, key=lambda link: link.target):
        if not (link.source[0] < source[1] and source[0] < link.source[1]):
            begin, weight = -1, 0.0
            continue
        begin = link.target[0] if begin < 0 else begin
        weight += link.probability
        if weight > best_weight:
            best, best_weight = (begin, link.target[1]), weight
    return best


def _with_signs(span: Span, output: str, form: str) -> Span:
    """A span of the output with the signs next to it that begin or end the term in the source, as
    in `C++`. A full stop is left to the sentence."""
    before, after = _SIGNS_BEFORE.match(form), _SIGNS_AFTER.search(form)
    begin, end = span
    if before and output[:begin].endswith(before[0]):
        begin -= len(before[0])
    if after and output[end:].startswith(after[0]):
        end += len(after[0])
    return begin, end


def _edit(output: str, span: Span, text: str, term: Match) -> Edit:
    """Replace a span of the output by the term: in capitals if its source is, and with a capital
    first if it begins the sentence in place of another word. The full stop of an abbreviation also
    ends the sentence, and a word with a capital inside (`iPhone`) stays as it is."""
    form, target = text[slice(*term.span)], term.target
    if target.endswith(".") and re.match(r"\.(?!\.)", output[span[1] :]):
        target = target[:-1]
    if form.isupper() and len(form) > 1 and not term.source.isupper():
        return Edit(span, target.upper())
    first = output[span[0]]
    inside = any(map(str.isupper, target.partition(" ")[0][1:]))
    if first.isupper() and not inside and not any(map(str.isalnum, output[: span[0]])):
        target = target[:1].upper() + target[1:]
    return Edit(span, target)


def _with_article(output: str, edit: Edit) -> Edit:
    """The edit with a changed indefinite article, if needed: English has `an` before vowels. Before
    u and h both are possible, and the article stays."""
    article, letter = _INDEFINITE.search(output[: edit.span[0]]), edit.text[:1].lower()
    if article is None or letter in "uh" or not letter.isalpha():
        return edit
    right = article[1] + ("n " if letter in "aeio" else " ")
    return Edit((article.start(), edit.span[1]), right + edit.text)


def _behind_elision(span: Span, output: str, term: Match) -> Span:
    """A span of French words without what is elided before the first, which stays: `l'eau`; unless
    the term begins with a short word of its own."""
    found = _ELIDED.match(output, *span)
    own = _ELIDED.match(term.target) or not is_large(term.target.split()[0], "fr", noun=True)
    return span if found is None or own else (found.end(), span[1])


def _with_elision(output: str, edit: Edit) -> Edit:
    """The edit with the short or the whole form of the French words before it: `l'` and `d'` stand
    before vowels, and `du` and `au` for `de le` and `à le`. Before h both are possible, and what is
    there stays. Whether `l'` becomes `le` or `la` is said by the end of the noun, as far as it says
    it."""
    short, letter = _ELISION.search(output[: edit.span[0]]), fold(edit.text[:1])
    if short is None or letter == "h" or not letter.isalpha():
        return edit
    before, word = short["before"] or "", short["word"]
    if letter in "aeiouœ":
        whole = {"du": "de l'", "au": "à l'"}.get(word.strip().lower(), f"{word[0]}'")
        changed = word if word[-1] in "'’" else _like(word, whole)
    elif word[-1] not in "'’":
        return edit
    elif word[0] in "dD":
        changed = f"{word[0]}e "
    elif _FEMININE.search(edit.text.split(" ")[0]):
        changed = f"{word[0]}a "
    else:
        changed = _like(before, _CONTRACTED[before.strip().lower()]) if before else f"{word[0]}e "
        before = ""
    return Edit((short.start(), edit.span[1]), before + changed + edit.text)


def _like(word: str, other: str) -> str:
    """Another word with a capital, if the first has one."""
    return other[:1].upper() + other[1:] if word[:1].isupper() else other
