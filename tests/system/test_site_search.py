"""The search of pages that are opened as files: docs/search_worker.js in a real Chromium."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.system.browser import NAMES, chromium, find_chromium, visit

ROOT = Path(__file__).resolve().parents[2]

if find_chromium() is None:
    pytest.skip(
        f"the search is not tested: all of {', '.join(NAMES)} are missing",
        allow_module_level=True,
    )

PAGE = """<script src="search_worker.js"></script>
<body><script>
const worker = new Worker("worker.js");
worker.addEventListener("message", (event) => { document.title += event.data; });
worker.postMessage("a");
worker.postMessage("b");
</script></body>
"""
WORKER = """
addEventListener("message", async (event) => {
  await importScripts("first.js", "second.js");
  postMessage(event.data + first + second);
});
"""


def test_a_page_that_is_opened_as_a_file_has_a_worker(tmp_path: Path) -> None:
    shutil.copy(ROOT / "docs/search_worker.js", tmp_path)
    (tmp_path / "page.html").write_text(PAGE)
    (tmp_path / "worker.js").write_text(WORKER)
    (tmp_path / "first.js").write_text("var first = 1;")
    (tmp_path / "second.js").write_text("var second = first + 1;")
    with chromium() as browser, visit(browser) as found:
        found.page.goto((tmp_path / "page.html").as_uri())
        found.page.wait_for_function("document.title.length === 6")
        assert sorted([found.page.title()[:3], found.page.title()[3:]]) == ["a12", "b12"]
        assert found.complaints == []
