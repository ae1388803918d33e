"""The rivals: PyTorch eager with a reordering cache, and CTranslate2 fed with the same weights.

Shape letters: B sentences, K beams, R live hypotheses (B * K), S source positions, T target
positions so far, D model, V vocabulary, N candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bench.errors import BenchError
from serving.tokenizer import BOS_ID, EOS_ID
from training.batching import pad
from training.models import Transformer
from training.models.attention import AttentionContext, KeyValue, attention
from training.models.base import padding_mask
from training.models.blocks import DecoderLayer

BOS, EOS, UNK = "<s>", "</s>", "<unk>"
"""What CTranslate2 calls the special pieces; SentencePiece writes them so as well."""


def check_convertible(block: str) -> None:
    """Raise BenchError for an architecture that CTranslate2 does not have."""
    if block != "standard":
        raise BenchError(
            f"block must be 'standard' for the comparison with CTranslate2, got {block!r}; "
            "give a run of the baseline Transformer"
        )


def convert_to_ctranslate2(
    model: Transformer, vocabulary: Sequence[str], folder: Path, quantization: str
) -> None:
    """Save a baseline model in CTranslate2's format, with weights of type `quantization`.

    `vocabulary` is the written form of each id. int8 is saved as int8, so that loading it costs no
    more memory than it must.
    """
    import ctranslate2

    check_convertible(model.config.block)
    config = model.config
    spec = ctranslate2.specs.TransformerSpec.from_config(
        (config.num_encoder_layers, config.num_decoder_layers),
        config.num_heads,
        pre_norm=config.norm == "pre",
        alignment_heads=config.num_heads,  # our alignments are the mean over all heads
    )
    embedding = _array(model.embedding.weight)
    spec.encoder.embeddings[0].weight = embedding
    spec.decoder.embeddings.weight = embedding
    spec.decoder.projection.weight = embedding
    # `scale_embeddings` is on and `position_encodings` is left out: CTranslate2 then multiplies by
    # sqrt(model_dim) and adds sinusoids of its own, which are ours (training/models/embedding.py).
    if config.norm == "pre":
        _set_norm(spec.encoder.layer_norm, model.encoder_norm)
        _set_norm(spec.decoder.layer_norm, model.decoder_norm)
    for layer_spec, layer in zip(spec.encoder.layer, model.encoder, strict=True):
        _set_self_attention(layer_spec.self_attention, layer)
        _set_ffn(layer_spec.ffn, layer)
    for layer_spec, layer in zip(spec.decoder.layer, model.decoder, strict=True):
        _set_self_attention(layer_spec.self_attention, layer)
        source: Any = layer.source_attention
        _set_norm(layer_spec.attention.layer_norm, layer.source_attention_residual.norm)
        linears = (source.query_proj, source.key_value_proj, source.out_proj)
        for linear_spec, linear in zip(layer_spec.attention.linear, linears, strict=True):
            _set_linear(linear_spec, linear)
        _set_ffn(layer_spec.ffn, layer)
    spec.register_source_vocabulary(list(vocabulary))
    spec.register_target_vocabulary(list(vocabulary))
    spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = BOS, EOS, UNK
    spec.config.decoder_start_token = BOS
    spec.validate()
    spec.optimize(quantization=quantization)
    folder.mkdir(parents=True)
    spec.save(str(folder))


def _set_self_attention(spec: Any, layer: Any) -> None:
    _set_norm(spec.layer_norm, layer.self_attention_residual.norm)
    _set_linear(spec.linear[0], layer.self_attention.in_proj)
    _set_linear(spec.linear[1], layer.self_attention.out_proj)


def _set_ffn(spec: Any, layer: Any) -> None:
    _set_norm(spec.layer_norm, layer.ffn_residual.norm)
    _set_linear(spec.linear_0, layer.ffn.up_proj)
    _set_linear(spec.linear_1, layer.ffn.down_proj)


def _set_norm(spec: Any, norm: Any) -> None:
    spec.gamma, spec.beta = _array(norm.weight), _array(norm.bias)


def _set_linear(spec: Any, linear: nn.Linear) -> None:
    spec.weight, spec.bias = _array(linear.weight), _array(linear.bias)


def _array(parameter: Tensor) -> NDArray[np.float32]:
    return parameter.detach().numpy().copy()


@dataclass
class _Batch:
    """Tensors of the sentences that are still being decoded."""

    sources: list[KeyValue]
    """Keys and values of each layer's source attention, repeated for each beam: [R,S,D]."""
    source_mask: Tensor | None  # [R,1,1,S]
    caches: list[KeyValue]  # [R,T,D]
    scores_BK: Tensor
    tokens_BKT: Tensor
    """Each hypothesis with its bos."""


class EagerTranslator:
    """Beam search in plain PyTorch: a concatenated cache, reordered by parent at each step.

    It is what a careful user writes without this project. The search rules are those of
    `serving.search` and CTranslate2 (length penalty 1, patience 1), written once more: no code is
    shared. Sentences that are done leave the batch.
    """

    def __init__(self, model: Transformer) -> None:
        check_convertible(model.config.block)
        self._model = model.eval()

    @torch.inference_mode()
    def translate(
        self, sources: Sequence[Sequence[int]], beam_size: int, max_length: int
    ) -> list[tuple[tuple[int, ...], float]]:
        """Best output (without eos) and its score for each source of ids that ends with eos.

        At most `max_length` tokens are generated, eos included. The score is the log-probability
        over the number of generated tokens, eos included.
        """
        finished: list[list[tuple[tuple[int, ...], float]]] = [[] for _ in sources]
        running = list(range(len(sources)))
        batch = self._encode(sources, beam_size)
        for step in range(max_length):
            last_step = step == max_length - 1
            scores_BN, parents_BN, tokens_BN = self._candidates(batch, step)
            candidates = zip(
                scores_BN.tolist(), tokens_BN.tolist(), parents_BN.tolist(), strict=True
            )
            chosen = [
                _choose(
                    _Candidates(*lists), batch.tokens_BKT[row], finished[running[row]], last_step
                )
                for row, lists in enumerate(candidates)
            ]
            left = [
                row
                for row, number in enumerate(running)
                if not last_step and len(finished[number]) < beam_size
            ]
            if not left:
                break
            running = [running[row] for row in left]
            kept_BK = torch.tensor([chosen[row] for row in left])
            rows = torch.tensor(left)
            _advance(
                batch,
                rows,
                parents_BN[rows].gather(1, kept_BK),
                tokens_BN[rows].gather(1, kept_BK),
                scores_BN[rows].gather(1, kept_BK),
            )
        return [max(each, key=lambda hypothesis: hypothesis[1]) for each in finished]

    def _encode(self, sources: Sequence[Sequence[int]], beam_size: int) -> _Batch:
        ids_BS = pad([list(source) for source in sources])
        mask = padding_mask(ids_BS)
        memory_BSD = self._model.encode(ids_BS, mask)
        repeated = [
            KeyValue(
                layer.keys.repeat_interleave(beam_size, 0),
                layer.values.repeat_interleave(beam_size, 0),
            )
            for layer in self._model.project_source(memory_BSD)
        ]
        scores_BK = torch.full((len(sources), beam_size), -torch.inf)
        scores_BK[:, 0] = 0.0
        empty = memory_BSD.new_zeros(len(sources) * beam_size, 0, memory_BSD.shape[2])
        return _Batch(
            sources=repeated,
            source_mask=None if mask is None else mask.repeat_interleave(beam_size, 0),
            caches=[KeyValue(empty, empty) for _ in repeated],
            scores_BK=scores_BK,
            tokens_BKT=torch.full((len(sources), beam_size, 1), BOS_ID),
        )

    def _candidates(self, batch: _Batch, step: int) -> tuple[Tensor, Tensor, Tensor]:
        """Scores, parents and tokens of the 2K best continuations of each sentence [B,N]."""
        model = self._model
        last_R1 = batch.tokens_BKT[:, :, -1].reshape(-1, 1)
        x_R1D = model.embedding(last_R1, torch.tensor([[step]]))
        for index, layer in enumerate(model.decoder):
            assert isinstance(layer, DecoderLayer)
            x_R1D, batch.caches[index] = _decode_layer(
                layer, x_R1D, batch.caches[index], batch.sources[index], batch.source_mask
            )
        logits_RV = model.output_logits(model.decoder_norm(x_R1D))[:, 0]
        sentences, beam_size = batch.scores_BK.shape
        total_RV = logits_RV.log_softmax(-1) + batch.scores_BK.reshape(-1, 1)
        best = total_RV.view(sentences, -1).topk(2 * beam_size)
        vocab_size = logits_RV.shape[1]
        return best.values, best.indices // vocab_size, best.indices % vocab_size


def _decode_layer(
    layer: DecoderLayer,
    x_R1D: Tensor,
    cache: KeyValue,
    source: KeyValue,
    source_mask: Tensor | None,
) -> tuple[Tensor, KeyValue]:
    """One new token of each hypothesis through a layer; returns the state and the longer cache."""
    keys, values = cache.keys, cache.values
    self_attention = layer.self_attention

    def attend(x: Tensor) -> Tensor:
        nonlocal keys, values
        query, key, value = self_attention.in_proj(x).chunk(3, dim=-1)
        keys, values = torch.cat([keys, key], 1), torch.cat([values, value], 1)
        out = attention(query, keys, values, num_heads=self_attention.num_heads, mask=None)
        return self_attention.out_proj(out)

    context = AttentionContext(source=source, source_mask=source_mask)
    x_R1D = layer.self_attention_residual(x_R1D, attend)
    x_R1D = layer.source_attention_residual(x_R1D, lambda x: layer.source_attention(x, context))
    return layer.ffn_residual(x_R1D, layer.ffn), KeyValue(keys, values)


class _Candidates(NamedTuple):
    """The best continuations of one sentence, best first."""

    scores: list[float]
    tokens: list[int]
    parents: list[int]


def _choose(
    candidates: _Candidates,
    history_KT: Tensor,
    finished: list[tuple[tuple[int, ...], float]],
    last_step: bool,
) -> list[int]:
    """Collect what ends among the K best candidates; returns the candidates that go on."""
    scores, tokens, parents = candidates
    beam_size = len(tokens) // 2
    spare = [n for n in range(beam_size, len(tokens)) if tokens[n] != EOS_ID]
    chosen = []
    for candidate in range(beam_size):
        ended = tokens[candidate] == EOS_ID
        if not (ended or last_step):
            chosen.append(candidate)
            continue
        history = history_KT[parents[candidate], 1:].tolist()
        output = tuple(history) if ended else (*history, tokens[candidate])
        finished.append((output, scores[candidate] / (len(history) + 1)))
        chosen.append(spare.pop(0) if spare else candidate)
    return chosen


def _advance(
    batch: _Batch, rows: Tensor, parents_BK: Tensor, tokens_BK: Tensor, scores_BK: Tensor
) -> None:
    """Reorder everything by parent, without the sentences that are done."""
    sentences, beam_size, _ = batch.tokens_BKT.shape
    order_R = (rows[:, None] * beam_size + parents_BK).flatten()
    batch.caches = [
        KeyValue(cache.keys.index_select(0, order_R), cache.values.index_select(0, order_R))
        for cache in batch.caches
    ]
    if len(rows) < sentences:  # beams of one sentence share its source, so parents do not matter
        batch.sources = [
            KeyValue(source.keys.index_select(0, order_R), source.values.index_select(0, order_R))
            for source in batch.sources
        ]
        if batch.source_mask is not None:
            batch.source_mask = batch.source_mask.index_select(0, order_R)
    history = batch.tokens_BKT.flatten(0, 1).index_select(0, order_R)
    history = torch.cat([history, tokens_BK.reshape(-1, 1)], 1)
    batch.tokens_BKT = history.view(len(rows), beam_size, -1)
    batch.scores_BK = scores_BK
