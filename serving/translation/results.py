"""What becomes of sentences, and how the result of a text is put together of theirs."""

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
    """One translation of a text."""

    text: str
    score: float
    """Length-normalised log-probability, see `SearchOptions.score`."""
    cumulative: float
    """Log-probability of the generated tokens, eos included."""
    tokens: tuple[str, ...]
    token_scores: tuple[float, ...]
    """Natural log-probability of each token, and of eos where it was reached."""
    finished: bool
    """False where max_length ended it."""
    probability: float | None = None
    """That it is good, as the bundle's calibration has it (`Manifest.calibration`); None where the
    bundle has none."""
    alignment: tuple[Link, ...] | None = None
    """Word links, where they were asked for; they lie in the text that was given, and in `text`."""


@dataclass(frozen=True)
class Translation:
    """What one text became; `hypotheses` is empty for a blank text."""

    text: str
    hypotheses: tuple[TextHypothesis, ...] = ()
    warnings: tuple[str, ...] = ()
    """`repetition`: the output looped and was decoded again; `max_length`: it did not end;
    `constraints`: a hypothesis lacks a required term; a `FaultKind`: what it has, compared with the
    source, could not be put right."""
    repaired: tuple[Repair, ...] = ()
    """What was wrong with what the model preferred, and is right in `text`. The tokens and scores
    of a hypothesis are of what the model wrote, before parts of the source were put in."""
    beginning: str = ""
    """What it was made to begin with, of the translation of a draft."""

    @property
    def linked(self) -> Translated:
        """The best hypothesis with its word links, as far as they were asked for."""
        best = self.hypotheses[0] if self.hypotheses else None
        return Translated(self.text, best.alignment or () if best else ())


@dataclass(frozen=True)
class Done:
    """The search is done with a sentence, and it is translated."""

    translation: Translation


@dataclass(frozen=True)
class Again:
    """A sentence is to be decoded in another way: the loop guard found a loop, or its translation
    has a fault."""

    sentence: Sentence


@dataclass(frozen=True)
class Split:
    """Others are to be decoded in the place of a sentence: their translations, `gathered`, are its
    own."""

    sentences: tuple[Sentence, ...]


SentenceOutcome = Done | Again | Split
"""What has become of a sentence that the search is done with."""


@dataclass(frozen=True)
class Score:
    """Log-probability of a given translation."""

    tokens: tuple[str, ...]
    token_scores: tuple[float, ...]
    """Natural log-probability of each token and of eos."""

    @property
    def cumulative(self) -> float:
        """Sum over the tokens and eos."""
        return sum(self.token_scores)


def gathered(parts: Sequence[Translation]) -> Translation:
    """One translation with the hypotheses of several."""
    warnings = dict.fromkeys(warning for part in parts for warning in part.warnings)
    hypotheses = tuple(hypothesis for part in parts for hypothesis in part.hypotheses)
    repaired = dict.fromkeys(repair for part in parts for repair in part.repaired)
    return Translation(parts[0].text, hypotheses, tuple(warnings), tuple(repaired))


def check_single(options: SearchOptions, terms: Terms, sentences: int) -> None:
    """Raise InvalidOptionError where what is asked for is of one sentence; `sentences` are
    several."""
    for name, asked in (
        ("options.return_alternatives", options.return_alternatives),
        ("required", bool(terms.required)),
    ):
        if asked:
            raise InvalidOptionError(
                f"{name} needs a text of one sentence, got {sentences}; set split_sentences to "
                "false, or send the sentences as texts",
                parameter=name.rpartition(".")[2],
            )


def join_translations(
    document: Document, translations: Sequence[Translation], *, alignments: bool
) -> Translation:
    """The translation of a document from those of its sentences; a text without sentences stays as
    it is and has no hypotheses."""
    hypotheses = _join_hypotheses(document, translations, alignments=alignments)
    text = hypotheses[0].text if hypotheses else document.untranslated
    warnings = [w for translation in translations for w in translation.warnings]
    every = tuple(dict.fromkeys([*warnings, *document.warnings]))
    repaired = dict.fromkeys(
        replace(repair, what=document.as_in_text(number, repair.what))
        for number, translation in enumerate(translations)
        for repair in translation.repaired
    )
    return Translation(text, tuple(hypotheses), every, tuple(repaired))


def _join_hypotheses(
    document: Document, translations: Sequence[Translation], *, alignments: bool
) -> list[TextHypothesis]:
    """Hypothesis i of a text is made of hypothesis i of each sentence, or of its last one; no text
    comes twice.

    `cumulative` is the sum; `score` and `probability` are the means of the sentences', weighted by
    the tokens of their best hypotheses, so that order is kept; tokens follow each other, each
    sentence's scores with that of its end.
    """
    # A sentence without pieces for the model has no hypotheses.
    lists = [
        translation.hypotheses
        or (TextHypothesis(translation.text, 0.0, 0.0, (), (), finished=True),)
        for translation in translations
    ]
    joined = [
        _joined(
            document,
            [hypotheses[min(index, len(hypotheses) - 1)] for hypotheses in lists],
            [len(hypotheses[0].token_scores) for hypotheses in lists],
            alignments=alignments,
        )
        for index in range(max(map(len, lists), default=0))
    ]
    best: dict[str, TextHypothesis] = {}
    for hypothesis in joined:  # different pieces may write the same text
        best.setdefault(hypothesis.text, hypothesis)
    return list(best.values())


def join_timings(timings: Sequence[RequestTiming]) -> RequestTiming:
    """From the first start to the last end; the longest encoding; the largest batch."""
    queue_s = min((timing.queue_s for timing in timings), default=0.0)
    encode_s = max((timing.encode_s for timing in timings), default=0.0)
    ends = (timing.queue_s + timing.encode_s + timing.decode_s for timing in timings)
    end_s = max(ends, default=0.0)
    batch_size = max((timing.batch_size for timing in timings), default=0)
    return RequestTiming(queue_s, encode_s, end_s - queue_s - encode_s, batch_size)


def _joined(
    document: Document,
    sentences: Sequence[TextHypothesis],
    weights: Sequence[int],
    *,
    alignments: bool,
) -> TextHypothesis:
    written = document.render([Translated(s.text, s.alignment or ()) for s in sentences])
    weighted = sum(w * s.score for w, s in zip(weights, sentences, strict=True))
    return replace(
        sentences[0],
        text=written.text,
        score=sentences[0].score if len(sentences) == 1 else weighted / max(1, sum(weights)),
        cumulative=sum(s.cumulative for s in sentences),
        tokens=tuple(token for s in sentences for token in s.tokens),
        token_scores=tuple(score for s in sentences for score in s.token_scores),
        finished=all(s.finished for s in sentences),
        probability=_mean_probability(sentences, weights),
        alignment=tuple(written.links) if alignments else None,
    )


def _mean_probability(sentences: Sequence[TextHypothesis], weights: Sequence[int]) -> float | None:
    if len(sentences) == 1:
        return sentences[0].probability
    pairs = list(zip(weights, [sentence.probability for sentence in sentences], strict=True))
    known = [(weight, value) for weight, value in pairs if value is not None]
    return sum(w * p for w, p in known) / max(1, sum(w for w, _ in known)) if known else None
