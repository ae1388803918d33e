"""The docstrings below the fields of a class, read from its source when they are needed.

Pydantic reads them when a class is created (`use_attribute_docstrings`), which for a server with
hundreds of bodies takes a tenth of a second of its start.
"""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import textwrap


@functools.cache
def field_docstrings(cls: type) -> dict[str, str]:
    """The docstrings of the fields of a class and of its base classes, by name; empty for a class
    without source."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if base.__module__.startswith("pydantic"):
            continue  # its own fields do not belong to a body
        try:
            source = inspect.getsource(base)
        except (OSError, TypeError):  # a class that is built in, or created by a call
            continue
        (definition,) = ast.parse(textwrap.dedent(source)).body
        assert isinstance(definition, ast.ClassDef)
        for field, said in itertools.pairwise(definition.body):
            match field, said:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(
                    value=ast.Constant(value=str(text))
                ):
                    found[name] = inspect.cleandoc(text)
    return found
