"""Builds the answers of MTranServer's routes; maps Hcfy's names of languages."""

from __future__ import annotations

from serving.bundle.languages import match_language
from serving.server.dialects.mtran.wire import (
    HcfyAnswer,
    HcfyRequest,
    ImmeRequest,
    ImmeTranslation,
    ImmeTranslations,
    KissAnswer,
    KissRequest,
    KissTranslation,
)
from serving.server.work.translating.job import JobResult, TextResult

_HCFY_NAMES = {
    "zh-Hans": "中文(简体)",
    "zh-CN": "中文(简体)",
    "zh-Hant": "中文(繁体)",
    "zh-TW": "中文(繁体)",
    "zh": "中文(简体)",
    "en": "英语",
    "ja": "日语",
    "ko": "韩语",
    "fr": "法语",
    "de": "德语",
    "es": "西班牙语",
    "ru": "俄语",
    "it": "意大利语",
    "pt": "葡萄牙语",
}
_HCFY_CODES = {name: code for code, name in reversed(_HCFY_NAMES.items())}


def hcfy_code(given: str) -> str:
    """The code of a language that has a Chinese name in Hcfy. Other names stay as they are."""
    return _HCFY_CODES.get(given, given)


def hcfy_name(code: str) -> str:
    """Hcfy's name of a language, or the code if it has none."""
    known = match_language(code, _HCFY_NAMES)
    return code if known is None else _HCFY_NAMES[known]


def imme_answer(body: ImmeRequest, result: JobResult) -> ImmeTranslations:
    """The translations of all texts."""
    return ImmeTranslations(
        translations=[
            ImmeTranslation(
                detected_source_lang=_source_code(body.source_lang, text), text=text.text
            )
            for text in result.translations
        ]
    )


def kiss_answer(body: KissRequest, result: JobResult) -> KissAnswer:
    """The translations of a list, or the translation of a single text."""
    found = [
        KissTranslation(text=text.text, src=_source_code(body.source, text))
        for text in result.translations
    ]
    if body.texts is not None:
        return KissAnswer(translations=found)
    return KissAnswer(text=found[0].text, src=found[0].src)


def hcfy_answer(body: HcfyRequest, target: str, result: JobResult) -> HcfyAnswer:
    """The translations of the lines of a text."""
    [found] = result.translations
    return HcfyAnswer(
        text=body.text,
        source=body.source or hcfy_name(found.source),
        target=target,
        result=found.text.split("\n"),
    )


def _source_code(given: str, result: TextResult) -> str:
    """The source language, given or detected."""
    return given if result.confidence is None else result.source
