"""Administration: keys, usage, the audit log, and the models of this server process."""

from __future__ import annotations

import dataclasses
import time
from types import NoneType

from starlette.requests import Request
from starlette.responses import Response

from serving.errors import RequestError
from serving.server.access.gate import KeyRule
from serving.server.api.dialect import Dialect, DialectRoute
from serving.server.dialects.admin.wire import (
    AdminModel,
    AdminModels,
    ApiKey,
    ApiKeys,
    AuditAct,
    AuditQuery,
    AuditReport,
    DailyUsage,
    Drained,
    KeyCreation,
    KeyPatch,
    KeysQuery,
    ModelAct,
    ModelImport,
    ModelImportReport,
    NewApiKey,
    TaskUsage,
    UsageReport,
    UsageRequest,
)
from serving.server.http.access_log import RequestContext
from serving.server.http.body import read_fields, read_json
from serving.server.http.wire import json_response, utc
from serving.server.work.administration import Administration, days
from serving.server.work.backend import Backend
from serving.server.work.imports import ImportReport
from serving.store.records.key import KeyLimits, StoredKey, UsageQuery


class _AdminEndpoints:
    """Endpoints for holders of the admin key."""

    def __init__(self, backend: Backend) -> None:
        self._administration = Administration(backend)
        self._most = backend.settings.max_body_bytes

    async def create_key(self, request: Request, context: RequestContext) -> Response:
        """Create a key, and show it once."""
        body = await read_json(request, KeyCreation, self._most)
        limits = KeyLimits(body.characters_a_month, body.requests_a_minute)
        key, secret = await self._administration.create_key(body.label, limits, context)
        made = NewApiKey(**_api_key(key).model_dump(), key=secret)
        return json_response(made, status=201)

    async def keys(self, request: Request, _: RequestContext) -> Response:
        """List keys, the oldest first."""
        query = await read_fields(request, KeysQuery, self._most)
        found = await self._administration.keys(query.limit + 1, query.after)
        keys = list(map(_api_key, found[: query.limit]))
        more = len(found) > query.limit
        return json_response(ApiKeys(keys=keys, next=keys[-1].id if more else None))

    async def key(self, request: Request, _: RequestContext) -> Response:
        """Describe a key."""
        return json_response(_api_key(await self._administration.key(request.path_params["key"])))

    async def patch_key(self, request: Request, context: RequestContext) -> Response:
        """Change the label or the limits of a key, disable it or enable it."""
        body = await read_json(request, KeyPatch, self._most)
        id = request.path_params["key"]
        key = await self._administration.change_key(id, lambda key: _patched(key, body), context)
        return json_response(_api_key(key))

    async def delete_key(self, request: Request, context: RequestContext) -> Response:
        """Delete a key; requests that it has started are finished."""
        await self._administration.delete_key(request.path_params["key"], context)
        return Response(status_code=204)

    async def usage(self, request: Request, _: RequestContext) -> Response:
        """Report usage by day, of all keys or of one."""
        body = await read_fields(request, UsageRequest, self._most)
        query = UsageQuery(*days(body.first, body.last, ("from", "to")), body.key)
        after = _place(body.after)
        rows, totals = await self._administration.usage(query, body.limit + 1, after)
        usage = [
            DailyUsage(day=row.day, key=row.owner, task=row.task, **row.count._asdict())
            for row in rows[: body.limit]
        ]
        sums = [TaskUsage(task=t, **n._asdict()) for t, n in sorted(totals.items())]
        last = usage[-1] if len(rows) > body.limit else None
        following = f"{last.day}/{last.task}/{last.key}" if last else None
        return json_response(UsageReport(usage=usage, totals=sums, next=following))

    async def audit(self, request: Request, _: RequestContext) -> Response:
        """List administrative actions, the newest first."""
        query = await read_fields(request, AuditQuery, self._most)
        found = await self._administration.audit(query.limit + 1, query.before)
        acts = [
            AuditAct(
                number=entry.number,
                time=utc(entry.time),
                address=entry.address,
                act=entry.act,
                subject=entry.subject,
                details=entry.details,
            )
            for entry in found[: query.limit]
        ]
        more = len(found) > query.limit
        return json_response(AuditReport(acts=acts, next=acts[-1].number if more else None))

    async def models(self, _: Request, __: RequestContext) -> Response:
        """List the models of this server process."""
        models = [
            AdminModel(
                name=use.model.name,
                task=use.model.manifest.task,
                loaded=use.loaded,
                file_bytes=use.num_bytes,
                asked_s=None if use.asked_s is None else round(use.asked_s, 3),
            )
            for use in self._administration.models()
        ]
        return json_response(AdminModels(models=models))

    async def act_on_model(self, request: Request, context: RequestContext) -> Response:
        """Load or unload a translation model; answers as the list does."""
        body = await read_json(request, ModelAct, self._most)
        name = request.path_params["model"]
        if body.action == "load":
            await self._administration.load(name, context)
        else:
            await self._administration.unload(name, context)
        return await self.models(request, context)

    async def start_import(self, request: Request, context: RequestContext) -> Response:
        """Start the import of a model; answers before it is finished."""
        body = await read_json(request, ModelImport, self._most)
        return _reported(await self._administration.start_import(body.name, context), 202)

    async def model_import(self, _: Request, __: RequestContext) -> Response:
        """Report the progress of the last import."""
        return _reported(await self._administration.model_import())

    async def stop_import(self, _: Request, context: RequestContext) -> Response:
        """Stop the running import, if there is one."""
        return _reported(await self._administration.stop_import(context))

    async def drain(self, _: Request, context: RequestContext) -> Response:
        """Make `/readyz` answer that the server is not ready; requests are still served."""
        await self._administration.drain(context)
        return json_response(Drained(status="draining"))


def _reported(report: ImportReport, status: int = 200) -> Response:
    answer = ModelImportReport(
        state=report.state,
        name=report.name,
        lines=list(report.lines),
        model=report.model,
        error=report.error,
    )
    return json_response(answer, status=status)


def _api_key(key: StoredKey) -> ApiKey:
    return ApiKey(
        id=key.id,
        label=key.label,
        created=utc(key.created),
        disabled=None if key.disabled is None else utc(key.disabled),
        characters_a_month=key.limits.characters_a_month,
        requests_a_minute=key.limits.requests_a_minute,
    )


def _patched(key: StoredKey, body: KeyPatch) -> StoredKey:
    """The key with the changes of the body."""
    given = body.model_dump(exclude_unset=True)
    limits = {name: value for name, value in given.items() if name in KeyLimits.__annotations__}
    disabled = key.disabled
    if body.disabled is not None and body.disabled != (key.disabled is not None):
        disabled = time.time() if body.disabled else None
    return dataclasses.replace(
        key,
        label=key.label if body.label is None else body.label,
        disabled=disabled,
        limits=dataclasses.replace(key.limits, **limits),
    )


def _place(after: str) -> tuple[str, str, str]:
    """The day, owner and task of a page's last row; raises RequestError."""
    if not after:
        return "", "", ""
    day, _, rest = after.partition("/")
    task, slash, owner = rest.partition("/")
    if not slash:
        raise RequestError("after must be `next` of the previous page", parameter="after")
    return day, owner, task


_QUICK = (400, 401, 404, 408, 413, 415, 429, 501, 503)
_READ = (400, 401, 404, 429, 501, 503)

ADMIN_API = Dialect(
    endpoints=_AdminEndpoints,
    routes=(
        DialectRoute(
            "/admin/keys",
            _AdminEndpoints.keys,
            "admin_keys",
            "Keys, the oldest first",
            ApiKeys,
            query={"limit": (), "after": ()},
            errors=_READ,
            key=KeyRule.ADMIN,
        ),
        DialectRoute(
            "/admin/keys",
            _AdminEndpoints.create_key,
            "admin_create_key",
            "Create a key, which is shown only once",
            NewApiKey,
            methods=("POST",),
            status=201,
            request=KeyCreation,
            errors=_QUICK,
            key=KeyRule.ADMIN,
        ),
        DialectRoute(
            "/admin/keys/{key}",
            _AdminEndpoints.key,
            "admin_key",
            "The record of a key",
            ApiKey,
            errors=_READ,
            key=KeyRule.ADMIN,
        ),
        DialectRoute(
            "/admin/keys/{key}",
            _AdminEndpoints.patch_key,
            "admin_patch_key",
            "Change the label or the limits of a key, disable it or enable it",
            ApiKey,
            methods=("PATCH",),
            request=KeyPatch,
            errors=_QUICK,
            key=KeyRule.ADMIN,
        ),
        DialectRoute(
            "/admin/keys/{key}",
            _AdminEndpoints.delete_key,
            "admin_delete_key",
            "Delete a key and its stored data; its usage stays",
            NoneType,
            methods=("DELETE",),
            status=204,
            errors=_READ,
            key=KeyRule.ADMIN,
        ),
        DialectRoute(
            "/admin/usage",
            _AdminEndpoints.usage,
            "admin_usage",
            "Requests and characters by day, key and task",
            UsageReport,
            query={"from": (), "to": (), "key": (), "limit": (), "after": ()},
            errors=_READ,
            key=KeyRule.ADMIN,
        ),
        DialectRoute(
            "/admin/audit",
            _AdminEndpoints.audit,
            "admin_audit",
            "Administrative actions, the newest first",
            AuditReport,
            query={"limit": (), "before": ()},
            errors=_READ,
            key=KeyRule.ADMIN,
        ),
        DialectRoute(
            "/admin/models",
            _AdminEndpoints.models,
            "admin_models",
            "The models of this server process",
            AdminModels,
            errors=(401, 404, 429, 503),
            key=KeyRule.ADMIN,
        ),
        DialectRoute(
            "/admin/models/{model}",
            _AdminEndpoints.act_on_model,
            "admin_act_on_model",
            "Load or unload a translation model",
            AdminModels,
            methods=("POST",),
            request=ModelAct,
            errors=(400, 401, 404, 408, 413, 415, 429, 503),
            key=KeyRule.ADMIN,
        ),
        DialectRoute(
            "/admin/imports",
            _AdminEndpoints.model_import,
            "admin_import",
            "The progress of the last requested import of a model",
            ModelImportReport,
            errors=(401, 404, 429, 503),
            key=KeyRule.ADMIN,
        ),
        DialectRoute(
            "/admin/imports",
            _AdminEndpoints.start_import,
            "admin_start_import",
            "Download a model by its name, import it and serve it; one at a time",
            ModelImportReport,
            methods=("POST",),
            status=202,
            request=ModelImport,
            errors=(400, 401, 404, 408, 409, 413, 415, 429, 503),
            key=KeyRule.ADMIN,
        ),
        DialectRoute(
            "/admin/imports",
            _AdminEndpoints.stop_import,
            "admin_stop_import",
            "Stop the running import; the next one continues its downloads",
            ModelImportReport,
            methods=("DELETE",),
            errors=(401, 404, 429, 503),
            key=KeyRule.ADMIN,
        ),
        DialectRoute(
            "/admin/drain",
            _AdminEndpoints.drain,
            "admin_drain",
            "Report not ready, so that no more requests are sent here; requests are still served",
            Drained,
            methods=("POST",),
            errors=(401, 404, 429, 503),
            key=KeyRule.ADMIN,
        ),
    ),
    reasons={
        401: "This is not the admin key",
        404: "The server has no admin key, or imports no models, or there is no such key or model",
        409: "Another model is being imported",
        501: "The server has no store",
    },
)
"""Administration. Without an admin key, every route answers that there is none."""
