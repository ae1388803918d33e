"""The models and the app of a worker, created once in its process.

`serving.service` is also imported by the process that watches the workers, which needs neither.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING

from serving.errors import ServingError
from serving.server.check import refuse
from serving.server.http.settings import Settings

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from serving.server.models.registry import Registry

FAILED = "_MACARON_FAILED"
"""Variable with the descriptor that a worker writes to if a bundle cannot be loaded, so that the
process that watches it ends with a failure. BentoML's own process sets none, and ends as by a
signal."""
_WORKER = "_bentoml_impl.worker.service"
"""The module that BentoML runs as a worker."""


def _read_settings() -> Settings:
    try:
        return Settings.from_environment()
    except ServingError as error:
        refuse(error)


SETTINGS = _read_settings()
"""The settings of this process and of all workers."""


@functools.cache
def registry() -> Registry:
    """The models; their decoding processes are already starting."""
    from serving.server.models.registry import Registry

    made = Registry(SETTINGS)
    made.start_processes()
    return made


@functools.cache
def app() -> Starlette:
    """The app over the models. Ends the process if it cannot be created."""
    from serving.server.app import create_app

    try:
        return create_app(registry(), SETTINGS)
    except ServingError as error:
        refuse(error)


def start_early() -> None:
    """In a worker, start the decoding processes now: they load while BentoML is still being
    imported."""
    main = sys.modules["__main__"].__spec__
    if main is not None and main.name == _WORKER:
        registry()
