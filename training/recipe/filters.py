"""Filters that drop low-quality sentence pairs.

A recipe lists them with their options under `data.filters`. Each filter sees the pairs that the
filters before it kept, from all corpora in the recipe's order.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from training.errors import ConfigError
from training.recipe.checks import check_choice, check_range

Pair = tuple[str, str]
Check = Callable[[Pair], bool]
"""Returns whether to drop a pair."""
Languages = tuple[str, str]
"""The codes of the source and the target language."""

# The scripts of languages that do not use the Latin one.
_SCRIPTS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("ar", "fa", "ur"), ("arabic",)),
    **dict.fromkeys(("be", "bg", "mk", "ru", "uk"), ("cyrillic",)),
    **dict.fromkeys(("hi", "mr", "ne"), ("devanagari",)),
    "bn": ("bengali",),
    "el": ("greek",),
    "he": ("hebrew",),
    "hy": ("armenian",),
    "ja": ("cjk", "hiragana", "katakana"),
    "ka": ("georgian",),
    "ko": ("hangul", "cjk"),
    "sr": ("cyrillic", "latin"),
    "ta": ("tamil",),
    "th": ("thai",),
    "zh": ("cjk",),
}
# UTF-8 read as Latin-1 or Windows-1252 leaves a capital A with tilde or circumflex before a
# character of the range 0x80 to 0xBF; U+FFFD marks bytes that a decoder could not read.
_MOJIBAKE = re.compile("[\u00c3\u00c2][\u0080-\u00bf]|\u00e2\u20ac|\ufffd")
# 1.234.567 and 1,234,567: groups of three after a separator (of spaces, only those without a break)
_NUMBER = re.compile(r"\d{1,3}(?:[.,'’\u00a0\u202f]\d{3})+(?!\d)|\d+")
_NO_LETTER = re.compile(r"[\W\d_]+")


@dataclass(frozen=True, kw_only=True)
class Filter:
    """A filter. Each subclass documents its options and what it drops."""

    name: str

    def start(self, languages: Languages) -> Check:
        """A check with its own memory, for one pass over the corpora.

        Raises ConfigError if the filter does not support these languages.
        """
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class EncodingFilter(Filter):
    """Drops text that was decoded with a wrong encoding, and text with control characters."""

    name: str = "encoding"

    def start(self, languages: Languages) -> Check:
        """A check that looks at each pair separately."""
        return lambda pair: any(_is_mojibake(text) or _has_control(text) for text in pair)


@dataclass(frozen=True, kw_only=True)
class LengthFilter(Filter):
    """Drops pairs with a side of too few or too many characters."""

    name: str = "length"
    min_characters: int = 1
    max_characters: int = 1000

    def __post_init__(self) -> None:
        check_range("filter length: min_characters", self.min_characters, 1)
        check_range("filter length: max_characters", self.max_characters, self.min_characters)

    def start(self, languages: Languages) -> Check:
        """A check that looks at each pair separately."""
        return lambda pair: (
            min(map(len, pair)) < self.min_characters or max(map(len, pair)) > self.max_characters
        )


@dataclass(frozen=True, kw_only=True)
class RatioFilter(Filter):
    """Drops pairs if one side has more than `max_ratio` times the characters of the other."""

    name: str = "ratio"
    max_ratio: float = 3.0
    short: int = 20
    """Pairs are kept if neither side is longer than this: "Ja." may well be "Yes, indeed."."""

    def __post_init__(self) -> None:
        check_range("filter ratio: max_ratio", self.max_ratio, 1)
        check_range("filter ratio: short", self.short, 0)

    def start(self, languages: Languages) -> Check:
        """A check that looks at each pair separately."""

        def drops(pair: Pair) -> bool:
            shorter, longer = sorted(map(len, pair))
            return longer > self.short and longer > self.max_ratio * shorter

        return drops


@dataclass(frozen=True, kw_only=True)
class LanguageFilter(Filter):
    """Drops pairs with a side in another language, as detected by py3langid.

    The detector is unreliable on short texts, so it must be nearly certain.
    """

    name: str = "language"
    min_probability: float = 0.05
    """A side is dropped if its own language is less probable than this among the detector's 140."""
    min_letters: int = 20
    """Sides with fewer letters are not checked."""

    def __post_init__(self) -> None:
        check_range("filter language: min_probability", self.min_probability, 0, 1)
        check_range("filter language: min_letters", self.min_letters, 1)

    def start(self, languages: Languages) -> Check:
        """A check that looks at each pair separately. Raises ConfigError for an unknown
        language."""
        identifier = _identifier()
        codes = [language.partition("-")[0] for language in languages]
        for code in codes:
            if code not in identifier.labels:
                raise ConfigError(
                    f"filter language: the detector does not know {code!r}; leave the filter out"
                )

        def drops(pair: Pair) -> bool:
            for text, code in zip(pair, codes, strict=True):
                if len(_NO_LETTER.sub("", text)) < self.min_letters:
                    continue
                if dict(identifier.rank(text))[code] < self.min_probability:
                    return True
            return False

        return drops


@dataclass(frozen=True, kw_only=True)
class NumbersFilter(Filter):
    """Drops pairs whose sides have different numbers. 1.234,5 equals 1,234.5; the order does not
    matter."""

    name: str = "numbers"
    min_digits: int = 2
    """Numbers with fewer digits are ignored: languages differ in which numbers they spell out."""

    def __post_init__(self) -> None:
        check_range("filter numbers: min_digits", self.min_digits, 1)

    def start(self, languages: Languages) -> Check:
        """A check that looks at each pair separately."""
        return lambda pair: self._numbers(pair[0]) != self._numbers(pair[1])

    def _numbers(self, text: str) -> Counter[str]:
        found = (_value(match) for match in _NUMBER.findall(text))
        return Counter(number for number in found if len(number) >= self.min_digits)


@dataclass(frozen=True, kw_only=True)
class ScriptFilter(Filter):
    """Drops pairs with a side that is not in the script of its language."""

    name: str = "script"
    source: tuple[str, ...] = ("latin",)
    """Scripts of the source: the first word of its letters' Unicode names, in lower case (latin,
    cyrillic, greek, arabic, hebrew, cjk, hiragana, katakana, hangul, ...). With several directions,
    the filter uses the scripts of each language instead (`scripts_of`)."""
    target: tuple[str, ...] = ("latin",)
    min_share: float = 0.5
    """Least share of a side's letters that are in its scripts."""

    def __post_init__(self) -> None:
        check_range("filter script: min_share", self.min_share, 0, 1)
        for script in (*self.source, *self.target):
            check_choice("script in filter script:", script, _scripts())

    def start(self, languages: Languages) -> Check:
        """A check that looks at each pair separately."""
        scripts = frozenset(self.source), frozenset(self.target)
        return lambda pair: any(
            self._share(text, allowed) < self.min_share
            for text, allowed in zip(pair, scripts, strict=True)
        )

    def _share(self, text: str, allowed: frozenset[str]) -> float:
        letters = _NO_LETTER.sub("", text)
        if not letters:
            return 1.0
        return sum(_script(letter) in allowed for letter in letters) / len(letters)


@dataclass(frozen=True, kw_only=True)
class DuplicatesFilter(Filter):
    """Drops pairs that came before in any corpus of the same direction."""

    name: str = "duplicates"

    def start(self, languages: Languages) -> Check:
        """A check that remembers the pairs it kept."""
        return Unseen(lambda pair: pair)


@dataclass(frozen=True, kw_only=True)
class NearDuplicatesFilter(Filter):
    """Drops pairs that differ from an earlier one only in case, punctuation, spaces and digits."""

    name: str = "near_duplicates"

    def start(self, languages: Languages) -> Check:
        """A check that remembers the pairs it kept."""
        return Unseen(lambda pair: (_skeleton(pair[0]), _skeleton(pair[1])))


FILTERS: dict[str, type[Filter]] = {
    kind.name: kind
    for kind in (
        *(EncodingFilter, LengthFilter, RatioFilter, ScriptFilter, LanguageFilter, NumbersFilter),
        *(DuplicatesFilter, NearDuplicatesFilter),
    )
}


@lru_cache(maxsize=1)
def _identifier() -> Any:
    # Loading takes half a second and 90 MB: only on demand, and once for all directions.
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def scripts_of(language: str) -> tuple[str, ...]:
    """The scripts of a language, by their names in the filter `script`."""
    return _SCRIPTS.get(language.partition("-")[0], ("latin",))


class Unseen:
    """Drops pairs whose key has come before.

    It stores the keys, which share their text with the pairs in memory. With `by_digest` it stores
    16 bytes per key instead, for pairs that do not stay in memory.
    """

    def __init__(self, key: Callable[[Pair], Pair]) -> None:
        self._key, self._seen = key, set[Pair | bytes]()
        self.by_digest = False

    def __call__(self, pair: Pair) -> bool:
        texts = self._key(pair)
        key = _digest(texts) if self.by_digest else texts
        if key in self._seen:
            return True
        self._seen.add(key)
        return False


def _digest(pair: Pair) -> bytes:
    content = "\n".join(pair).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(content, digest_size=16).digest()


def bare(text: str) -> str:
    """A text without case, punctuation and spaces; the text itself if it has no letters or
    digits."""
    return "".join(filter(str.isalnum, text.casefold())) or text


def _skeleton(text: str) -> str:
    """The key of near duplicates: the bare text with every number replaced by 0."""
    return re.sub(r"\d+", "0", bare(text))


def _value(number: str) -> str:
    """The digits of a number in any script as ASCII digits, without leading zeros: 07 equals 7."""
    digits = (str(unicodedata.decimal(c)) for c in number if c.isdecimal())
    return "".join(digits).lstrip("0") or "0"


def _is_mojibake(text: str) -> bool:
    return not text.isascii() and _MOJIBAKE.search(text) is not None


def _has_control(text: str) -> bool:
    return not text.isprintable() and any(
        unicodedata.category(c) in ("Cc", "Cs", "Co") and c != "\t" for c in text
    )


@lru_cache(maxsize=20_000)
def _script(letter: str) -> str:
    return unicodedata.name(letter, "unknown").partition(" ")[0].lower()


@lru_cache(maxsize=1)
def _scripts() -> tuple[str, ...]:
    return tuple(sorted({_script(chr(code)) for code in range(0x30000) if chr(code).isalpha()}))
