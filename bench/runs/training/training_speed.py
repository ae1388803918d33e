"""Training updates of a model, beside those of the Marian model of `transformers`.

Both get the same batches, precision, threads, sizes and optimiser. Each runs in its own process,
and they take turns.
"""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any, Literal

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from bench.reports.report import Machine, head_lines, table_head, table_line
from serving.search.ids import EOS_ID, PAD_ID
from training.batches.batching import PairBatch, collate, cut_by_budget
from training.loop.optim import build_optimizer
from training.loop.speed import matrix_speed
from training.models import build_network
from training.models.configs.presets import PRESETS
from training.models.configs.transformer import TransformerConfig
from training.recipe.config import OptimConfig
from training.tasks.loss import label_smoothed_loss

OURS, PEER = "Macaron (this project)", "Marian model of transformers"
Kind = Literal["ours", "peer"]
_LABELS = 16.0
"""Median length of a target. Lengths are log-normal, approximately as those of sentences."""
_SPREAD = 0.6


@dataclass(frozen=True)
class TrainingPlan:
    """The parameters of a measurement of training speed."""

    preset: str
    vocab_size: int
    token_budget: int
    """Padded tokens per batch."""
    updates: int
    """Updates per repetition, each with another batch."""
    repetitions: int
    threads: int
    bf16: bool
    device: str = "cpu"

    @property
    def config(self) -> TransformerConfig:
        """The baseline with these sizes; post-norm, as in Marian."""
        config = PRESETS[self.preset]
        assert isinstance(config, TransformerConfig)
        return replace(config, vocab_size=self.vocab_size, norm="post")


@dataclass(frozen=True)
class TrainingSpeed:
    """The results of one system."""

    name: str
    parameters: int
    """Number of trained parameters."""
    operations: float
    """Operations of matrix products per label."""
    labels_per_second: list[float]
    """Labels per second, one entry per repetition."""


def time_training(plan: TrainingPlan, progress: Callable[[str], None]) -> list[TrainingSpeed]:
    """Measure both systems in turns, after a warm-up repetition."""
    speeds: dict[Kind, list[float]] = {"ours": [], "peer": []}
    with _worker("ours", plan) as ours, _worker("peer", plan) as peer:
        workers: dict[Kind, Connection] = {"ours": ours, "peer": peer}
        facts: dict[Kind, tuple[int, float]] = {k: w.recv() for k, w in workers.items()}
        for repetition in range(plan.repetitions + 1):
            progress(f"repetition {repetition} of {plan.repetitions}")
            for kind, worker in workers.items():
                worker.send(repetition)
                found = float(worker.recv())
                if repetition:
                    speeds[kind].append(found)
    names: dict[Kind, str] = {"ours": OURS, "peer": PEER}
    return [TrainingSpeed(names[kind], *facts[kind], speeds[kind]) for kind in names]


def measure_matrix_speed(plan: TrainingPlan) -> float:
    """Operations per second of large matrix products on the device and in the data type of a
    plan."""
    torch.set_num_threads(plan.threads)
    return matrix_speed(torch.device(plan.device), torch.bfloat16 if plan.bf16 else torch.float32)


def training_markdown(
    command: str,
    machine: Machine,
    plan: TrainingPlan,
    speed: float,
    found: Sequence[TrainingSpeed],
) -> str:
    """The table, with our speed relative to the peer's and the share of the matrix products'
    `speed`."""
    config = plan.config
    subject = (
        f"Updates of an encoder-decoder of {config.num_encoder_layers}+{config.num_decoder_layers} "
        f"layers of {config.model_dim}, {plan.vocab_size:,} pieces, post-norm, "
        f"{'bf16 autocast' if plan.bf16 else 'fp32'}: forward, loss, backward, clipping and AdamW, "
        f"on equal batches of at most {plan.token_budget:,} padded tokens."
    )
    lines = [*head_lines(command, machine, subject), ""]
    columns = ["system", "parameters learnt", "labels/s (min-max)", "share of matrix speed"]
    columns.append("speed / transformers")
    lines += table_head(columns)
    peer = statistics.median(found[-1].labels_per_second)
    for each in found:
        speeds, median = each.labels_per_second, statistics.median(each.labels_per_second)
        span = f"{median:,.0f} ({min(speeds):,.0f}-{max(speeds):,.0f})"
        share = f"{median * each.operations / speed:.0%}"
        cells = [each.name, f"{each.parameters:,}", span, share, f"{median / peer:.2f}"]
        lines.append(table_line(cells))
    kind = "bf16" if plan.bf16 else "fp32"
    lines += ["", f"Large matrix products in {kind} before the run: {speed / 1e9:,.0f} GFLOP/s."]
    return "\n".join(lines)


@contextmanager
def _worker(kind: Kind, plan: TrainingPlan) -> Iterator[Connection]:
    """A process that reports its parameters and operations per label, and then the labels/s of each
    repetition that it receives."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_work, args=(kind, plan, there), daemon=True)
    process.start()
    there.close()
    try:
        yield here
    finally:
        here.close()
        process.join()


def _work(kind: Kind, plan: TrainingPlan, connection: Connection) -> None:
    torch.set_num_threads(plan.threads)
    torch.manual_seed(1)
    model = build_network(plan.config) if kind == "ours" else _peer(plan.config)
    update = _Update(model.to(plan.device), _our_loss if kind == "ours" else _peer_loss, plan)
    learnt = sum(p.numel() for p in model.parameters() if p.requires_grad)
    connection.send((learnt, update.operations(random_batches(plan, seed=0)[0])))
    while True:
        try:
            repetition = connection.recv()
        except EOFError:
            return
        batches = random_batches(plan, seed=repetition)
        labels = sum(batch.num_labels for batch in batches)
        start = time.perf_counter()
        norms = [update(batch) for batch in batches]
        float(norms[-1])  # waits for a GPU
        connection.send(labels / (time.perf_counter() - start))


def random_batches(plan: TrainingPlan, seed: int) -> list[PairBatch]:
    """Random ids with the lengths of ordinary text, batched by length."""
    generator = np.random.default_rng(seed)
    count = plan.updates * plan.token_budget // 8
    lengths = np.exp(generator.normal(np.log(_LABELS), _SPREAD, count)).astype(int).clip(1, 150)
    near = (lengths * generator.uniform(0.8, 1.25, count)).astype(int).clip(1, 150)
    sizes = [(int(a) + 1, int(b) + 1) for a, b in zip(lengths, near, strict=True)]
    order = sorted(range(count), key=lambda i: sizes[i])
    cuts = cut_by_budget(order, sizes, plan.token_budget)
    chosen = generator.permutation(len(cuts))[: plan.updates]

    def ids(length: int) -> list[int]:
        drawn: list[int] = generator.integers(EOS_ID + 1, plan.vocab_size, length - 1).tolist()
        return drawn

    return [
        collate([(ids(sizes[row][0]), ids(sizes[row][1])) for row in cuts[cut]]) for cut in chosen
    ]


class _Update:
    """An update of a model, as a run makes it."""

    def __init__(
        self, model: Any, loss: Callable[[Any, PairBatch], torch.Tensor], plan: TrainingPlan
    ) -> None:
        self._model, self._loss, self._plan = model.train(), loss, plan
        self._config = OptimConfig()
        self._optimizer = build_optimizer(model, self._config)

    def __call__(self, batch: PairBatch) -> torch.Tensor:
        """Make the update. Returns the gradient's norm, which may still be computed on a GPU."""
        self._forward(batch).backward()
        norm = torch.nn.utils.clip_grad_norm_(self._model.parameters(), self._config.clip_norm)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        return norm

    def operations(self, batch: PairBatch) -> float:
        """Operations of matrix products per label. The backward pass has twice as many as the
        forward pass."""
        counter = FlopCounterMode(display=False)
        # The counter does not know all fused kinds of attention.
        with torch.no_grad(), counter, sdpa_kernel(SDPBackend.MATH):
            self._forward(batch)
        return 3 * counter.get_total_flops() / batch.num_labels

    def _forward(self, batch: PairBatch) -> torch.Tensor:
        device = torch.device(self._plan.device)
        with torch.autocast(device.type, torch.bfloat16, enabled=self._plan.bf16):
            return self._loss(self._model, batch.to(device))


def _our_loss(model: Any, batch: PairBatch) -> torch.Tensor:
    states = model.states(batch.source_BS, batch.target_BT)
    return label_smoothed_loss(model, states, batch.labels_BT, 0.1) / batch.num_labels


def _peer(config: TransformerConfig) -> Any:
    from transformers.models.marian.configuration_marian import MarianConfig
    from transformers.models.marian.modeling_marian import MarianMTModel

    return MarianMTModel(
        MarianConfig(
            vocab_size=config.vocab_size,
            d_model=config.model_dim,
            encoder_layers=config.num_encoder_layers,
            decoder_layers=config.num_decoder_layers,
            encoder_attention_heads=config.num_heads,
            decoder_attention_heads=config.num_heads,
            encoder_ffn_dim=config.ffn_dim,
            decoder_ffn_dim=config.ffn_dim,
            activation_function="relu",
            dropout=config.dropout,
            attention_dropout=config.attention_dropout,
            activation_dropout=config.activation_dropout,
            scale_embedding=True,
            pad_token_id=PAD_ID,
            eos_token_id=EOS_ID,
            decoder_start_token_id=PAD_ID,
            forced_eos_token_id=None,
        )
    )


def _peer_loss(model: Any, batch: PairBatch) -> torch.Tensor:
    """The loss of `transformers` itself, without label smoothing, which makes it cheaper than
    ours."""
    labels = batch.labels_BT.masked_fill(batch.labels_BT == PAD_ID, -100)
    loss: torch.Tensor = model(
        input_ids=batch.source_BS,
        attention_mask=(batch.source_BS != PAD_ID).long(),
        decoder_input_ids=batch.target_BT,
        labels=labels,
    ).loss
    return loss
