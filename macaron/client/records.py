"""The options and results of the client, as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, kw_only=True)
class TranslationOptions:
    """Options of a translation; missing values are the defaults of the server and the model."""

    format: str = "text"
    """`text`, `html`, `markdown` or `xml`."""
    model: str | None = None
    """Name of a model; by default the first for the language pair."""
    split_sentences: bool = True
    """Whether sentences are translated one by one."""
    alternatives: int = 0
    """Further translations of each text, besides the best."""
    glossary: Mapping[str, str] = field(default_factory=dict)
    """Terms and their translations."""
    required: Sequence[str] = ()
    """Terms that a translation must contain."""
    forbidden: Sequence[str] = ()
    """Terms that a translation must not contain."""
    alignments: bool = False
    """Whether hypotheses come with word links."""
    glossary_id: str | None = None
    """A stored glossary (`Client.glossaries`)."""
    memory_id: str | None = None
    """A translation memory (`Client.memories`)."""
    memory_threshold: float | None = None
    """Smallest similarity of a memory segment that is used, in percent."""
    memory_fuzzy: Literal["given", "prefix"] = "given"
    """Whether the translation of a similar segment is used as it is, or as the beginning."""
    timeout_s: float | None = None
    """Seconds after which the server gives up the request."""
    decoding: Mapping[str, Any] = field(default_factory=dict)
    """Options of the search, such as `beam_size`, as `docs/reference/options.md` lists them."""


@dataclass(frozen=True, kw_only=True)
class DocumentOptions:
    """Options for reading and writing a document; `docs/how-to/documents.md` has those of each
    format."""

    bilingual: bool = False
    """Whether the source stays beside its translation."""
    retranslate: bool = False
    """Whether what has a translation already, as in PO and XLIFF, is translated anew."""
    columns: Sequence[str] = ()
    """Columns of CSV and TSV to translate, by name or by number from 1; keys of JSON Lines."""


@dataclass(frozen=True)
class RemoteHypothesis:
    """One translation of a text, with its scores."""

    text: str
    score: float
    """Length-normalised log-probability, by which hypotheses are ranked."""
    finished: bool
    """False where it reached max_length before its end."""
    probability: float | None = None
    """Probability that it is good, if the bundle is calibrated."""
    alignment: Sequence[Mapping[str, Any]] = ()
    """Word links, if they were requested: `source` and `target` (begin and end in code points) and
    `probability`."""


@dataclass(frozen=True)
class RemoteOrigin:
    """The origin of a sentence's translation."""

    sentence: str
    origin: str
    """`memory`, `model`, or `prefix`: the model, with a beginning from the memory."""
    score: float | None = None
    """Similarity to the segment in percent; None, as the next field, if the memory has none."""
    segment: str | None = None
    """The sentence of the segment."""
    prefix: str | None = None
    """The beginning that the model was given."""


@dataclass(frozen=True)
class RemoteTranslation:
    """The translation of a text."""

    text: str
    hypotheses: Sequence[RemoteHypothesis]
    """Best first; empty for a text without words."""
    warnings: Sequence[str]
    """Warnings, listed in `docs/reference/serving.md`; usually empty."""
    model: str
    source: str
    """Language code of the text, detected if it was not given."""
    confidence: float | None = None
    """Probability of the detected language, 0 to 1; None if the source was given."""
    quality: float | None = None
    """Probability that the text is good, if the bundle is calibrated."""
    origins: Sequence[RemoteOrigin] = ()
    """Origins of its sentences, if a memory was named."""


@dataclass(frozen=True)
class RemotePartial:
    """The certain beginning of a translation that is still being decoded."""

    index: int
    """Index of the text."""
    text: str


@dataclass(frozen=True)
class RemoteVectors:
    """The vectors of texts, in their order."""

    vectors: Sequence[Sequence[float]]
    model: str


@dataclass(frozen=True)
class Ranked:
    """A text of a ranking."""

    index: int
    """Index of the text."""
    score: float


@dataclass(frozen=True)
class Label:
    """The likeliest class of a text."""

    label: str
    probability: float
    all: Mapping[str, float]
    """The probability of each class."""


@dataclass(frozen=True)
class RemoteDocument:
    """A document on a server."""

    id: str
    state: str
    """`queued`, `translating`, `done` or `failed`."""
    done: int
    """Number of paragraphs, cells and messages to translate."""
    total: int
    output_name: str
    """Name of the translated file."""
    warnings: Sequence[str]
    """Warnings about parts that could not be kept or translated."""
    error: str
    """Why it failed."""

    @property
    def ended(self) -> bool:
        """Whether it has finished or failed."""
        return self.state in ("done", "failed")


@dataclass(frozen=True)
class ModelInfo:
    """A model of the server."""

    name: str
    task: str
    """`translate`, `generate`, `encode` or `classify`."""
    pairs: Sequence[tuple[str, str]]
    """Language pairs, if it translates."""
    loaded: bool
    card: Mapping[str, Any]
    """The whole record of the server."""
