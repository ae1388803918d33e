"""Language models as a worker process runs them: from prompts of ids to generated ids.

Each imports its engine when it is loaded: a worker must hold only its own, or memory could not be
compared.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.subjects.job import BenchJob, Search, Sources, SystemOutput, id_token, read_id_manifest

SEED = 1


class LanguageEngine:
    """This engine, on its step graph and the shipped sampling."""

    def __init__(self, job: BenchJob) -> None:
        from bench.systems.translation import check_device
        from serving.runtime.device import open_device
        from serving.runtime.language_stepper import LanguageStepper

        manifest, folder = read_id_manifest(job.folder), Path(job.folder)
        device = open_device(folder, manifest)
        check_device(job, device.use)
        self._stepper = LanguageStepper(folder, manifest, job.threads, device)
        self._workers = job.workers

    def prepare(self, sources: Sources) -> list[Any]:
        return list(sources)

    def call(self, sources: list[Any], search: Search) -> list[Any]:
        """Generate, a share of the batch on each worker."""
        from concurrent.futures import ThreadPoolExecutor

        if self._workers == 1:
            return self._generate(sources, search)
        size = -(-len(sources) // self._workers)
        parts = [sources[start : start + size] for start in range(0, len(sources), size)]
        with ThreadPoolExecutor(self._workers) as pool:
            done = pool.map(self._generate, parts, [search] * len(parts))
            return [tokens for part in done for tokens in part]

    def outputs(self, results: list[Any]) -> list[SystemOutput]:
        """Generated ids; the benchmark asks for no scores."""
        return [SystemOutput(tuple(map(id_token, tokens)), 0.0) for tokens in results]

    def scored(self, sources: list[Any], search: Search) -> list[SystemOutput]:
        return self.outputs(self.call(sources, search))

    def _generate(self, prompts: list[list[int]], search: Search) -> list[list[int]]:
        from serving.search.sampling.batch import GenerationBatch, SampledOutput
        from serving.search.sampling.drawing import Uniforms
        from serving.search.sampling_options import GenerationOptions

        options = GenerationOptions(max_length=search.max_length, sampling_top_k=search.top_k)
        rows = [
            SampledOutput(n, prompt, options, Uniforms(SEED, n)) for n, prompt in enumerate(prompts)
        ]
        batch = GenerationBatch(self._stepper)
        batch.add(rows)
        for _ in range(search.max_length):
            batch.step()
        batch.close()
        return [row.tokens for row in rows]


class EagerLanguage:
    """PyTorch eager with a concatenated cache, as a careful user would write it without this
    project."""

    def __init__(self, job: BenchJob) -> None:
        import torch

        from bench.systems.pytorch.eager_language import load_eager

        torch.set_num_threads(job.threads)
        self._generate = load_eager(Path(job.folder), job.device, half=job.precision == "fp16")

    def prepare(self, sources: Sources) -> list[Any]:
        return list(sources)

    def call(self, sources: list[Any], search: Search) -> list[Any]:
        return self._generate(sources, search.max_length, search.top_k)

    def outputs(self, results: list[Any]) -> list[SystemOutput]:
        return [SystemOutput(tuple(map(id_token, tokens)), 0.0) for tokens in results]

    def scored(self, sources: list[Any], search: Search) -> list[SystemOutput]:
        return self.outputs(self.call(sources, search))


class CTranslate2Language:
    """CTranslate2's generator, which reads tokens in writing."""

    def __init__(self, job: BenchJob) -> None:
        import ctranslate2

        self._workers = job.workers
        self._generator = ctranslate2.Generator(
            job.folder,
            device=job.device,
            compute_type=job.precision,
            inter_threads=job.workers,
            intra_threads=job.threads,
        )

    def prepare(self, sources: Sources) -> list[Any]:
        return [[id_token(int(i)) for i in source] for source in sources]

    def call(self, sources: list[Any], search: Search) -> list[Any]:
        return self._generator.generate_batch(
            sources,
            max_batch_size=-(-len(sources) // self._workers) if self._workers > 1 else 0,
            beam_size=1,
            max_length=search.max_length,
            sampling_topk=search.top_k,
            include_prompt_in_result=False,
        )

    def outputs(self, results: list[Any]) -> list[SystemOutput]:
        return [SystemOutput(tuple(result.sequences[0]), 0.0) for result in results]

    def scored(self, sources: list[Any], search: Search) -> list[SystemOutput]:
        return self.outputs(self.call(sources, search))
