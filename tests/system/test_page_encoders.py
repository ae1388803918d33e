"""The page's tab of the encoders in a real Chromium, of a server that has nothing else."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.conftest import TinyEncoders
from tests.system.browser import NAMES, Visit, find_chromium, visit
from tests.system.server import Server, running

if find_chromium() is None:
    pytest.skip(
        f"the page is not tested: none of {', '.join(NAMES)} is on the PATH",
        allow_module_level=True,
    )


@pytest.fixture(scope="module")
def server(
    tiny_encoders: TinyEncoders, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    with running(tiny_encoders.bundles, tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture
def visited(browser: Browser, server: Server) -> Iterator[Visit]:
    with visit(browser) as found:
        found.page.goto(server.url)
        yield found
        assert found.complaints == []


@pytest.fixture
def page(visited: Visit) -> Page:
    """The page, with its only tab."""
    expect(visited.page.get_by_role("tab")).to_have_count(1)
    expect(visited.page.get_by_role("tabpanel", name="Classify and compare")).to_be_visible()
    return visited.page


def choose(page: Page, name: str) -> None:
    page.get_by_role("combobox", name="Model", exact=True).select_option(name)


def test_a_text_is_classified(page: Page, server: Server) -> None:
    choose(page, "tiny-classifier")
    page.get_by_label("First text").fill("The cat sat.")
    page.get_by_role("button", name="Classify").click()
    rows = page.get_by_role("region", name="Classes").get_by_role("row")
    body = {"q": "The cat sat.", "model": "tiny-classifier"}
    (found,) = httpx.post(f"{server.url}/classify", json=body, timeout=60).json()["classifications"]
    expect(rows).to_have_count(1 + len(found["labels"]))
    for row, label in zip(rows.all()[1:], found["labels"], strict=True):
        expect(row).to_have_text(f"{label['label']}{100 * label['probability']:.1f} %")


def test_two_texts_are_compared_and_the_code_does_the_same(page: Page, server: Server) -> None:
    choose(page, "tiny-embedder")
    page.get_by_label("First text").fill("The cat sat.")
    page.get_by_label("Second text").fill("A dog ran.")
    page.get_by_label("Second text").press("Control+Enter")
    inputs = {"source_sentence": "The cat sat.", "sentences": ["A dog ran."]}
    body = {"model": "tiny-embedder", "inputs": inputs}
    (likeness,) = httpx.post(f"{server.url}/similarity", json=body, timeout=60).json()
    expect(page.get_by_label("Similarity")).to_have_text(f"Cosine similarity {likeness:.3f}")
    page.locator("#encode-snippet summary").click()
    page.locator("#encode-snippet-form").select_option("curl")
    code = page.locator("#encode-snippet-code").inner_text()
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [likeness]
    page.locator("#encode-snippet-form").select_option("Python")
    code = page.locator("#encode-snippet-code").inner_text()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [likeness]


def test_what_the_server_refuses_is_reported(visited: Visit, page: Page) -> None:
    choose(page, "tiny-embedder")
    page.get_by_label("First text").fill("cat " * 100)
    page.get_by_label("Second text").fill("A dog.")
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("alert")).to_contain_text(re.compile("24|tokens"))
    assert any("413" in complaint for complaint in visited.complaints)
    visited.complaints.clear()
