"""Bodies of DeepL's dialect; fields that are not listed are ignored."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, ConfigDict, Field

from serving.server.http.wire import Wire

ModelType = Literal["quality_optimized", "prefer_quality_optimized", "latency_optimized"]

Resource = Literal[
    "translate_text", "translate_document", "voice", "write", "glossary", "style_rules"
]


class DeepLRequest(Wire):
    """Fields of all requests."""

    auth_key: str | None = None
    """API key, if the server requires one and no header carries it."""


class DeepLTranslateRequest(DeepLRequest):
    """A request of DeepL's `/v2/translate`: texts to translate into one language."""

    # DeepL takes "1" for a boolean, and some of its clients send that.
    model_config = ConfigDict(strict=False)

    text: str | Annotated[list[str], Field(min_length=1)]
    """Text, or a list of texts; in a form it is repeated."""
    target_lang: str
    """Language code in upper or lower case; `EN-GB` means `EN` if there is no `en-gb`."""
    source_lang: str | None = None
    """Language code; detected if omitted."""
    split_sentences: Annotated[
        Literal["0", "1", "nonewlines"] | None,
        BeforeValidator(lambda given: str(int(given)) if isinstance(given, int) else given),
    ] = None
    """`0`: each text is one sentence; `nonewlines`: line breaks are spaces; the default is `1`, and
    `nonewlines` in markup."""
    formality: Literal["default", "more", "less", "prefer_more", "prefer_less"] | None = None
    """`more` and `less` are refused, as DeepL does for languages without formality."""
    tag_handling: Literal["xml", "html"] | None = None
    """The kind of markup whose tags are kept."""
    ignore_tags: str | list[str] | None = None
    """Tags whose content is not translated; a list, or one text with commas."""
    model_type: ModelType | None = None
    """Repeated in the answer. Each language pair has one model for all types."""
    preserve_formatting: bool | None = None
    """Ignored: nothing is corrected."""
    show_billed_characters: bool | None = None
    """Ignored: they are always shown."""
    context: str | None = None
    """Not used; a warning in the answer says so."""
    glossary_id: str | None = None
    """A stored glossary whose terms the translations use; needs `source_lang`."""
    glossary_ids: str | list[str] | None = None
    """Up to 5 glossaries instead of `glossary_id`, as a list or one text with commas. If several
    have a term, the first wins."""
    style_id: str | None = None
    """Refused."""
    translation_memory_id: str | None = None
    """A translation memory. Sentences that it contains are answered from it. Without `source_lang`,
    this applies to texts in its language, and `warnings` names the others."""
    translation_memory_threshold: Annotated[int, Field(ge=0, le=100)] | None = None
    """Smallest similarity of a segment in percent; default 75."""
    custom_instructions: list[str] | None = None
    """Refused."""


class DeepLTranslation(Wire):
    """The translation of one text, and its detected language."""

    detected_source_language: str
    """Language code in upper case, detected or from the request."""
    text: str
    billed_characters: int
    """Characters of the source text."""
    model_type_used: Literal["quality_optimized", "latency_optimized"] | None = None
    """Present if the request named a type."""


class DeepLTranslations(Wire):
    """The answer to a DeepLTranslateRequest."""

    translations: list[DeepLTranslation]
    """The translations, one per text, in order."""
    warnings: list[str] | None = None
    """Parts of the request that were ignored for some or all texts, although they could have
    changed the translations; omitted if there are none."""


class DeepLLanguagesRequest(DeepLRequest):
    """Selects source or target languages."""

    type: Literal["source", "target"] = "source"


class DeepLLanguage(Wire):
    """A source or target language."""

    language: str
    """Language code in upper case; some targets have a region."""
    name: str
    supports_formality: bool | None = None
    """Whether the language supports formality; target languages only."""


class DeepLResourceRequest(Wire):
    """Selects the resource whose languages are listed."""

    resource: Resource
    """`translate_text` has languages here, and `glossary` if the server keeps glossaries. The lists
    of all other resources are empty."""


class DeepLFeature(Wire):
    """A feature that a language supports."""

    status: Literal["stable"] = "stable"


class DeepLLanguageSupport(Wire):
    """A source or target language, as version 3 of the API describes it."""

    lang: str
    """Language code; some targets have a region."""
    name: str
    usable_as_source: bool
    usable_as_target: bool
    status: Literal["stable"] = "stable"
    features: dict[str, DeepLFeature]
    """`tag_handling`, and `auto_detection` for source languages."""


class DeepLStyleRules(Wire):
    """The stored style rules. The list is always empty."""

    style_rules: list[dict[str, str]]


class DeepLUsage(Wire):
    """Characters translated this month, or since the server's start if it has no store."""

    character_count: int
    character_limit: int


class DeepLError(Wire):
    """The body of every answer that is not 2xx."""

    message: str
    """A description for people."""
    code: str
    """The kind of error, for programs."""
