"""Functions that can be read at a glance, and names that mean one thing."""

import ast
import functools
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("bench", "export", "training", "serving")
MOST_LINES = 60
MOST_PARAMETERS = 8
GRAPHS = "training/models/decoding.py"
"""Whose inputs torch.export tells apart by their places: each is a parameter of its own."""


class Function(NamedTuple):
    """What is counted of one."""

    place: str
    file: str
    name: str
    lines: int
    """From `def` to the last line, docstring included."""
    parameters: int
    """Those by keyword alone and `*` ones too; a method's own object is none."""


def described(file: str, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Function:
    named = [*node.args.posonlyargs, *node.args.args]
    own = bool(named) and named[0].arg in ("self", "cls")
    rest = [each for each in (node.args.vararg, node.args.kwarg) if each is not None]
    count = len(named) - own + len(node.args.kwonlyargs) + len(rest)
    assert node.end_lineno is not None
    lines = node.end_lineno - node.lineno + 1
    return Function(f"{file}:{node.lineno} {node.name}", file, node.name, lines, count)


@functools.cache
def found_in(package: str) -> tuple[list[Function], list[tuple[str, str]]]:
    """Functions, and public classes with their files; each file is parsed once for all tests."""
    functions, classes = list[Function](), list[tuple[str, str]]()
    for path in sorted((ROOT / package).rglob("*.py")):
        file, tree = str(path.relative_to(ROOT)), ast.parse(path.read_text(encoding="utf-8"))
        functions += [
            described(file, node)
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ]
        classes += [
            (node.name, file)
            for node in tree.body
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
        ]
    return functions, classes


@pytest.mark.parametrize("package", PACKAGES)
def test_no_function_is_longer_than_a_screen(package: str) -> None:
    functions, _ = found_in(package)
    assert len(functions) > 50  # functions have been found
    assert [(each.place, each.lines) for each in functions if each.lines > MOST_LINES] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_no_function_has_more_parameters_than_a_reader_can_distinguish(package: str) -> None:
    found = [
        (each.place, each.parameters)
        for each in found_in(package)[0]
        if (each.file, each.name) != (GRAPHS, "forward")
    ]
    assert max(count for _, count in found) > 4  # parameters have been counted
    assert [(name, count) for name, count in found if count > MOST_PARAMETERS] == []


def test_no_two_public_classes_share_a_name() -> None:
    files: dict[str, list[str]] = defaultdict(list)
    for package in (*PACKAGES, "macaron"):
        for name, file in found_in(package)[1]:
            files[name].append(file)
    assert len(files) > 200  # classes have been found
    assert {name: places for name, places in files.items() if len(places) > 1} == {}
