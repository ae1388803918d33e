"""What a worker serves: the models and the app, made once in its process.

`serving.service` is imported by the process that watches the workers too, which needs neither.
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

_WORKER = "_bentoml_impl.worker.service"
"""The module that BentoML runs as a worker."""


def _read_settings() -> Settings:
    try:
        return Settings.from_environment()
    except ServingError as error:
        refuse(error)


SETTINGS = _read_settings()
"""Of this process and of all workers."""


@functools.cache
def registry() -> Registry:
    """The models; what decodes them is starting."""
    from serving.server.models.registry import Registry

    made = Registry(SETTINGS)
    made.start_processes()
    return made


@functools.cache
def app() -> Starlette:
    """The app over the models; ends the process where it cannot be made."""
    from serving.server.app import create_app

    try:
        return create_app(registry(), SETTINGS)
    except ServingError as error:
        refuse(error)


def start_early() -> None:
    """In a worker, start what decodes now: it loads while BentoML is still being imported."""
    main = sys.modules["__main__"].__spec__
    if main is not None and main.name == _WORKER:
        registry()
