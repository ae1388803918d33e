"""A hub that is known to this process alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from serving.runtime.kernels import native_library
from tests.toy.hub import ToyHub, toy_hub, use


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ToyHub]:
    native_library()  # kept for all tests of this process, else each would compile it
    with toy_hub() as server:
        use(server, tmp_path, monkeypatch)
        yield server
