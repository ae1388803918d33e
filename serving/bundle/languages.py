"""The languages of a model, and the choice of a language pair for a request."""

from __future__ import annotations

import functools
from collections.abc import Collection
from typing import Self

from pydantic import Field, model_validator

from serving.bundle.strict import Strict
from serving.errors import UnknownLanguageError

_MOST_LISTED = 40
"""Largest number of language pairs listed in one message."""
_MOST_SUBTAGS = 4
"""Largest number of subtags after the language: script, region and variants."""


def match_language(asked: str, known: Collection[str]) -> str | None:
    """The one of the `known` codes that matches a requested code; None if none does.

    A code matches exactly, else without regard to case and with `_` for `-`, else without its last
    subtags: `zh-Hans-CN` matches `zh-Hans` or `zh`, and `EN_gb` matches `en` (RFC 4647, lookup).
    """
    if asked in known:
        return asked
    codes = {_folded(code): code for code in known}
    parts = _folded(asked).split("-", _MOST_SUBTAGS)
    shorter = ("-".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((codes[code] for code in shorter if code in codes), None)


def _folded(code: str) -> str:
    return code.lower().replace("_", "-")


class Languages(Strict):
    """Language codes (ISO 639-1) that the model reads and writes.

    A model of several directions was trained on `pairs`, or on all pairs if none are listed. Its
    input names the languages: by tags (pieces that no text is encoded to) or in words. For other
    models all these fields are empty and left out of the file.
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...] = Field(default=(), exclude_if=lambda pairs: not pairs)
    tags: dict[str, str] = Field(default={}, exclude_if=lambda tags: not tags)
    """The piece of each target language that stands before each source."""
    source_tags: dict[str, str] = Field(default={}, exclude_if=lambda tags: not tags)
    """The piece of each source language that stands before each source, first of all."""
    prefixes: dict[str, tuple[str, ...]] = Field(default={}, exclude_if=lambda found: not found)
    """The pieces of each target language that stand before each source, after the tags: a task in
    words, as for T5. They may be any pieces."""
    first_pieces: dict[str, str] = Field(default={}, exclude_if=lambda tags: not tags)
    """The piece of each target language that begins each translation."""

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if {source for source, _ in self.pairs} - set(self.source):
            raise ValueError("pairs hold a language that source does not")
        if {target for _, target in self.pairs} - set(self.target):
            raise ValueError("pairs hold a language that target does not")
        if self.pairs and not self.is_multilingual:
            raise ValueError(
                "pairs need tags, prefixes or first_pieces, which name the languages to the model"
            )
        for name, codes in (
            ("tags", self.target),
            ("prefixes", self.target),
            ("first_pieces", self.target),
            ("source_tags", self.source),
        ):
            named = getattr(self, name)
            if named and set(named) != set(codes):
                raise ValueError(f"{name} must have each language of its side, and no other")
        return self

    @property
    def is_multilingual(self) -> bool:
        """Whether the input of the model must name the target language."""
        return bool(self.tags or self.prefixes or self.first_pieces)

    @property
    def most_before(self) -> int:
        """The largest number of pieces before a source."""
        words = max(map(len, self.prefixes.values()), default=0)
        return bool(self.source_tags) + bool(self.tags) + words

    @functools.cached_property
    def trained(self) -> tuple[tuple[str, str], ...]:
        """The pairs of source and target that the model was trained on."""
        every = ((s, t) for s in self.source for t in self.target)
        return self.pairs or tuple(p for p in every if p[0] != p[1] or not self.is_multilingual)

    def translates(self, source: str, target: str) -> bool:
        """Whether the model was trained on the pair."""
        if self.pairs:
            return (source, target) in self.pairs
        known = source in self.source and target in self.target
        return known and (source != target or not self.is_multilingual)

    def zero_shot(self, source: str, target: str) -> bool:
        """Whether the model knows both languages but was not trained on the pair."""
        known = source in self.source and target in self.target
        return known and source != target and not self.translates(source, target)

    def choose(
        self,
        source: str | None,
        target: str | None,
        *,
        allowing: str = "",
        zero_shot: bool = False,
    ) -> tuple[str, str]:
        """Choose the language pair of a request. A code that is None is filled in if only one pair
        fits; codes are matched by `match_language`.

        Raises UnknownLanguageError, which lists the pairs, if no pair fits or several do. It is
        also raised for a pair that the model was not trained on, unless `zero_shot` is set;
        `allowing` is the advice in that message.
        """
        given = f"{source or 'any language'} to {target or 'any language'}"
        source = source and (match_language(source, self.source) or source)
        target = target and (match_language(target, self.target) or target)
        if source is not None and target is not None and self.translates(source, target):
            return source, target
        fitting = [
            pair for pair in self.trained if source in (None, pair[0]) and target in (None, pair[1])
        ]
        if len(fitting) == 1 or (fitting and not self.is_multilingual):
            return fitting[0]  # without tags the model does not distinguish languages
        parameter = "source" if source is None or target is not None else "target"
        if source and target and self.zero_shot(source, target):
            if zero_shot:
                return source, target
            hint = f"; {allowing} allows it anyway" if allowing else ""
            raise UnknownLanguageError(
                f"the model was trained on {self.listing}, not from {source} to {target}{hint}",
                parameter=parameter,
            )
        raise UnknownLanguageError(
            f"source and target must be one of {self.listing}, got {given}", parameter=parameter
        )

    @property
    def listing(self) -> str:
        """The trained pairs, for messages; if there are very many, only the languages."""
        if len(self.trained) <= _MOST_LISTED:
            return ", ".join(" to ".join(pair) for pair in self.trained)
        sides = dict.fromkeys((*self.source, *self.target))
        return f"{len(self.trained)} pairs of {', '.join(sides)}"
