"""DeepL's admin API: keys and usage, over the same store as the server's own `/admin`."""

from __future__ import annotations

import dataclasses
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from starlette.requests import Request
from starlette.responses import Response

from serving.errors import RequestError, TooLongError
from serving.server.access.gate import KeyRule
from serving.server.api.dialect import Dialect, DialectRoute
from serving.server.dialects.deepl.admin_wire import (
    DeepLAnalytics,
    DeepLAnalyticsRequest,
    DeepLApiKey,
    DeepLKeyCreation,
    DeepLKeyLabel,
    DeepLKeyLimits,
    DeepLKeyRequest,
    DeepLKeyUsage,
    DeepLNewApiKey,
    DeepLUsageBreakdown,
    DeepLUsageLimits,
    DeepLUsageReport,
)
from serving.server.dialects.deepl.answers import render_error
from serving.server.dialects.deepl.wire import DeepLError
from serving.server.http.access_log import RequestContext
from serving.server.http.body import read_fields, read_json
from serving.server.http.wire import json_response, utc
from serving.server.work.administration import Administration, days
from serving.server.work.backend import Backend
from serving.store.records.key import KeyLimits, StoredKey, UsageCount, UsageQuery, UsageRow

_KIND = "6d616361-726f-4e00-8000-000000000000"
"""The first GUID of every key_id. In DeepL's API it identifies the account."""
_MOST_ROWS = 100_000


class _DeepLAdminEndpoints:
    """Endpoints for holders of the admin key."""

    def __init__(self, backend: Backend) -> None:
        self._administration = Administration(backend)
        self._settings = backend.settings

    async def create(self, request: Request, context: RequestContext) -> Response:
        """Create a key, and show it once."""
        body = await read_json(request, DeepLKeyCreation, self._settings.max_body_bytes)
        key, secret = await self._administration.create_key(body.label, KeyLimits(), context)
        return json_response(DeepLNewApiKey(**_key_body(key).model_dump(), key=secret))

    async def keys(self, _: Request, __: RequestContext) -> Response:
        """List all keys, including deactivated ones."""
        found = await self._administration.keys(self._settings.max_keys)
        return json_response(list(map(_key_body, found)))

    async def deactivate(self, request: Request, context: RequestContext) -> Response:
        """Deactivate a key."""
        body = await read_json(request, DeepLKeyRequest, self._settings.max_body_bytes)
        return await self._changed(
            body.key_id,
            lambda key: dataclasses.replace(key, disabled=key.disabled or time.time()),
            context,
        )

    async def rename(self, request: Request, context: RequestContext) -> Response:
        """Change the label of a key."""
        body = await read_json(request, DeepLKeyLabel, self._settings.max_body_bytes)
        return await self._changed(
            body.key_id, lambda key: dataclasses.replace(key, label=body.label), context
        )

    async def limit(self, request: Request, context: RequestContext) -> Response:
        """Set the monthly character limit of a key."""
        body = await read_json(request, DeepLKeyLimits, self._settings.max_body_bytes)
        if body.speech_to_text_milliseconds is not None:
            raise RequestError(
                "speech_to_text_milliseconds must be left out: this server transcribes nothing",
                parameter="speech_to_text_milliseconds",
            )

        def changed(key: StoredKey) -> StoredKey:
            if "characters" not in body.model_fields_set:
                return key
            limits = dataclasses.replace(key.limits, characters_a_month=body.characters)
            return dataclasses.replace(key, limits=limits)

        return await self._changed(body.key_id, changed, context)

    async def analytics(self, request: Request, _: RequestContext) -> Response:
        """Report the usage in a period."""
        body = await read_fields(request, DeepLAnalyticsRequest, self._settings.max_body_bytes)
        first, last = days(body.start_date, body.end_date, ("start_date", "end_date"))
        most = _MOST_ROWS if body.group_by else 0
        rows, totals = await self._administration.usage(UsageQuery(first, last), most + 1)
        if body.group_by and len(rows) > most:
            raise TooLongError(f"the report has more than {most} rows; ask for fewer days")
        by_day = body.group_by == "key_and_day"
        grouped = await self._grouped(rows, by_day=by_day) if body.group_by else None
        report = DeepLUsageReport(
            total_usage=_breakdown(totals.items()),
            start_date=f"{first}T00:00:00Z",
            end_date=f"{last}T00:00:00Z",
            group_by=body.group_by or None,
            key_usages=None if by_day else grouped,
            key_and_day_usages=grouped if by_day else None,
        )
        return json_response(DeepLAnalytics(usage_report=report), exclude_none=True)

    async def _grouped(self, rows: list[UsageRow], *, by_day: bool) -> list[DeepLKeyUsage]:
        keys = await self._administration.keys(self._settings.max_keys)
        return _usages(rows, {key.id: key.label for key in keys}, by_day=by_day)

    async def _changed(
        self, key_id: str, changed: Callable[[StoredKey], StoredKey], context: RequestContext
    ) -> Response:
        id = key_id.removeprefix(_KIND + ":")
        return json_response(_key_body(await self._administration.change_key(id, changed, context)))


def _key_body(key: StoredKey) -> DeepLApiKey:
    return DeepLApiKey(
        key_id=f"{_KIND}:{key.id}",
        label=key.label,
        creation_time=utc(key.created),
        deactivated_time=None if key.disabled is None else utc(key.disabled),
        is_deactivated=key.disabled is not None,
        usage_limits=DeepLUsageLimits(characters=key.limits.characters_a_month),
    )


def _usages(
    rows: Iterable[UsageRow], labels: Mapping[str, str], *, by_day: bool
) -> list[DeepLKeyUsage]:
    """The rows grouped by key, or by key and day, in order."""
    groups: dict[tuple[str, str], list[tuple[str, UsageCount]]] = defaultdict(list)
    for row in rows:
        groups[row.owner, row.day if by_day else ""].append((row.task, row.count))
    return [
        DeepLKeyUsage(
            api_key=f"{owner[:4]}****{owner[-4:]}" if owner else "-",
            api_key_label=labels.get(owner, "unknown"),
            usage_date=f"{day}T00:00:00Z" if day else None,
            usage=_breakdown(counts),
        )
        for (owner, day), counts in sorted(groups.items())
    ]


def _breakdown(counts: Iterable[tuple[str, UsageCount]]) -> DeepLUsageBreakdown:
    """The characters by task."""
    sums: dict[str, int] = defaultdict(int)
    for task, count in counts:
        sums[task] += count.characters
    return DeepLUsageBreakdown(
        total_characters=sum(sums.values()),
        text_translation_characters=sums["translate"],
        document_translation_characters=sums["document"],
    )


_READ = (400, 403, 404, 429, 501, 503)
_QUICK = (400, 403, 404, 408, 413, 415, 429, 501, 503)

DEEPL_ADMIN = Dialect(
    endpoints=_DeepLAdminEndpoints,
    routes=(
        DialectRoute(
            "/v2/admin/developer-keys",
            _DeepLAdminEndpoints.keys,
            "deepl_keys",
            "All keys, including deactivated ones",
            list[DeepLApiKey],
            errors=_READ,
            key=KeyRule.ADMIN,
        ),
        DialectRoute(
            "/v2/admin/developer-keys",
            _DeepLAdminEndpoints.create,
            "deepl_create_key",
            "Create a key, which is shown only once",
            DeepLNewApiKey,
            methods=("POST",),
            request=DeepLKeyCreation,
            errors=_QUICK,
            key=KeyRule.ADMIN,
        ),
        *(
            DialectRoute(
                f"/v2/admin/developer-keys/{verb}",
                endpoint,
                f"deepl_key_{verb}",
                summary,
                DeepLApiKey,
                methods=("PUT",),
                request=schema,
                errors=_QUICK,
                key=KeyRule.ADMIN,
            )
            for verb, endpoint, summary, schema in (
                (
                    "deactivate",
                    _DeepLAdminEndpoints.deactivate,
                    "Deactivate a key",
                    DeepLKeyRequest,
                ),
                ("label", _DeepLAdminEndpoints.rename, "Rename a key", DeepLKeyLabel),
                (
                    "limits",
                    _DeepLAdminEndpoints.limit,
                    "Limit the characters of a key per month",
                    DeepLKeyLimits,
                ),
            )
        ),
        DialectRoute(
            "/v2/admin/analytics",
            _DeepLAdminEndpoints.analytics,
            "deepl_analytics",
            "The usage in a period, by key, or by key and day",
            DeepLAnalytics,
            query={"start_date": (), "end_date": (), "group_by": ("key", "key_and_day")},
            errors=_READ,
            key=KeyRule.ADMIN,
        ),
    ),
    error=DeepLError,
    render_error=render_error,
    reasons={
        403: "This is not the admin key",
        404: "The server has no admin key, or there is no such key",
        501: "The server has no store",
    },
    key_schemes=("deepl-auth-key",),
)
"""DeepL's admin API."""
