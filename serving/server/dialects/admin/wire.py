"""What goes over the wire where a server is administered; unknown fields are ignored."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from serving.server.http.wire import Wire

Characters = Annotated[int, Field(ge=0, le=10**15)]
Requests = Annotated[int, Field(ge=1, le=10**9)]


class KeyCreation(Wire):
    """A key to make."""

    label: str = ""
    """What people call it."""
    characters_a_month: Characters | None = None
    """Characters that it may send in a month, in UTC; null leaves that to the server's setting."""
    requests_a_minute: Requests | None = None
    """Requests that it may make in a minute of each server; null leaves that to the setting."""


class KeyPatch(Wire):
    """What is to change of a key; what is left out stays as it is."""

    label: str | None = None
    characters_a_month: Characters | None = None
    """null takes the limit away."""
    requests_a_minute: Requests | None = None
    """null takes the limit away."""
    disabled: bool | None = None
    """A key that is disabled opens nothing, until it is enabled again."""


class ApiKey(Wire):
    """What is known of a key; the key itself is not kept."""

    id: str
    """Also its name in log lines and in the usage."""
    label: str
    created: str
    """When, in UTC."""
    disabled: str | None
    """Since when, in UTC; null where it works."""
    characters_a_month: int | None
    requests_a_minute: int | None


class NewApiKey(ApiKey):
    """A key that was just made."""

    key: str
    """The key itself, which is shown this once."""


class ApiKeys(Wire):
    """Keys, the oldest first."""

    keys: list[ApiKey]
    next: str | None
    """`after` of the next page; null where this is the last."""


class KeysQuery(Wire):
    """Which keys are asked for."""

    limit: Annotated[int, Field(ge=1, le=1000)] = 100
    after: str = ""
    """Id of the key after which to begin."""


class UsageRequest(Wire):
    """Which usage is asked for."""

    first: str = Field(alias="from")
    """The first day, in UTC: `2026-11-01`."""
    last: str = Field(alias="to")
    """The last day, which is included."""
    key: str | None = None
    """The name of a key: its id, or for keys of the settings what log lines call them; empty for
    requests without a key."""
    limit: Annotated[int, Field(ge=1, le=10_000)] = 1000
    after: str = ""
    """`next` of the page before."""


class DailyUsage(Wire):
    """The use that one key made of one task on one day."""

    day: str
    key: str
    """Its id, or what log lines call it; empty for requests without a key."""
    task: str
    """`translate`, `generate`, `encode` or `classify`."""
    requests: int
    characters: int


class TaskUsage(Wire):
    """The sums of one task."""

    task: str
    requests: int
    characters: int


class UsageReport(Wire):
    """Usage by day, key and task, and the sums of all pages."""

    usage: list[DailyUsage]
    totals: list[TaskUsage]
    next: str | None
    """`after` of the next page; null where this is the last."""


class AuditQuery(Wire):
    """Which acts are asked for."""

    limit: Annotated[int, Field(ge=1, le=1000)] = 100
    before: Annotated[int, Field(ge=0, le=10**15)] | None = None
    """Number of the act before which to begin."""


class AuditAct(Wire):
    """One act of administration."""

    number: int
    time: str
    """In UTC."""
    address: str
    """From where it was asked for."""
    act: str
    subject: str
    """Id of a key or name of a model; empty where there is none."""
    details: str


class AuditReport(Wire):
    """Acts of administration, the newest first."""

    acts: list[AuditAct]
    next: int | None
    """`before` of the next page; null where this is the last."""


class AdminModel(Wire):
    """A model that is served."""

    name: str
    task: str
    loaded: bool
    """Otherwise the first request for it loads it."""
    file_bytes: int
    """Of its bundle."""
    asked_s: float | None
    """Seconds since a request asked for it; null where none has, and of models that are always
    loaded."""


class AdminModels(Wire):
    """Every model of this server process."""

    models: list[AdminModel]


class ModelAct(Wire):
    """What is to be done with a model."""

    action: Literal["load", "unload"]


class ModelImport(Wire):
    """A model to import."""

    name: Annotated[str, Field(max_length=1000)]
    """As `macaron pull` takes it: OWNER/NAME of a hub, firefox:FROM-TO, argos:FROM-TO, or a URL
    with #sha256=HASH."""


class ModelImportReport(Wire):
    """How far the import is that was asked for last."""

    state: Literal["none", "running", "done", "failed", "stopped"]
    name: str
    """As it was asked for; empty where none was."""
    lines: list[str]
    """What the import said last: size and licence, then how far it is."""
    model: str | None
    """The name by which requests choose the model, once it is served."""
    error: str | None
    """Why it failed."""


class Drained(Wire):
    """What was done."""

    status: Literal["draining"]
