"""Texts to translate and their results, independent of the dialect."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from serving.checking.repairs import Repair
from serving.queue.ticket import RequestTiming
from serving.server.models.served import ServedTranslator
from serving.server.work.translating.sentences import DocumentSentences
from serving.text.document import Format
from serving.text.glossary import TermIndex
from serving.text.memory.segments import MemoryUse, Recalled
from serving.text.terms import NO_TERMS, Terms
from serving.translation.results import TextHypothesis


@dataclass(frozen=True, kw_only=True)
class TranslationJob:
    """Texts of one request and options for them; an omitted field uses the defaults of the server
    and the model."""

    texts: Sequence[str]
    source: str
    """Language code, or `auto`."""
    target: str
    model: str | None = None
    format: Format = "text"
    ignored: Collection[str] = ()
    """Names, in small letters, of elements of HTML or XML that are not translated."""
    split_sentences: bool = True
    """Whether sentences are translated one by one. Otherwise a text is one sentence, which is
    refused if it is too long."""
    options: Mapping[str, Any] = field(default_factory=dict)
    alternatives: int = 0
    """Number of further hypotheses of each text, besides the best."""
    target_prefixes: Sequence[str] = ()
    """Prefixes of the translations, one for each text, or none at all."""
    alignments: bool = False
    """Whether hypotheses get word links."""
    terms: Terms = NO_TERMS
    """Terms that the translation of every text must or must not contain."""
    glossary: Sequence[TermIndex] = ()
    """Stored glossaries for these languages, in order of precedence. Their terms that occur in a
    sentence are put into its translation."""
    memory: MemoryUse | None = None
    """A memory for these languages. Sentences that it contains are not decoded, or begin as in the
    memory. If the source is detected, texts in other languages are translated without it, with a
    warning."""
    sentences: DocumentSentences | None = None
    """The sentences that the jobs of one document share; each of them is decoded once."""
    timeout_s: float | None = None
    task: str = "translate"
    """Name of the task under which its characters are counted."""


@dataclass(frozen=True)
class TextPartial:
    """The beginning of a text's translation that will not change any more."""

    index: int
    text: str


@dataclass(frozen=True)
class SentenceOrigin:
    """A sentence, and the origin of its translation."""

    sentence: str
    """The sentence as it stands in the text."""
    recalled: Recalled | None
    """The segment of the memory; None if it has none for the sentence."""
    beginning: str | None = None
    """The beginning of the segment's translation that the model continued, which may be empty; None
    if nothing was decoded, or if no segment was found."""


@dataclass(frozen=True)
class TextResult:
    """The translation of one text, and its origin."""

    text: str
    hypotheses: Sequence[TextHypothesis]
    """The hypotheses, best first; empty for a text without words."""
    warnings: Sequence[str]
    timing: RequestTiming
    model: ServedTranslator
    source: str
    """Language code, detected if the job names none."""
    confidence: float | None = None
    """Confidence of the detection, 0 to 1; None if nothing was detected."""
    repaired: Sequence[Repair] = ()
    """The repaired faults of the translation."""
    origins: Sequence[SentenceOrigin] = ()
    """The origins of its sentences' translations, in order; empty if the job has no memory."""


@dataclass(frozen=True)
class JobResult:
    """The results of all texts, in order; each may have a source language and a model of its
    own."""

    translations: Sequence[TextResult]
