"""docs/openapi.json is what the server says of itself, and what the server does."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from serving.errors import InvalidOptionError
from serving.search.options import RANGES, SearchOptions, parse_options
from serving.server.api.dialect import API_VERSION
from serving.server.app import create_app
from serving.server.http.settings import Settings
from serving.server.models.registry import Registry
from serving.server.openapi import document
from tests.unit.serving.echo import all_routes

ROOT = Path(__file__).resolve().parents[2]


def test_the_copy_in_docs_is_up_to_date() -> None:
    copy = (ROOT / "docs/openapi.json").read_text(encoding="utf-8")
    assert copy == document(), "run: python -m serving.server.openapi > docs/openapi.json"


def test_version_is_the_projects() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == API_VERSION


def test_every_route_is_described_and_no_other() -> None:
    described = json.loads(document())["paths"]
    app = create_app(Registry(Settings()), Settings())
    served = {
        route.path: {method.lower() for method in route.methods - {"HEAD"}}
        for route in all_routes(app)
        if hasattr(route, "methods") and route.path != "/"
    }
    assert {path: set(methods) for path, methods in described.items()} == served


def test_every_reference_leads_somewhere() -> None:
    tree = json.loads(document())
    schemas = tree["components"]["schemas"]

    def references(node: Any) -> set[str]:
        if isinstance(node, dict):
            own = {node["$ref"]} if "$ref" in node else set()
            return own.union(*map(references, node.values()))
        return set().union(*map(references, node)) if isinstance(node, list) else set()

    assert references(tree) == {f"#/components/schemas/{name}" for name in schemas}


def test_options_are_described_as_they_are_checked() -> None:
    request = json.loads(document())["components"]["schemas"]["TranslateRequest"]
    options = request["properties"]["options"]
    assert options["additionalProperties"] is False
    assert set(options["properties"]) == {f.name for f in dataclasses.fields(SearchOptions)}
    assert all(field["description"] for field in options["properties"].values())
    for name, (low, high) in RANGES.items():
        described = options["properties"][name]
        described = described.get("anyOf", [described])[0]
        assert (described["minimum"], described["maximum"]) == (low, high)
        for outside in (low - 1, high + 1):
            with pytest.raises(InvalidOptionError, match=name):
                parse_options({name: outside})
