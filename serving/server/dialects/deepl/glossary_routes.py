"""DeepL's glossaries: version 2, of one language pair each, and version 3, of several."""

from __future__ import annotations

from collections.abc import Sequence
from types import NoneType
from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool
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
from serving.server.work.stored.glossaries import (
    glossary_limits,
    glossary_pair,
    glossary_pairs,
    named_pair,
)
from serving.store.records.glossary import (
    NewDictionary,
    StoredGlossary,
    as_tsv,
    checked_entries,
    entries_of,
)
from serving.store.records.name import checked_name

if TYPE_CHECKING:
    from serving.store.glossaries import Glossaries

_TSV = "text/tab-separated-values"
_NAMES = {"source": "source_lang", "target": "target_lang"}
"""Parameters that have another name in the body."""


class _GlossaryEndpoints:
    """Answers the requests for glossaries under /v2 and /v3."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._limits = glossary_limits(backend.settings)

    async def pairs(self, _: Request, __: RequestContext) -> Response:
        """List the language pairs that a glossary may be made for."""
        pairs = glossary_pairs(self._backend.registry) if self._backend.store else []
        found = [DeepLGlossaryPair(source_lang=s, target_lang=t) for s, t in pairs]
        return json_response(DeepLGlossaryPairs(supported_languages=found))

    async def list_single(self, _: Request, context: RequestContext) -> Response:
        """List the glossaries of one language pair."""
        found = [single(each) for each in await self._all(context) if len(each.dictionaries) == 1]
        return json_response(DeepLGlossaries(glossaries=found))

    async def create_single(self, request: Request, context: RequestContext) -> Response:
        """Make a glossary of one language pair."""
        kept = self._kept
        body = await self._read(request, DeepLNewGlossary)
        return json_response(single(await self._made(kept, context, body.name, [body])), status=201)

    async def get_single(self, request: Request, context: RequestContext) -> Response:
        """Tell what is known of a glossary of one language pair."""
        return json_response(single(await self._one(request, context)))

    async def entries_single(self, request: Request, context: RequestContext) -> Response:
        """Answer with the entries of a glossary of one language pair, as TSV."""
        accepted = request.headers.get("accept", "*/*")
        if not any(kind in accepted for kind in (_TSV, "text/*", "*/*")):
            raise MediaTypeError(f"Accept must be {_TSV}, got {accepted!r}")
        found = single(await self._one(request, context))
        pair = found.source_lang, found.target_lang
        entries = await run_in_threadpool(self._kept.entries, context.key, found.glossary_id, *pair)
        return Response(as_tsv(entries), media_type=_TSV)

    async def list_all(self, _: Request, context: RequestContext) -> Response:
        """List all glossaries."""
        found = [multilingual(each) for each in await self._all(context)]
        return json_response(DeepLMultilingualGlossaries(glossaries=found))

    async def create(self, request: Request, context: RequestContext) -> Response:
        """Make a glossary of several language pairs."""
        kept = self._kept
        body = await self._read(request, DeepLNewMultilingualGlossary)
        made = await self._made(kept, context, body.name, body.dictionaries)
        return json_response(multilingual(made), status=201)

    async def get(self, request: Request, context: RequestContext) -> Response:
        """Tell what is known of a glossary."""
        return json_response(multilingual(await self._one(request, context)))

    async def patch(self, request: Request, context: RequestContext) -> Response:
        """Rename a glossary, and add entries to its dictionaries."""
        kept = self._kept
        body = await self._read(request, DeepLGlossaryPatch)
        name = None if body.name is None else checked_name(body.name)
        dictionaries = await self._checked(body.dictionaries or [])
        found = await run_in_threadpool(
            kept.patch, context.key, _id(request), name, dictionaries, self._limits
        )
        return json_response(multilingual(found))

    async def delete(self, request: Request, context: RequestContext) -> Response:
        """Forget a glossary, of either version."""
        await run_in_threadpool(self._kept.delete, context.key, _id(request))
        return Response(status_code=204)

    async def entries(self, request: Request, context: RequestContext) -> Response:
        """Answer with the entries for a language pair."""
        source, target = await self._pair(request)
        found = await run_in_threadpool(
            self._kept.entries, context.key, _id(request), source, target
        )
        entries = DeepLDictionaryEntries(
            source_lang=source, target_lang=target, entries=as_tsv(found)
        )
        return json_response(DeepLEntries(dictionaries=[entries]))

    async def replace_dictionary(self, request: Request, context: RequestContext) -> Response:
        """Put a dictionary in the place of that for its language pair, or beside the others."""
        kept = self._kept
        body = await self._read(request, DeepLNewDictionary)
        [dictionary] = await self._checked([body])
        found = await run_in_threadpool(
            kept.replace, context.key, _id(request), dictionary, self._limits
        )
        return json_response(dictionary_info(found))

    async def delete_dictionary(self, request: Request, context: RequestContext) -> Response:
        """Forget the entries for a language pair."""
        pair = await self._pair(request)
        await run_in_threadpool(self._kept.delete_dictionary, context.key, _id(request), *pair)
        return Response(status_code=204)

    @property
    def _kept(self) -> Glossaries:
        return self._backend.needed_store("glossaries").glossaries

    async def _all(self, context: RequestContext) -> Sequence[StoredGlossary]:
        if self._backend.store is None:
            return []
        return await run_in_threadpool(self._kept.page, context.key)

    async def _one(self, request: Request, context: RequestContext) -> StoredGlossary:
        return await run_in_threadpool(self._kept.get, context.key, _id(request))

    async def _made(
        self,
        kept: Glossaries,
        context: RequestContext,
        name: str,
        given: Sequence[DeepLNewDictionary],
    ) -> StoredGlossary:
        dictionaries = await self._checked(given)
        return await run_in_threadpool(
            kept.create, context.key, checked_name(name), dictionaries, self._limits
        )

    async def _checked(self, given: Sequence[DeepLNewDictionary]) -> Sequence[NewDictionary]:
        """Dictionaries that may be kept; raises RequestError."""

        def check() -> Sequence[NewDictionary]:
            return [self._new(each) for each in given]

        return await run_in_threadpool(check)

    def _new(self, given: DeepLNewDictionary) -> NewDictionary:
        pair = self._codes(given.source_lang, given.target_lang)
        entries = entries_of(given.entries, given.entries_format)
        return NewDictionary(*pair, checked_entries(entries, self._limits))

    def _codes(self, source: str, target: str) -> tuple[str, str]:
        try:
            return glossary_pair(self._backend.registry, source, target)
        except RequestError as error:
            raise error.renamed(_NAMES) from error

    async def _pair(self, request: Request) -> tuple[str, str]:
        """The language pair that a query names."""
        given = await self._read(request, DeepLPairRequest)
        return named_pair(self._backend.registry, given.source_lang, given.target_lang)

    async def _read(self, request: Request, schema: type[BodyT]) -> BodyT:
        return await read_fields(request, schema, self._backend.settings.max_body_bytes)


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
            "Language pairs that glossaries may be made for",
            DeepLGlossaryPairs,
            errors=(403, 429, 503),
        ),
        DialectRoute(
            "/v2/glossaries",
            _GlossaryEndpoints.list_single,
            "deepl_glossaries_get",
            "Glossaries of one language pair",
            DeepLGlossaries,
            errors=(403, 429, 503),
        ),
        DialectRoute(
            "/v2/glossaries",
            _GlossaryEndpoints.create_single,
            "deepl_glossaries_post",
            "Make a glossary of one language pair",
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
            "What is known of a glossary of one language pair",
            DeepLGlossary,
            errors=_LOOK,
        ),
        DialectRoute(
            _SINGLE,
            _GlossaryEndpoints.delete,
            "deepl_glossary_delete",
            "Forget a glossary",
            NoneType,
            methods=("DELETE",),
            status=204,
            errors=_LOOK,
        ),
        DialectRoute(
            _SINGLE + "/entries",
            _GlossaryEndpoints.entries_single,
            "deepl_glossary_entries",
            "Entries of a glossary of one language pair, as TSV",
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
            "Make a glossary",
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
            "What is known of a glossary",
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
            "Forget a glossary",
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
            "Forget the entries for a language pair",
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
        403: "An API key is needed, or the one sent is not known; only where the server has keys",
        404: "There is no glossary of that id, or it has no entries for the language pair",
        413: "The entries, a term, the name or the body are over a limit of `/limits`",
        456: "The key keeps as many glossaries as it may",
        501: "The server has no store",
        503: "The server is starting or shutting down, or the store does not answer",
    },
    key_schemes=("deepl-auth-key",),
)
"""The glossaries of DeepL's API, versions 2 and 3."""
