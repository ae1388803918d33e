"""The measured model: random weights of a shape, or the checkpoint of a run."""

from __future__ import annotations

import random
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from export.graphs.shortlist import BEST, COMMON
from serving.bundle.shortlist import Shortlist
from serving.search.ids import EOS_ID
from training.models import JointModel, ModelConfig, Network, TranslationModel, build_model
from training.models.configs.architectures import ARCHITECTURES
from training.runs.checkpoint import load_weights, read_state, save_weights

SHORTEST_SOURCE, LONGEST_SOURCE = 12, 28
"""Smallest and largest number of pieces of a random source, about those of news sentences."""
_FIRST_PLAIN_ID = 4
_SPREAD = 3.0
"""Standard deviation of the logits: the best of 32k tokens then has about 5 % of the mass."""
_LAST_FFN = 300.0
"""Scale of the decoder's last feed-forward, whose rows are also centred. Neither the input token
nor the part that all states share then decides the next token. A plain random model with tied
embeddings repeats its input forever, and its beams never overtake each other, as those of a trained
model do. A joint model averages the states of all source positions, which leaves even more of the
shared part, so its mean output over random inputs is subtracted too."""
_EOS_CHANNEL, _EOS_WEIGHT = 4.0, -5.0


def random_model(config: ModelConfig, seed: int) -> TranslationModel:
    """A model of these sizes with random weights, norms and biases, which never ends a sentence.

    Output lengths are then those of max_length. A minimum length instead would cost both engines
    time that real decoding does not take. One channel of the decoder's last norm is therefore
    constant, and only the output row of eos reads it: its logit is always -20. These are plain
    weights, the same for every system.
    """
    torch.manual_seed(seed)
    model = build_model(replace(config, dropout=0.0))
    with torch.no_grad():
        draw_vectors(model)
        parts: Any = model
        last = (parts.layers if isinstance(model, JointModel) else parts.decoder)[-1]
        down_proj = last.ffn.down_proj.weight
        down_proj.sub_(down_proj.mean(1, keepdim=True)).mul_(_LAST_FFN)
        if isinstance(model, JointModel):
            last.ffn.down_proj.bias.sub_(_mean_output(model, last.ffn))
        forbid_eos(parts.decoder_norm, model.output_weight)
    return model.eval()


def draw_vectors(model: nn.Module) -> None:
    """Replace the ones and zeros of a fresh model's norms and biases by random values."""
    for name, parameter in model.named_parameters():
        if name.endswith("norm.weight"):
            parameter.normal_(1.0, 0.1)
        elif name.endswith("bias"):
            parameter.normal_(0.0, 0.1)


def forbid_eos(norm: nn.LayerNorm, output_VD: Tensor) -> None:
    """Spread the logits, and fix that of eos at -20, by one constant channel."""
    norm.weight.mul_(_SPREAD)
    norm.weight[0] = 0.0
    norm.bias[0] = _EOS_CHANNEL
    output_VD[:, 0] = 0.0
    output_VD[EOS_ID, 0] = _EOS_WEIGHT
    output_VD[EOS_ID, 1:] = 0.0


def _mean_output(model: TranslationModel, module: nn.Module) -> Tensor:
    """Mean of a module's output [...,D] over the positions of random sources and targets, [D]."""
    found: list[Tensor] = []
    hook = module.register_forward_hook(lambda _module, _inputs, output: found.append(output))
    source, target = torch.randint(_FIRST_PLAIN_ID, model.config.vocab_size, (2, 4, 20))
    model.eval()(source, target)
    hook.remove()
    return found[0].flatten(0, -2).mean(0)


def random_sources(vocab_size: int, count: int, seed: int) -> list[list[int]]:
    """Sources of plain ids that end with eos, with the lengths of real sentences."""
    generator = random.Random(seed)
    return [
        [*random_ids(generator, vocab_size, SHORTEST_SOURCE, LONGEST_SOURCE), EOS_ID]
        for _ in range(count)
    ]


def random_ids(generator: random.Random, vocab_size: int, shortest: int, longest: int) -> list[int]:
    """Plain ids; their number is drawn between the two bounds, both inclusive."""
    length = generator.randint(shortest, longest)
    return generator.choices(range(_FIRST_PLAIN_ID, vocab_size), k=length)


def random_shortlist(vocab_size: int, seed: int) -> Shortlist:
    """A shortlist as large as one that is learnt from text may be: see
    `export.graphs.shortlist`."""
    generator = np.random.default_rng(seed)
    size = min(vocab_size, COMMON)
    common = np.unique([EOS_ID, *generator.integers(_FIRST_PLAIN_ID, vocab_size, size).tolist()])
    start = np.arange(vocab_size + 1) * BEST
    return Shortlist(common, start, generator.integers(_FIRST_PLAIN_ID, vocab_size, start[-1]))


def save_model(model: Network, folder: Path) -> None:
    """Write a model's configuration and weights into a folder, for `load_model`."""
    weights = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    save_weights(folder, weights, {"model": asdict(model.config)})


def load_model(folder: Path) -> TranslationModel:
    """The model that `save_model` wrote, in evaluation mode."""
    config = read_state(folder)["model"]
    # JSON has only lists.
    config |= {key: tuple(value) for key, value in config.items() if isinstance(value, list)}
    model = build_model(ARCHITECTURES[config["architecture"]](**config))
    load_weights(folder, model)
    return model.eval()


def slot_bytes(model: TranslationModel, source_length: int) -> int:
    """Bytes of one cached target position: fp32 keys and values of every layer with a cache.

    A joint model stores them for each of its `source_length` ids.
    """
    height = source_length if model.decoder_kind == "joint" else 1
    return 4 * height * sum(cache.slot_size for cache in model.caches)
