"""Functions that can be read at a glance, and names that mean one thing."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("bench", "export", "training", "serving")
MOST_LINES = 60
MOST_PARAMETERS = 8
GRAPHS = "training/models/decoding.py"
"""Whose inputs torch.export tells apart by their places: each is a parameter of its own."""


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


def parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """How many, those by keyword alone and `*` ones too; a method's own object is none."""
    named = [*node.args.posonlyargs, *node.args.args]
    own = bool(named) and named[0].arg in ("self", "cls")
    rest = [each for each in (node.args.vararg, node.args.kwarg) if each is not None]
    return len(named) - own + len(node.args.kwonlyargs) + len(rest)


@pytest.mark.parametrize("package", PACKAGES)
def test_no_function_has_more_parameters_than_a_reader_can_distinguish(package: str) -> None:
    found = [
        (f"{file}:{node.lineno} {node.name}", parameters(node))
        for file, tree in trees(package)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if (file, node.name) != (GRAPHS, "forward")
    ]
    assert max(count for _, count in found) > 4  # parameters have been counted
    assert [(name, count) for name, count in found if count > MOST_PARAMETERS] == []


def test_no_two_public_classes_share_a_name() -> None:
    files: dict[str, list[str]] = defaultdict(list)
    for package in (*PACKAGES, "macaron"):
        for file, tree in trees(package):
            for node in tree.body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    files[node.name].append(file)
    assert len(files) > 200  # classes have been found
    assert {name: places for name, places in files.items() if len(places) > 1} == {}
