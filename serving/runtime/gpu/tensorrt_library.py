"""TensorRT and TensorRT-RTX: two optional libraries with the same Python interface."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from types import ModuleType
from typing import Any, get_args

from serving.bundle.engines import Library
from serving.errors import BundleError

LIBRARIES: tuple[Library, ...] = get_args(Library)
"""The libraries in the order in which they are looked for."""
_MODULES: dict[Library, tuple[str, ...]] = {
    "tensorrt": ("tensorrt", "tensorrt_bindings"),
    "tensorrt_rtx": ("tensorrt_rtx", "tensorrt_rtx_bindings"),
}
"""The modules of each library: the vendor's whole package, or the wheel with the bindings alone."""
_INSTALL: dict[Library, str] = {
    "tensorrt": "pip install tensorrt-cu13",
    "tensorrt_rtx": "pip install tensorrt-rtx-cu13-bindings tensorrt-rtx-cu13-libs",
}
_LICENCE = "under NVIDIA's own licence, which is not an open one"


@dataclass(frozen=True)
class TensorRT:
    """A loaded library."""

    name: Library
    version: str
    module: ModuleType

    def logger(self) -> Any:
        """A logger that collects errors in `errors`, one line each, and drops everything else."""
        base: Any = self.module.ILogger
        worst = (self.module.Logger.INTERNAL_ERROR, self.module.Logger.ERROR)

        class Log(base):  # type: ignore[misc]
            def __init__(self) -> None:
                base.__init__(self)
                self.errors: list[str] = []

            def log(self, severity: Any, text: str) -> None:
                if severity in worst:
                    self.errors.append(" ".join(text.split()))

        return Log()


def find_tensorrt(name: Library | None = None) -> TensorRT:
    """The library with that name, or the first that is installed.

    Raises BundleError, which says how to install it and names its licence.
    """
    wanted = LIBRARIES if name is None else (name,)
    for library in wanted:
        for module in _MODULES[library]:
            try:
                loaded = importlib.import_module(module)
            # The bindings without their libraries raise whatever the attempt to open those raised.
            except (ImportError, OSError, RuntimeError):
                continue
            return TensorRT(library, str(loaded.__version__), loaded)
    ways = " or ".join(f"`{_INSTALL[library]}`" for library in wanted)
    raise BundleError(
        f"{' and '.join(wanted)} cannot be imported: not installed, or without its libraries; "
        f"{ways} brings it, {_LICENCE}"
    )
