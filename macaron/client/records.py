"""What a client is asked for and what it gives, as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, kw_only=True)
class TranslationOptions:
    """How texts are translated; what is not given is as the server and the model set it."""

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
    """Terms that a translation must hold."""
    forbidden: Sequence[str] = ()
    """Terms that a translation may not hold."""
    alignments: bool = False
    """Whether hypotheses come with word links."""
    glossary_id: str | None = None
    """A stored glossary (`Client.glossaries`)."""
    memory_id: str | None = None
    """A translation memory (`Client.memories`)."""
    memory_threshold: float | None = None
    """Percent of likeness from which on a segment of the memory counts."""
    memory_fuzzy: Literal["given", "prefix"] = "given"
    """Whether the translation of a segment that is only like a sentence is given as it is, or gives
    the beginning."""
    timeout_s: float | None = None
    """Seconds after which the server gives a request up."""
    decoding: Mapping[str, Any] = field(default_factory=dict)
    """Options of the search, such as `beam_size`, as `docs/reference/options.md` lists them."""


@dataclass(frozen=True)
class RemoteHypothesis:
    """One translation of a text, with its scores."""

    text: str
    score: float
    """Length-normalised log-probability, by which hypotheses are ranked."""
    finished: bool
    """False where it reached max_length before its end."""
    probability: float | None = None
    """That it is good, where the bundle was calibrated."""
    alignment: Sequence[Mapping[str, Any]] = ()
    """Word links, where they were asked for: `source` and `target` (begin and end in code points)
    and `probability`."""


@dataclass(frozen=True)
class RemoteOrigin:
    """Where the translation of a sentence comes from."""

    sentence: str
    origin: str
    """`memory`, `model`, or `prefix`: the model, from a beginning in the memory on."""
    score: float | None = None
    """Percent of likeness to the segment; None, as the next, where the memory has none."""
    segment: str | None = None
    """The sentence that the memory has."""
    prefix: str | None = None
    """What the model went on with."""


@dataclass(frozen=True)
class RemoteTranslation:
    """What a text became."""

    text: str
    hypotheses: Sequence[RemoteHypothesis]
    """Best first; empty for a text without words."""
    warnings: Sequence[str]
    """What a reader should know, as `docs/reference/serving.md` lists it; often nothing."""
    model: str
    source: str
    """Language code of the text, detected where it was left open."""
    confidence: float | None = None
    """Of the detection, 0 to 1; None where the source was given."""
    quality: float | None = None
    """How likely the text is good, where the bundle was calibrated."""
    origins: Sequence[RemoteOrigin] = ()
    """Of its sentences, where a memory was named."""


@dataclass(frozen=True)
class RemotePartial:
    """What the translation of a text is certain to begin with, while it is still being decoded."""

    index: int
    """Which of the texts."""
    text: str


@dataclass(frozen=True)
class RemoteVectors:
    """The vectors of texts, in their order."""

    vectors: Sequence[Sequence[float]]
    model: str


@dataclass(frozen=True)
class Ranked:
    """A text among those that were ranked."""

    index: int
    """Which of the texts."""
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
    """Paragraphs, cells and messages that are translated."""
    total: int
    output_name: str
    """How the translated file is called."""
    warnings: Sequence[str]
    """What could not be kept or translated."""
    error: str
    """Why it failed."""

    @property
    def ended(self) -> bool:
        """Whether nothing more will come of it."""
        return self.state in ("done", "failed")


@dataclass(frozen=True)
class ModelInfo:
    """A model that the server has."""

    name: str
    task: str
    """`translate`, `generate`, `encode` or `classify`."""
    pairs: Sequence[tuple[str, str]]
    """Source and target of what it translates."""
    loaded: bool
    card: Mapping[str, Any]
    """All that the server says of it."""
