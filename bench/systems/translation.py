"""Translation as a worker process runs it: this engine, CTranslate2 and PyTorch.

Each imports its engine when it is loaded: a worker must hold only its own, or memory could not be
compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.errors import BenchError
from bench.subjects.job import BenchJob, Search, Sources, SystemOutput, id_token, read_id_manifest
from serving.bundle.tokenizer import Tokenizer
from serving.search.ids import EOS_ID

if TYPE_CHECKING:
    from serving.runtime.session import DeviceUse


def check_device(job: BenchJob, use: DeviceUse) -> None:
    """Raise BenchError if this engine runs on another device than the row of a table states; it
    does so if engines do not fit."""
    if job.device not in ("cpu", use.name):
        raise BenchError(f"it runs on {use.name}, not {job.device}: {use.reason}")


class IdSystem:
    """This engine on ids, without a tokenizer: the search on the step graph."""

    def __init__(self, job: BenchJob) -> None:
        from serving.runtime.device import open_device
        from serving.runtime.shortlist_stepper import ShortlistStepper
        from serving.runtime.translation_stepper import OnnxStepper

        self.job, self.manifest = job, read_id_manifest(job.folder)
        stepper = ShortlistStepper if job.shortlist else OnnxStepper
        folder = Path(job.folder)
        device = open_device(folder, self.manifest, batches=job.workers)
        check_device(job, device.use)
        self.stepper = stepper(folder, self.manifest, job.threads, device=device)

    def prepare(self, sources: Sources) -> list[Any]:
        return list(sources)

    def call(self, sources: list[Any], search: Search) -> list[Any]:
        from serving.search.beams.sentence import Sentence
        from serving.translation.offline import decode_in_batches

        options = search.options(shortlist=self.job.shortlist)
        sentences = {i: Sentence(source, options) for i, source in enumerate(sources)}
        found = dict(decode_in_batches(self.stepper, sentences, self.job.workers))
        return [found[i] for i in range(len(sources))]

    def outputs(self, results: list[Any]) -> list[SystemOutput]:
        outputs = []
        for result in results:
            best = result.hypotheses[0]
            outputs.append(_id_output(best.tokens, best.cumulative / len(best.token_scores)))
        return outputs

    def scored(self, sources: list[Any], search: Search) -> list[SystemOutput]:
        return self.outputs(self.call(sources, search))


class TextSystem:
    """This engine on texts, through its documented Python interface."""

    def __init__(self, job: BenchJob) -> None:
        from serving.translation.translator import Translator

        self.translator = Translator(
            job.folder, threads=job.threads * job.workers, workers=job.workers
        )
        check_device(job, self.translator.device)
        steppers = self.translator.steppers
        self.stepper = steppers.shortlist if job.shortlist else steppers.whole
        self._shortlist = job.shortlist

    def prepare(self, sources: Sources) -> list[Any]:
        return list(sources)

    def call(self, sources: list[Any], search: Search) -> list[Any]:
        return self.translator.translate_sentences(
            sources, search.options(shortlist=self._shortlist)
        )

    def outputs(self, results: list[Any]) -> list[SystemOutput]:
        outputs = []
        for result in results:
            if not result.hypotheses:  # a blank text
                outputs.append(SystemOutput((), 0.0))
                continue
            best = result.hypotheses[0]
            score = best.cumulative / len(best.token_scores)
            outputs.append(SystemOutput(best.tokens, score, result.text))
        return outputs

    def scored(self, sources: list[Any], search: Search) -> list[SystemOutput]:
        return self.outputs(self.call(sources, search))


class CTranslate2:
    """CTranslate2; tokenised by SentencePiece, as its own guide shows."""

    def __init__(self, job: BenchJob) -> None:
        import ctranslate2

        self._sharing = job.workers if job.shared_calls else 1
        self._shortlist = job.shortlist
        self._translator = ctranslate2.Translator(
            job.folder,
            device=job.device,
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

    def outputs(self, results: list[Any]) -> list[SystemOutput]:
        return [
            SystemOutput(tuple(r.hypotheses[0]), r.scores[0] if r.scores else 0.0, text)
            for r, text in results
        ]

    def scored(self, sources: list[Any], search: Search) -> list[SystemOutput]:
        return self.outputs(self._translate(sources, search, scores=True))

    def _translate(self, sources: list[Any], search: Search, *, scores: bool) -> list[Any]:
        if self._pieces is not None:
            encoded = self._pieces.encode(sources, out_type=str)
            sources = [[*pieces, "</s>"] for pieces in encoded]
        results = self._translator.translate_batch(
            sources,
            # 0 turns splitting off
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


class Eager:
    """PyTorch's beam search of `bench.systems.pytorch.eager`, eager or compiled, on CPU or GPU."""

    def __init__(self, job: BenchJob) -> None:
        import torch

        from bench.subjects.models import load_model
        from bench.systems.pytorch.eager import EagerTranslator
        from bench.systems.pytorch.eager_models import to_half

        torch.set_num_threads(job.threads)
        model = load_model(Path(job.folder)).to(job.device)
        model = to_half(model) if job.precision == "fp16" else model
        self._translator = EagerTranslator(model, compile_model=job.kind == "compiled")
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

    def outputs(self, results: list[Any]) -> list[SystemOutput]:
        if self._tokenizer is None:
            return [_id_output(tokens, score) for tokens, score, _ in results]
        return [
            SystemOutput(tuple(self._tokenizer.pieces(list(tokens))), score, text)
            for tokens, score, text in results
        ]

    def scored(self, sources: list[Any], search: Search) -> list[SystemOutput]:
        return self.outputs(self.call(sources, search))


def _id_output(tokens: Sequence[int], score: float) -> SystemOutput:
    return SystemOutput(tuple(map(id_token, tokens)), score)


def _piece_model(path: str) -> Any:
    import sentencepiece

    return sentencepiece.SentencePieceProcessor(model_file=path)
