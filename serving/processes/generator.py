"""A language model that is decoded in processes beside this one: one for each GPU."""

from __future__ import annotations

from pathlib import Path

from serving.bundle.manifest import Manifest
from serving.generation.prompts import load_prompts
from serving.generation.ticket import Delta, GenerationDone, PromptRead
from serving.generation.work import PromptTask
from serving.processes.group import ProcessGroup
from serving.processes.isolated import IsolatedEngine, IsolatedModel
from serving.queue.limits import BatchLimits
from serving.runtime.cache_tensors import CacheSizes


class IsolatedGenerator:
    """A language model's bundle that a group of decoding processes has loaded."""

    def __init__(
        self, folder: Path, processes: ProcessGroup, limits: BatchLimits | None = None
    ) -> None:
        """Load a bundle in `processes`, which share the memory of `limits`. Raises BundleError if
        they cannot load it."""

        def load_own() -> None:
            self.prompts = load_prompts(folder)

        self._model = IsolatedModel(processes, folder, limits=limits, meanwhile=load_own)
        self.device, self.workers = self._model.device, processes.size
        self.sizes = CacheSizes(self.manifest)

    @property
    def manifest(self) -> Manifest:
        """The bundle's manifest."""
        return self.prompts.manifest

    def engine(self) -> IsolatedEngine[PromptTask, PromptRead | Delta, GenerationDone]:
        """An engine in the next process; the caller closes it."""
        return self._model.engine()

    def warm_up(self) -> None:
        """Does nothing: the processes have warmed up already."""
