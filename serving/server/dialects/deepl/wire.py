"""What goes over the wire in DeepL's dialect; fields that are not listed are ignored."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, ConfigDict, Field

from serving.server.http.wire import Wire

ModelType = Literal["quality_optimized", "prefer_quality_optimized", "latency_optimized"]

Resource = Literal[
    "translate_text", "translate_document", "voice", "write", "glossary", "style_rules"
]


class DeepLRequest(Wire):
    """What all requests have in common."""

    auth_key: str | None = None
    """API key, where the server wants one and the head does not carry it."""


class DeepLTranslateRequest(DeepLRequest):
    """A request of DeepL's `/v2/translate`: texts, all into one language."""

    # DeepL takes "1" for a boolean, and some of its clients send that.
    model_config = ConfigDict(strict=False)

    text: str | Annotated[list[str], Field(min_length=1)]
    """Text, or a list of texts; in a form it is repeated."""
    target_lang: str
    """Language code, in capitals or not; of `EN-GB` the `EN` counts where there is no `en-gb`."""
    source_lang: str | None = None
    """Language code; detected where it is left out."""
    split_sentences: Annotated[
        Literal["0", "1", "nonewlines"] | None,
        BeforeValidator(lambda given: str(int(given)) if isinstance(given, int) else given),
    ] = None
    """`0`: each text is one sentence; `nonewlines`: line breaks are spaces; `1` is the default,
    and in markup `nonewlines`."""
    formality: Literal["default", "more", "less", "prefer_more", "prefer_less"] | None = None
    """`more` and `less` are refused, as DeepL does for languages without formality."""
    tag_handling: Literal["xml", "html"] | None = None
    """Keep the tags of this kind of markup."""
    ignore_tags: str | list[str] | None = None
    """Names of tags whose content stays as it is; a list, or one text with commas."""
    model_type: ModelType | None = None
    """Named in the answer; there is one model of a language pair for all of them."""
    preserve_formatting: bool | None = None
    """Ignored: nothing is corrected."""
    show_billed_characters: bool | None = None
    """Ignored: they are always there."""
    context: str | None = None
    """Not used; a warning in the answer says so."""
    glossary_id: str | None = None
    """A stored glossary, whose terms are put into the translations; needs `source_lang`."""
    glossary_ids: str | list[str] | None = None
    """Up to 5 of them in place of `glossary_id`, a list or one text with commas; of a term that
    several have, the first counts."""
    style_id: str | None = None
    """Refused."""
    translation_memory_id: str | None = None
    """A translation memory: a sentence that it has is answered from it. Without `source_lang` that
    holds for texts in its language, and `warnings` name the others."""
    translation_memory_threshold: Annotated[int, Field(ge=0, le=100)] | None = None
    """Percent of likeness from which on a segment of the memory is taken; default 75."""
    custom_instructions: list[str] | None = None
    """Refused."""


class DeepLTranslation(Wire):
    """The translation of one text, and the language that the text was found to be in."""

    detected_source_language: str
    """Language code in capitals, detected or as the request gave it."""
    text: str
    billed_characters: int
    """Characters of the source text."""
    model_type_used: Literal["quality_optimized", "latency_optimized"] | None = None
    """Where the request named a type."""


class DeepLTranslations(Wire):
    """The answer to a DeepLTranslateRequest."""

    translations: list[DeepLTranslation]
    """One for each text, in order."""
    warnings: list[str] | None = None
    """What of the request counted for nothing, for all texts or for some of them, though it could
    have changed the translations; left out where nothing is to be said."""


class DeepLLanguagesRequest(DeepLRequest):
    """Which languages are asked for."""

    type: Literal["source", "target"] = "source"


class DeepLLanguage(Wire):
    """A language that is read or written."""

    language: str
    """Language code in capitals, of some targets with a region."""
    name: str
    supports_formality: bool | None = None
    """Of target languages only."""


class DeepLResourceRequest(Wire):
    """What the languages are asked for that it supports."""

    resource: Resource
    """All but `translate_text` and, where glossaries are kept, `glossary` have none here."""


class DeepLFeature(Wire):
    """A feature that is there for a language."""

    status: Literal["stable"] = "stable"


class DeepLLanguageSupport(Wire):
    """A language that is read or written, in the form of version 3 of the API."""

    lang: str
    """Language code, of some targets with a region."""
    name: str
    usable_as_source: bool
    usable_as_target: bool
    status: Literal["stable"] = "stable"
    features: dict[str, DeepLFeature]
    """`tag_handling`; `auto_detection` of languages that are read."""


class DeepLStyleRules(Wire):
    """The style rules that are stored: none."""

    style_rules: list[dict[str, str]]


class DeepLUsage(Wire):
    """Characters of this month; without a store, those translated since the server was started."""

    character_count: int
    character_limit: int


class DeepLError(Wire):
    """Every answer that is not 2xx."""

    message: str
    """What is wrong, for people."""
    code: str
    """What kind of error it is, for programs."""
