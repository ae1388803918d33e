"""Comparison of an exported bundle with its checkpoint: logits of each step, whole searches, BLEU.

Shape letters: B sentences, K beams, P prefix tokens, V vocabulary.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from export.comparison.significance import BleuChange, bleu_change
from export.errors import ParityError
from export.texts.dev_set import DevSet
from export.texts.vocabulary import Vocabulary
from serving.arrays import Ints
from serving.bundle.manifest import DecoderKind
from serving.search.beams.sentence import Sentence
from serving.search.options import SearchOptions
from serving.search.prefix_tree import Repack
from serving.search.stepper import BeamArrays, PrefillOutputs, StepInputs, StepOutputs, Stepper
from serving.translation.offline import decode_in_batches
from training.metrics.bleu import measure_quality

TIE = 1e-3
"""Outputs may differ if the checkpoint scores both within this."""
MAX_LOGIT_DIFFERENCE = 1e-3
"""Largest difference of any logit of any step between fp32 and the checkpoint."""
MAX_TWIN_DIFFERENCE: dict[DecoderKind, float] = {"cross": 0.005, "lm": 0.005, "joint": 0.01}
"""int8 against the same arithmetic in PyTorch, mean over logits. Rounding flips levels: relative
noise of 2e-7 in the norms moves the twin itself by 0.002 (cross, 3+3) to 0.006 (joint, 4+4)."""
MOST_NOISE = 1.5
"""Factor of the change that noise in the norms (`jittered`) causes in the twin; the product is the
limit if it is larger. In a deep model one flip leads to others in later layers, until all of a
sentence is rounded anew."""
LEAST_BLEU_CHANGE = -0.3
LEAST_SHORTLIST_CHANGE = -0.2
"""BLEU with shortlists less BLEU of the same bundle without."""
MAX_LOG_PROB_CHANGE = 0.01
"""Mean token log-probability of the checkpoint's own outputs, nats."""
LOGIT_SENTENCES = 64
NOISE_SENTENCES = 256
NOISE_DRAWS = 4
"""Number of times that the noise is drawn if it decides. It is a matter of chance which sentences a
flip changes; then bundle and noise are also both measured on more sentences."""
_ROWS = 32


@dataclass(frozen=True)
class Parity:
    """The figures of a comparison of bundle and checkpoint, which the manifest keeps."""

    sentences: int
    identical: int
    """Outputs equal to the checkpoint's, token for token."""
    ties: int
    """Number of outputs that differ from the checkpoint's, but whose scores by the checkpoint are
    within `TIE`."""
    logits_max_difference: float
    logits_mean_difference: float
    """Mean over all steps of a beam search; int8 is compared with the same arithmetic in
    PyTorch."""
    bleu_checkpoint: float
    bleu_bundle: float
    bleu_change: BleuChange
    log_prob_change: float
    signature: str
    references: Literal["given", "checkpoint"] = "given"
    """The references of BLEU. If they are the checkpoint's own outputs, BLEU has no limit."""
    twin_noise: float | None = None
    """Mean difference that rounding noise alone causes in the logits of the twin; measured only if
    it decides."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data, rounded for reading."""
        tree = dataclasses.asdict(self)
        if self.references == "given":
            del tree["references"]
        if self.twin_noise is None:
            del tree["twin_noise"]
        tree["bleu_change"] = {k: round(v, 3) for k, v in tree["bleu_change"].items()}
        return {k: float(f"{v:.4g}") if isinstance(v, float) else v for k, v in tree.items()}


def measure(
    checkpoint: Stepper,
    twin: Stepper,
    bundle: Stepper,
    vocabulary: Vocabulary,
    dev: DevSet,
    wanted: Sequence[tuple[int, ...]] | None = None,
) -> Parity:
    """Compare a bundle with its checkpoint on a development set.

    `twin` computes the bundle's arithmetic in PyTorch; for fp32 it is the checkpoint. If the twin
    also stands for the bundle, no logits are compared. `wanted` are the checkpoint's outputs
    (`search_all` without the loop guard) if they are known.
    """
    sentences = dev.sentences(vocabulary, SearchOptions(loop_guard=False))
    paired = PairedStepper(twin, bundle)
    led: list[tuple[int, ...]] = []
    if twin is not bundle:  # else nothing can differ
        led = search_all(paired, sentences[:LOGIT_SENTENCES])
    if wanted is None:
        known = led if twin is checkpoint else []  # a pair writes what its first model would
        wanted = [*known, *search_all(checkpoint, sentences[len(known) :])]
    found = search_all(bundle, sentences)
    differing = [i for i, (a, b) in enumerate(zip(wanted, found, strict=True)) if a != b]
    own = total_log_probs(checkpoint, sentences, wanted)
    other = total_log_probs(
        checkpoint, [sentences[i] for i in differing], [found[i] for i in differing]
    )
    ties = sum(
        1
        for i, score in zip(differing, other, strict=True)
        if abs(_normalised(own[i], wanted[i]) - _normalised(score, found[i])) <= TIE
    )
    under_bundle = total_log_probs(bundle, sentences, wanted)
    decode = vocabulary.target.decode
    texts = [[decode(list(ids)) for ids in outputs] for outputs in (wanted, found)]
    references = dev.references or texts[0]
    scores = [measure_quality(text, references) for text in texts]
    return Parity(
        sentences=len(sentences),
        identical=len(sentences) - len(differing),
        ties=ties,
        logits_max_difference=paired.largest,
        logits_mean_difference=paired.total / max(paired.count, 1),
        bleu_checkpoint=scores[0].bleu,
        bleu_bundle=scores[1].bleu,
        bleu_change=bleu_change(texts[0], texts[1], references),
        log_prob_change=float((under_bundle - own).sum())
        / sum(len(tokens) + 1 for tokens in wanted),
        signature=scores[0].bleu_signature,
        references="given" if dev.references else "checkpoint",
    )


def measure_noise(
    parity: Parity,
    kind: DecoderKind,
    twin: Stepper,
    bundle: Stepper,
    jittered: Callable[[int], Stepper],
    vocabulary: Vocabulary,
    dev: DevSet,
) -> Parity:
    """Add `twin_noise` if a bundle's logits are further from the twin's than rounding moves most
    models, and measure the mean difference on as many sentences. `jittered` makes the twin with
    such noise from a seed."""
    if parity.logits_mean_difference <= MAX_TWIN_DIFFERENCE[kind]:
        return parity
    sentences = dev.sentences(vocabulary, SearchOptions(loop_guard=False))[:NOISE_SENTENCES]

    def moved(other: Stepper) -> float:
        paired = PairedStepper(twin, other)
        search_all(paired, sentences)
        return paired.total / max(paired.count, 1)

    noise = statistics.fmean(moved(jittered(seed)) for seed in range(NOISE_DRAWS))
    return dataclasses.replace(parity, logits_mean_difference=moved(bundle), twin_noise=noise)


def check_logits(
    kind: DecoderKind, precision: str, largest: float, mean: float, noise: float = 0.0
) -> list[str]:
    """Describe differences of step logits that exceed the limits, one message each. `noise` is the
    difference that rounding alone causes in the twin of int8."""
    # Each condition is written so that NaN fails it.
    if precision == "fp32":
        if not largest <= MAX_LOGIT_DIFFERENCE:
            return [f"step logits differ by up to {largest:.2g} (limit {MAX_LOGIT_DIFFERENCE:g})"]
        return []
    limit = max(MAX_TWIN_DIFFERENCE[kind], MOST_NOISE * noise)
    if not mean <= limit:
        return [
            f"step logits differ from the same arithmetic in PyTorch by {mean:.2g} in the mean "
            f"(limit {limit:.2g}): export with --precision fp32"
        ]
    return []


def check(parity: Parity, kind: DecoderKind, precision: str) -> None:
    """Raise ParityError, naming the figure and its limit, if a bundle is not good enough."""
    found = check_logits(
        kind,
        precision,
        parity.logits_max_difference,
        parity.logits_mean_difference,
        parity.twin_noise or 0.0,
    )
    # Each condition is written so that NaN fails it.
    if precision == "fp32":
        wrong = parity.sentences - parity.identical - parity.ties
        if wrong:
            found.append(
                f"{wrong} of {parity.sentences} beam-search outputs differ by more than a tie "
                f"of {TIE:g}"
            )
    else:
        change = parity.bleu_change
        if parity.references == "given" and not change.mean > LEAST_BLEU_CHANGE:
            found.append(
                f"BLEU changes by {change.mean:+.2f} [{change.low:+.2f}, {change.high:+.2f}] "
                f"(limit {LEAST_BLEU_CHANGE:+g})"
            )
        if not abs(parity.log_prob_change) < MAX_LOG_PROB_CHANGE:
            found.append(
                f"the token log-probability of the checkpoint's own outputs changes by "
                f"{parity.log_prob_change:+.4f} (limit {MAX_LOG_PROB_CHANGE:g})"
            )
    if found:
        raise ParityError("; ".join(found) + "; no bundle was written")


def compare_shortlist(
    bundle: Stepper, chooser: Stepper, vocabulary: Vocabulary, dev: DevSet
) -> dict[str, float]:
    """The change of BLEU from choosing among shortlists, as plain data.

    Raises ParityError if the loss is too large. Without references BLEU measures the agreement of
    both, and has no limit.
    """
    texts = []
    for stepper, shortlist in ((bundle, False), (chooser, True)):
        options = SearchOptions(loop_guard=False, shortlist=shortlist)
        outputs = search_all(stepper, dev.sentences(vocabulary, options))
        texts.append([vocabulary.target.decode(list(ids)) for ids in outputs])
    change = bleu_change(texts[0], texts[1], dev.references or texts[0])
    if dev.references and not change.mean > LEAST_SHORTLIST_CHANGE:
        raise ParityError(
            f"shortlists change BLEU by {change.mean:+.2f} [{change.low:+.2f}, {change.high:+.2f}] "
            f"(limit {LEAST_SHORTLIST_CHANGE:+g}); no bundle was written; leave out --shortlist"
        )
    return {name: round(value, 3) for name, value in dataclasses.asdict(change).items()}


class PairedStepper:
    """Steps two models through one search, led by the first, and compares their logits."""

    def __init__(self, reference: Stepper, other: Stepper) -> None:
        self._both = (reference, other)
        self.largest, self.total, self.count = 0.0, 0.0, 0

    @property
    def repack_every(self) -> int:
        """Steps between repackings, as the reference asks; both models, and so this pair, are of
        one kind."""
        return self._both[0].repack_every

    @property
    def spare_slots(self) -> int:
        """The number of spare slots of the reference."""
        return self._both[0].spare_slots

    @property
    def most_states(self) -> int | None:
        """Largest number of states of the second model, the one that may have a limit."""
        return self._both[1].most_states

    @property
    def one_query_first(self) -> bool:
        """Whether both models can begin with one query per sentence."""
        return all(stepper.one_query_first for stepper in self._both)

    @property
    def reach(self) -> int | None:
        """The reach of the reference; the second model has the same layers."""
        return self._both[0].reach

    @property
    def lookback(self) -> int:
        """The lookback of the reference; the second model has the same layers."""
        return self._both[0].lookback

    def cache_bytes(self, rows: int, source_length: int, slots: int) -> int:
        """Bytes of the caches of both models together."""
        return sum(stepper.cache_bytes(rows, source_length, slots) for stepper in self._both)

    def encode(self, sources: Sequence[Sequence[int]]) -> tuple[Any, Any]:
        """Encode with both models; the state is a pair."""
        return self._both[0].encode(sources), self._both[1].encode(sources)

    def prefill(
        self,
        state: tuple[Any, Any],
        token_ids_BP: Ints,
        labels_BP: Ints,
        *,
        want_attention: bool = False,
    ) -> PrefillOutputs:
        """Fill the caches of both; the scores and attention are the reference's."""
        outputs, _ = (
            stepper.prefill(part, token_ids_BP, labels_BP, want_attention=want_attention)
            for stepper, part in zip(self._both, state, strict=True)
        )
        return outputs

    def step(
        self,
        state: tuple[Any, Any],
        inputs: StepInputs,
        *,
        want_logits: bool,
        attention_rows: Sequence[int] = (),
    ) -> StepOutputs:
        """The reference's candidates; logits are compared on live beams."""
        del want_logits
        wanted, found = (
            stepper.step(part, inputs, want_logits=True, attention_rows=attention_rows)
            for stepper, part in zip(self._both, state, strict=True)
        )
        assert wanted.logits_BQV is not None
        assert found.logits_BQV is not None
        live_BQ = np.isfinite(inputs.scores_BK[:, : inputs.token_ids_BQ.shape[1]])
        difference = np.abs(wanted.logits_BQV - found.logits_BQV)[live_BQ]
        if difference.size:
            # max and + carry a NaN on, so a broken graph cannot pass
            self.largest = float(np.maximum(self.largest, difference.max()))
            self.total += float(difference.sum())
            self.count += difference.size
        return wanted

    def bind(self, state: tuple[Any, Any], beams: BeamArrays) -> None:
        """Bind nothing: logits are compared at every step."""

    def repack(self, state: tuple[Any, Any], repack: Repack) -> None:
        """Keep the same rows and slots in both states."""
        for stepper, part in zip(self._both, state, strict=True):
            stepper.repack(part, repack)

    def extend(
        self, state: tuple[Any, Any], other: tuple[Any, Any], rows: NDArray[np.int64]
    ) -> None:
        """Put the other pair's sentences into these rows of both states."""
        for stepper, part, added in zip(self._both, state, other, strict=True):
            stepper.extend(part, added, rows)

    def trim(self, state: tuple[Any, Any], source_length: int) -> None:
        """Cut the padding of sources from both states."""
        for stepper, part in zip(self._both, state, strict=True):
            stepper.trim(part, source_length)

    def free(self, state: tuple[Any, Any]) -> None:
        """Free both states."""
        for stepper, part in zip(self._both, state, strict=True):
            stepper.free(part)


def search_all(stepper: Stepper, sentences: Sequence[Sentence]) -> list[tuple[int, ...]]:
    """Best output of each sentence, in order.

    Raises ParityError if the model gives a non-finite score.
    """
    outputs: dict[int, tuple[int, ...]] = {}
    for index, finished in decode_in_batches(stepper, dict(enumerate(sentences))):
        if finished.error is not None:
            raise ParityError(f"sentence {index + 1}: {finished.error}")
        outputs[index] = finished.hypotheses[0].tokens
    return [outputs[index] for index in range(len(sentences))]


def total_log_probs(
    stepper: Stepper, sentences: Sequence[Sentence], targets: Sequence[Sequence[int]]
) -> NDArray[np.float64]:
    """Log-probability of a given output of each sentence, eos included."""
    totals = np.zeros(len(sentences))
    order = sorted(range(len(sentences)), key=lambda i: len(targets[i]))
    for start in range(0, len(order), _ROWS):
        batch = order[start : start + _ROWS]
        length = max(len(targets[i]) for i in batch) + 1
        token_ids = np.zeros((len(batch), length), dtype=np.int64)
        labels = np.zeros_like(token_ids)
        for row, i in enumerate(batch):
            token_ids[row, : len(targets[i]) + 1] = [sentences[i].start, *targets[i]]
            labels[row, : len(targets[i]) + 1] = [*targets[i], sentences[i].ends[0]]
        state = stepper.encode([sentences[i].source for i in batch])
        scores = stepper.prefill(state, token_ids, labels).scores_BP
        stepper.free(state)
        for row, i in enumerate(batch):
            totals[i] = scores[row, : len(targets[i]) + 1].astype(np.float64).sum()
    return totals


def _normalised(total: float, tokens: Sequence[int]) -> float:
    return SearchOptions().score(total, len(tokens), ended=True)
