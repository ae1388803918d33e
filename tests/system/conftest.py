"""What tests of the whole system have in common."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from starlette.testclient import TestClient

from serving.server.app import create_app
from serving.server.http.settings import Settings
from serving.server.models.bundles import load_bundles
from serving.server.models.registry import Registry

if TYPE_CHECKING:
    from playwright.sync_api import Browser

MODELS = Path(__file__).resolve().parents[2] / "models"


@pytest.fixture(scope="module")
def demo_client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """The app over the Macaron bundles."""
    folder = tmp_path_factory.mktemp("bundles")
    for name in ("macaron-de-en", "macaron-en-de", "macaron-fr-es-en"):
        shutil.copytree(MODELS / name, folder / name)
    settings = Settings(bundles=folder, threads=1)
    registry = Registry(settings)
    registry.start(load_bundles(settings))
    with TestClient(create_app(registry, settings)) as client:
        yield client
    registry.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser for the tests of a file, each of which has a profile of its own in it."""
    from playwright.sync_api import expect

    from tests.system.browser import chromium

    expect.set_options(timeout=20_000)
    with chromium() as browser:
        yield browser


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Without slow tests, not those of the OpenAPI document: schemathesis draws their examples when
    it collects them, for as long in each process of the run as a hundred other files take."""
    left_out = config.getoption("markexpr") == "not slow"
    return True if left_out and collection_path.name == "test_openapi_fuzz.py" else None
