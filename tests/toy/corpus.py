"""A generated parallel corpus: a small German with its one right English, or a copying task.

Word order, case endings and umlauts make the grammar a task for an encoder-decoder; its size makes
it one that a tiny model learns in a minute. Equal arguments give equal text on every machine.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Literal

Task = Literal["grammar", "copy", "reverse"]
Pair = tuple[str, str]

# German, gender, English
NOUNS = [
    ("Hund", "m", "dog"),
    ("Katze", "f", "cat"),
    ("Kind", "n", "child"),
    ("Mann", "m", "man"),
    ("Frau", "f", "woman"),
    ("Lehrer", "m", "teacher"),
    ("Bäckerin", "f", "baker"),
    ("Vogel", "m", "bird"),
    ("Pferd", "n", "horse"),
    ("Buch", "n", "book"),
    ("Apfel", "m", "apple"),
    ("Haus", "n", "house"),
    ("Blume", "f", "flower"),
    ("Brief", "m", "letter"),
    ("Auto", "n", "car"),
    ("Tür", "f", "door"),
    ("König", "m", "king"),
    ("Schlüssel", "m", "key"),
    ("Garten", "m", "garden"),
    ("Stadt", "f", "town"),
]
ADJECTIVES = [
    ("alt", "old"),
    ("jung", "young"),
    ("klein", "small"),
    ("groß", "big"),
    ("schön", "beautiful"),
    ("rot", "red"),
    ("neu", "new"),
    ("leis", "quiet"),
]
# finite, infinitive, English finite, English infinitive
VERBS = [
    ("sieht", "sehen", "sees", "see"),
    ("sucht", "suchen", "looks for", "look for"),
    ("kauft", "kaufen", "buys", "buy"),
    ("trägt", "tragen", "carries", "carry"),
    ("liebt", "lieben", "loves", "love"),
    ("findet", "finden", "finds", "find"),
    ("malt", "malen", "paints", "paint"),
    ("hört", "hören", "hears", "hear"),
    ("vergisst", "vergessen", "forgets", "forget"),
    ("verkauft", "verkaufen", "sells", "sell"),
]
ADVERBS = [("heute", "today"), ("hier", "here"), ("im Sommer", "in summer"), ("nun", "now")]
MODALS = [("kann", "can"), ("muss", "must"), ("will", "wants to"), ("darf", "may")]

# (article, ending of the adjective) by definiteness, case and gender
ARTICLES = {
    ("the", "nominative"): {"m": ("der", "e"), "f": ("die", "e"), "n": ("das", "e")},
    ("the", "accusative"): {"m": ("den", "en"), "f": ("die", "e"), "n": ("das", "e")},
    ("a", "nominative"): {"m": ("ein", "er"), "f": ("eine", "e"), "n": ("ein", "es")},
    ("a", "accusative"): {"m": ("einen", "en"), "f": ("eine", "e"), "n": ("ein", "es")},
}


def write_toy_corpus(
    folder: Path, pairs: int, seed: int, task: Task = "grammar", longest: int = 8
) -> tuple[Path, Path]:
    """Write `pairs` distinct aligned lines to folder/toy.de and folder/toy.en; returns both."""
    folder.mkdir(parents=True, exist_ok=True)
    files = folder / "toy.de", folder / "toy.en"
    lines = toy_pairs(pairs, seed, task, longest)
    for side, file in enumerate(files):
        file.write_text("".join(f"{pair[side]}\n" for pair in lines), encoding="utf-8")
    return files


def toy_pairs(count: int, seed: int, task: Task = "grammar", longest: int = 8) -> list[Pair]:
    """`count` distinct pairs; those that are copied or reversed have 3 to `longest` words."""
    generator = random.Random(seed)
    found: dict[Pair, None] = {}
    while len(found) < count:
        pair = _sentence(generator) if task == "grammar" else _words(generator, task, longest)
        found[pair] = None
    return list(found)


def _words(generator: random.Random, task: Task, longest: int) -> Pair:
    words = [generator.choice(NOUNS)[2] for _ in range(generator.randint(3, longest))]
    return " ".join(words), " ".join(words if task == "copy" else reversed(words))


def _sentence(generator: random.Random) -> Pair:
    finite, infinitive, english_finite, english_infinitive = generator.choice(VERBS)
    subject, english_subject = _noun_phrase(generator, "nominative")
    object_, english_object = _noun_phrase(generator, "accusative")
    form = generator.choice(("plain", "fronted", "negated", "modal", "question"))
    if form == "plain":
        german = f"{subject} {finite} {object_}."
        english = f"{english_subject} {english_finite} {english_object}."
    elif form == "fronted":
        adverb, english_adverb = generator.choice(ADVERBS)
        german = f"{adverb} {finite} {subject} {object_}."
        english = f"{english_adverb} {english_subject} {english_finite} {english_object}."
    elif form == "negated":
        german = f"{subject} {finite} {object_} nicht."
        english = f"{english_subject} does not {english_infinitive} {english_object}."
    elif form == "modal":
        modal, english_modal = generator.choice(MODALS)
        german = f"{subject} {modal} {object_} {infinitive}."
        english = f"{english_subject} {english_modal} {english_infinitive} {english_object}."
    else:
        german = f"{finite} {subject} {object_}?"
        english = f"does {english_subject} {english_infinitive} {english_object}?"
    return german[0].upper() + german[1:], english[0].upper() + english[1:]


def _noun_phrase(generator: random.Random, case: str) -> Pair:
    noun, gender, english = generator.choice(NOUNS)
    definiteness = generator.choice(("the", "a"))
    article, ending = ARTICLES[definiteness, case][gender]
    words, english_words = [article, noun], [english]
    if generator.random() < 0.5:
        adjective, english_adjective = generator.choice(ADJECTIVES)
        words.insert(1, adjective + ending)
        english_words.insert(0, english_adjective)
    vowel = definiteness == "a" and english_words[0][0] in "aeiou"
    english_words.insert(0, "an" if vowel else definiteness)
    return " ".join(words), " ".join(english_words)
