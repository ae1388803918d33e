"""Building blocks of the OpenAPI document, with which each dialect describes its own routes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from serving.server.http.wire import Error

SCHEMAS = "#/components/schemas/"

REASONS: Mapping[int, str] = {
    200: "Done",
    400: "The request says something that is not possible; the message says what",
    401: "An API key is needed, or the one sent is not known; only where the server has keys",
    403: "The API key in the body is not known, or, in DeepL's dialect, any key",
    404: "There is no model of that name",
    413: "A text, the list of texts or the body is over a limit of `/limits`",
    408: "The body did not arrive in time",
    415: "The body is declared as something else than the route reads, or not in UTF-8",
    429: "The client has asked for more than it may in a minute; only where there is a limit",
    456: "So many characters are not translated before the server is started anew",
    500: "The model failed",
    503: "The queue is full, or the server is starting or shutting down; try again later",
    504: "Not finished in time",
}
"""What each status means in an answer of this server."""
WORK = (400, 401, 404, 408, 413, 415, 429, 500, 503, 504)
"""Statuses of the errors of a route that decodes."""
QUICK = (400, 401, 404, 408, 413, 415, 429, 503)
"""Statuses of the errors of a route that reads a body and decodes nothing."""
_FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")
_RETRY_AFTER = {
    "Retry-After": {
        "description": "Seconds to wait before another try",
        "schema": {"type": "integer", "minimum": 1},
    }
}


@dataclass(frozen=True)
class Description:
    """One dialect's part of the OpenAPI document."""

    paths: Mapping[str, Any]
    """Path to its operations, by method; made with the functions below."""
    requests: Sequence[type[BaseModel]] = ()
    """Bodies that are read; those that they hold follow by themselves."""
    answers: Sequence[type[BaseModel]] = ()
    """Bodies that are written."""


def schema_name(model: type[BaseModel]) -> str:
    """The name of a body in the document: its title, where it has one of its own."""
    return model.model_config.get("title") or model.__name__


def get(
    name: str,
    summary: str,
    schema: dict[str, Any],
    errors: tuple[int, ...] = (503,),
    error: type[BaseModel] = Error,
) -> dict[str, Any]:
    """A path that is read with GET."""
    return {"get": operation(name, summary, schema, errors, error)}


def post(
    name: str,
    summary: str,
    request: type[BaseModel],
    answer: type[BaseModel],
    errors: tuple[int, ...],
    error: type[BaseModel] = Error,
) -> dict[str, Any]:
    """A path that takes a JSON body with POST."""
    described = operation(name, summary, reference(answer), errors, error)
    described["requestBody"] = {"required": True, "content": content(reference(request))}
    return {"post": described}


def add_forms(path: dict[str, Any], request: type[BaseModel], names: tuple[str, ...]) -> None:
    """Say that the path reads forms too, with those fields of the request."""
    described = request.model_json_schema()
    properties = {name: _not_null(described["properties"][name]) for name in names}
    required = [name for name in described["required"] if name in names]
    schema = {"type": "object", "properties": properties, "required": required}
    path["post"]["requestBody"]["content"].update({form: {"schema": schema} for form in _FORMS})


def _not_null(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of an optional field where it is there, as a form has no null."""
    found = {name: value for name, value in schema.items() if value is not None}
    if "anyOf" in found:
        found["anyOf"] = [choice for choice in found["anyOf"] if choice != {"type": "null"}]
    if "enum" in found:
        found["enum"] = [value for value in found["enum"] if value is not None]
    if isinstance(found.get("type"), list):
        types = [kind for kind in found["type"] if kind != "null"]
        found["type"] = types if len(types) > 1 else types[0]
    return found


def operation(
    name: str,
    summary: str,
    schema: dict[str, Any],
    errors: tuple[int, ...],
    error: type[BaseModel],
) -> dict[str, Any]:
    """One method of a path: the schema of its answer, and the statuses of its errors, whose body is
    `error`."""
    responses: dict[str, Any] = {"200": {"description": REASONS[200], "content": content(schema)}}
    for status in errors:
        responses[str(status)] = {
            "description": REASONS[status],
            "content": content(reference(error)),
        }
        if status in (429, 503):
            responses[str(status)]["headers"] = _RETRY_AFTER
    return {"operationId": name, "summary": summary, "responses": responses}


def events(data: str) -> dict[str, Any]:
    """What each server-sent event of an answer is."""
    properties = {"data": {"type": "string", "description": data}, "event": {"type": "string"}}
    return {"schema": {"type": "object", "properties": properties, "required": ["data"]}}


def parameter(name: str, place: str) -> dict[str, Any]:
    """A text in the path or the query; one in the path is always there."""
    required = place == "path"
    return {"name": name, "in": place, "required": required, "schema": {"type": "string"}}


def content(schema: dict[str, Any]) -> dict[str, Any]:
    """A JSON body of that schema."""
    return {"application/json": {"schema": schema}}


def reference(model: type[BaseModel]) -> dict[str, Any]:
    """Where the document holds the schema of a body."""
    return {"$ref": SCHEMAS + schema_name(model)}
