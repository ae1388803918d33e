"""Bodies of the native dialect; LibreTranslate's fields are a subset.

docs/openapi.json is generated from these classes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, GetJsonSchemaHandler, TypeAdapter
from pydantic.json_schema import JsonSchemaValue
from pydantic_core.core_schema import CoreSchema

from serving.bundle.manifest import Calibration, Quality, Task
from serving.checking.invariants import FaultKind
from serving.checking.repairs import RepairedBy
from serving.search.options import LENGTH_PENALTY_FORMS, RANGES, SearchOptions
from serving.server.http.wire import Count, DetectedLanguage, Flag, LenientRequest, Wire


@dataclass(frozen=True)
class _SchemaOf:
    """The JSON schema of a field. It is only built with the OpenAPI document, because that takes a
    while."""

    make: Callable[[], dict[str, Any]]

    def __get_pydantic_json_schema__(
        self, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return self.make()


def _options_schema() -> dict[str, Any]:
    """JSON schema of SearchOptions with its ranges; `parse_options` checks the requests."""
    schema = TypeAdapter(SearchOptions).json_schema()
    for name, field in schema["properties"].items():
        del field["default"]  # the bundle's own defaults count
        if name in RANGES:
            low, high = RANGES[name]
            field.get("anyOf", [field])[0].update(minimum=low, maximum=high)
    schema["properties"]["length_penalty_form"]["enum"] = list(LENGTH_PENALTY_FORMS)
    schema["description"] = "Decoding options; omitted ones are as the bundle sets them."
    return schema


def _defaults_schema() -> dict[str, Any]:
    """JSON schema of a model's default options."""
    others = {
        "type": "object",
        "description": "Generation options of a language model, with the names that bundles use.",
    }
    return {"anyOf": [_options_schema(), others]}


WarningCode = Literal[
    "repetition",
    "max_length",
    "constraints",
    "long_word",
    "placeholder",
    "untranslated",
    "pivot",
    "zero_shot",
    "figures",
    "letters",
    "names",
    "codes",
    "shape",
    "memory",
]


class GlossaryEntry(Wire):
    """A term and its translation."""

    source: str
    """The term; it matches whole words in upper or lower case."""
    target: str
    """The translation, exactly as it is to appear."""


class TranslateRequest(LenientRequest):
    """One or several texts to translate; unknown fields are ignored."""

    q: str | Annotated[list[str], Field(min_length=1)]
    """Text, or a list of texts that are decoded together."""
    source: str
    """Language code in upper or lower case, or `auto` to detect the language of each text. A region
    or a script that no model knows is ignored. The answer repeats the code as it is here."""
    target: str
    """Language code in the same form. Texts that are already in this language stay as they are."""
    model: str | None = None
    """Name of a model; default the first in `/models` for the language pair."""
    format: Annotated[
        Literal["text", "html", "markdown", "xml"], BeforeValidator(lambda given: given or "text")
    ] = "text"
    """`html` and `xml`: a document or a part of one. Tags move to the words that translate theirs,
    and everything that is not text stays as it is. XML must be well-formed."""
    split_sentences: Flag = True
    """Whether sentences are translated one by one. Otherwise each text, or each block of HTML, is
    one sentence, and is refused if it is too long for the model."""
    alternatives: Count = 0
    """Number of further translations of each text."""
    target_prefix: str | list[str] = ""
    """The text with which the translation must begin; a list has one per text. If a text has
    several sentences, it applies to the first."""
    timeout_s: Annotated[float, Field(gt=0)] | None = None
    """Seconds after which the request fails."""
    api_key: str | None = None
    """API key, if the server requires one and no header carries it."""
    alignments: Flag = False
    """Whether each hypothesis links its words to the words of the text that they come from."""
    glossary: list[GlossaryEntry] = Field([])
    """Terms and their translations. If a sentence contains a term, its translation contains the
    term's translation."""
    glossary_id: str | None = None
    """A stored glossary. The translations of its terms are put in the places of the terms. `source`
    must not be `auto` then."""
    memory_id: str | None = None
    """A translation memory. Sentences that it contains are answered from it and are not decoded. If
    `source` is `auto`, it applies to texts in its language; other texts are translated without it
    and get the warning `memory`. It excludes `target_prefix`, `glossary`, `required` and
    `forbidden`."""
    memory_threshold: Annotated[float, Field(ge=0, le=100)] | None = None
    """Smallest similarity in percent of a segment that is used; default 75. At 100, only numbers
    and placeholders may differ, and the text's own are put in."""
    memory_fuzzy: Annotated[
        Literal["given", "prefix"], BeforeValidator(lambda given: given or "given")
    ] = "given"
    """The treatment of a sentence that resembles a segment. `given`: it gets the segment's
    translation. `prefix`: it is decoded, and begins like the segment's translation as far as that
    translates the same words."""
    required: list[str] = Field([])
    """Terms that every translation must contain; only for texts of one sentence."""
    forbidden: list[str] = Field([])
    """Terms that no translation may contain. Words that begin with their pieces are excluded
    too."""
    stream: Flag = False
    """Answer as server-sent events: `partial` with the certain beginning of a text, and at the end
    `done` with the whole TranslateResponse, or `error`."""
    options: Annotated[dict[str, Any], _SchemaOf(_options_schema)] = Field({})
    """Decoding options; omitted ones are as the bundle sets them."""


class PartialBody(Wire):
    """The data of an event `partial`."""

    index: int
    """Index of the text in `q`."""
    text: str
    """The certain beginning of its translation; each event extends the one before."""


class TimingBody(Wire):
    """The time that a text took, in milliseconds, up to the end of its last sentence."""

    model_config = ConfigDict(title="Timing")

    queue_ms: float
    """Time in the queue."""
    encode_ms: float
    """Time of the encoder, for all texts that joined the batch together."""
    decode_ms: float
    batch_size: int
    """Number of texts decoded together, including those of other requests; 0 for a blank text."""


class WordLink(Wire):
    """A link between a word of the translation and a word of the source."""

    source: tuple[int, int]
    """Start and end in the text of `q`, in code points."""
    target: tuple[int, int]
    """Start and end in the hypothesis' text, in code points."""
    probability: float
    """The share of the target word's attention."""


class HypothesisBody(Wire):
    """A translation of a text, with its scores."""

    model_config = ConfigDict(title="Hypothesis")

    text: str
    score: float
    """Length-normalised log-probability; hypotheses are ranked by it."""
    cumulative: float
    """Log-probability of the generated tokens, with the end of sentence and without the prefix."""
    tokens: list[str]
    token_scores: list[float]
    """Log-probability of each token, and of the end of sentence if it was reached."""
    finished: bool
    """False if it reached `max_length` before its end."""
    probability: float | None = None
    """Probability that the translation is good, by the bundle's calibration; the mean over
    sentences. Omitted if the bundle is not calibrated."""
    alignment: list[WordLink] | None = None
    """Word links, if `alignments` was set; a word may have none."""


class Detected(Wire):
    """The detected source language of a text."""

    language: str
    confidence: Annotated[float, Field(ge=0, le=1)]
    """Probability among the possible languages; low for short texts."""


class RepairBody(Wire):
    """A difference between a translation and its source that was repaired."""

    kind: FaultKind
    """`figures`: a number or a currency sign; `letters`: a broken character, an emoji, or a name in
    another script; `names`: a country, language or city; `codes`: a placeholder, code, link or tag;
    `shape`: an empty translation, one that repeats itself, or one that is too long or too
    short."""
    what: str
    """The part that was missing, from the source, or that was wrong, from the model's output."""
    by: RepairedBy
    """`hypothesis`: another hypothesis was right; `search`: the sentence was decoded again with the
    missing part; `source`: the missing part was put in its place."""


class SentenceOriginBody(Wire):
    """The origin of a sentence's translation."""

    model_config = ConfigDict(title="SentenceOrigin")

    sentence: str
    origin: Literal["memory", "prefix", "model"]
    """`memory`: it is the segment's translation; `prefix`: the model decoded it with the beginning
    of the segment's translation; `model`: the model decoded it."""
    score: float | None = None
    """Similarity to the segment in percent; 100 if at most numbers and placeholders differ. `score`
    and `segment` are omitted if the memory has nothing for the sentence."""
    segment: str | None = None
    """The memory's sentence."""
    prefix: str | None = None
    """The beginning that the model had to continue, if the origin is `prefix`."""


class TranslatedText(Wire):
    """The best translation of a text, the other ones, and warnings."""

    text: str
    """The best hypothesis, or the text itself if it has no words."""
    hypotheses: list[HypothesisBody]
    """Best first; empty if the text has no words. Hypothesis i of a text consists of hypothesis i
    of each sentence."""
    warnings: list[WarningCode]
    """`repetition`: the translation repeated itself and was decoded again without repeated
    trigrams; `max_length`: it was cut at `max_length`; `constraints`: a required term is missing;
    `long_word`: a word that is too long for the model was kept; `placeholder`: the model lost or
    doubled a placeholder, which was kept once, at the most probable place; `untranslated`: an
    element of XML kept its words, because the translation had too few; `pivot`: no model translates
    this pair, so the text was translated through a third language; `zero_shot`: the model knows
    both languages but was not trained on this pair; `figures`, `letters`, `names`, `codes`,
    `shape`: a number, a name in another script or a code differs from the source, a country,
    language or city is missing, or the translation is empty, too long or too short, and could not
    be repaired; `memory`: the memory was not used, because
    `source` was `auto` and the text is in another language than the memory's, or because the text
    was translated through a third language."""
    quality: float | None = None
    """Probability from 0 to 1 that `text` is good: the `probability` of the best hypothesis.
    Omitted if the bundle is not calibrated, and for texts translated through a third language. The
    documentation says how accurate it is."""
    repaired: list[RepairBody]
    """The repaired faults of the translation that the model preferred."""
    origins: list[SentenceOriginBody] | None = None
    """The origins of the sentences' translations, in order, if the request named a memory. Omitted
    for texts translated through a third language."""
    timing: TimingBody
    model: str
    source: str
    """Language code, detected if the request said `auto`."""
    detected: Detected | None = None
    """Present if the request said `auto`."""


class TranslateResponse(Wire):
    """The answer to a TranslateRequest."""

    translatedText: str | list[str]
    """The best translation of each text; a list if `q` is a list."""
    alternatives: list[str] | list[list[str]] | None = None
    """Other translations that differ from the best, if `alternatives` was above 0."""
    detectedLanguage: DetectedLanguage | list[DetectedLanguage] | None = None
    """Present if `source` was `auto`; a list if `q` is a list."""
    translations: list[TranslatedText]
    """The translations, one per text, in order."""
    model: str | None = None
    """The model of all texts; omitted if they have different ones."""
    source: str | None = None
    """The source language of all texts; omitted if they have different ones."""
    target: str


Texts = Annotated[list[str], Field(min_length=1)]


class ClassifyRequest(Wire):
    """Texts or pairs of texts to classify."""

    q: str | Texts
    """One or several texts."""
    pair: str | Texts | None = None
    """The second text of each pair, for models that read pairs: as many as in `q`."""
    model: str | None = None
    """Name of a classifier; default the first."""
    truncate: bool = False
    """Cut off the end of texts that are too long."""


class LabelScore(Wire):
    """A class and its probability."""

    label: str
    probability: float


class Classification(Wire):
    """The classes of one text, most probable first."""

    label: str
    probability: float
    labels: list[LabelScore]
    """All classes. If there are several, their probabilities add up to one."""


class ClassifyResponse(Wire):
    """The classes of all texts, in order."""

    classifications: list[Classification]
    model: str


class LanguageReader(Wire):
    """A model for a source language."""

    model_config = ConfigDict(title="LanguageModel")

    name: str
    targets: list[str]
    attribution: str
    """The training data and their licence."""


class Language(Wire):
    """A source or target language."""

    code: str
    name: str
    targets: list[str]
    """Languages into which it is translated, by one model or through a third language."""
    models: list[LanguageReader]


class ModelCard(Wire):
    """A model's record."""

    name: str
    task: Task
    """The model's task: translate, generate, encode or classify."""
    source: list[str]
    """Source languages. `source`, `target` and `pairs` are empty if the model does not
    translate."""
    target: list[str]
    pairs: list[tuple[str, str]]
    """The pairs of source and target that it was trained on."""
    family: str
    block: str
    precision: str
    loaded: bool
    """Whether it is loaded; otherwise the first request loads it."""
    device: str
    """The device that it runs on: cpu, cuda or tensorrt."""
    device_reason: str
    """The reason for this device."""
    num_parameters: int
    max_source: int | None
    """Longest text in tokens, including special ones; null for language models, whose
    `max_model_len` is in `/v1/models`."""
    priority: int
    defaults: Annotated[dict[str, Any], _SchemaOf(_defaults_schema)]
    """Default decoding options; empty if the model decodes nothing."""
    quality: list[Quality]
    calibration: Calibration | None
    """The function from scores to `probability`, and its measured accuracy."""
    attribution: str
    demonstration: str
    """Purpose and limits of a demonstration model; empty if the model is meant for real use."""


class Models(Wire):
    """All models: translation models, with the preferred one of a language pair first, then
    language models, then encoders."""

    models: list[ModelCard]
    imports: bool
    """Whether models can be imported by name, with the admin key."""


class Limit(Wire):
    """A limit of this server."""

    name: str
    value: int | float | None
    """The limit's value; null if `batches` has a value for each model."""
    variable: str
    """The environment variable that sets it."""
    description: str


class BatchLimit(Wire):
    """The limits of a loaded model's batches."""

    model: str
    device: str
    """`cpu`, `cuda` or `tensorrt`."""
    max_rows: int
    """Largest number of texts decoded together."""
    max_tokens: int
    """Largest number of tokens decoded together: number of texts times the longest source."""
    max_cache_bytes: int
    """Largest number of bytes of cache of all the model's batches on a device together."""


class Limits(Wire):
    """Every limit of this server."""

    limits: list[Limit]
    batches: list[BatchLimit]


class Status(Wire):
    """The state of the server."""

    status: Literal["alive", "ready"]
