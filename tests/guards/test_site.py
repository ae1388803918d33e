"""What docs/site_pages.py makes of the code: command line, routes, options, settings."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_pages", ROOT / "docs/site_pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("name", "held"),
    [
        ("command line", ["### macaron translate", "### macaron export import"]),
        ("generation options", ["| `temperature` | `1.0` |"]),
        (
            "recipe keys",
            [
                "## `optim`",
                "| `train` | required |  |",
                "| `held_out_pairs` | `2000` | Pairs to hold out of training.",
                "| `noise` | its own keys |  |",
            ],
        ),
        ("try it", ["make serve", "(how-to/playground.md)"]),
        ("why it is fast", ["images/speed.svg", "[base]: background/benchmarks.md#base"]),
        ("routes", ["## POST /translate", "### TranslateRequest"]),
        ("search options", ["| `beam_size` | `5` |"]),
        ("settings", ["| `MACARON_MAX_TEXTS` | `128`, at least 1 |"]),
    ],
)
def test_pages_are_made_of_the_code(site: ModuleType, name: str, held: list[str]) -> None:
    text = site.MADE[name]()
    for part in held:
        assert part in text


def test_every_page_asks_for_something_that_is_made(site: ModuleType) -> None:
    asked = {
        line.removeprefix("<!-- made: ").removesuffix(" -->")
        for document in (ROOT / "docs").rglob("*.md")
        for line in document.read_text(encoding="utf-8").splitlines()
        if line.startswith("<!-- made: ")
    }
    assert asked == set(site.MADE)


def test_links_to_files_that_are_no_pages_become_paths(site: ModuleType) -> None:
    page = "See [the recipes](../../training/recipes) and [engine](engine.md#threads)."
    assert site.without_links_outside(page, "background/models.md") == (
        "See the recipes (`training/recipes`) and [engine](engine.md#threads)."
    )


def test_below_a_measured_table_stands_how_it_was_measured(site: ModuleType) -> None:
    page = "<!-- measured: base-avx2 -->\n| a |\n<!-- end -->\n\nText."
    shown = site.with_measurements(page)
    assert "<!-- measured: base-avx2 -->\n| a |\n<!-- end -->\n\n</div>\n\n<details" in shown
    assert "AMD Zen 3 with AVX2 alone, 2 cores" in shown
    assert "<code>CT2_USE_MKL=0 python -m bench engine" in shown
    assert "2026-11-25, at commit 3d625c16" in shown


def test_every_document_is_in_the_navigation() -> None:
    listed = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for document in (ROOT / "docs").rglob("*.md"):
        assert f"- {document.relative_to(ROOT / 'docs').as_posix()}\n" in listed


def test_no_page_loads_the_search_s_worker_from_elsewhere(site: ModuleType) -> None:
    class Page:
        url = "how-to/import.html"

    head = f"<head>{site.SHIM}</head>"
    local = '<head><script src="../search_worker.js"></script></head>'
    assert site.on_post_page(head, page=Page()) == local
    assert site.on_post_template(head) == "<head></head>"
    assert (ROOT / "docs/search_worker.js").exists()
