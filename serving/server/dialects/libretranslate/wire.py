"""What goes over the wire in LibreTranslate's dialect; the native dialect's bodies hold some of
it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from serving.server.wire import Wire

_FLAGS: dict[object, bool] = {"true": True, "1": True, "false": False, "0": False}


def _flag(given: object) -> object:
    """What clients write for a boolean: 1, "1" or "true"."""
    text = str(given).lower() if isinstance(given, int | str) else ""
    return _FLAGS.get(text, given)


def _whole(given: object) -> object:
    """What clients write for a whole number: 2.0 or "2"."""
    if isinstance(given, str) and given.isdecimal() and len(given) < 10:
        return int(given)
    return int(given) if isinstance(given, float) and given.is_integer() else given


def _with_nulls(schema: dict[str, Any]) -> None:
    """Let a schema say that what may be left out may be null. Its own keywords stay where they
    are, for clients look there for what the server can do."""
    for name, field in schema["properties"].items():
        if name in schema["required"]:
            continue
        if "type" in field:
            kinds = field["type"]
            field["type"] = [*(kinds if isinstance(kinds, list) else [kinds]), "null"]
        if "enum" in field:
            field["enum"] = [*field["enum"], None]
        if "anyOf" in field and {"type": "null"} not in field["anyOf"]:
            field["anyOf"] = [*field["anyOf"], {"type": "null"}]


Flag = Annotated[
    bool,
    BeforeValidator(_flag),
    WithJsonSchema({"enum": [True, False, 1, 0, "true", "false", "1", "0"]}),
]
"""A boolean, also as a number or a text."""
Count = Annotated[
    int,
    BeforeValidator(_whole),
    Field(ge=0),
    WithJsonSchema({"type": ["integer", "string"], "minimum": 0, "pattern": "^[0-9]{1,9}$"}),
]
"""A number from 0, also as a text."""


class LenientRequest(Wire):
    """A body in which null, and no language at all, mean that a field is left out: some clients
    always send all."""

    model_config = ConfigDict(json_schema_extra=_with_nulls)

    @model_validator(mode="before")
    @classmethod
    def _given(cls, fields: object) -> object:
        if not isinstance(fields, dict):
            return fields
        return {
            name: value
            for name, value in fields.items()
            if (value is not None or name == "q")
            and not (value == "" and name in ("source", "target"))
        }


class DetectRequest(LenientRequest):
    """A text, or several that are taken as one."""

    q: str | Annotated[list[str], Field(min_length=1)]
    """Text in one language."""
    api_key: str = ""
    """Key of the caller, where the server asks for keys."""


class DetectedLanguage(Wire):
    """The same as LibreTranslate tells it."""

    confidence: Annotated[float, Field(ge=0, le=100)]
    """Percent."""
    language: str


class NamedLanguage(Wire):
    """A language with its English name, as a list to choose from shows it."""

    code: str
    name: str


class FrontendLanguages(Wire):
    """What a page chooses at first."""

    source: NamedLanguage
    target: NamedLanguage


class FrontendSettings(Wire):
    """What a page in front of the server has to know."""

    charLimit: int
    """Characters of a text."""
    frontendTimeout: int
    """Milliseconds without typing before a page should translate."""
    apiKeys: bool
    keyRequired: bool
    suggestions: bool
    filesTranslation: bool
    supportedFilesFormat: list[str]
    language: FrontendLanguages


class Health(Wire):
    """The state of the server."""

    status: Literal["ok"]
