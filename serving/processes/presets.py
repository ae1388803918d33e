"""Loads bundles as a preset requires, for the latency of one request or for throughput, in decoding
processes or here."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from serving.bundle.folder import parse_manifest
from serving.fastest import fastest
from serving.processes.group import ProcessGroup
from serving.processes.translator import IsolatedTranslator
from serving.queue.limits import BatchLimits
from serving.runtime.device import batches_at_once, computes_on_cpu
from serving.runtime.gpu.cuda_driver import visible_gpus
from serving.runtime.gpu.cuda_switches import MOST_STREAMS
from serving.threads import Preset
from serving.translation.translator import Translator

if TYPE_CHECKING:
    from serving.encoding.reader import TextReader
    from serving.generation.generator import Generator
    from serving.processes.generator import IsolatedGenerator
    from serving.processes.reader import IsolatedReader

MOST_WORKERS = 8
"""Largest number of batches of a model that threads of one process decode at once. Python takes a
tenth of a step, and runs for only one thread at a time."""
MOST_PROCESSES = 64
"""Largest number of batches of a model that processes decode at once; they share the memory for its
caches."""


def load_translator(
    folder: Path, preset: Preset, threads: int, limits: BatchLimits | None = None
) -> Translator:
    """Load a translation bundle with as many workers as the preset requires. Raises BundleError.

    `throughput`: as many batches are decoded at once as there are threads. `latency`: one batch,
    whose products are shared by as many threads as are found to be fastest for one short text. A
    GPU computes as many batches at a time as it has streams for.
    """
    if not computes_on_cpu(parse_manifest(folder)):
        return Translator(folder, threads=1, workers=MOST_STREAMS, limits=limits)
    if preset == "throughput":
        workers = min(threads, MOST_WORKERS)
        return Translator(folder, threads=threads, workers=workers, limits=limits)
    return fastest(
        lambda count: Translator(folder, threads=count, limits=limits),
        lambda translator: translator.warm_up(),
        threads,
        "translate",
        folder,
    )


class DecodingProcesses:
    """All decoding processes of a server."""

    def __init__(self, preset: Preset, threads: int) -> None:
        """Create the group; no process starts before there is something to load."""
        self._preset, self._threads = preset, threads
        self._single = ProcessGroup(1, forks=False)
        self._on_gpus: ProcessGroup | None = None
        """The processes for GPUs; None before the first bundle for a GPU."""
        count = min(threads, MOST_PROCESSES)
        self._many = ProcessGroup(count, forks=True) if preset == "throughput" else self._single

    def load(
        self, folder: Path, limits: BatchLimits | None = None
    ) -> IsolatedTranslator | Translator:
        """Load a translator that decodes in these processes; the presets are those of
        `load_translator`.

        `throughput`: a process for each thread decodes for all models. `latency`: one process does,
        with as many threads for a model as are found to be fastest. On GPUs, one process for each
        GPU decodes for all models, because processes do not compute there at once. If a GPU has
        streams for several batches, threads of this process decode them, on the first GPU.
        """
        manifest = parse_manifest(folder)
        if not computes_on_cpu(manifest):
            if batches_at_once(manifest, MOST_STREAMS) > 1:
                return load_translator(folder, self._preset, self._threads, limits)
            return IsolatedTranslator(folder, limits=limits, processes=self._gpu_group())
        if self._preset == "throughput":
            return IsolatedTranslator(folder, limits=limits, processes=self._many)
        return IsolatedTranslator(
            folder, threads=self._threads, limits=limits, tune=True, processes=self._single
        )

    def load_generator(
        self, folder: Path, limits: BatchLimits | None = None
    ) -> IsolatedGenerator | Generator:
        """Load a language model. On each of several GPUs it decodes in a process of these.
        Otherwise a thread of this process decodes: one batch of many prompts is faster than as many
        batches, which would each read all weights.
        """
        # Imported here, because a process that decodes translations needs neither.
        from serving.generation.presets import load_generator
        from serving.processes.generator import IsolatedGenerator

        group = self._on_several_gpus(folder)
        if group is None:
            return load_generator(folder, self._preset, self._threads, limits)
        return IsolatedGenerator(folder, group, limits)

    def load_reader(self, folder: Path) -> IsolatedReader | TextReader:
        """Load an encoder. On each of several GPUs it reads in a process of these, otherwise
        threads of this process read."""
        from serving.encoding.presets import load_reader
        from serving.processes.reader import IsolatedReader

        group = self._on_several_gpus(folder)
        if group is None:
            return load_reader(folder, self._preset, self._threads)
        return IsolatedReader(folder, group)

    def start(self) -> None:
        """Start the process that loads models on the CPU, so that the first model loads sooner."""
        self._many.start()

    @property
    def held_bytes(self) -> int:
        """Memory of all processes in bytes, with shared memory counted once; 0 if the system does
        not report it."""
        return sum(group.held_bytes for group in self._groups)

    def close(self) -> None:
        """End all processes, whatever they are doing."""
        for group in self._groups:
            group.close()

    @property
    def _groups(self) -> set[ProcessGroup]:
        found = {self._single, self._many}
        return found if self._on_gpus is None else found | {self._on_gpus}

    def _on_several_gpus(self, folder: Path) -> ProcessGroup | None:
        """The group for a bundle that a process on each of several GPUs is to load."""
        manifest = parse_manifest(folder)
        if computes_on_cpu(manifest) or batches_at_once(manifest, MOST_STREAMS) > 1:
            return None
        group = self._gpu_group()
        return group if group.size > 1 else None

    def _gpu_group(self) -> ProcessGroup:
        """A group with one process for each GPU that CUDA shows."""
        if self._on_gpus is None:
            gpus = visible_gpus(os.environ)
            several = len(gpus) > 1
            self._on_gpus = (
                ProcessGroup(len(gpus), forks=False, gpus=gpus) if several else self._single
            )
        return self._on_gpus
