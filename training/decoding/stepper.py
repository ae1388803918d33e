"""A PyTorch model behind the `Stepper` protocol, for validation and as the reference of export.

Shape letters: B sentences, S source positions, P prefix tokens, Q queries, C cache slots, D model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from serving.search.prefix_tree import REPACK_EVERY, Repack, chain, fill_rows
from serving.search.stepper import BeamArrays, PrefillOutputs, StepInputs, StepOutputs
from training.batches.batching import pad
from training.models import TranslationModel
from training.models.decoding import EncoderGraph, StepGraph


@dataclass
class TorchState:
    """Tensors of a running batch."""

    sources: list[Tensor]
    source_mask_BS: Tensor
    caches: list[Tensor]


class TorchStepper:
    """Runs the modules that are exported, eagerly."""

    def __init__(self, model: TranslationModel) -> None:
        self._model = model.eval()
        self._encoder, self._step = EncoderGraph(model), StepGraph(model)
        self._device = next(model.parameters()).device

    @property
    def repack_every(self) -> int:
        """The number of steps between two repackings, the same as in the exported bundle."""
        return REPACK_EVERY[self._model.decoder_kind]

    @property
    def spare_slots(self) -> int:
        """Zero: attention computes every slot."""
        return 0

    @property
    def most_states(self) -> int | None:
        """None: eager execution gains from every further row."""
        return None

    @property
    def one_query_first(self) -> bool:
        """True: every model can begin with one query, because the step graph knows which beams it
        stands for."""
        return True

    @property
    def reach(self) -> None:
        """A decoder sees all of its target."""
        return None

    @property
    def lookback(self) -> int:
        """The number of ancestors of each token that the layers ask for."""
        return self._model.step_needs.ancestors

    def cache_bytes(self, rows: int, source_length: int, slots: int) -> int:
        """Bytes of caches of that size, with the copy that a repack makes."""
        height = source_length if self._model.decoder_kind == "joint" else 1
        numbers = sum(cache.slot_size for cache in self._model.caches)
        return 2 * 4 * numbers * rows * height * slots

    @torch.no_grad()
    def encode(self, sources: Sequence[Sequence[int]]) -> TorchState:
        """Run the encoder on right-padded sources."""
        ids_BS = pad([list(source) for source in sources]).to(self._device)
        lengths = torch.tensor([len(source) for source in sources], device=self._device)
        padded_BS = torch.arange(ids_BS.shape[1], device=self._device) >= lengths[:, None]
        mask_BS = torch.zeros(ids_BS.shape, device=self._device)
        mask_BS = mask_BS.masked_fill(padded_BS, -torch.inf)
        tensors = self._encoder(ids_BS, mask_BS)
        sizes = {"B": len(sources), "BS": ids_BS.numel(), "C": 0}
        caches = self._model.caches
        empty = [torch.zeros(cache.shape(sizes), device=self._device) for cache in caches]
        return TorchState(tensors, mask_BS, empty)

    @torch.no_grad()
    def prefill(
        self,
        state: TorchState,
        token_ids_BP: NDArray[np.int64],
        labels_BP: NDArray[np.int64],
        *,
        want_attention: bool = False,
    ) -> PrefillOutputs:
        """Fill the caches with given tokens."""
        rows, length = token_ids_BP.shape
        positions = np.arange(length)
        causal = np.where(positions <= positions[:, None], 0.0, -np.inf).astype(np.float32)
        size = 1 if self._model.step_needs.recurrent else length
        scores, attention = [], []
        for start in range(0, length, size):
            part = slice(start, start + size)
            inputs = StepInputs(
                token_ids_BP[:, part],
                np.tile(positions[part], (rows, 1)),
                np.full(rows, start),
                np.tile(causal[part], (rows, 1, 1)),
                np.zeros((rows, size), dtype=np.float32),
                np.tile(positions, (rows, 1)),
                np.tile(chain(start, size, self.lookback), (rows, 1, 1)),
            )
            outputs = self._call(state, inputs, labels_BP[:, part])
            scores.append(outputs[3].float().cpu().numpy())
            attention += [self._attention(outputs[5], state)] if want_attention else []
        weights = np.concatenate(attention, axis=1) if want_attention else None
        return PrefillOutputs(np.concatenate(scores, axis=1), weights)

    @torch.no_grad()
    def step(
        self,
        state: TorchState,
        inputs: StepInputs,
        *,
        want_logits: bool,
        attention_rows: Sequence[int] = (),
    ) -> StepOutputs:
        """Run one decoding step for all beams."""
        scores, tokens, parents, _, logits, alignment, _ = self._call(
            state, inputs, np.zeros_like(inputs.token_ids_BQ)
        )
        return StepOutputs(
            scores.cpu().numpy(),
            tokens.cpu().numpy(),
            parents.cpu().numpy(),
            logits.float().cpu().numpy() if want_logits else None,
            self._attention(alignment, state)[list(attention_rows)] if attention_rows else None,
        )

    def bind(self, state: TorchState, beams: BeamArrays) -> None:
        """Bind nothing: every step goes through NumPy."""

    def repack(self, state: TorchState, repack: Repack) -> None:
        """Keep the given rows and slots."""
        rows = torch.from_numpy(repack.rows).to(self._device)
        slots = torch.from_numpy(repack.slots_BC).to(self._device)
        # A joint model has a row of the cache for each source position of a sentence.
        height = state.caches[0].shape[0] // len(state.source_mask_BS)
        places = torch.arange(height, device=self._device)
        cache_rows = (rows[:, None] * height + places).flatten()
        slots = slots.repeat_interleave(height, 0)
        if len(rows) < len(state.source_mask_BS):
            state.sources = [tensor[rows] for tensor in state.sources]
            state.source_mask_BS = state.source_mask_BS[rows]
        state.caches = [cache[cache_rows[:, None], slots] for cache in state.caches]

    def extend(self, state: TorchState, other: TorchState, rows: NDArray[np.int64]) -> None:
        """Put the other state's sentences into these rows, and the remaining ones after all others;
        shorter rows are padded."""
        counts = [len(part.source_mask_BS) for part in (state, other)]
        numbers = np.arange(sum(counts))
        order = torch.from_numpy(fill_rows(numbers[: counts[0]], numbers[counts[0] :], rows))
        length = max(part.source_mask_BS.shape[1] for part in (state, other))
        capacity = max(part.caches[0].shape[1] for part in (state, other))

        def join(first: Tensor, second: Tensor, size: int, filler: float = 0.0) -> Tensor:
            return torch.cat([_lengthen(x, size, filler) for x in (first, second)])[order]

        def join_caches(first: Tensor, second: Tensor) -> Tensor:
            if self._model.decoder_kind != "joint":
                return join(first, second, capacity)
            first, second = (
                _lengthen(cache, capacity).unflatten(0, (count, -1))
                for cache, count in zip((first, second), counts, strict=True)
            )
            return join(first, second, length).flatten(0, 1)

        state.sources = [
            join(*pair, length) for pair in zip(state.sources, other.sources, strict=True)
        ]
        state.source_mask_BS = join(state.source_mask_BS, other.source_mask_BS, length, -torch.inf)
        state.caches = [join_caches(*pair) for pair in zip(state.caches, other.caches, strict=True)]

    def trim(self, state: TorchState, source_length: int) -> None:
        """Cut the padding that no source of the batch needs any more."""
        if state.source_mask_BS.shape[1] <= source_length:
            return
        if self._model.decoder_kind == "joint":
            count = len(state.source_mask_BS)
            state.caches = [
                cache.unflatten(0, (count, -1))[:, :source_length].flatten(0, 1)
                for cache in state.caches
            ]
        state.sources = [tensor[:, :source_length] for tensor in state.sources]
        state.source_mask_BS = state.source_mask_BS[:, :source_length]

    def free(self, state: TorchState) -> None:
        """Do nothing: the tensors are freed together with the state."""

    def _call(
        self, state: TorchState, inputs: StepInputs, label_ids_BQ: NDArray[np.int64]
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, list[Tensor]]:
        missing = inputs.visible_BQC.shape[2] - state.caches[0].shape[1]
        if missing > 0:
            state.caches = [
                torch.nn.functional.pad(cache, (0, 0, 0, missing)) for cache in state.caches
            ]
        visible = torch.from_numpy(inputs.visible_BQC)[:, None].to(self._device)
        hidden = state.caches[0].shape[1] - visible.shape[-1]
        if hidden > 0:
            visible = torch.nn.functional.pad(visible, (0, hidden), value=-torch.inf)
        outputs = self._step(
            torch.from_numpy(inputs.token_ids_BQ).to(self._device),
            torch.from_numpy(inputs.positions_BQ).to(self._device),
            torch.from_numpy(inputs.write_index_B).to(self._device),
            visible,
            torch.from_numpy(inputs.scores_BK).to(self._device),
            torch.from_numpy(label_ids_BQ).to(self._device),
            state.source_mask_BS,
            state.caches,
            state.sources,
            self._asked(inputs, hidden),
        )
        state.caches = outputs[6]
        result: tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, list[Tensor]] = outputs
        return result

    def _asked(self, inputs: StepInputs, hidden: int) -> dict[str, Tensor]:
        """The extra inputs that the model's layers need for a step: ancestors and positions of the
        slots. `hidden` is the number of slots beyond those in the inputs."""
        needs, asked = self._model.step_needs, {}
        if needs.ancestors:
            assert inputs.ancestors_BQW is not None
            asked["ancestors"] = torch.from_numpy(inputs.ancestors_BQW).to(self._device)
        if needs.slot_positions:
            slots = torch.from_numpy(inputs.slot_positions_BC).to(self._device)
            asked["slot_positions"] = torch.nn.functional.pad(slots, (0, max(hidden, 0)))
        return asked

    def _attention(self, alignment: Tensor, state: TorchState) -> NDArray[np.float32]:
        """Weights of the source positions [B,Q,S]: a joint model's own, or probabilities of one
        layer's source attention, mean over heads."""
        if self._model.alignment_layer is not None:
            keys_BSD = state.sources[2 * self._model.alignment_layer]
            alignment = self._source_attention(alignment, keys_BSD, state)
        result: NDArray[np.float32] = alignment.float().cpu().numpy()
        return result

    def _source_attention(self, query_BQD: Tensor, keys_BSD: Tensor, state: TorchState) -> Tensor:
        heads = self._model.config.num_heads

        def split(x: Tensor) -> Tensor:
            return x.unflatten(-1, (heads, -1)).transpose(1, 2)

        query, key = split(query_BQD), split(keys_BSD)
        scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
        return (scores + state.source_mask_BS[:, None, None]).softmax(-1).mean(1)


def _lengthen(tensor: Tensor, length: int, filler: float = 0.0) -> Tensor:
    """Fill the second axis up to `length`."""
    missing = length - tensor.shape[1]
    padding = (*(0, 0) * (tensor.ndim - 2), 0, missing)
    return torch.nn.functional.pad(tensor, padding, value=filler)
