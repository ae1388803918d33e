"""What has become of a sentence that the search is done with."""

from __future__ import annotations

from dataclasses import dataclass

from serving.search.sentence import Sentence
from serving.translation.results import Translation


@dataclass(frozen=True)
class Done:
    """It is translated."""

    translation: Translation


@dataclass(frozen=True)
class Again:
    """It is to be decoded in another way: the loop guard found a loop."""

    sentence: Sentence


@dataclass(frozen=True)
class Split:
    """Others are to be decoded, whose translations, `gathered`, are its own."""

    sentences: tuple[Sentence, ...]


SentenceOutcome = Done | Again | Split
