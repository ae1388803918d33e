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


def test_every_document_is_in_the_navigation() -> None:
    listed = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for document in (ROOT / "docs").rglob("*.md"):
        assert f"- {document.relative_to(ROOT / 'docs').as_posix()}\n" in listed
