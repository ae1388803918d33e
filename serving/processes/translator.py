"""A translation model that is decoded in processes beside this one.

Threads of one process wait for each other's Python, and the server's event loop is one of them.
"""

from __future__ import annotations

from pathlib import Path

from serving.bundle.folder import parse_manifest
from serving.bundle.manifest import Manifest
from serving.processes.group import ProcessGroup
from serving.processes.isolated import IsolatedEngine, IsolatedModel
from serving.queue.limits import BatchLimits
from serving.runtime.device import computes_on_cpu
from serving.search.beams.sentence import Sentence
from serving.search.options import SearchOptions
from serving.translation.results import SentenceOutcome
from serving.translation.texts import load_texts


class IsolatedTranslator:
    """A translation bundle that a group of decoding processes has loaded."""

    def __init__(
        self,
        folder: Path,
        *,
        threads: int = 1,
        workers: int = 1,
        limits: BatchLimits | None = None,
        tune: bool = False,
        processes: ProcessGroup | None = None,
    ) -> None:
        """Load a bundle in `processes`, or in `workers` processes of its own. Raises BundleError if
        they cannot load it.

        Each process has `threads`, or with `tune` as many of these as are fastest for a short text.
        Together those on one device keep to the memory of `limits`.
        """
        own = processes is None
        if processes is None:
            forks = threads == 1 and not tune and computes_on_cpu(parse_manifest(folder))
            processes = ProcessGroup(workers, forks=forks)
        self.workers, devices = processes.size, processes.devices

        def load_own() -> None:
            self.texts = load_texts(folder, self.workers, limits, devices)

        try:
            self._model = IsolatedModel(
                processes, folder, threads=threads, tune=tune, limits=limits, meanwhile=load_own
            )
        except BaseException:
            if own:  # nobody else can
                processes.close()
            raise
        self.device = self._model.device

    @property
    def manifest(self) -> Manifest:
        """The bundle's manifest."""
        return self.texts.manifest

    @property
    def default_options(self) -> SearchOptions:
        """The bundle's own search options."""
        return self.texts.default_options

    def engine(self) -> IsolatedEngine[Sentence, list[int], SentenceOutcome]:
        """An engine in the next process; the caller closes it."""
        return self._model.engine()

    def warm_up(self) -> None:
        """Does nothing: the processes have warmed up already."""
