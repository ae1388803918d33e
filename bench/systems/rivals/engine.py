"""This engine as its users call it, in a rival's place: the same requests, the same times.

It runs in this project's own environment.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Any


def _version() -> str:
    try:
        return f"macaron {version('macaron')}"
    except PackageNotFoundError:  # a checkout
        return "macaron"


class EngineLanguage:
    """A bundle of a language model."""

    def __init__(self, bundle: str, threads: int) -> None:
        from serving.generation.generator import Generator

        self._generator = Generator(bundle, threads=threads)
        self.version = _version()

    def tokenize(self, text: str) -> list[int]:
        """Ids of a text."""
        return self._generator.encode(text)

    def generate(self, prompts: list[list[int]], tokens: int) -> list[list[int]]:
        """The likeliest next ids of each prompt, all at once; an end of text does not stop the
        generation."""
        from serving.search.sampling_options import GenerationOptions

        options = GenerationOptions(max_length=tokens, min_length=tokens, temperature=0.0)
        found = self._generator.generate(prompts, options)
        return [[token.token_id for token in own[0].tokens] for own in found]

    def loss(self, ids: list[int]) -> float:
        """Mean negative log-likelihood of the ids after the first."""
        (scores,) = self._generator.score([ids])
        return -sum(score.log_prob or 0.0 for score in scores[1:]) / (len(ids) - 1)


class EngineEncoder:
    """A bundle of a sentence embedder."""

    def __init__(self, bundle: str, threads: int) -> None:
        from serving.encoding.reader import Embedder

        self._embedder = Embedder(bundle, threads)
        self.version = _version()

    def read(self, texts: list[str], batch: int) -> None:
        """Vectors of all texts in calls of `batch`."""
        for start in range(0, len(texts), batch):
            self._embedder.embed(texts[start : start + batch])

    def vectors(self, texts: list[str]) -> list[list[float]]:
        """Vectors [B,D] of one call."""
        found: list[list[float]] = self._embedder.embed(texts).tolist()
        return found


class EngineStudent:
    """A bundle of a student with shortlists, greedy."""

    def __init__(self, bundle: str, threads: int) -> None:
        from serving.search.options import SearchOptions
        from serving.translation.translator import Translator

        self._options = SearchOptions(beam_size=1, loop_guard=False, shortlist=True)
        self._translator: Any = Translator(bundle, threads=threads, workers=threads)
        self.version = _version()

    def translate(self, texts: list[str], together: bool) -> list[str]:
        """Translations, one sentence per call or all in one call."""
        calls = [texts] if together else [[text] for text in texts]
        return [
            each.text
            for call in calls
            for each in self._translator.translate_sentences(call, self._options)
        ]


class EngineDetector:
    """The engine's detector of languages, which serves `source: auto`."""

    def __init__(self) -> None:
        from serving.text.detection import detect, load_detector

        load_detector()
        self._detect = detect
        self.version = _version()

    def detect(self, texts: list[str]) -> list[tuple[str, float]]:
        """The likeliest language of each text, with its probability; an empty code without one."""
        return [next(iter(self._detect(text)), ("", 0.0)) for text in texts]
