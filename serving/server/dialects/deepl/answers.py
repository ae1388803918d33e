"""Builds the answers of DeepL's API: translations, character counts, errors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from http import HTTPStatus

from starlette.responses import Response

from serving.bundle.languages import match_language
from serving.errors import QuotaExceededError, RequestError, ServingError, UnknownLanguageError
from serving.server.dialects.deepl.wire import (
    DeepLError,
    DeepLFeature,
    DeepLLanguageSupport,
    DeepLTranslateRequest,
    DeepLTranslation,
)
from serving.server.http.settings import variable
from serving.server.http.wire import json_response
from serving.server.work.translating.job import TextResult
from serving.server.work.translating.pivot import WITHOUT_MEMORY
from serving.text.languages import language_name

STATUSES = {HTTPStatus.UNAUTHORIZED.value: HTTPStatus.FORBIDDEN.value}
"""Errors with a different status in DeepL: its clients expect 403 for an invalid key."""
QUOTA_EXCEEDED = 456
"""DeepL's status for an exhausted quota."""
REGIONS = {
    "en": {"EN-GB": "English (British)", "EN-US": "English (American)"},
    "pt": {"PT-BR": "Portuguese (Brazilian)", "PT-PT": "Portuguese (European)"},
}
"""Target languages that DeepL's clients name with a region only."""


class CharacterUsage:
    """Counts characters by key, up to a limit, if there is no store to count in. All callers
    without a key share the empty key."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._counts: Counter[str] = Counter()

    def count(self, key: str) -> int:
        """The characters of a key so far, including those being translated."""
        return self._counts[key]

    @contextmanager
    def spending(self, key: str, characters: int) -> Iterator[None]:
        """Count characters; the count is undone if the block raises.

        Raises QuotaExceededError if the remaining quota is smaller.
        """
        before = self._counts[key]
        if before + characters > self.limit:
            raise QuotaExceededError(
                f"at most {self.limit} characters ({variable('character_limit')}) are "
                f"translated until the server is restarted, got {before} so far and "
                f"{characters} more"
            )
        self._counts[key] += characters
        try:
            yield
        except BaseException:
            self._counts[key] -= characters
            raise


def translation(
    body: DeepLTranslateRequest, result: TextResult, characters: int
) -> DeepLTranslation:
    """The answer for one text; `characters` is the length of its source."""
    model_type = body.model_type
    if model_type == "prefer_quality_optimized":
        model_type = "quality_optimized"
    return DeepLTranslation(
        detected_source_language=result.source.upper(),
        text=result.text,
        billed_characters=characters,
        model_type_used=model_type,
    )


def unused(body: DeepLTranslateRequest, results: Sequence[TextResult]) -> list[str] | None:
    """Warnings about ignored parts of a body, for all or some of its texts; None if there are
    none."""
    found = []
    if body.context:
        found.append("'context' is not used: no model of this server was trained with it")
    found += [
        f"'translation_memory_id' is not used for text[{index}]: it is in "
        f"{result.source.upper()}, which is not the memory's language, or is translated "
        "through a third one"
        for index, result in enumerate(results)
        if WITHOUT_MEMORY in result.warnings
    ]
    return found or None


def supported_languages(
    sources: Collection[str], targets: Collection[str]
) -> list[DeepLLanguageSupport]:
    """The supported languages, ordered by code. A language with regions is listed without one as a
    source, then with each region as a target."""
    found = []
    for code in sorted({*sources, *targets}):
        regions = REGIONS.get(code, {}) if code in targets else {}
        rows = [(code, language_name(code), code in sources, code in targets and not regions)]
        rows += [(code + given[len(code) :], name, False, True) for given, name in regions.items()]
        found += [
            DeepLLanguageSupport(
                lang=lang,
                name=name,
                usable_as_source=source,
                usable_as_target=target,
                features={"tag_handling": DeepLFeature()}
                | ({"auto_detection": DeepLFeature()} if source else {}),
            )
            for lang, name, source, target in rows
            if source or target
        ]
    return found


def glossary_languages(pairs: Collection[tuple[str, str]]) -> list[DeepLLanguageSupport]:
    """The languages that glossaries support, without regions."""
    sources, targets = {source for source, _ in pairs}, {target for _, target in pairs}
    return [
        DeepLLanguageSupport(
            lang=code,
            name=language_name(code),
            usable_as_source=code in sources,
            usable_as_target=code in targets,
            features={},
        )
        for code in sorted(sources | targets)
    ]


def glossary_ids(body: DeepLTranslateRequest) -> list[str]:
    """The glossary ids of a body; raises RequestError if two fields name them."""
    if body.glossary_id and body.glossary_ids:
        raise RequestError(
            "'glossary_ids' cannot be used together with 'glossary_id'; leave one out",
            parameter="glossary_ids",
        )
    given = body.glossary_ids or ([body.glossary_id] if body.glossary_id else [])
    parts = [given] if isinstance(given, str) else given
    return [id.strip() for part in parts for id in part.split(",")]


def iso_time(seconds: float) -> str:
    """A time, in seconds since 1970, as an ISO 8601 text in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def render_error(error: ServingError) -> Response:
    """An error response in DeepL's shape, with DeepL's status."""
    status = STATUSES.get(error.status, error.status)
    if isinstance(error, QuotaExceededError):
        status = QUOTA_EXCEEDED
    return json_response(DeepLError(message=error.full_message, code=error.code), status=status)


def language_code(parameter: str, given: str, known: Collection[str]) -> str:
    """The model code of a language in the field `parameter`, by `match_language`; raises
    UnknownLanguageError, which lists the known codes."""
    found = match_language(given, known)
    if found is None:
        raise UnknownLanguageError(
            f"Value for '{parameter}' not supported: must be one of "
            f"{sorted(map(str.upper, known))}, got {given!r}",
            parameter=parameter,
        )
    return found


def tag_names(given: str | list[str] | None) -> frozenset[str]:
    """Element names, in small letters, of a list or of a text with commas."""
    parts = [given] if isinstance(given, str) else given or []
    return frozenset(name.strip().lower() for part in parts for name in part.split(","))
