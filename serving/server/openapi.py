"""Builds the OpenAPI document from the routes of every dialect.

docs/openapi.json is a copy of it; `python -m serving.server.openapi > docs/openapi.json` writes it
again.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from serving.server.api.description import SCHEMAS, DescribedSchema, bodies_of, paths_of
from serving.server.api.dialect import API_VERSION, Dialect
from serving.server.dialects import DIALECTS


def document(dialects: Sequence[Dialect[Any]] = DIALECTS, root_path: str = "") -> str:
    """The document of a server that speaks these dialects, as JSON text; `root_path` is the path
    below which a proxy has put it."""
    tree: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "Macaron",
            "version": API_VERSION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": {path: found for d in dialects for path, found in paths_of(d).items()},
        "components": {"schemas": _schemas(dialects)},
    }
    if root_path:
        tree["servers"] = [{"url": root_path}]
    return json.dumps(tree, indent=1, ensure_ascii=False) + "\n"


def _schemas(dialects: Sequence[Dialect[Any]]) -> dict[str, Any]:
    """The schema of every body, and of the bodies within them, by name."""
    modes: list[tuple[type[BaseModel], JsonSchemaMode]] = []
    for requests, answers in map(bodies_of, dialects):
        modes += [(request, "validation") for request in requests]
        modes += [(answer, "serialization") for answer in answers]
    _, found = models_json_schema(
        modes, ref_template=SCHEMAS + "{model}", schema_generator=DescribedSchema
    )
    return _by_title(found["$defs"])


def _by_title(schemas: dict[str, Any]) -> dict[str, Any]:
    """The same schemas under their titles, because pydantic names them after the classes."""
    text = re.sub(
        f'"{SCHEMAS}([^"]+)"',
        lambda match: f'"{SCHEMAS}{schemas[match[1]]["title"]}"',
        json.dumps(schemas),
    )
    renamed: dict[str, Any] = json.loads(text)
    return {s["title"]: s for s in sorted(renamed.values(), key=lambda s: s["title"])}


if __name__ == "__main__":
    sys.stdout.write(document())
