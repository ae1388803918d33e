"""Noise for training: texts that look as if typed in a hurry, or as if not meant for this model.

These are functions of texts; the generator that is passed in decides everything that is drawn.
Words with digits, placeholders, addresses and similar parts stay as they are, because the other
side has them too.
"""

from __future__ import annotations

import random
import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np

from training.recipe.sections import NoiseConfig

Pair = tuple[str, str]

_TOKEN = re.compile(r"\S+")
# Letters, with quotes, brackets, hyphens, apostrophes and marks around and between them.
_QUOTES = "\"'\u2018\u2019\u201a\u201c\u201d\u201e\u00ab\u00bb"
_LETTERS = r"[^\W\d_]+"
_PLAIN = re.compile(
    rf"[(\u00bf\u00a1{_QUOTES}]*{_LETTERS}(?:[-'\u2010\u2019]{_LETTERS})*[).,;:!?\u2026{_QUOTES}]*"
)
_LEAST_LETTERS = 4
"""A word in which a typing slip may fall: shorter ones would become other words."""
_WORD = re.compile(rf"[^\W\d_]{{{_LEAST_LETTERS},}}")
_ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
_NEIGHBOURS = {
    letter: row[max(i - 1, 0) : i] + row[i + 1 : i + 2]
    for row in _ROWS
    for i, letter in enumerate(row)
}
_END = re.compile(r"(?<=[^\s.!?…])[.!?…]$")
_SPELT_OUT = str.maketrans(
    {"ä": "ae", "ö": "oe", "ü": "ue", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue", "ß": "ss", "ẞ": "SS"}
)
_ACCENTED = re.compile("[\u00c0-\u024f\u1e00-\u1eff]")
"""Accented letters of the Latin script. In other scripts marks make different letters, as in й, or
syllables, as in Hangul."""
_SHARP_S = str.maketrans({"ß": "ss", "ẞ": "SS"})
_NUMBER = re.compile(r"(?<![\w.,:/+-])\d{2,}(?![\w:/-]|[.,]\d)")
"""A whole number that stands alone and has two digits or more: after 1 words are in the
singular."""
_NAME = re.compile(r"(?<![\w@#/.-])[^\W\d_]{2,}(?![\w@/-]|[.'’]\w)")
_FIRST_SYLLABLE = re.compile(r"[^aeiouyäöüáéíóú]*[aeiouyäöüáéíóú]+", re.IGNORECASE)
_MADE_UP, _IN_FULL = 0.5, 0.25
_MOST_DIGITS = 12
_UNITS = (
    ("mm", "cm", "m", "km"),
    ("mg", "g", "kg", "t"),
    ("ml", "l"),
    ("m²", "km²"),
    ("ms", "s", "min", "h"),
    ("Hz", "kHz", "MHz", "GHz"),
    ("kB", "KB", "MB", "GB", "TB"),
    ("kbit/s", "Mbit/s", "Gbit/s"),
    ("m/s", "km/h"),
    ("W", "kW", "MW"),
    ("kWh", "mAh"),
    ("mV", "V"),
    ("mA", "A"),
    ("px", "pt", "em"),
    ("°C", "°F"),
    ("dB",),
    ("%",),
    ("€",),
)
"""Groups of units of the same kind, which may replace each other."""
_ALIKE = {unit: units for units in _UNITS for unit in units}
_QUANTITY = re.compile(
    r"(?<![\w.,:/+-])\d+(?:[.,]\d+)?([ \u00a0\u202f]?)"
    rf"({'|'.join(map(re.escape, sorted(_ALIKE, key=len, reverse=True)))})(?![\w/])"
)
_EMOJIS = tuple(
    "😀😂😉😊😍😎🤔😢😭😡👍👎👏🙏💪👋🎉🔥✨⭐🚀❤💙✅❌⚠☀☕🍕🎂🏠🚗⚽🎵📷📅📌💡🔒🌍🐱🐶🌸🍀💰😅🙄🥳"
)
_PICTURES = "".join(
    character
    for first, last in (
        (0x2600, 0x27BF),
        (0x1F300, 0x1F64F),
        (0x1F680, 0x1F6FF),
        (0x1F900, 0x1F9FF),
    )
    for character in map(chr, range(first, last + 1))
    if unicodedata.category(character) == "So"
)
"""Symbols of the blocks that emojis are taken from, so that a model learns to copy rare ones
too."""
_AS_PICTURE = "\ufe0f"  # phones write it after emojis that used to be letters of a font
_SCRIPTS = tuple(
    ("".join(filter(str.isalpha, map(chr, range(ord(first), ord(last) + 1)))), most)
    for first, last, most in (
        ("\u0391", "\u03c9", 9),  # Greek
        ("\u0410", "\u044f", 9),  # Cyrillic
        ("\u05d0", "\u05ea", 6),  # Hebrew
        ("\u0627", "\u064a", 6),  # Arabic
        ("\u0905", "\u0939", 6),  # Devanagari
        ("\u0e01", "\u0e2e", 6),  # Thai
        ("\u3041", "\u3096", 5),  # Hiragana
        ("\u30a1", "\u30fa", 5),  # Katakana
        ("\u4e00", "\u9fff", 4),  # Han
        ("\uac00", "\ud7a3", 4),  # Hangul
    )
)
"""Letters of each script, and the largest number of them in a word."""
_BREAK = re.compile(
    r"(?<=\w)(?:[:;] | [\u2013\u2014-] |[!?\u2026] )|(?<=[^\W\d_]{4})\. (?=[^\W\d_])"
)
"""A break between parts of a text that are translated separately; after a short word a full stop
may belong to an abbreviation."""
_MOST_WORDS = 6
_PAIRED = re.compile('[()\\[\\]{}<>"\u2018\u201a\u201c\u201d\u201e\u00ab\u00bb]')
_WORDS = ("name", "user", "count", "file", "title", "value", "item", "host", "page", "id")
_PLACEHOLDERS = (
    "{%s}", "{{%s}}", "${%s}", "%%{%s}", "%%(%s)s", "#{%s}", "<%%= %s %%>", "$%s", "@%s", "[[%s]]",
)  # fmt: skip
_POSITIONS = ("{%d}", "%%%d$s", "%%%d", "$%d")
_ADDRESSES = (
    "https://%s.org/%s",
    "www.%s.com/%s.html",
    "%s@%s.net",
    "/%s/%s",
    "%s_%s",
    "%s-%s.txt",
)


def add_noise(
    pairs: Sequence[Pair], noise: NoiseConfig, generator: np.random.Generator
) -> dict[int, Pair]:
    """The pairs that change, by their place; each kind of noise falls on its share of all pairs.

    Kinds that fall on the same pair are applied one after the other. Of copies only the end mark
    may still go.
    """
    names = names_of(pairs) if noise.names else []
    changes: dict[str, Callable[[Pair, random.Random], Pair]] = {
        "names": lambda pair, draw: put_name(pair, names, draw),  # first: others may fall on them
        "numbers": change_number,
        "placeholders": put_placeholder,
        "units": change_unit,
        "phrases": cut_phrase,
        "emojis": put_emoji,
        "scripts": put_foreign_word,
        "punctuation": lambda pair, _: drop_end_mark(pair),
        "accents": lambda pair, draw: (
            drop_accents(pair[0], spelt_out=draw.random() < 0.5),
            pair[1],
        ),
        "title": lambda pair, _: (title(pair[0]), pair[1]),
        "lower": lambda pair, _: (lower(pair[0]), pair[1]),
        "typos": lambda pair, draw: (mistype(pair[0], draw), pair[1]),
        "copy": lambda pair, _: (pair[1], pair[1]),
    }
    draw = random.Random(int(generator.integers(2**62)))
    changed: dict[int, Pair] = {}
    for kind, change in changes.items():
        share = getattr(noise, kind)
        if share:
            for place in np.flatnonzero(generator.random(len(pairs)) < share).tolist():
                changed[place] = change(changed.get(place, pairs[place]), draw)
    return {place: pair for place, pair in changed.items() if pair != pairs[place]}


def change_number(pair: Pair, draw: random.Random) -> Pair:
    """Replace a number that occurs once on both sides by a random one of 2 to 12 digits."""
    first = str(draw.randrange(1, 10))
    digits = "".join(str(draw.randrange(10)) for _ in range(draw.randrange(1, _MOST_DIGITS)))
    return _replace_shared(pair, _NUMBER, first + digits, draw)


def change_unit(pair: Pair, draw: random.Random) -> Pair:
    """Replace the only quantity of both sides by a random whole number and a unit of the same kind.
    Each side keeps its space between number and unit."""
    sides = [list(_QUANTITY.finditer(text)) for text in pair]
    if any(len(found) != 1 for found in sides):
        return pair
    (source,), (target,) = sides
    if source[2] != target[2]:
        return pair
    number = draw.randrange(2, 10 ** draw.randrange(1, 5) + 2)
    unit = draw.choice(_ALIKE[source[2]])
    texts = [
        f"{text[: found.start()]}{number}{found[1]}{unit}{text[found.end() :]}"
        for text, found in zip(pair, (source, target), strict=True)
    ]
    return texts[0], texts[1]


def cut_phrase(pair: Pair, draw: random.Random) -> Pair:
    """Cut both sides to the same part of one to six words. Parts end at colons, semicolons, dashes
    and sentence ends; both sides must have the same of these."""
    breaks = [[match[0] for match in _BREAK.finditer(text)] for text in pair]
    if not breaks[0] or breaks[0] != breaks[1]:
        return pair
    parts = zip(*(_BREAK.split(text) for text in pair), strict=True)
    short = [both for both in parts if all(map(_is_phrase, both))]
    return draw.choice(short) if short else pair


def _is_phrase(text: str) -> bool:
    words = text.split()
    whole = not _PAIRED.search(text)  # one of two brackets or quotes may be in another part
    return whole and len(words) <= _MOST_WORDS and any(map(_PLAIN.fullmatch, words))


def put_emoji(pair: Pair, draw: random.Random) -> Pair:
    """Add the same one or two emojis to both sides, before or after the text; half of the emojis
    are rare ones."""
    emojis = "".join(_emoji(draw) for _ in range(draw.choice((1, 1, 1, 2))))
    if draw.random() < 0.2:
        return f"{emojis} {pair[0]}", f"{emojis} {pair[1]}"
    return f"{pair[0]} {emojis}", f"{pair[1]} {emojis}"


def _emoji(draw: random.Random) -> str:
    picture = draw.choice(_EMOJIS if draw.random() < 0.5 else _PICTURES)
    has_both_forms = picture < "\U0001f000"
    return picture + (_AS_PICTURE if has_both_forms and draw.random() < 0.5 else "")


def put_foreign_word(pair: Pair, draw: random.Random) -> Pair:
    """Replace a name that occurs once on both sides by random letters of another script."""
    letters, most = draw.choice(_SCRIPTS)
    word = "".join(draw.choices(letters, k=draw.randrange(1, most + 1)))
    return _replace_shared(pair, _NAME, word, draw)


def names_of(pairs: Sequence[Pair]) -> list[str]:
    """Words whose first letter alone is a capital and that occur once on both sides of a pair, in
    alphabetical order: mostly names of people and places."""
    return sorted({name for pair in pairs for name in _shared_names(pair)})


def _shared_names(pair: Pair) -> list[str]:
    return [word for word in _shared(pair, _NAME) if word.istitle()]


def put_name(pair: Pair, names: Sequence[str], draw: random.Random) -> Pair:
    """Replace a name that occurs once on both sides by another: one of `names`, a made-up name that
    begins like one of them and ends like another, or a first and a last name.

    No model has seen a made-up name, so it can only be copied.
    """
    found = _shared_names(pair)
    if not names or not found:
        return pair
    kind = draw.random()
    new = draw.choice(names)
    if kind < _MADE_UP:
        new = _blend(new, draw.choice(names))
    if kind > 1 - _IN_FULL:
        new = f"{new} {_blend(draw.choice(names), draw.choice(names))}"
    return _replace(pair, _NAME, draw.choice(found), new)


def _blend(first: str, second: str) -> str:
    """Join the first name up to the end of its first vowels with the second name from the end of
    its first vowels. Returns the first name if one of them is too short."""
    begin, end = _FIRST_SYLLABLE.match(first), _FIRST_SYLLABLE.match(second)
    if begin is None or end is None or end.end() == len(second):
        return first
    return begin[0] + second[end.end() :]


def put_placeholder(pair: Pair, draw: random.Random) -> Pair:
    """Replace a name or number that occurs once on both sides by a placeholder, an address or a
    file name."""
    words = draw.choice(_WORDS), draw.choice(_WORDS)
    kind = draw.random()
    if kind < 0.5:
        new = draw.choice(_PLACEHOLDERS) % words[0]
    elif kind < 0.75:
        new = draw.choice(_POSITIONS) % draw.randrange(10)
    else:
        new = draw.choice(_ADDRESSES) % words
    return _replace_shared(pair, draw.choice((_NAME, _NUMBER)), new, draw)


def _replace_shared(pair: Pair, pattern: re.Pattern[str], new: str, draw: random.Random) -> Pair:
    """Replace a part that the pattern finds exactly once on each side by `new`; without such a part
    the pair stays as it is."""
    shared = _shared(pair, pattern)
    return _replace(pair, pattern, draw.choice(shared), new) if shared else pair


def _replace(pair: Pair, pattern: re.Pattern[str], old: str, new: str) -> Pair:
    def replace(match: re.Match[str]) -> str:
        return new if match[0] == old else match[0]

    return pattern.sub(replace, pair[0]), pattern.sub(replace, pair[1])


def _shared(pair: Pair, pattern: re.Pattern[str]) -> list[str]:
    """The matches of the pattern that occur exactly once on each side."""
    source, target = ([match[0] for match in pattern.finditer(text)] for text in pair)
    return [found for found in source if source.count(found) == target.count(found) == 1]


def choose_joins(
    origins: Sequence[int], share: float, generator: np.random.Generator
) -> list[list[int]]:
    """Choose places of pairs to join into one line: groups of two or three of one origin, about
    `share` of all pairs.

    No place is in two groups.
    """
    by_origin: dict[int, list[int]] = defaultdict(list)
    chosen = np.flatnonzero(generator.random(len(origins)) < share)
    for place in generator.permutation(chosen).tolist():
        by_origin[origins[place]].append(place)
    groups = []
    for places in by_origin.values():
        while len(places) > 1:
            size = int(generator.integers(2, 4))
            groups.append(places[-size:])
            del places[-size:]
    return groups


def lower(text: str) -> str:
    """Plain words in small letters."""
    return _TOKEN.sub(lambda token: _if_plain(token[0], str.lower), text)


def title(text: str) -> str:
    """Plain words with a capital letter."""
    return _TOKEN.sub(lambda token: _if_plain(token[0], _capitalise), text)


def drop_accents(text: str, *, spelt_out: bool) -> str:
    """Remove accents from plain words; with `spelt_out`, German umlauts become ae, oe, ue."""
    table = _SPELT_OUT if spelt_out else _SHARP_S
    return _TOKEN.sub(lambda token: _if_plain(token[0], lambda word: _bare(word, table)), text)


def mistype(text: str, draw: random.Random) -> str:
    """Put one typing error into a plain word; a text without a word of at least four letters stays
    as it is."""
    words = [
        (token.start() + word.start(), word[0])
        for token in _TOKEN.finditer(text)
        if _PLAIN.fullmatch(token[0])
        for word in _WORD.finditer(token[0])
    ]
    if not words:
        return text
    start, word = draw.choice(words)
    return text[:start] + _slip(word, draw) + text[start + len(word) :]


def drop_end_mark(pair: Pair) -> Pair:
    """Remove the end mark from both sides if both have the same one; a row of several marks
    stays."""
    ends = [_END.search(text) for text in pair]
    if ends[0] and ends[1] and ends[0][0] == ends[1][0]:
        return pair[0][:-1], pair[1][:-1]
    return pair


def _if_plain(token: str, change: Callable[[str], str]) -> str:
    return change(token) if _PLAIN.fullmatch(token) else token


def _capitalise(token: str) -> str:
    first = next((i for i, character in enumerate(token) if character.isalpha()), None)
    if first is None:  # ², ½ and Ⅷ are parts of words too
        return token
    capital = token[first].upper()  # of ß it would be two letters
    return token[:first] + (capital if len(capital) == 1 else token[first]) + token[first + 1 :]


def _bare(word: str, table: dict[int, str]) -> str:
    composed = unicodedata.normalize("NFC", word.translate(table))
    return _ACCENTED.sub(lambda letter: unicodedata.normalize("NFD", letter[0])[0], composed)


def _slip(word: str, draw: random.Random) -> str:
    """The word with a typing error in one letter after the first: swapped with the next, left out,
    doubled, or replaced by a neighbour on the keyboard."""
    place = draw.randrange(1, len(word))
    before, letter, after = word[:place], word[place], word[place + 1 :]
    kind = draw.choice(("swap", "drop", "double", "neighbour"))
    if kind == "swap" and after:
        return before + after[0] + letter + after[1:]
    if kind == "neighbour" and letter in _NEIGHBOURS:
        return before + draw.choice(_NEIGHBOURS[letter]) + after
    return before + (letter * 2 if kind == "double" else "") + after
