"""LibreTranslate's `/suggest`, and the export of suggestions as a translation memory in TMX."""

from __future__ import annotations

import itertools
import re
from types import NoneType

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from serving.errors import InvalidTextError, RequestError, TooLongError
from serving.server.access.gate import ADMIN, KeyRule, admit_by_body
from serving.server.api.dialect import QUICK, Dialect, DialectRoute
from serving.server.dialects.libretranslate.wire import (
    Suggested,
    SuggestedLanguages,
    SuggestRequest,
)
from serving.server.http.access_log import RequestContext
from serving.server.http.body import read_fields
from serving.server.http.form import clean_lines
from serving.server.http.settings import variable
from serving.server.http.wire import json_response
from serving.server.models.catalogue import AUTO
from serving.server.work.backend import Backend
from serving.server.work.stored.glossaries import named_pair

_TMX = "application/x-tmx+xml"
_NOT_XML = re.compile("[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\ufffe\\uffff\\ud800-\\udfff]")


class _SuggestionEndpoints:
    """Accepts and returns suggestions."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def suggest(self, request: Request, context: RequestContext) -> Response:
        """Store a better translation of a text."""
        settings = self._backend.settings
        body = await read_fields(request, SuggestRequest, settings.max_body_bytes, clean_lines)
        await admit_by_body(self._backend.gatekeeper, context, body.api_key)
        kept = self._backend.needed_store("suggestions").suggestions
        for name, text in (("q", body.q), ("s", body.s)):
            _check(name, text, settings.max_text_chars)
        source = body.source
        if source.lower() == AUTO:
            source = await run_in_threadpool(self._detected, body.q, body.target)
        pair = self._pair(source, body.target)
        await run_in_threadpool(
            kept.add, context.key, pair, body.q, body.s, settings.max_suggestions
        )
        return json_response(Suggested())

    async def export(self, request: Request, context: RequestContext) -> Response:
        """Export the suggestions for a language pair as TMX: those of the key, or all with the
        admin key."""
        # Imported here, because a server without a store does not need it.
        from serving.documents.localisation.segments import written_tmx

        asked = await read_fields(
            request, SuggestedLanguages, self._backend.settings.max_body_bytes
        )
        kept = self._backend.needed_store("suggestions").suggestions
        pair = self._pair(asked.source, asked.target)
        found = kept.pairs(None if context.client == ADMIN else context.key, *pair)
        # Read before the response starts: after that no error can be reported.
        first = await run_in_threadpool(lambda: list(itertools.islice(found, 1)))
        return StreamingResponse(
            written_tmx(itertools.chain(first, found), *pair),
            media_type=_TMX,
            headers={"Content-Disposition": f'attachment; filename="{pair[0]}-{pair[1]}.tmx"'},
        )

    async def clear(self, _: Request, context: RequestContext) -> Response:
        """Delete the suggestions of the key, for all languages."""
        kept = self._backend.needed_store("suggestions").suggestions
        await run_in_threadpool(kept.clear, context.key)
        return Response(status_code=204)

    def _detected(self, text: str, target: str) -> str:
        """The language that `/translate` detects; raises UnknownLanguageError for an unsupported
        target."""
        registry = self._backend.registry
        _, target = registry.codes(AUTO, target)
        return registry.detected(text, target)

    def _pair(self, source: str, target: str) -> tuple[str, str]:
        """The stored codes of the languages; raises RequestError for unsupported languages."""
        registry = self._backend.registry
        if source.lower() == AUTO:
            raise RequestError(
                "source must be the language of the text, got auto", parameter="source"
            )
        pair = named_pair(registry, source, target)
        for name, code, known in (
            ("source", pair[0], registry.source_languages),
            ("target", pair[1], registry.target_languages),
        ):
            if code not in map(str.lower, known):
                raise RequestError(
                    f"{name} must be one of {', '.join(sorted(known))}, got {code[:50]!r}",
                    parameter=name,
                )
        return pair


def _check(name: str, text: str, most: int) -> None:
    if not text.strip():
        raise RequestError(f"{name} must not be blank", parameter=name)
    if len(text) > most:
        raise TooLongError(
            f"{name} must have at most {most} characters ({variable('max_text_chars')}), got "
            f"{len(text)}",
            parameter=name,
        )
    if found := _NOT_XML.search(text):
        raise InvalidTextError(
            f"{name} must be text without control characters, got U+{ord(found[0]):04X} at "
            f"character {found.start()}",
            parameter=name,
        )


_PAIR: dict[str, tuple[str, ...]] = {"source": (), "target": ()}

SUGGESTIONS = Dialect(
    endpoints=_SuggestionEndpoints,
    routes=(
        DialectRoute(
            "/suggest",
            _SuggestionEndpoints.suggest,
            "suggest",
            "Store a better translation of a text, as LibreTranslate does",
            Suggested,
            methods=("POST",),
            request=SuggestRequest,
            form=("q", "s", "source", "target", "api_key"),
            errors=(*QUICK, 403, 501),
            key=KeyRule.HEAD_OR_BODY,
        ),
        DialectRoute(
            "/suggestions",
            _SuggestionEndpoints.export,
            "export_suggestions",
            "The key's suggestions for a language pair, as TMX",
            bytes,
            query=_PAIR,
            errors=(400, 401, 429, 501, 503),
        ),
        DialectRoute(
            "/suggestions",
            _SuggestionEndpoints.clear,
            "clear_suggestions",
            "Delete the key's suggestions",
            NoneType,
            methods=("DELETE",),
            status=204,
            errors=(401, 429, 501, 503),
        ),
        DialectRoute(
            "/admin/suggestions",
            _SuggestionEndpoints.export,
            "export_all_suggestions",
            "All suggestions for a language pair, as TMX",
            bytes,
            query=_PAIR,
            errors=(400, 401, 404, 429, 501, 503),
            key=KeyRule.ADMIN,
        ),
    ),
    reasons={
        404: "The server has no admin key",
        501: "The server has no store",
    },
)
"""LibreTranslate's suggestions, and their export."""
