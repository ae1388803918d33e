"""An encoder that reads in processes beside this one: one for each GPU."""

from __future__ import annotations

from pathlib import Path

from serving.arrays import Floats
from serving.bundle.encoder_tokenizer import EncodedText
from serving.bundle.manifest import Manifest
from serving.encoding.inputs import load_inputs
from serving.encoding.scheduler import TEXT_GROUP
from serving.processes.group import ProcessGroup
from serving.processes.isolated import IsolatedEngine, IsolatedModel


class IsolatedReader:
    """An encoder's bundle that a group of decoding processes has loaded."""

    def __init__(self, folder: Path, processes: ProcessGroup) -> None:
        """Load a bundle in `processes`. Raises BundleError if they cannot load it."""

        def load_own() -> None:
            self.inputs = load_inputs(folder)

        self._model = IsolatedModel(
            processes, folder, meanwhile=load_own, group_of=lambda _: TEXT_GROUP
        )
        self.device, self.workers = self._model.device, processes.size

    @property
    def manifest(self) -> Manifest:
        """The bundle's manifest."""
        return self.inputs.manifest

    def engine(self) -> IsolatedEngine[EncodedText, None, Floats]:
        """An engine in the next process; the caller closes it."""
        return self._model.engine()

    def warm_up(self) -> None:
        """Does nothing: the processes have warmed up already."""
