"""The docstrings below the fields of a class, read from its source when they are needed.

Pydantic reads them when a class is created (`use_attribute_docstrings`), which for a server with
hundreds of bodies takes a tenth of a second of its start.
"""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import sys
from collections.abc import Iterator


@functools.cache
def field_docstrings(cls: type) -> dict[str, str]:
    """The docstrings of the fields of a class and of its base classes, by name; empty for a class
    without source."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if not base.__module__.startswith("pydantic"):  # its own fields do not belong to a body
            found |= _of_module(base.__module__).get(base.__qualname__, {})
    return found


@functools.cache
def _of_module(name: str) -> dict[str, dict[str, str]]:
    """The docstrings of the fields of a module's classes, by the qualified name of the class. A
    module is read once: a server with hundreds of bodies has them in a dozen modules."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[name]))
    except (KeyError, OSError, TypeError):  # built in, or typed at a prompt
        return {}
    return {name: _of_class(found) for name, found in _classes(tree, "")}


def _classes(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.ClassDef]]:
    """The classes below a node, each with its qualified name."""
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.ClassDef(name=name):
                yield prefix + name, child
                yield from _classes(child, f"{prefix}{name}.")
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield from _classes(child, f"{prefix}{name}.<locals>.")
            case ast.stmt():
                yield from _classes(child, prefix)


def _of_class(definition: ast.ClassDef) -> dict[str, str]:
    found = {}
    for field, said in itertools.pairwise(definition.body):
        match field, said:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(
                value=ast.Constant(value=str(text))
            ):
                found[name] = inspect.cleandoc(text)
    return found
