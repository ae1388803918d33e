"""Functions that can be read at a glance, and names that mean one thing in a package."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("bench", "export", "training", "serving")
MOST_LINES = 60


def trees(package: str) -> Iterator[tuple[str, ast.Module]]:
    for path in sorted((ROOT / package).rglob("*.py")):
        yield str(path.relative_to(ROOT)), ast.parse(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("package", PACKAGES)
def test_no_function_is_longer_than_a_screen(package: str) -> None:
    """From `def` to the last line, docstring included."""
    found = [
        (f"{file}:{node.lineno} {node.name}", node.end_lineno - node.lineno + 1)
        for file, tree in trees(package)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None
    ]
    assert len(found) > 50  # functions have been found
    assert [(name, lines) for name, lines in found if lines > MOST_LINES] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_no_two_public_classes_of_a_package_share_a_name(package: str) -> None:
    files: dict[str, list[str]] = defaultdict(list)
    for file, tree in trees(package):
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                files[node.name].append(file)
    assert len(files) > 5  # classes have been found
    assert {name: places for name, places in files.items() if len(places) > 1} == {}
