"""What goes over the wire in DeepL's admin API; fields that are not listed are ignored."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from serving.server.http.wire import Wire

_Characters = Annotated[int, Field(ge=0, le=10**15)]


class DeepLKeyCreation(Wire):
    """A key to make."""

    label: str = "DeepL API Key"


class DeepLKeyRequest(Wire):
    """Which key is meant."""

    key_id: str
    """Two GUIDs with a colon between them."""


class DeepLKeyLabel(DeepLKeyRequest):
    """The new label of a key."""

    label: str


class DeepLKeyLimits(DeepLKeyRequest):
    """The new limits of a key."""

    characters: _Characters | None = None
    """Characters a month; null takes the limit away, and what is left out stays as it is."""
    speech_to_text_milliseconds: int | None = None
    """Refused."""


class DeepLUsageLimits(Wire):
    """Limits of a key."""

    characters: int | None
    """Characters a month; null where only the server's own limit counts."""


class DeepLApiKey(Wire):
    """What is known of a key."""

    key_id: str
    """Two GUIDs with a colon between them: one of the server's kind, and the key's own."""
    label: str
    creation_time: str
    deactivated_time: str | None
    is_deactivated: bool
    usage_limits: DeepLUsageLimits


class DeepLNewApiKey(DeepLApiKey):
    """A key that was just made."""

    key: str
    """The key itself, which is shown this once; DeepL shows it to the owner of an account only."""


class DeepLAnalyticsRequest(Wire):
    """Which usage is asked for."""

    start_date: str
    """The first day, in UTC: `2026-11-01`."""
    end_date: str
    """The last day, which is included."""
    group_by: Literal["", "key", "key_and_day"] = ""


class DeepLUsageBreakdown(Wire):
    """Characters, by what they were sent for."""

    total_characters: int
    """With those sent to language models and encoders, which DeepL does not have."""
    text_translation_characters: int
    document_translation_characters: int
    text_improvement_characters: int = 0
    speech_to_text_milliseconds: int = 0


class DeepLKeyUsage(Wire):
    """What one key has used, on one day where the report is grouped by days, too."""

    api_key: str
    """The beginning and the end of what names the key; `-` for requests without a key."""
    api_key_label: str
    """`unknown` of keys that are not in the store."""
    usage_date: str | None = None
    usage: DeepLUsageBreakdown


class DeepLUsageReport(Wire):
    """The usage of some days."""

    total_usage: DeepLUsageBreakdown
    start_date: str
    end_date: str
    group_by: str | None = None
    key_usages: list[DeepLKeyUsage] | None = None
    key_and_day_usages: list[DeepLKeyUsage] | None = None


class DeepLAnalytics(Wire):
    """The answer to a DeepLAnalyticsRequest."""

    usage_report: DeepLUsageReport
