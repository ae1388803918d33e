"""The systems as a worker process runs them: whole calls, from what a caller has to what he gets.

With a tokenizer a call goes from texts to texts, else from ids to ids. This module imports no
engine by itself: a worker must hold only its own, or memory could not be compared.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from serving.bundle.manifest import Manifest
from serving.bundle.tokenizer import Tokenizer
from serving.search.ids import EOS_ID
from serving.search.options import SearchOptions

Sources = Sequence[str] | Sequence[list[int]]
"""Texts, or ids that end with eos."""


@dataclass(frozen=True)
class Job:
    """What a worker loads."""

    kind: str
    folder: str
    precision: str
    workers: int
    threads: int
    tokenizer_file: str | None
    """None for calls on ids."""
    shortlist: bool = False
    shared_calls: bool = True
    """Whether CTranslate2's workers share a call; else each takes calls of its own."""


@dataclass(frozen=True)
class Search:
    """How a call is decoded; length penalty 1, patience 1, no loop guard."""

    beam_size: int
    max_length: int
    """Tokens generated at most, eos included."""
    top_k: int = 0
    """Language models draw from so many; 1 is greedy."""

    def options(self, *, shortlist: bool = False) -> SearchOptions:
        """The same for this engine."""
        return SearchOptions(
            beam_size=self.beam_size,
            max_length=self.max_length,
            loop_guard=False,
            shortlist=shortlist,
        )


@dataclass(frozen=True)
class Output:
    """One result in a form that can be compared between systems."""

    tokens: tuple[str, ...]
    """Pieces, or ids in decimals, without eos."""
    score: float
    """Log-probability over the number of generated tokens, eos included where it was reached."""
    text: str = ""


class LoadedSystem(Protocol):
    """A system in memory. Only `call` is timed: the others are the benchmark's own needs."""

    def prepare(self, sources: Sources) -> list[Any]:
        """Sources as a caller of this system would hold them."""

    def call(self, sources: list[Any], search: Search) -> list[Any]:
        """One whole call; its results are the system's own objects."""

    def outputs(self, results: list[Any]) -> list[Output]:
        """Results in comparable form."""

    def scored(self, sources: list[Any], search: Search) -> list[Output]:
        """Like `call`, with scores."""


def load(job: Job) -> LoadedSystem:
    """Load what a job names."""
    if job.kind.startswith("lm-"):
        from bench.language_systems import load_language_system

        language: LoadedSystem = load_language_system(job)
        return language
    if job.kind == "ctranslate2":
        return _CTranslate2(job)
    if job.kind in ("eager", "compiled"):
        return _Eager(job)
    return _TextEngine(job) if job.tokenizer_file else _IdEngine(job)


class _IdEngine:
    """This engine on ids."""

    def __init__(self, job: Job) -> None:
        from serving.runtime.shortlist_stepper import ShortlistStepper
        from serving.runtime.translation_stepper import OnnxStepper

        self.job, self.manifest = job, read_id_manifest(job.folder)
        stepper = ShortlistStepper if job.shortlist else OnnxStepper
        self.stepper = stepper(Path(job.folder), self.manifest, job.threads)

    def prepare(self, sources: Sources) -> list[Any]:
        return list(sources)

    def call(self, sources: list[Any], search: Search) -> list[Any]:
        from serving.queue.limits import decode_in_batches
        from serving.search.sentence import Sentence

        options = search.options(shortlist=self.job.shortlist)
        sentences = {i: Sentence(source, options) for i, source in enumerate(sources)}
        found = dict(decode_in_batches(self.stepper, sentences, self.job.workers))
        return [found[i] for i in range(len(sources))]

    def outputs(self, results: list[Any]) -> list[Output]:
        outputs = []
        for result in results:
            best = result.hypotheses[0]
            outputs.append(_id_output(best.tokens, best.cumulative / len(best.token_scores)))
        return outputs

    def scored(self, sources: list[Any], search: Search) -> list[Output]:
        return self.outputs(self.call(sources, search))


class _TextEngine:
    """This engine on texts, through its documented Python interface."""

    def __init__(self, job: Job) -> None:
        from serving.translation.translator import Translator

        self.translator = Translator(
            job.folder, threads=job.threads * job.workers, workers=job.workers
        )
        self.stepper = self.translator.steppers.stepper_for(shortlisted=job.shortlist)
        self._shortlist = job.shortlist

    def prepare(self, sources: Sources) -> list[Any]:
        return list(sources)

    def call(self, sources: list[Any], search: Search) -> list[Any]:
        return self.translator.translate(sources, search.options(shortlist=self._shortlist))

    def outputs(self, results: list[Any]) -> list[Output]:
        outputs = []
        for result in results:
            if not result.hypotheses:  # a blank text
                outputs.append(Output((), 0.0))
                continue
            best = result.hypotheses[0]
            score = best.cumulative / len(best.token_scores)
            outputs.append(Output(best.tokens, score, result.text))
        return outputs

    def scored(self, sources: list[Any], search: Search) -> list[Output]:
        return self.outputs(self.call(sources, search))


class _CTranslate2:
    """CTranslate2; tokenised by SentencePiece, as its own guide shows."""

    def __init__(self, job: Job) -> None:
        import ctranslate2

        self._sharing = job.workers if job.shared_calls else 1
        self._shortlist = job.shortlist
        self._translator = ctranslate2.Translator(
            job.folder,
            compute_type=job.precision,
            inter_threads=job.workers,
            intra_threads=job.threads,
        )
        self._pieces = _piece_model(job.tokenizer_file) if job.tokenizer_file else None

    def prepare(self, sources: Sources) -> list[Any]:
        if self._pieces is not None:
            return list(sources)
        return [[id_token(int(i)) for i in source] for source in sources]

    def call(self, sources: list[Any], search: Search) -> list[Any]:
        return self._translate(sources, search, scores=False)

    def outputs(self, results: list[Any]) -> list[Output]:
        return [
            Output(tuple(r.hypotheses[0]), r.scores[0] if r.scores else 0.0, text)
            for r, text in results
        ]

    def scored(self, sources: list[Any], search: Search) -> list[Output]:
        return self.outputs(self._translate(sources, search, scores=True))

    def _translate(self, sources: list[Any], search: Search, *, scores: bool) -> list[Any]:
        if self._pieces is not None:
            encoded = self._pieces.encode(sources, out_type=str)
            sources = [[*pieces, "</s>"] for pieces in encoded]
        results = self._translator.translate_batch(
            sources,
            # 0 is no splitting
            max_batch_size=-(-len(sources) // self._sharing) if self._sharing > 1 else 0,
            beam_size=search.beam_size,
            patience=1,
            length_penalty=1,
            max_input_length=0,
            max_decoding_length=search.max_length,
            min_decoding_length=0,  # its default of 1 forbids an empty output
            return_scores=scores,  # greedy search is quicker without
            use_vmap=self._shortlist,
        )
        if self._pieces is None:
            return [(result, "") for result in results]
        texts = self._pieces.decode([result.hypotheses[0] for result in results])
        return list(zip(results, texts, strict=True))


class _Eager:
    """PyTorch, eager or compiled."""

    def __init__(self, job: Job) -> None:
        import torch

        from bench.eager import EagerTranslator
        from bench.models import load_model

        torch.set_num_threads(job.threads)
        self._translator = EagerTranslator(
            load_model(Path(job.folder)), compile_model=job.kind == "compiled"
        )
        self._tokenizer = Tokenizer(job.tokenizer_file) if job.tokenizer_file else None

    def prepare(self, sources: Sources) -> list[Any]:
        return list(sources)

    def call(self, sources: list[Any], search: Search) -> list[Any]:
        tokenizer = self._tokenizer
        if tokenizer is None:
            results = self._translator.translate(sources, search.beam_size, search.max_length)
            return [(tokens, score, "") for tokens, score in results]
        ids = [[*source, EOS_ID] for source in tokenizer.encode_batch(sources)]
        results = self._translator.translate(ids, search.beam_size, search.max_length)
        return [(tokens, score, tokenizer.decode(list(tokens))) for tokens, score in results]

    def outputs(self, results: list[Any]) -> list[Output]:
        if self._tokenizer is None:
            return [_id_output(tokens, score) for tokens, score, _ in results]
        return [
            Output(tuple(self._tokenizer.pieces(list(tokens))), score, text)
            for tokens, score, text in results
        ]

    def scored(self, sources: list[Any], search: Search) -> list[Output]:
        return self.outputs(self.call(sources, search))


ID_MANIFEST = "graphs.json"
"""The manifest of graphs without a tokenizer, which is no bundle."""


def read_id_manifest(folder: str) -> Manifest:
    """The manifest beside such graphs."""
    return Manifest.model_validate(json.loads((Path(folder) / ID_MANIFEST).read_text()))


def id_token(token_id: int) -> str:
    """The written form of an id where there is no tokenizer."""
    return ("<pad>", "<unk>", "<s>", "</s>")[token_id] if token_id <= EOS_ID else str(token_id)


def _id_output(tokens: Sequence[int], score: float) -> Output:
    return Output(tuple(map(id_token, tokens)), score)


def _piece_model(path: str) -> Any:
    import sentencepiece

    return sentencepiece.SentencePieceProcessor(model_file=path)
