"""Bodies of DeepL's admin API; unknown fields are ignored."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from serving.server.http.wire import Wire

_Characters = Annotated[int, Field(ge=0, le=10**15)]


class DeepLKeyCreation(Wire):
    """A key to create."""

    label: str = "DeepL API Key"


class DeepLKeyRequest(Wire):
    """Selects a key."""

    key_id: str
    """Two GUIDs separated by a colon."""


class DeepLKeyLabel(DeepLKeyRequest):
    """The new label of a key."""

    label: str


class DeepLKeyLimits(DeepLKeyRequest):
    """The new limits of a key."""

    characters: _Characters | None = None
    """Character limit per month. Null removes the limit; if omitted, it stays."""
    speech_to_text_milliseconds: int | None = None
    """Refused."""


class DeepLUsageLimits(Wire):
    """The limits of a key."""

    characters: int | None
    """Character limit per month; null if only the server's own limit applies."""


class DeepLApiKey(Wire):
    """A key's record."""

    key_id: str
    """Two GUIDs separated by a colon: one that all keys share, and the key's own."""
    label: str
    creation_time: str
    deactivated_time: str | None
    is_deactivated: bool
    usage_limits: DeepLUsageLimits


class DeepLNewApiKey(DeepLApiKey):
    """A newly created key."""

    key: str
    """The key itself, which is shown only once."""


class DeepLAnalyticsRequest(Wire):
    """Selects usage."""

    start_date: str
    """The first day, in UTC: `2026-11-01`."""
    end_date: str
    """The last day, inclusive."""
    group_by: Literal["", "key", "key_and_day"] = ""


class DeepLUsageBreakdown(Wire):
    """Characters, by purpose."""

    total_characters: int
    """Includes the characters sent to language models and encoders, which DeepL does not have."""
    text_translation_characters: int
    document_translation_characters: int
    text_improvement_characters: int = 0
    speech_to_text_milliseconds: int = 0


class DeepLKeyUsage(Wire):
    """The usage of one key, in the whole period or on one day."""

    api_key: str
    """The first and the last characters of the key's name; `-` for requests without a key."""
    api_key_label: str
    """`unknown` if the key is not in the store."""
    usage_date: str | None = None
    """The day, if the report is grouped by days."""
    usage: DeepLUsageBreakdown


class DeepLUsageReport(Wire):
    """The usage in a period."""

    total_usage: DeepLUsageBreakdown
    start_date: str
    end_date: str
    group_by: str | None = None
    key_usages: list[DeepLKeyUsage] | None = None
    key_and_day_usages: list[DeepLKeyUsage] | None = None


class DeepLAnalytics(Wire):
    """The answer to a DeepLAnalyticsRequest."""

    usage_report: DeepLUsageReport
