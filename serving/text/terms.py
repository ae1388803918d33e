"""Required and forbidden terms of a request, and their form for the search."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass

from serving.bundle.tokenizer import TextTokenizer
from serving.errors import InvalidOptionError
from serving.search.beams.constraints import Constraints, Ids
from serving.text.inflection import plain

_SIGN = "("
_REMEMBERED = 4
"""Number of lists of forbidden terms whose segmentations are cached, each of up to a few
megabytes."""


@dataclass(frozen=True)
class Terms:
    """Terms that a translation must and must not contain, case-sensitive."""

    required: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()
    glossary: tuple[tuple[str, str], ...] = ()
    """Pairs of source and target term: if the source contains the first, in any case, the target
    must contain the second."""

    def __post_init__(self) -> None:
        """Raise InvalidOptionError for one text in place of several, whose letters would be taken
        for terms, and for what is no pair."""
        for name in ("required", "forbidden"):
            if isinstance(getattr(self, name), str):
                raise InvalidOptionError(
                    f"{name} must be a sequence of terms, got one text; put it into a tuple",
                    parameter=name,
                )
        if isinstance(self.glossary, (str, Mapping)):
            raise InvalidOptionError(
                "glossary must be a sequence of pairs of a term and its translation, got "
                f"{type(self.glossary).__name__}; of a dict give tuple(its items())",
                parameter="glossary",
            )


NO_TERMS = Terms()


class TermReader:
    """Converts terms into ids of the target vocabulary."""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self._tokenizer = tokenizer
        # The ids of a word at the beginning of a text do not contain its space.
        self._before = " " if tokenizer.encode(" a") != tokenizer.encode("a") else ""
        # The same for every sentence of a request, and there may be very many.
        self._forbidden = functools.lru_cache(_REMEMBERED)(self._ways)
        pieces = tokenizer.pieces(list(range(tokenizer.vocab_size)))
        self._signs = frozenset(
            token_id
            for token_id, piece in enumerate(pieces)
            if piece and not piece[-1].isalnum() and not tokenizer.is_byte(token_id)
        )

    def constraints(self, text: str, terms: Terms) -> Constraints | None:
        """The constraints that `terms` imply for the translation of `text`; None if there are none.

        Raises InvalidOptionError for a blank term, one that the model cannot write, and one that is
        both required and forbidden.
        """
        _check_consistent(terms)
        wanted = [self._ids(term, "required") for term in terms.required]
        wanted += [self._ids(t, "glossary") for s, t in terms.glossary if _occurs(s, text)]
        required = tuple(dict.fromkeys(wanted))
        forbidden, after = self._forbidden(terms.forbidden)
        if not (required or forbidden or after):
            return None
        return Constraints(required, forbidden, after, self._signs)

    def _ways(self, terms: tuple[str, ...]) -> tuple[tuple[Ids, ...], tuple[Ids, ...]]:
        """Ways to write terms as words of their own, and right after a sign."""
        words = (ids for term in terms for ids in self._segmentations(term))
        after = (ids for term in terms for ids in self._without_space(term))
        return tuple(dict.fromkeys(words)), tuple(dict.fromkeys(after))

    def _ids(self, term: str, parameter: str) -> Ids:
        ids = tuple(self._tokenizer.encode(self._before + term))
        if not term.strip() or not ids or self._tokenizer.unk_id in ids:
            raise InvalidOptionError(
                f"terms must be text that the model can write, got {term!r}; leave it out",
                parameter=parameter,
            )
        return ids

    def _segmentations(self, term: str) -> list[Ids]:
        """Segmentations of a term as a separate word, at least the likeliest."""
        self._ids(term, "forbidden")
        found = self._tokenizer.segmentations(self._before + term)
        return [tuple(ids) for ids in found]

    def _without_space(self, term: str) -> list[Ids]:
        """Segmentations of a term right after a sign."""
        found = []
        for ids in self._tokenizer.segmentations(_SIGN + term):
            for cut in (1, 2):  # a piece for the space may precede the sign
                if self._tokenizer.decode(ids[:cut]) == _SIGN:
                    found.append(tuple(ids[cut:]))
                    break
        return [ids for ids in found if ids]


def _check_consistent(terms: Terms) -> None:
    forbidden = {term.strip() for term in terms.forbidden}
    for term in (*terms.required, *(target for _, target in terms.glossary)):
        if term.strip() in forbidden:
            raise InvalidOptionError(
                f"{term!r} is both required and forbidden; leave it out of one of the two",
                parameter="forbidden",
            )


def _occurs(term: str, text: str) -> bool:
    """Whether a text contains a term as whole words."""
    pattern = rf"(?<!\w){re.escape(plain(term.strip()))}(?!\w)"
    found = re.search(pattern, plain(text), re.IGNORECASE)
    return bool(term.strip()) and found is not None
