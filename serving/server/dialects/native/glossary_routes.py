"""Stored glossaries in the native dialect."""

from __future__ import annotations

from types import NoneType

from starlette.requests import Request
from starlette.responses import Response

from serving.server.api.dialect import QUICK, Dialect, DialectRoute
from serving.server.dialects.native.glossary_wire import (
    DictionaryInfo,
    GlossaryDictionary,
    GlossaryEntries,
    GlossaryInfo,
    GlossaryList,
    GlossaryPage,
    GlossaryPair,
    GlossaryPatch,
    NewGlossary,
)
from serving.server.dialects.native.wire import GlossaryEntry
from serving.server.http.access_log import RequestContext
from serving.server.http.body import BodyT, read_fields, read_json
from serving.server.http.wire import json_response
from serving.server.work.backend import Backend
from serving.server.work.stored.glossary_desk import GivenDictionary, GlossaryDesk
from serving.store.records.glossary import StoredDictionary, StoredGlossary


class _GlossaryEndpoints:
    """Endpoints under /glossaries."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._desk = GlossaryDesk(backend.store, backend.registry, backend.settings)

    async def list_page(self, request: Request, context: RequestContext) -> Response:
        """List the glossaries of the key, page by page."""
        asked = await self._query(request, GlossaryPage)
        found = await self._desk.page(context.key, asked.after, asked.limit + 1)
        page = found[: asked.limit]
        following = page[-1].id if len(found) > len(page) else None
        answer = GlossaryList(glossaries=[_info(each) for each in page], next=following)
        return json_response(answer, exclude_none=True)

    async def create(self, request: Request, context: RequestContext) -> Response:
        """Create a glossary."""
        body = await self._read(request, NewGlossary)
        given = list(map(_given, body.dictionaries))
        return json_response(
            _info(await self._desk.create(context.key, body.name, given)), status=201
        )

    async def get(self, request: Request, context: RequestContext) -> Response:
        """Describe a glossary."""
        return json_response(_info(await self._desk.get(context.key, _id(request))))

    async def patch(self, request: Request, context: RequestContext) -> Response:
        """Rename a glossary, and add entries to its dictionaries."""
        body = await self._read(request, GlossaryPatch)
        given = list(map(_given, body.dictionaries or []))
        found = await self._desk.patch(context.key, _id(request), body.name, given)
        return json_response(_info(found))

    async def delete(self, request: Request, context: RequestContext) -> Response:
        """Delete a glossary."""
        await self._desk.delete(context.key, _id(request))
        return Response(status_code=204)

    async def entries(self, request: Request, context: RequestContext) -> Response:
        """List the entries for a language pair."""
        asked = await self._query(request, GlossaryPair)
        found = await self._desk.entries(context.key, _id(request), asked.source, asked.target)
        entries = [GlossaryEntry(source=term, target=other) for term, other in found.items()]
        return json_response(GlossaryEntries(entries=entries))

    async def replace(self, request: Request, context: RequestContext) -> Response:
        """Replace the dictionary for a language pair, or add it."""
        body = await self._read(request, GlossaryDictionary)
        found = await self._desk.replace(context.key, _id(request), _given(body))
        return json_response(_dictionary(found))

    async def delete_entries(self, request: Request, context: RequestContext) -> Response:
        """Delete the entries for a language pair."""
        asked = await self._query(request, GlossaryPair)
        await self._desk.delete_entries(context.key, _id(request), asked.source, asked.target)
        return Response(status_code=204)

    async def _read(self, request: Request, schema: type[BodyT]) -> BodyT:
        self._desk.check_store()
        return await read_json(request, schema, self._backend.settings.max_body_bytes)

    async def _query(self, request: Request, schema: type[BodyT]) -> BodyT:
        return await read_fields(request, schema, self._backend.settings.max_body_bytes)


def _given(body: GlossaryDictionary) -> GivenDictionary:
    entries = body.entries
    if not isinstance(entries, str):
        return GivenDictionary(
            body.source, body.target, [(entry.source, entry.target) for entry in entries]
        )
    return GivenDictionary(body.source, body.target, entries, body.format)


def _id(request: Request) -> str:
    found: str = request.path_params["id"]
    return found


def _info(found: StoredGlossary) -> GlossaryInfo:
    return GlossaryInfo(
        id=found.id,
        name=found.name,
        created=found.created,
        dictionaries=[_dictionary(each) for each in found.dictionaries],
    )


def _dictionary(found: StoredDictionary) -> DictionaryInfo:
    return DictionaryInfo(source=found.source, target=found.target, entry_count=found.entry_count)


_LOOK = (400, 401, 404, 429, 501, 503)
_CHANGE = (*QUICK, 501)
_PAIR: dict[str, tuple[str, ...]] = {"source": (), "target": ()}

NATIVE_GLOSSARIES = Dialect(
    endpoints=_GlossaryEndpoints,
    routes=(
        DialectRoute(
            "/glossaries",
            _GlossaryEndpoints.list_page,
            "glossaries",
            "Glossaries of the key, the oldest first",
            GlossaryList,
            query={"after": (), "limit": ()},
            errors=_LOOK,
        ),
        DialectRoute(
            "/glossaries",
            _GlossaryEndpoints.create,
            "glossary_create",
            "Create a glossary",
            GlossaryInfo,
            methods=("POST",),
            status=201,
            request=NewGlossary,
            errors=_CHANGE,
        ),
        DialectRoute(
            "/glossaries/{id}",
            _GlossaryEndpoints.get,
            "glossary",
            "The record of a glossary",
            GlossaryInfo,
            errors=_LOOK,
        ),
        DialectRoute(
            "/glossaries/{id}",
            _GlossaryEndpoints.patch,
            "glossary_patch",
            "Rename a glossary, or add entries to it",
            GlossaryInfo,
            methods=("PATCH",),
            request=GlossaryPatch,
            errors=_CHANGE,
        ),
        DialectRoute(
            "/glossaries/{id}",
            _GlossaryEndpoints.delete,
            "glossary_delete",
            "Delete a glossary",
            NoneType,
            methods=("DELETE",),
            status=204,
            errors=_LOOK,
        ),
        DialectRoute(
            "/glossaries/{id}/entries",
            _GlossaryEndpoints.entries,
            "glossary_entries",
            "Entries of a glossary for a language pair",
            GlossaryEntries,
            query=_PAIR,
            errors=_LOOK,
        ),
        DialectRoute(
            "/glossaries/{id}/entries",
            _GlossaryEndpoints.replace,
            "glossary_entries_put",
            "Replace the entries for a language pair",
            DictionaryInfo,
            methods=("PUT",),
            request=GlossaryDictionary,
            errors=_CHANGE,
        ),
        DialectRoute(
            "/glossaries/{id}/entries",
            _GlossaryEndpoints.delete_entries,
            "glossary_entries_delete",
            "Delete the entries for a language pair",
            NoneType,
            methods=("DELETE",),
            status=204,
            query=_PAIR,
            errors=_LOOK,
        ),
    ),
    reasons={
        404: "There is no glossary with that id, or it has no entries for the language pair",
        413: "The entries, a term, the name or the body are over a limit of `/limits`",
        429: "The key has the largest number of glossaries, or sends too many requests",
        501: "The server has no store",
        503: "The server is starting or shutting down, or the store does not answer",
    },
)
"""The stored glossaries of this project's own API."""
