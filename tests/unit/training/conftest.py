"""One thread for all tests here."""

import pytest


@pytest.fixture(autouse=True)
def _one_thread(one_thread: None) -> None:
    pass
