"""DeepL's part of the OpenAPI document."""

from __future__ import annotations

from typing import Any

from serving.server.api.description import (
    QUICK,
    WORK,
    Description,
    add_forms,
    get,
    operation,
    parameter,
    post,
    reference,
)
from serving.server.dialects.deepl.wire import (
    DEEPL_STATUSES,
    DeepLError,
    DeepLGlossaryPairs,
    DeepLLanguage,
    DeepLTranslateRequest,
    DeepLTranslations,
    DeepLUsage,
)

_FORM = (
    *("text", "target_lang", "source_lang", "split_sentences", "formality", "tag_handling"),
    *("ignore_tags", "model_type", "preserve_formatting", "show_billed_characters", "context"),
)


def describe() -> Description:
    """Describe the routes under /v2, whose errors have DeepL's shape."""
    translate = post(
        "deepl_translate",
        "Translate one text or several, as DeepL does",
        DeepLTranslateRequest,
        DeepLTranslations,
        (*_deepl(WORK), 456),
        DeepLError,
    )
    add_forms(translate, DeepLTranslateRequest, _FORM)
    pairs = reference(DeepLGlossaryPairs)
    return Description(
        paths={
            "/v2/translate": translate,
            "/v2/languages": {method: _languages(method) for method in ("get", "post")},
            "/v2/usage": {method: _usage(method) for method in ("get", "post")},
            "/v2/glossary-language-pairs": get(
                "glossary_pairs", "None", pairs, (403, 429), DeepLError
            ),
        },
        requests=(DeepLTranslateRequest,),
        answers=(DeepLTranslations, DeepLLanguage, DeepLUsage, DeepLGlossaryPairs, DeepLError),
    )


def _languages(method: str) -> dict[str, Any]:
    name, items = f"deepl_languages_{method}", {"type": "array", "items": reference(DeepLLanguage)}
    languages = operation(name, "Languages read or written", items, _deepl(QUICK), DeepLError)
    kind = parameter("type", "query")
    kind["schema"]["enum"] = ["source", "target"]
    languages["parameters"] = [kind]
    return languages


def _usage(method: str) -> dict[str, Any]:
    name, count = f"deepl_usage_{method}", reference(DeepLUsage)
    return operation(name, "Characters so far", count, _deepl(QUICK), DeepLError)


def _deepl(statuses: tuple[int, ...]) -> tuple[int, ...]:
    """These statuses, with DeepL's own in place of ours where the two differ."""
    return tuple(DEEPL_STATUSES.get(status, status) for status in statuses)
