"""Bodies of the administration routes; unknown fields are ignored."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from serving.server.http.wire import Wire

Characters = Annotated[int, Field(ge=0, le=10**15)]
Requests = Annotated[int, Field(ge=1, le=10**9)]


class KeyCreation(Wire):
    """A key to create."""

    label: str = ""
    """A name for people."""
    characters_a_month: Characters | None = None
    """Character limit per month (UTC); null uses the server's setting."""
    requests_a_minute: Requests | None = None
    """Request limit per minute, on all servers of the store together; null uses the server's
    setting."""


class KeyPatch(Wire):
    """Changes to a key; omitted fields stay."""

    label: str | None = None
    characters_a_month: Characters | None = None
    """Character limit per month; null removes the limit."""
    requests_a_minute: Requests | None = None
    """Request limit per minute; null removes the limit."""
    disabled: bool | None = None
    """A disabled key is refused until it is enabled again."""


class ApiKey(Wire):
    """A key's record. The key itself is not stored."""

    id: str
    """Also the key's name in log lines and in the usage."""
    label: str
    created: str
    """Time of creation, UTC."""
    disabled: str | None
    """Time of disabling, UTC; null for a working key."""
    characters_a_month: int | None
    requests_a_minute: int | None


class NewApiKey(ApiKey):
    """A newly created key."""

    key: str
    """The key itself, which is shown only once."""


class ApiKeys(Wire):
    """Keys, the oldest first."""

    keys: list[ApiKey]
    next: str | None
    """`after` of the next page; null if this is the last."""


class KeysQuery(Wire):
    """Selects keys."""

    limit: Annotated[int, Field(ge=1, le=1000)] = 100
    after: str = ""
    """Start after the key with this id."""


class UsageRequest(Wire):
    """Selects usage."""

    first: str = Field(alias="from")
    """The first day, in UTC: `2026-11-01`."""
    last: str = Field(alias="to")
    """The last day, inclusive."""
    key: str | None = None
    """The key's id, or the log name of a key of the settings; empty for requests without a key."""
    limit: Annotated[int, Field(ge=1, le=10_000)] = 1000
    after: str = ""
    """`next` of the previous page."""


class DailyUsage(Wire):
    """The usage of one task by one key on one day."""

    day: str
    key: str
    """The key's id or log name; empty for requests without a key."""
    task: str
    """`translate`, `generate`, `encode`, `classify`, `evaluate` or `document`."""
    requests: int
    characters: int


class TaskUsage(Wire):
    """The sums of one task."""

    task: str
    requests: int
    characters: int


class UsageReport(Wire):
    """Usage by day, key and task, with the sums over all pages."""

    usage: list[DailyUsage]
    totals: list[TaskUsage]
    next: str | None
    """`after` of the next page; null if this is the last."""


class AuditQuery(Wire):
    """Selects acts."""

    limit: Annotated[int, Field(ge=1, le=1000)] = 100
    before: Annotated[int, Field(ge=0, le=10**15)] | None = None
    """Start before the act with this number."""


class AuditAct(Wire):
    """An act of administration."""

    number: int
    time: str
    """Time of the act, UTC."""
    address: str
    """Address of the client."""
    act: str
    subject: str
    """The key's id or the model's name; empty if there is none."""
    details: str


class AuditReport(Wire):
    """Administrative actions, the newest first."""

    acts: list[AuditAct]
    next: int | None
    """`before` of the next page; null if this is the last."""


class AdminModel(Wire):
    """A served model."""

    name: str
    task: str
    loaded: bool
    """Whether it is loaded; the first request loads it otherwise."""
    file_bytes: int
    """Size of its bundle."""
    asked_s: float | None
    """Seconds since the last request for it; null without one, and for models that are always
    loaded."""


class AdminModels(Wire):
    """Every model of this server process."""

    models: list[AdminModel]


class ModelAct(Wire):
    """An action on a model."""

    action: Literal["load", "unload"]


class ModelImport(Wire):
    """A model to import."""

    name: Annotated[str, Field(max_length=1000)]
    """The name as for `macaron pull`: OWNER/NAME of a hub, firefox:FROM-TO, argos:FROM-TO, or a URL
    with #sha256=HASH."""


class ModelImportReport(Wire):
    """The progress of the last requested import."""

    state: Literal["none", "running", "done", "failed", "stopped"]
    name: str
    """The requested name; empty if there was none."""
    lines: list[str]
    """The last messages of the import: size, licence and progress."""
    model: str | None
    """The model's name in requests, once it is served."""
    error: str | None
    """The reason why the import failed."""


class Drained(Wire):
    """The state of the server after the request."""

    status: Literal["draining"]
