"""Texts to translate and what they became, in the words of no dialect."""

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
    """Texts of one request; a field that is not given is as the server and the model set it."""

    texts: Sequence[str]
    source: str
    """Language code, or `auto`."""
    target: str
    model: str | None = None
    format: Format = "text"
    ignored: Collection[str] = ()
    """Names of elements of HTML or XML that are not translated, in small letters."""
    split_sentences: bool = True
    """Whether sentences are translated one by one; else a text is one, and refused if too long."""
    options: Mapping[str, Any] = field(default_factory=dict)
    alternatives: int = 0
    """Further hypotheses of each text, besides the best."""
    target_prefixes: Sequence[str] = ()
    """One for each text, or none at all."""
    alignments: bool = False
    """Whether hypotheses get word links."""
    terms: Terms = NO_TERMS
    """Terms that the translation of every text must or may not hold."""
    glossary: Sequence[TermIndex] = ()
    """Stored glossaries for these languages, those that go before others first: what a sentence
    holds of them is put into its translation."""
    memory: MemoryUse | None = None
    """A memory of these languages: the sentences that it has are not decoded, or begin as it has
    them. Where the source is left open, texts of other languages do without it, with a warning."""
    sentences: DocumentSentences | None = None
    """Where the jobs of one document share sentences, each of which is decoded once."""
    timeout_s: float | None = None
    task: str = "translate"
    """As which its characters are counted."""


@dataclass(frozen=True)
class TextPartial:
    """What a text's translation is certain to begin with, whatever still comes."""

    index: int
    text: str


@dataclass(frozen=True)
class SentenceOrigin:
    """A sentence, and where its translation comes from."""

    sentence: str
    """As it stands in the text."""
    recalled: Recalled | None
    """The segment of the memory; None where it has none."""
    beginning: str | None = None
    """What of the segment's translation the model went on with, which may be nothing; None where
    nothing was decoded, or no segment found."""


@dataclass(frozen=True)
class TextResult:
    """The translation of one text, and how it came about."""

    text: str
    hypotheses: Sequence[TextHypothesis]
    """Best first; empty for a text without words."""
    warnings: Sequence[str]
    timing: RequestTiming
    model: ServedTranslator
    source: str
    """Language code, detected where it was left open."""
    confidence: float | None = None
    """Of the detection, 0 to 1; None where nothing was detected."""
    repaired: Sequence[Repair] = ()
    """What was put right in it."""
    origins: Sequence[SentenceOrigin] = ()
    """Of its sentences, in order; empty where the job names no memory."""


@dataclass(frozen=True)
class JobResult:
    """What the texts became, in order; each may have a source language and a model of its own."""

    translations: Sequence[TextResult]
