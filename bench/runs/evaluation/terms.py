"""Measures how often the terms of a glossary are used where they belong, and how this affects the
rest of a translation.

Sentences and translations come from templates. The glossary gives each noun the translation of
another noun, which no model would choose by itself.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import sacrebleu

from serving.text.glossary import Match, TermIndex, matched_terms, tokens
from serving.text.terms import Terms
from serving.translation.translator import NO_WISHES, ModelTranslator, Wishes

# German gender, singular and plural, English singular and plural.
_NOUNS = """
f Pumpe Pumpen pump pumps|n Ventil Ventile valve valves|m Motor Motoren engine engines
f Schraube Schrauben screw screws|m Vertrag Verträge contract contracts|n Haus Häuser house houses
m Zug Züge train trains|f Brücke Brücken bridge bridges|m Garten Gärten garden gardens
f Maschine Maschinen machine machines|n Schiff Schiffe ship ships|m Tisch Tische table tables
f Lampe Lampen lamp lamps|n Fenster Fenster window windows|f Tür Türen door doors
m Schlüssel Schlüssel key keys|n Buch Bücher book books|f Karte Karten map maps
m Brief Briefe letter letters|n Bild Bilder picture pictures|f Uhr Uhren clock clocks
m Stuhl Stühle chair chairs|n Auto Autos car cars|f Straße Straßen road roads
m Turm Türme tower towers|n Dach Dächer roof roofs|f Kirche Kirchen church churches
m Baum Bäume tree trees|n Feld Felder field fields|f Wiese Wiesen meadow meadows
m Hund Hunde dog dogs|n Pferd Pferde horse horses|f Katze Katzen cat cats
m Hammer Hämmer hammer hammers|n Messer Messer knife knives|f Flasche Flaschen bottle bottles
m Koffer Koffer suitcase suitcases|n Seil Seile rope ropes|f Kiste Kisten box boxes
m Bericht Berichte report reports|n Gesetz Gesetze law laws|f Rechnung Rechnungen invoice invoices
m Computer Computer computer computers|n Telefon Telefone telephone telephones
f Kamera Kameras camera cameras|m Drucker Drucker printer printers|n Gerät Geräte device devices
f Batterie Batterien battery batteries|m Schalter Schalter switch switches
n Rad Räder wheel wheels|f Kette Ketten chain chains|m Bus Busse bus buses
n Boot Boote boat boats|f Insel Inseln island islands|m Berg Berge mountain mountains
n Tal Täler valley valleys|f Quelle Quellen spring springs|m Fluss Flüsse river rivers
n Dorf Dörfer village villages|f Stadt Städte city cities|m Markt Märkte market markets
n Museum Museen museum museums|f Schule Schulen school schools|m Bahnhof Bahnhöfe station stations
n Krankenhaus Krankenhäuser hospital hospitals|f Fabrik Fabriken factory factories
m Laden Läden shop shops|n Büro Büros office offices|f Küche Küchen kitchen kitchens
m Keller Keller basement basements|n Zimmer Zimmer room rooms|f Mauer Mauern wall walls
m Zaun Zäune fence fences|n Tor Tore gate gates|f Leiter Leitern ladder ladders
m Kran Kräne crane cranes|n Rohr Rohre pipe pipes|f Leitung Leitungen cable cables
m Tank Tanks tank tanks|n Regal Regale shelf shelves|f Tasche Taschen bag bags
m Mantel Mäntel coat coats|n Hemd Hemden shirt shirts|f Jacke Jacken jacket jackets
m Ring Ringe ring rings|n Glas Gläser glass glasses|f Tasse Tassen cup cups
m Teller Teller plate plates|n Bett Betten bed beds|f Decke Decken blanket blankets
m Ofen Öfen oven ovens|n Licht Lichter light lights|f Zeitung Zeitungen newspaper newspapers
m Film Filme film films|n Lied Lieder song songs|f Geschichte Geschichten story stories
f Feder Federn feather feathers
m Preis Preise price prices|n Spiel Spiele game games|f Reise Reisen journey journeys
"""
_BEFORE = (("", ""), ("Test", "test "), ("Reserve", "reserve "))
"""Put before a noun, so that 100 nouns make 300 terms."""
# Slots: `1n` the first noun with its article in the nominative, `1a`, `1d` in the accusative and
# the dative, `1p` and `1q` in the plural, without an article and in the dative.
_TEMPLATES = (
    ("{1n} ist sehr alt.", "{1n} is very old."),
    ("{1n} steht neben {2d}.", "{1n} stands next to {2d}."),
    ("Wir haben {1a} gestern gekauft.", "We bought {1a} yesterday."),
    ("Niemand wusste, dass {1n} so teuer war.", "Nobody knew that {1n} was so expensive."),
    ("Ich habe ein Foto von {1d} gemacht.", "I took a photo of {1d}."),
    ("Drei {1p} sind verschwunden.", "Three {1p} have disappeared."),
    ("Der Mann hat {1a} und {2a} verkauft.", "The man sold {1a} and {2a}."),
    ("Warum ist {1n} nicht hier?", "Why is {1n} not here?"),
    ("Sie spricht oft von {1d}.", "She often talks about {1d}."),
    ("Kannst du mir {1a} zeigen?", "Can you show me {1a}?"),
    ("Morgen werden wir {1a} reparieren.", "Tomorrow we will repair {1a}."),
    ("Viele {1p} und wenige {2p} waren zu sehen.", "Many {1p} and few {2p} could be seen."),
    ("Das Foto zeigt {1a} hinter {2d}.", "The photo shows {1a} behind {2d}."),
    ("Ohne {1a} können wir nicht arbeiten.", "We cannot work without {1a}."),
    ("Die Kinder spielen mit {1d}.", "The children are playing with {1d}."),
    ("{1n} gehört meinem Bruder.", "{1n} belongs to my brother."),
    ("In dieser Gegend gibt es keine {1p}.", "There are no {1p} in this area."),
    ("Er hat vor {1d} auf uns gewartet.", "He waited for us in front of {1d}."),
    ("Zuerst prüfte sie {1a}, dann {2a}.", "First she checked {1a}, then {2a}."),
    ("Alle {1p} wurden vor {2d} gefunden.", "All {1p} were found in front of {2d}."),
)
_ARTICLES = {
    "n": {"m": "der", "f": "die", "n": "das"},
    "a": {"m": "den", "f": "die", "n": "das"},
    "d": {"m": "dem", "f": "der", "n": "dem"},
}
_SLOT = re.compile(r"\{([12])([nadp])\}")


@dataclass(frozen=True)
class Noun:
    """A noun in both languages."""

    gender: str
    german: tuple[str, str]
    english: tuple[str, str]
    """Singular and plural."""

    def form(self, language: str, number: int) -> str:
        """The singular (0) or plural (1) form."""
        return (self.german if language == "de" else self.english)[number]

    def phrase(self, language: str, case: str) -> str:
        """The noun in the form that a slot of a template needs."""
        if case == "p":
            return self.form(language, 1)
        article = _ARTICLES[case][self.gender] if language == "de" else "the"
        return f"{article} {self.form(language, 0)}"


@dataclass(frozen=True)
class TermSentence:
    """A sentence with terms, and its translation with the glossary's terms."""

    source: str
    reference: str
    plain: str
    """The translation without a glossary."""
    terms: tuple[str, ...]
    """The glossary's translations, in the form of the reference."""


@dataclass(frozen=True)
class TermsResult:
    """The results of one way to insert terms, on all sentences."""

    name: str
    landed: float
    """Share of terms that are in the translation, in any form."""
    placed: float
    """Share of terms that share a neighbour with the reference: the word before, ignoring articles,
    or the word after."""
    inflected: float
    """Share of terms in the form of the reference."""
    chrf: float
    bleu: float
    """Against references with the glossary's terms; without a glossary, against the plain
    references."""
    seconds: float
    outputs: list[str]


def glossary_and_sentences(
    languages: tuple[str, str], count: int, seed: int
) -> tuple[list[tuple[str, str]], list[TermSentence]]:
    """300 terms with translations that no model gives, and sentences with one or two of these
    terms."""
    source, target = languages
    draw = random.Random(seed)
    nouns = _nouns()
    others = nouns[len(nouns) // 2 :] + nouns[: len(nouns) // 2]
    entries = [(a.form(source, 0), b.form(target, 0)) for a, b in zip(nouns, others, strict=True)]
    pairs = list(zip(nouns, others, strict=True))
    sentences = []
    for number in range(count):
        template = dict(zip(("de", "en"), _TEMPLATES[number % len(_TEMPLATES)], strict=True))
        chosen = draw.sample(pairs, 2)
        slots = [(int(n) - 1, case) for n, case in _SLOT.findall(template[target])]
        sentences.append(
            TermSentence(
                source=_filled(template[source], source, [noun for noun, _ in chosen]),
                reference=_filled(template[target], target, [other for _, other in chosen]),
                plain=_filled(template[target], target, [noun for noun, _ in chosen]),
                terms=tuple(chosen[n][1].form(target, case == "p") for n, case in slots),
            )
        )
    return entries, sentences


def measure_terms(
    translator: ModelTranslator,
    languages: tuple[str, str],
    count: int,
    seed: int,
    progress: Callable[[str], None],
) -> list[TermsResult]:
    """Translate the sentences without a glossary, with a constrained search, with placeholders, and
    with terms that are placed by the attention."""
    entries, sentences = glossary_and_sentences(languages, count, seed)
    index = TermIndex(entries, *languages)
    ways: dict[str, Callable[[str, Sequence[Match]], str]] = {
        "none": lambda text, _: _text(translator, languages, text),
        "required terms": lambda text, found: _text(
            translator,
            languages,
            text,
            Wishes(terms=Terms(glossary=tuple((text[slice(*m.span)], m.target) for m in found))),
        ),
        "marks": lambda text, found: _with_marks(translator, languages, text, found),
        "by attention": lambda text, _: _text(
            translator, languages, text, Wishes(glossary=[index])
        ),
    }
    results = []
    for name, way in ways.items():
        progress(f"{'-'.join(languages)}: {name}")
        began = time.process_time()
        outputs = [way(s.source, matched_terms([index], s.source)) for s in sentences]
        results.append(_result(name, languages[1], sentences, outputs, time.process_time() - began))
    return results


def terms_markdown(languages: str, results: Sequence[TermsResult]) -> str:
    """A table with a row per way to insert terms."""
    lines = [
        f"| {languages} | landed | in place | in the reference's form | chrF | BLEU | CPU s |",
        "|---|---|---|---|---|---|---|",
    ]
    rows = (
        f"| {r.name} | {100 * r.landed:.1f} % | {100 * r.placed:.1f} % "
        f"| {100 * r.inflected:.1f} % | {r.chrf:.1f} | {r.bleu:.1f} | {r.seconds:.1f} |"
        for r in results
    )
    return "\n".join([*lines, *rows])


def _nouns() -> list[Noun]:
    found = []
    for line in re.split(r"[\n|]", _NOUNS.strip()):
        gender, one, many, single, several = line.split()
        for german, english in _BEFORE:
            before = [german + (word.lower() if german else word) for word in (one, many)]
            after = [english + word for word in (single, several)]
            found.append(Noun(gender, (before[0], before[1]), (after[0], after[1])))
    return found


def _filled(template: str, language: str, nouns: Sequence[Noun]) -> str:
    text = _SLOT.sub(lambda slot: nouns[int(slot[1]) - 1].phrase(language, slot[2]), template)
    return text[0].upper() + text[1:]


def _text(
    translator: ModelTranslator, languages: tuple[str, str], text: str, wishes: Wishes = NO_WISHES
) -> str:
    source, target = languages
    (found,) = translator.translate([text], source=source, target=target, wishes=wishes)
    return found.text


def _with_marks(
    translator: ModelTranslator, languages: tuple[str, str], text: str, found: Sequence[Match]
) -> str:
    """A text whose terms are replaced by placeholders, which the model does not read but keeps."""
    parts, done = [], 0
    for number, match in enumerate(found):
        parts += [text[done : match.span[0]], f"{{{number}}}"]
        done = match.span[1]
    output = _text(translator, languages, "".join([*parts, text[done:]]))
    for number, match in enumerate(found):
        output = output.replace(f"{{{number}}}", match.target)
    return output


def _result(
    name: str, target: str, sentences: Sequence[TermSentence], outputs: list[str], seconds: float
) -> TermsResult:
    marks = [
        _landed(term, output, sentence.reference, target)
        for sentence, output in zip(sentences, outputs, strict=True)
        for term in sentence.terms
    ]
    references = [[s.plain if name == "none" else s.reference for s in sentences]]
    return TermsResult(
        name=name,
        landed=sum(mark[0] for mark in marks) / len(marks),
        placed=sum(mark[1] for mark in marks) / len(marks),
        inflected=sum(mark[2] for mark in marks) / len(marks),
        chrf=sacrebleu.corpus_chrf(outputs, references).score,
        bleu=sacrebleu.corpus_bleu(outputs, references).score,
        seconds=seconds,
        outputs=outputs,
    )


def _landed(term: str, output: str, reference: str, language: str) -> tuple[bool, bool, bool]:
    """Whether a term is in the text, shares a neighbour with the reference, and has its form."""
    here, there = _around(term, output, language), _around(term, reference, language)
    if here is None:
        return False, False, False
    form = re.search(rf"(?<!\w){re.escape(term)}(?!\w)", output, re.IGNORECASE) is not None
    placed = there is not None and any(a == b for a, b in zip(here, there, strict=True))
    return True, placed, form


def _around(term: str, text: str, language: str) -> tuple[str, str] | None:
    """The stems before and after a term, ignoring articles; None if the term is missing."""
    articles = {"the", "a", "an", "der", "die", "das", "den", "dem", "des", "ein", "eine", "einen"}
    wanted = [token.stem for token in tokens(term, language)]
    words = [t.stem for t in tokens(text, language) if t.text.lower() not in articles]
    for start in range(len(words) - len(wanted) + 1):
        end = start + len(wanted)
        if words[start:end] == wanted:
            return ["^", *words][start], [*words, "$"][end]
    return None
