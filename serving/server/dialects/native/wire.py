"""What goes over the wire in the native dialect; LibreTranslate's fields are a subset.

docs/openapi.json is made from these classes.
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
    """The JSON schema of a field, made where the OpenAPI document is: that takes a while."""

    make: Callable[[], dict[str, Any]]

    def __get_pydantic_json_schema__(
        self, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return self.make()


def _options_schema() -> dict[str, Any]:
    """JSON schema of SearchOptions with its ranges; `parse_options` is what checks a request."""
    schema = TypeAdapter(SearchOptions).json_schema()
    for name, field in schema["properties"].items():
        del field["default"]  # the bundle's own defaults count
        if name in RANGES:
            low, high = RANGES[name]
            field.get("anyOf", [field])[0].update(minimum=low, maximum=high)
    schema["properties"]["length_penalty_form"]["enum"] = list(LENGTH_PENALTY_FORMS)
    schema["description"] = "Decoding options; what is left out is as the bundle sets it."
    return schema


def _defaults_schema() -> dict[str, Any]:
    """JSON schema of the options that a model has by itself."""
    others = {
        "type": "object",
        "description": "Of a language model: options of generation, as bundles name them.",
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
    "codes",
    "shape",
    "memory",
]


class GlossaryEntry(Wire):
    """A term and its translation."""

    source: str
    """As whole words, in upper or lower case."""
    target: str
    """As it is written."""


class TranslateRequest(LenientRequest):
    """One text or several; fields that are not listed here are ignored."""

    q: str | Annotated[list[str], Field(min_length=1)]
    """Text, or a list of texts that are decoded together."""
    source: str
    """Language code, or `auto`: detected, for each text by itself. It counts in capitals too, and
    with a region or a script that no model knows, without that; the answer has it as it is here."""
    target: str
    """Language code, likewise. Texts whose source and target are one language stay as they are."""
    model: str | None = None
    """Name of a model; by default the first for the language pair, as `/models` lists them."""
    format: Annotated[
        Literal["text", "html", "markdown", "xml"], BeforeValidator(lambda given: given or "text")
    ] = "text"
    """`html` and `xml`: a document or a part of one. Tags are carried over to the words that
    translate theirs; what is not text stays as it is. XML that is not well-formed is refused."""
    split_sentences: Flag = True
    """Whether sentences are translated one by one; otherwise a text, or a block of HTML, is one
    sentence, and is refused where it is too long for the model."""
    alternatives: Count = 0
    """Further translations of each text, besides the best."""
    target_prefix: str | list[str] = ""
    """Beginning that every translation must have; one, or a list with one for each text. Of a text
    with several sentences it is the first one's."""
    timeout_s: Annotated[float, Field(gt=0)] | None = None
    """Seconds after which the request fails."""
    api_key: str | None = None
    """API key, where the server wants one and the head does not carry it."""
    alignments: Flag = False
    """Whether each hypothesis says which words of the text its words come from."""
    glossary: list[GlossaryEntry] = Field([])
    """Terms and their translations: where a sentence holds the one, its translation holds the
    other."""
    glossary_id: str | None = None
    """A stored glossary: its terms are put into the translations, in the places of their sources.
    `source` may not be `auto` then."""
    memory_id: str | None = None
    """A translation memory: a sentence that it has is answered from it rather than decoded. Where
    `source` is `auto`, that holds for texts in its language; others are translated without it, and
    have the warning `memory`. There may be no `target_prefix` and no terms of the request's own."""
    memory_threshold: Annotated[float, Field(ge=0, le=100)] | None = None
    """Percent of likeness to a segment of the memory from which on that is taken; default 75. At
    100 numbers and placeholders may differ, which are put in."""
    memory_fuzzy: Annotated[
        Literal["given", "prefix"], BeforeValidator(lambda given: given or "given")
    ] = "given"
    """What becomes of a sentence that the memory has in other words. `given`: the translation of
    the segment is its own; `prefix`: it is decoded, and begins as that does, as far as that is the
    translation of the same words."""
    required: list[str] = Field([])
    """Terms that every translation must hold; of a text of one sentence only."""
    forbidden: list[str] = Field([])
    """Terms that no translation may hold, nor words that begin with their pieces."""
    stream: Flag = False
    """Answer as server-sent events: `partial` with what is certain of a text, at last `done` with
    the whole TranslateResponse, or `error`."""
    options: Annotated[dict[str, Any], _SchemaOf(_options_schema)] = Field({})
    """Decoding options; what is left out is as the bundle sets it."""


class PartialBody(Wire):
    """The data of an event `partial`."""

    index: int
    """Which text of `q`."""
    text: str
    """With what its translation begins, whatever still comes; each begins with the one before."""


class TimingBody(Wire):
    """Where the time of a text went, in milliseconds; of its sentences, to the end of the last."""

    model_config = ConfigDict(title="Timing")

    queue_ms: float
    """Waiting for the running batch to end."""
    encode_ms: float
    """Reading the source, together with those that joined the batch at the same time."""
    decode_ms: float
    batch_size: int
    """Texts that were decoded together, those of other requests included; 0 for a blank text."""


class WordLink(Wire):
    """A word of the translation and the word of the source that it comes from."""

    source: tuple[int, int]
    """Begin and end in the text of `q`, in code points."""
    target: tuple[int, int]
    """Begin and end in the hypothesis' text."""
    probability: float
    """Share of the word's attention."""


class HypothesisBody(Wire):
    """One translation of a text, with its scores; a text has as many as were asked for."""

    model_config = ConfigDict(title="Hypothesis")

    text: str
    score: float
    """Length-normalised log-probability, by which hypotheses are ranked."""
    cumulative: float
    """Log-probability of the generated tokens, end of sentence included, prefix not."""
    tokens: list[str]
    token_scores: list[float]
    """Log-probability of each token, and of the end of sentence where it was reached."""
    finished: bool
    """False where it reached max_length before its end."""
    probability: float | None = None
    """That it is good, as measured when the bundle was calibrated; the mean over sentences. Left
    out where the bundle is not."""
    alignment: list[WordLink] | None = None
    """Word links, where `alignments` was set; a word may have none."""


class Detected(Wire):
    """The source language of a text, as it was detected."""

    language: str
    confidence: Annotated[float, Field(ge=0, le=1)]
    """Probability among the languages that could be meant; low for short texts."""


class RepairBody(Wire):
    """Something of a translation that differed from its source, and was put right."""

    kind: FaultKind
    """`figures`: a number or the sign of a currency; `letters`: a broken character, a picture, or a
    name in other letters; `codes`: a placeholder, code, link or tag; `shape`: empty, in circles,
    too long or too short."""
    what: str
    """What was missing, as the source has it, or was too much, as the model wrote it."""
    by: RepairedBy
    """`hypothesis`: the next best one is right; `search`: it was decoded again with what was
    missing; `source`: what was missing was put in its place."""


class SentenceOriginBody(Wire):
    """Where the translation of a sentence comes from."""

    model_config = ConfigDict(title="SentenceOrigin")

    sentence: str
    origin: Literal["memory", "prefix", "model"]
    """`memory`: the translation of the segment; `prefix`: that of the model, which begins as that
    of the segment does; `model`: that of the model."""
    score: float | None = None
    """Percent of likeness to the segment; 100 where numbers and placeholders differ at most. Left
    out, as the next, where the memory has nothing for the sentence."""
    segment: str | None = None
    """The sentence that the memory has."""
    prefix: str | None = None
    """What the model was given to go on with. Where the origin is `prefix`."""


class TranslatedText(Wire):
    """The best translation of a text, the others, and what a reader should know of them."""

    text: str
    """The best hypothesis; the text itself where it has no words."""
    hypotheses: list[HypothesisBody]
    """Best first; empty where the text has no words. Hypothesis i of a text is made of hypothesis i
    of each of its sentences."""
    warnings: list[WarningCode]
    """`repetition`: the translation went in circles and was made again without repeated trigrams;
    `max_length`: it was ended before its end; `constraints`: a required term is missing;
    `long_word`: a word that is longer than the model reads was kept; `placeholder`: the model lost
    or doubled one, which was kept once, at its likeliest place; `untranslated`: an element of XML
    kept its words, for the translation had too few; `pivot`: no model translates this pair, so that
    the text went through a third language; `zero_shot`: the model knows both languages, but was not
    trained on this pair; `figures`, `letters`, `codes`, `shape`: a number, a name in other letters
    or a code differs from the source, or the translation is empty, too long or too short, and
    nothing put it right; `memory`: `source` was `auto`, and the text is in another language than
    the memory's, or went through a third one, so that the memory was not used."""
    quality: float | None = None
    """How likely `text` is good, from 0 to 1: the `probability` of the best hypothesis. Left out
    where that has none: of a bundle that is not calibrated, and of a text that went through a third
    language. What it is worth is measured in the documentation."""
    repaired: list[RepairBody]
    """What was wrong with the translation that the model preferred, and has been put right."""
    origins: list[SentenceOriginBody] | None = None
    """Of its sentences, in order; where the request named a memory. None of a text that went
    through a third language."""
    timing: TimingBody
    model: str
    source: str
    """Language code, detected where the request said `auto`."""
    detected: Detected | None = None
    """Where the request said `auto`."""


class TranslateResponse(Wire):
    """The answer to a TranslateRequest."""

    translatedText: str | list[str]
    """The best translation of each text, in the form of `q`."""
    alternatives: list[str] | list[list[str]] | None = None
    """Other translations, where `alternatives` was above 0; those equal to the best left out."""
    detectedLanguage: DetectedLanguage | list[DetectedLanguage] | None = None
    """Where `source` was `auto`; in the form of `q`."""
    translations: list[TranslatedText]
    """One for each text, in order."""
    model: str | None = None
    """The model of all texts; left out where they differ."""
    source: str | None = None
    """The source language of all texts; left out where they differ."""
    target: str


Texts = Annotated[list[str], Field(min_length=1)]


class ClassifyRequest(Wire):
    """Texts to classify, or pairs of texts."""

    q: str | Texts
    """A text, or several."""
    pair: str | Texts | None = None
    """The second text of each, for models that read two: as many as `q` has."""
    model: str | None = None
    """Name of a classifier; default the first."""
    truncate: bool = False
    """Cut the ends of texts that are too long off."""


class LabelScore(Wire):
    """A class and its probability."""

    label: str
    probability: float


class Classification(Wire):
    """The classes of one text, the likeliest one first."""

    label: str
    probability: float
    labels: list[LabelScore]
    """All classes; the probabilities of several add up to one."""


class ClassifyResponse(Wire):
    """What was found of each text, in the order of the request."""

    classifications: list[Classification]
    model: str


class LanguageReader(Wire):
    """A model that reads a language."""

    model_config = ConfigDict(title="LanguageModel")

    name: str
    targets: list[str]
    attribution: str
    """The data it was made from, and their licence."""


class Language(Wire):
    """A language that is read or written."""

    code: str
    name: str
    targets: list[str]
    """Languages it can be translated into, by one model or by way of a third language."""
    models: list[LanguageReader]


class ModelCard(Wire):
    """What is known of a model."""

    name: str
    task: Task
    """What it does: translate, generate, encode or classify."""
    source: list[str]
    """Languages that it reads; empty, as the next two, where it does not translate."""
    target: list[str]
    pairs: list[tuple[str, str]]
    """Pairs of source and target that it was trained on."""
    family: str
    block: str
    precision: str
    loaded: bool
    """Whether it is loaded; else the first request for it has it loaded."""
    device: str
    """What it runs on: cpu, cuda or tensorrt."""
    device_reason: str
    """Why on this device."""
    num_parameters: int
    max_source: int | None
    """Longest text, in tokens with the special ones; null of a language model, of which
    `/v1/models` has `max_model_len`."""
    priority: int
    defaults: Annotated[dict[str, Any], _SchemaOf(_defaults_schema)]
    """Decoding options where a request names none; empty where nothing is decoded."""
    quality: list[Quality]
    calibration: Calibration | None
    """How `probability` follows from the score, and how well that held."""
    attribution: str
    demonstration: str
    """What the model shows and what it cannot do, if it is no model for real use; else empty."""


class Models(Wire):
    """Every model: those that translate, the preferred ones of a language pair first, then language
    models, then encoders."""

    models: list[ModelCard]
    imports: bool
    """Whether more can be imported by name, with the admin key."""


class Limit(Wire):
    """One limit of this server."""

    name: str
    value: int | float | None
    """Null where `batches` has it for each model."""
    variable: str
    """Environment variable that sets it."""
    description: str


class BatchLimit(Wire):
    """What a batch of a loaded model may hold."""

    model: str
    device: str
    """`cpu`, `cuda` or `tensorrt`."""
    max_rows: int
    """Texts decoded together."""
    max_tokens: int
    """Texts x longest source."""
    max_cache_bytes: int
    """Of all batches of the model together."""


class Limits(Wire):
    """Every limit of this server."""

    limits: list[Limit]
    batches: list[BatchLimit]


class Status(Wire):
    """The state of the server."""

    status: Literal["alive", "ready"]
