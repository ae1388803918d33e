"""The paths of the OpenAPI document, derived from the routes of a dialect."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import NoneType
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core.core_schema import ModelSchema

from serving.docstrings import field_docstrings
from serving.server.api.dialect import Dialect, DialectRoute
from serving.server.http.form import MULTIPART, URLENCODED
from serving.server.http.wire import JSON, Wire

SCHEMAS = "#/components/schemas/"

REASONS: Mapping[int, str] = {
    200: "Done",
    201: "Made",
    202: "Begun",
    204: "Done; the answer has no body",
    400: "The request is invalid; the message says why",
    401: "An API key is missing or unknown; only if the server has keys",
    403: "The API key in the body is unknown",
    404: "There is no model with that name",
    413: "A text, the list of texts or the body is over a limit of `/limits`",
    408: "The body did not arrive in time",
    415: "The route does not read the body's media type or character set",
    501: "The server has not been set up for this; the message says what is missing",
    429: "The client has exceeded its limit per minute; only if there is a limit",
    500: "The model failed",
    503: "The queue is full, or the server is starting or shutting down; try again later",
    504: "Not finished in time",
}
"""The meaning of each status, unless the dialect gives another one."""
_PATH_PARAMETER = re.compile(r"\{(\w+)\}")
_FILE = {"type": "string", "format": "binary"}
_RETRY_AFTER = {
    "Retry-After": {
        "description": "Seconds to wait before another try",
        "schema": {"type": "integer", "minimum": 1},
    }
}


class DescribedSchema(GenerateJsonSchema):
    """Schemas whose fields are described by the docstrings below them."""

    def model_schema(self, schema: ModelSchema) -> JsonSchemaValue:
        """The schema of a body."""
        found = super().model_schema(schema)
        model: type[BaseModel] = schema["cls"]
        said = field_docstrings(model) if issubclass(model, Wire) else {}
        for name, field in model.model_fields.items():
            given = field.serialization_alias if self.mode == "serialization" else field.alias
            property = found.get("properties", {}).get(given or name)
            if property is not None and name in said:
                property.setdefault("description", said[name])
        return found


def paths_of(dialect: Dialect[Any]) -> dict[str, Any]:
    """Each path of a dialect with its operations, by lower-case method."""
    found: dict[str, Any] = {}
    for route in dialect.routes:
        operations = {m.lower(): _operation(dialect, route, m) for m in route.methods}
        found.setdefault(route.path, {}).update(operations)
    return found


def bodies_of(
    dialect: Dialect[Any],
) -> tuple[list[type[BaseModel]], list[type[BaseModel]]]:
    """The bodies that a dialect reads and writes, including its error, without the bodies nested in
    them."""
    requests = [route.request for route in dialect.routes if route.request]
    answers = [_body(route.answer) for route in dialect.routes]
    return requests, [*(answer for answer in answers if answer), dialect.error]


def _body(answer: type[Any]) -> type[BaseModel] | None:
    """The body of an answer, or of the items of a list; None for plain text and for any object."""
    [body] = get_args(answer) or [answer]
    return body if issubclass(body, BaseModel) else None


def _operation(dialect: Dialect[Any], route: DialectRoute[Any], method: str) -> dict[str, Any]:
    answered = _answer(route.answer)
    if route.events:
        answered["text/event-stream"] = {"schema": _event(route.events)}
    responses = {str(route.status): {"description": REASONS[route.status], "content": answered}}
    reasons = {**REASONS, **dialect.reasons}
    for status in route.errors:
        responses[str(status)] = {
            "description": reasons[status],
            "content": {JSON: {"schema": _reference(dialect.error)}},
        }
        if status in (429, 503):
            responses[str(status)]["headers"] = _RETRY_AFTER
    several = len(route.methods) > 1
    name = f"{route.name}_{method.lower()}" if several else route.name
    found = {"operationId": name, "summary": route.summary, "responses": responses}
    if route.request and method != "GET":
        content = {JSON: {"schema": _reference(route.request)}}
        if route.form:
            form = {"schema": _form(route.request, route.form)}
            content |= {URLENCODED: form, MULTIPART: form}
        found["requestBody"] = {"required": True, "content": content}
    if route.upload is not None:
        content = {MULTIPART: {"schema": _upload(route.upload)}}
        found["requestBody"] = {"required": True, "content": content}
    parameters = [_parameter(name, "path", ()) for name in _PATH_PARAMETER.findall(route.path)]
    parameters += [_parameter(name, "query", values) for name, values in route.query.items()]
    if method == "GET":  # a form stands in its query
        parameters += [_parameter(name, "query", ()) for name in route.form]
    return {**found, "parameters": parameters} if parameters else found


def _answer(answer: type[Any]) -> dict[str, Any]:
    """The content of an answer by media type; empty if there is no answer."""
    if answer is NoneType:
        return {}
    if answer is str:
        return {"text/plain": {"schema": {"type": "string"}}}
    if answer is bytes:
        return {"application/octet-stream": {"schema": _FILE}}
    body = _body(answer)
    if body is None:
        return {JSON: {"schema": {"type": "object"}}}
    one = _reference(body)
    return {JSON: {"schema": one if body is answer else {"type": "array", "items": one}}}


def _upload(names: tuple[str, ...]) -> dict[str, Any]:
    """The schema of a form with a file and these fields, all of them text."""
    fields = {name: {"type": "string"} for name in names}
    return {"type": "object", "properties": {"file": _FILE, **fields}, "required": ["file"]}


def _event(data: str) -> dict[str, Any]:
    """The schema of a server-sent event of an answer."""
    properties = {"data": {"type": "string", "description": data}, "event": {"type": "string"}}
    return {"type": "object", "properties": properties, "required": ["data"]}


def _form(request: type[BaseModel], names: tuple[str, ...]) -> dict[str, Any]:
    """The schema of a form with these fields of the request."""
    described = request.model_json_schema(schema_generator=DescribedSchema)
    properties = {name: _not_null(described["properties"][name]) for name in names}
    required = [name for name in described.get("required", []) if name in names]
    return {"type": "object", "properties": properties, "required": required}


def _not_null(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of an optional field without null, which a form does not have."""
    found = {name: value for name, value in schema.items() if value is not None}
    if "anyOf" in found:
        found["anyOf"] = [choice for choice in found["anyOf"] if choice != {"type": "null"}]
    if "enum" in found:
        found["enum"] = [value for value in found["enum"] if value is not None]
    if isinstance(found.get("type"), list):
        types = [kind for kind in found["type"] if kind != "null"]
        found["type"] = types if len(types) > 1 else types[0]
    return found


def _parameter(name: str, place: str, values: tuple[str, ...]) -> dict[str, Any]:
    """A text parameter of the path or the query; a path parameter is required."""
    schema: dict[str, Any] = {"type": "string"}
    if values:
        schema["enum"] = list(values)
    return {"name": name, "in": place, "required": place == "path", "schema": schema}


def _reference(model: type[BaseModel]) -> dict[str, Any]:
    """A reference to the schema of a body, by its title if it has one."""
    return {"$ref": SCHEMAS + (model.model_config.get("title") or model.__name__)}
