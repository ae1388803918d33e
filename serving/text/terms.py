"""Terms that a request names as text, and what they are to the search."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from serving.bundle.tokenizer import TextTokenizer
from serving.errors import InvalidOptionError
from serving.search.constraints import Constraints, Ids

_SIGN = "("
_REMEMBERED = 4
"""Lists of forbidden terms whose ways to be written are kept, each of up to some megabytes."""


@dataclass(frozen=True)
class Terms:
    """What a translation must and must not hold, case and all."""

    required: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()
    glossary: tuple[tuple[str, str], ...] = ()
    """Source and target: where the source holds the one, in whatever case, the target must hold the
    other."""


NO_TERMS = Terms()


class TermReader:
    """Turns terms into ids of the target's pieces."""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self._tokenizer = tokenizer
        # Where a text begins with a word of its own in any case, the space is no part of its ids.
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
        """What `terms` mean for the translation of `text`; None where they mean nothing.

        Raises InvalidOptionError for a term that is blank or that the model cannot write, and for
        one that is both wanted and forbidden.
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
        """Ways to write a term as a word of its own, the likeliest at least."""
        self._ids(term, "forbidden")
        found = self._tokenizer.segmentations(self._before + term)
        return [tuple(ids) for ids in found]

    def _without_space(self, term: str) -> list[Ids]:
        """Ways to write a term right after a sign."""
        found = []
        for ids in self._tokenizer.segmentations(_SIGN + term):
            for cut in (1, 2):  # the sign may have a space's piece before it
                if self._tokenizer.decode(ids[:cut]) == _SIGN:
                    found.append(tuple(ids[cut:]))
                    break
        return [ids for ids in found if ids]


def _check_consistent(terms: Terms) -> None:
    forbidden = {term.strip() for term in terms.forbidden}
    for term in (*terms.required, *(target for _, target in terms.glossary)):
        if term.strip() in forbidden:
            raise InvalidOptionError(
                f"{term!r} is both asked for and forbidden; leave it out of one of the two",
                parameter="forbidden",
            )


def _occurs(term: str, text: str) -> bool:
    """Whether a text holds a term, neither end within a word."""
    found = re.search(rf"(?<!\w){re.escape(term.strip())}(?!\w)", text, re.IGNORECASE)
    return bool(term.strip()) and found is not None
