"""The results of sentences, and how the result of a text is assembled from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from serving.checking.repairs import Repair
from serving.errors import InvalidOptionError
from serving.queue.ticket import RequestTiming
from serving.search.beams.sentence import Sentence
from serving.search.options import SearchOptions
from serving.text.alignment import Link
from serving.text.document import Document
from serving.text.placing.placement import Translated
from serving.text.terms import Terms


@dataclass(frozen=True)
class TextHypothesis:
    """A translation of a text."""

    text: str
    score: float
    """Length-normalised log-probability, see `SearchOptions.score`."""
    cumulative: float
    """Log-probability of the generated tokens, including eos."""
    tokens: tuple[str, ...]
    token_scores: tuple[float, ...]
    """Natural log-probability of each token, and of eos if it was reached."""
    finished: bool
    """False if it was cut at max_length."""
    probability: float | None = None
    """Probability that the translation is good, by the bundle's calibration
    (`Manifest.calibration`); None if the bundle has none."""
    alignment: tuple[Link, ...] | None = None
    """Word links between the given text and `text`, if the request asked for them."""


@dataclass(frozen=True)
class Translation:
    """The translation of one text; `hypotheses` is empty for a blank text."""

    text: str
    hypotheses: tuple[TextHypothesis, ...] = ()
    warnings: tuple[str, ...] = ()
    """`repetition`: the output looped and was decoded again; `max_length`: the output did not end;
    `constraints`: a hypothesis lacks a required term; a `FaultKind`: a difference from the source
    that could not be repaired."""
    repaired: tuple[Repair, ...] = ()
    """The repaired faults of the model's preferred output. The tokens and scores of a hypothesis
    are those of the model's output, before parts of the source were put in."""
    beginning: str = ""
    """The beginning of a draft's translation that was forced on this one."""

    @property
    def linked(self) -> Translated:
        """The best hypothesis, with its word links if the request asked for them."""
        best = self.hypotheses[0] if self.hypotheses else None
        return Translated(self.text, best.alignment or () if best else ())


@dataclass(frozen=True)
class Done:
    """A sentence has its final translation."""

    translation: Translation


@dataclass(frozen=True)
class Again:
    """A sentence must be decoded again with other options or another source, because its output
    loops, has a fault or is a copy."""

    sentence: Sentence


@dataclass(frozen=True)
class Split:
    """Other sentences must be decoded instead of this one. `gathered` makes its translation from
    theirs."""

    sentences: tuple[Sentence, ...]


SentenceOutcome = Done | Again | Split
"""The next action for a sentence whose search has ended."""


@dataclass(frozen=True)
class Score:
    """The log-probability of a given translation."""

    tokens: tuple[str, ...]
    token_scores: tuple[float, ...]
    """Natural log-probability of each token and of eos."""

    @property
    def cumulative(self) -> float:
        """The sum over the tokens and eos."""
        return sum(self.token_scores)


def gathered(parts: Sequence[Translation]) -> Translation:
    """A single translation with the hypotheses of several."""
    warnings = dict.fromkeys(warning for part in parts for warning in part.warnings)
    hypotheses = tuple(hypothesis for part in parts for hypothesis in part.hypotheses)
    repaired = dict.fromkeys(repair for part in parts for repair in part.repaired)
    return Translation(parts[0].text, hypotheses, tuple(warnings), tuple(repaired))


def needs_one_sentence(options: SearchOptions, terms: Terms) -> str:
    """The name of an option that is only for texts of one sentence; empty if there is none."""
    if options.return_alternatives:
        return "options.return_alternatives"
    return "required" if terms.required else ""


def check_single(options: SearchOptions, terms: Terms, sentences: int) -> None:
    """Raise InvalidOptionError if a request for several `sentences` has an option that is only for
    one."""
    name = needs_one_sentence(options, terms)
    if name:
        raise InvalidOptionError(
            f"{name} needs a text of one sentence, got {sentences}; set split_sentences to "
            "false, or send the sentences as texts",
            parameter=name.rpartition(".")[2],
        )


def join_translations(
    document: Document, translations: Sequence[Translation], *, alignments: bool
) -> Translation:
    """The translation of a document from those of its sentences. A text without sentences stays as
    it is and has no hypotheses."""
    warnings = [w for translation in translations for w in translation.warnings]
    repaired = dict.fromkeys(
        replace(repair, what=document.as_in_text(number, repair.what))
        for number, translation in enumerate(translations)
        for repair in translation.repaired
    )
    hypotheses = _join_hypotheses(document, translations, alignments=alignments)
    text = hypotheses[0].text if hypotheses else document.untranslated
    every = dict.fromkeys([*warnings, *document.warnings])  # some arise as it is rendered
    return Translation(text, tuple(hypotheses), tuple(every), tuple(repaired))


def _join_hypotheses(
    document: Document, translations: Sequence[Translation], *, alignments: bool
) -> list[TextHypothesis]:
    """Hypothesis i of a text, made of hypothesis i of each sentence, or of the sentence's last one.
    Equal texts are listed once.

    `cumulative` is the sum. `score` and `probability` are the means over the sentences, weighted by
    the tokens of their best hypotheses, so that the order is kept. Tokens are concatenated; each
    sentence's scores include that of its end.
    """
    # A sentence without pieces for the model has no hypotheses.
    lists = [
        translation.hypotheses
        or (TextHypothesis(translation.text, 0.0, 0.0, (), (), finished=True),)
        for translation in translations
    ]
    weights = [len(hypotheses[0].token_scores) for hypotheses in lists]
    best: dict[str, TextHypothesis] = {}
    for index in range(max(map(len, lists), default=0)):
        sentences = [hypotheses[min(index, len(hypotheses) - 1)] for hypotheses in lists]
        joined = _joined(sentences, weights)
        written = document.render([Translated(s.text, s.alignment or ()) for s in sentences])
        links = tuple(written.links) if alignments else None
        # Different pieces may write the same text.
        best.setdefault(written.text, replace(joined, text=written.text, alignment=links))
    return list(best.values())


def join_timings(timings: Sequence[RequestTiming]) -> RequestTiming:
    """The time from the first start to the last end, the longest encoding and the largest batch."""
    queue_s = min((timing.queue_s for timing in timings), default=0.0)
    encode_s = max((timing.encode_s for timing in timings), default=0.0)
    ends = (timing.queue_s + timing.encode_s + timing.decode_s for timing in timings)
    end_s = max(ends, default=0.0)
    batch_size = max((timing.batch_size for timing in timings), default=0)
    return RequestTiming(queue_s, encode_s, end_s - queue_s - encode_s, batch_size)


def _joined(sentences: Sequence[TextHypothesis], weights: Sequence[int]) -> TextHypothesis:
    """The numbers and tokens of a text, from those of its sentences."""
    weighted = sum(w * s.score for w, s in zip(weights, sentences, strict=True))
    return replace(
        sentences[0],
        score=sentences[0].score if len(sentences) == 1 else weighted / max(1, sum(weights)),
        cumulative=sum(s.cumulative for s in sentences),
        tokens=tuple(token for s in sentences for token in s.tokens),
        token_scores=tuple(score for s in sentences for score in s.token_scores),
        finished=all(s.finished for s in sentences),
        probability=_mean_probability(sentences, weights),
    )


def _mean_probability(sentences: Sequence[TextHypothesis], weights: Sequence[int]) -> float | None:
    if len(sentences) == 1:
        return sentences[0].probability
    pairs = list(zip(weights, [sentence.probability for sentence in sentences], strict=True))
    known = [(weight, value) for weight, value in pairs if value is not None]
    return sum(w * p for w, p in known) / max(1, sum(w for w, _ in known)) if known else None
