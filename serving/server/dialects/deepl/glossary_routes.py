"""DeepL's glossaries: version 2, of one language pair each, and version 3, of several."""

from __future__ import annotations

from collections.abc import Awaitable
from types import NoneType
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response

from serving.errors import MediaTypeError, RequestError
from serving.server.api.dialect import QUICK, Dialect, DialectRoute
from serving.server.dialects.deepl.answers import STATUSES, render_error
from serving.server.dialects.deepl.glossary_answers import dictionary_info, multilingual, single
from serving.server.dialects.deepl.glossary_wire import (
    DeepLDictionary,
    DeepLDictionaryEntries,
    DeepLEntries,
    DeepLGlossaries,
    DeepLGlossary,
    DeepLGlossaryPair,
    DeepLGlossaryPairs,
    DeepLGlossaryPatch,
    DeepLMultilingualGlossaries,
    DeepLMultilingualGlossary,
    DeepLNewDictionary,
    DeepLNewGlossary,
    DeepLNewMultilingualGlossary,
    DeepLPairRequest,
)
from serving.server.dialects.deepl.wire import DeepLError
from serving.server.http.access_log import RequestContext
from serving.server.http.body import BodyT, read_fields
from serving.server.http.wire import json_response
from serving.server.work.backend import Backend
from serving.server.work.stored.glossaries import glossary_pairs, named_pair
from serving.server.work.stored.glossary_desk import GivenDictionary, GlossaryDesk
from serving.store.records.glossary import as_tsv

T = TypeVar("T")

_TSV = "text/tab-separated-values"
_NAMES = {"source": "source_lang", "target": "target_lang"}
"""Parameters that have another name in the body."""


class _GlossaryEndpoints:
    """Endpoints for glossaries under /v2 and /v3."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._desk = GlossaryDesk(backend.store, backend.registry, backend.settings)

    async def pairs(self, _: Request, __: RequestContext) -> Response:
        """List the language pairs that glossaries support."""
        pairs = glossary_pairs(self._backend.registry) if self._backend.store else []
        found = [DeepLGlossaryPair(source_lang=s, target_lang=t) for s, t in pairs]
        return json_response(DeepLGlossaryPairs(supported_languages=found))

    async def list_single(self, _: Request, context: RequestContext) -> Response:
        """List the glossaries with one language pair."""
        every = await self._desk.page(context.key)
        found = [single(each) for each in every if len(each.dictionaries) == 1]
        return json_response(DeepLGlossaries(glossaries=found))

    async def create_single(self, request: Request, context: RequestContext) -> Response:
        """Create a glossary with one language pair."""
        body = await self._body(request, DeepLNewGlossary)
        made = await _renamed(self._desk.create(context.key, body.name, [_given(body)]))
        return json_response(single(made), status=201)

    async def get_single(self, request: Request, context: RequestContext) -> Response:
        """Describe a glossary with one language pair."""
        return json_response(single(await self._desk.get(context.key, _id(request))))

    async def entries_single(self, request: Request, context: RequestContext) -> Response:
        """Return the entries of a glossary with one language pair, as TSV."""
        accepted = request.headers.get("accept", "*/*")
        if not any(kind in accepted for kind in (_TSV, "text/*", "*/*")):
            raise MediaTypeError(f"Accept must be {_TSV}, got {accepted!r}")
        found = single(await self._desk.get(context.key, _id(request)))
        entries = await self._desk.entries(
            context.key, found.glossary_id, found.source_lang, found.target_lang
        )
        return Response(as_tsv(entries), media_type=_TSV)

    async def list_all(self, _: Request, context: RequestContext) -> Response:
        """List all glossaries."""
        found = [multilingual(each) for each in await self._desk.page(context.key)]
        return json_response(DeepLMultilingualGlossaries(glossaries=found))

    async def create(self, request: Request, context: RequestContext) -> Response:
        """Create a glossary with several language pairs."""
        body = await self._body(request, DeepLNewMultilingualGlossary)
        given = list(map(_given, body.dictionaries))
        made = await _renamed(self._desk.create(context.key, body.name, given))
        return json_response(multilingual(made), status=201)

    async def get(self, request: Request, context: RequestContext) -> Response:
        """Describe a glossary."""
        return json_response(multilingual(await self._desk.get(context.key, _id(request))))

    async def patch(self, request: Request, context: RequestContext) -> Response:
        """Rename a glossary, and add entries to its dictionaries."""
        body = await self._body(request, DeepLGlossaryPatch)
        given = list(map(_given, body.dictionaries or []))
        found = await _renamed(self._desk.patch(context.key, _id(request), body.name, given))
        return json_response(multilingual(found))

    async def delete(self, request: Request, context: RequestContext) -> Response:
        """Delete a glossary, of either version."""
        await self._desk.delete(context.key, _id(request))
        return Response(status_code=204)

    async def entries(self, request: Request, context: RequestContext) -> Response:
        """Return the entries for a language pair."""
        asked = await self._read(request, DeepLPairRequest)
        source, target = named_pair(self._backend.registry, asked.source_lang, asked.target_lang)
        found = await self._desk.entries(context.key, _id(request), source, target)
        entries = DeepLDictionaryEntries(
            source_lang=source, target_lang=target, entries=as_tsv(found)
        )
        return json_response(DeepLEntries(dictionaries=[entries]))

    async def replace_dictionary(self, request: Request, context: RequestContext) -> Response:
        """Replace the dictionary for a language pair, or add it."""
        body = await self._body(request, DeepLNewDictionary)
        found = await _renamed(self._desk.replace(context.key, _id(request), _given(body)))
        return json_response(dictionary_info(found))

    async def delete_dictionary(self, request: Request, context: RequestContext) -> Response:
        """Delete the entries for a language pair."""
        asked = await self._read(request, DeepLPairRequest)
        pair = asked.source_lang, asked.target_lang
        await self._desk.delete_entries(context.key, _id(request), *pair)
        return Response(status_code=204)

    async def _body(self, request: Request, schema: type[BodyT]) -> BodyT:
        """The body of a request that needs a store."""
        self._desk.check_store()
        return await self._read(request, schema)

    async def _read(self, request: Request, schema: type[BodyT]) -> BodyT:
        return await read_fields(request, schema, self._backend.settings.max_body_bytes)


def _given(body: DeepLNewDictionary) -> GivenDictionary:
    return GivenDictionary(body.source_lang, body.target_lang, body.entries, body.entries_format)


async def _renamed(act: Awaitable[T]) -> T:
    """The result of `act`; its errors name parameters as the body does."""
    try:
        return await act
    except RequestError as error:
        raise error.renamed(_NAMES) from error


def _id(request: Request) -> str:
    found: str = request.path_params["glossary_id"]
    return found


_LOOK = (403, 404, 429, 501, 503)
_CHANGE = (*(STATUSES.get(status, status) for status in QUICK), 501)
_PAIR: dict[str, tuple[str, ...]] = {"source_lang": (), "target_lang": ()}
_ONE, _SINGLE = "/v3/glossaries/{glossary_id}", "/v2/glossaries/{glossary_id}"


DEEPL_GLOSSARIES = Dialect(
    endpoints=_GlossaryEndpoints,
    routes=(
        DialectRoute(
            "/v2/glossary-language-pairs",
            _GlossaryEndpoints.pairs,
            "glossary_pairs",
            "Language pairs that glossaries support",
            DeepLGlossaryPairs,
            errors=(403, 429, 503),
        ),
        DialectRoute(
            "/v2/glossaries",
            _GlossaryEndpoints.list_single,
            "deepl_glossaries_get",
            "Glossaries with one language pair",
            DeepLGlossaries,
            errors=(403, 429, 503),
        ),
        DialectRoute(
            "/v2/glossaries",
            _GlossaryEndpoints.create_single,
            "deepl_glossaries_post",
            "Create a glossary with one language pair",
            DeepLGlossary,
            methods=("POST",),
            status=201,
            request=DeepLNewGlossary,
            form=("name", "source_lang", "target_lang", "entries", "entries_format"),
            errors=(*_CHANGE, 456),
        ),
        DialectRoute(
            _SINGLE,
            _GlossaryEndpoints.get_single,
            "deepl_glossary",
            "The record of a glossary with one language pair",
            DeepLGlossary,
            errors=_LOOK,
        ),
        DialectRoute(
            _SINGLE,
            _GlossaryEndpoints.delete,
            "deepl_glossary_delete",
            "Delete a glossary",
            NoneType,
            methods=("DELETE",),
            status=204,
            errors=_LOOK,
        ),
        DialectRoute(
            _SINGLE + "/entries",
            _GlossaryEndpoints.entries_single,
            "deepl_glossary_entries",
            "Entries of a glossary with one language pair, as TSV",
            str,
            errors=(*_LOOK, 415),
        ),
        DialectRoute(
            "/v3/glossaries",
            _GlossaryEndpoints.list_all,
            "deepl_multilingual_glossaries_get",
            "Glossaries",
            DeepLMultilingualGlossaries,
            errors=(403, 429, 503),
        ),
        DialectRoute(
            "/v3/glossaries",
            _GlossaryEndpoints.create,
            "deepl_multilingual_glossaries_post",
            "Create a glossary",
            DeepLMultilingualGlossary,
            methods=("POST",),
            status=201,
            request=DeepLNewMultilingualGlossary,
            errors=(*_CHANGE, 456),
        ),
        DialectRoute(
            _ONE,
            _GlossaryEndpoints.get,
            "deepl_multilingual_glossary",
            "The record of a glossary",
            DeepLMultilingualGlossary,
            errors=_LOOK,
        ),
        DialectRoute(
            _ONE,
            _GlossaryEndpoints.patch,
            "deepl_multilingual_glossary_patch",
            "Rename a glossary, or add entries to it",
            DeepLMultilingualGlossary,
            methods=("PATCH",),
            request=DeepLGlossaryPatch,
            errors=_CHANGE,
        ),
        DialectRoute(
            _ONE,
            _GlossaryEndpoints.delete,
            "deepl_multilingual_glossary_delete",
            "Delete a glossary",
            NoneType,
            methods=("DELETE",),
            status=204,
            errors=_LOOK,
        ),
        DialectRoute(
            _ONE + "/entries",
            _GlossaryEndpoints.entries,
            "deepl_multilingual_glossary_entries",
            "Entries of a glossary for a language pair",
            DeepLEntries,
            query=_PAIR,
            errors=(400, *_LOOK),
        ),
        DialectRoute(
            _ONE + "/dictionaries",
            _GlossaryEndpoints.replace_dictionary,
            "deepl_dictionary_put",
            "Replace the entries for a language pair",
            DeepLDictionary,
            methods=("PUT",),
            request=DeepLNewDictionary,
            form=("source_lang", "target_lang", "entries", "entries_format"),
            errors=_CHANGE,
        ),
        DialectRoute(
            _ONE + "/dictionaries",
            _GlossaryEndpoints.delete_dictionary,
            "deepl_dictionary_delete",
            "Delete the entries for a language pair",
            NoneType,
            methods=("DELETE",),
            status=204,
            query=_PAIR,
            errors=(400, *_LOOK),
        ),
    ),
    error=DeepLError,
    render_error=render_error,
    reasons={
        403: "An API key is missing or unknown; only if the server has keys",
        404: "There is no glossary with that id, or it has no entries for the language pair",
        413: "The entries, a term, the name or the body are over a limit of `/limits`",
        456: "The key has the largest number of glossaries",
        501: "The server has no store",
        503: "The server is starting or shutting down, or the store does not answer",
    },
    key_schemes=("deepl-auth-key",),
)
"""The glossaries of DeepL's API, versions 2 and 3."""
