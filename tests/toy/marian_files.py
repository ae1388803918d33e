"""Small Marian models with random weights, written from the documented file formats, and an
independent implementation in float64."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
import yaml
from numpy.typing import NDArray

from tests.toy.corpus import toy_pairs

Array = NDArray[Any]
DIM, FFN, HEADS, ENCODER, DECODER = 32, 48, 4, 3, 2
OPTIONS: dict[str, Any] = {
    "bert-type-vocab-size": 2,
    "dec-cell": "ssru",
    "dec-depth": DECODER,
    "dim-emb": DIM,
    "dim-rnn": 1024,
    "enc-depth": ENCODER,
    "input-types": [],
    "layer-normalization": False,
    "lemma-dim-emb": 0,
    "output-omit-bias": False,
    "right-left": False,
    "tied-embeddings": False,
    "tied-embeddings-all": True,
    "transformer-decoder-autoreg": "rnn",
    "transformer-dim-ffn": FFN,
    "transformer-ffn-activation": "relu",
    "transformer-ffn-depth": 2,
    "transformer-heads": HEADS,
    "transformer-no-projection": False,
    "transformer-postprocess": "dan",
    "transformer-postprocess-emb": "d",
    "transformer-postprocess-top": "",
    "transformer-preprocess": "",
    "transformer-tied-layers": [],
    "transformer-train-position-embeddings": False,
    "type": "transformer",
    "ulr": False,
    "version": "v1.9.56",
}
PRE_NORM = {
    "transformer-decoder-autoreg": "self-attention",
    "transformer-ffn-activation": "swish",
    "transformer-postprocess": "da",
    "transformer-postprocess-emb": "nd",
    "transformer-postprocess-top": "n",
    "transformer-preprocess": "n",
}
"""A teacher with every supported option changed."""


def write_vocabulary(path: Path, size: int = 120) -> None:
    """Write a SentencePiece model with only Marian's special ids, </s> and <unk>."""
    buffer = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([text for pair in toy_pairs(300, seed=4) for text in pair]),
        model_writer=buffer,
        vocab_size=size,
        eos_id=0,
        unk_id=1,
        bos_id=-1,
        pad_id=-1,
        minloglevel=2,
    )
    path.write_bytes(buffer.getvalue())


def random_parameters(
    vocab_size: int, changed: Mapping[str, Any] | None = None, source_size: int | None = None
) -> dict[str, Array]:
    """Parameters of a model with these options, under Marian's names. With a `source_size`, the
    source has its own embedding; without `tied-embeddings`, the output does too."""
    options = OPTIONS | (changed or {})
    generator = np.random.default_rng(3)
    found: dict[str, Array] = {}

    def matrix(name: str, *shape: int) -> None:
        found[name] = (generator.normal(size=shape) * shape[0] ** -0.5).astype(np.float32)

    def vector(name: str, mean: float = 0.0, size: int = DIM) -> None:
        found[name] = (mean + generator.normal(size=(1, size)) * 0.3).astype(np.float32)

    def norm(name: str, suffix: str) -> None:
        vector(f"{name}_ln_scale{suffix}", 1.0)
        vector(f"{name}_ln_bias{suffix}")

    suffix = "_pre" if options["transformer-preprocess"] else ""
    tables = {"Wemb": vocab_size}
    if source_size is not None:
        tables = {"encoder_Wemb": source_size, "decoder_Wemb": vocab_size}
    for name, rows in tables.items():
        matrix(name, rows, DIM)
        found[name] *= 4.0
    if not (options["tied-embeddings-all"] or options["tied-embeddings"]):
        matrix("decoder_ff_logit_out_Wt", vocab_size, DIM)
    vector("decoder_ff_logit_out_b", 0.0, vocab_size)
    for side, count in (("encoder", ENCODER), ("decoder", DECODER)):
        if "n" in options["transformer-postprocess-emb"]:
            norm(f"{side}_emb", "_pre")
        if options["transformer-postprocess-top"]:
            norm(f"{side}_top", "")
        for layer in range(1, count + 1):
            there = f"{side}_l{layer}"
            attentions = ["self", "context"] if side == "decoder" else ["self"]
            if side == "decoder" and options["transformer-decoder-autoreg"] == "rnn":
                attentions.remove("self")
                matrix(f"{there}_rnn_W", DIM, DIM)
                matrix(f"{there}_rnn_Wf", DIM, DIM)
                vector(f"{there}_rnn_bf")
                norm(f"{there}_rnn" if suffix else f"{there}_rnn_ffn", suffix)
            for name in attentions:
                for part in "qkvo":
                    matrix(f"{there}_{name}_W{part}", DIM, DIM)
                    vector(f"{there}_{name}_b{part}")
                norm(f"{there}_{name}_Wo", suffix)
            for part, shape in (("1", (DIM, FFN)), ("2", (FFN, DIM))):
                matrix(f"{there}_ffn_W{part}", *shape)
                vector(f"{there}_ffn_b{part}", 0.0, shape[1])
            norm(f"{there}_ffn_ffn", suffix)
    return found


def _options_text(parameters: Mapping[str, Array], changed: Mapping[str, Any] | None) -> bytes:
    names = ["Wemb"] * 2 if "Wemb" in parameters else ["encoder_Wemb", "decoder_Wemb"]
    sizes = [len(parameters[name]) for name in names]
    tree = OPTIONS | {"dim-vocabs": sizes} | (changed or {})
    return yaml.safe_dump(tree).encode() + b"\0"


def write_npz(
    path: Path, parameters: Mapping[str, Array], changed: Mapping[str, Any] | None = None
) -> None:
    """Write a float model as training saves it."""
    text = np.frombuffer(_options_text(parameters, changed), np.int8)
    np.savez(path, allow_pickle=False, **parameters, **{"special:model.yml": text})


@dataclass(frozen=True)
class Item:
    """One entry of a binary file."""

    name: str
    type: int
    shape: tuple[int, ...]
    content: bytes


def is_matrix(name: str) -> bool:
    """Whether `marian-conv` quantises this parameter."""
    return ("_W" in name or name == "Wemb") and "_ln_" not in name


def levels(weight: Array) -> tuple[Array, np.float32]:
    """A matrix quantised as by `marian-conv` for intgemm, with one multiplier."""
    multiplier = np.float32(127.0) / np.float32(np.abs(weight).max())
    return np.clip(np.rint(weight * multiplier), -127, 127).astype(np.int8), multiplier


def dequantized(parameters: Mapping[str, Array]) -> dict[str, Array]:
    """The values that an integer file represents."""
    found = dict(parameters)
    for name in filter(is_matrix, parameters):
        integers, multiplier = levels(parameters[name])
        found[name] = integers / np.float64(multiplier)
    return found


def items_of(
    parameters: Mapping[str, Array], changed: Mapping[str, Any] | None = None
) -> list[Item]:
    """A student's entries: int8 matrices with the scales of their inputs, and floats."""
    items = []
    for name, value in parameters.items():
        if is_matrix(name):
            integers, multiplier = levels(value)
            stored = integers if name.endswith("Wemb") else integers.T
            content = stored.tobytes() + struct.pack("<f", multiplier)
            items.append(Item(name, 0x4101, value.shape, content + bytes(-len(content) % 256)))
            items.append(_floats(f"{name}_QuantMultA", np.full((1, 1), 20.0, np.float32)))
        else:
            items.append(_floats(name, value))
    text = _options_text(parameters, changed)
    return [*items, Item("special:model.yml", 0x101, (len(text),), text)]


def _floats(name: str, value: Array) -> Item:
    content = value.astype("<f4").tobytes()
    return Item(name, 0x404, value.shape, content + bytes(-len(content) % 256))


def write_binary(path: Path, items: Sequence[Item]) -> None:
    """The file of these entries: heads, names, shapes, padding, contents."""
    parts = [struct.pack("<QQ", 1, len(items))]
    for item in items:
        sizes = (len(item.name) + 1, item.type, len(item.shape), len(item.content))
        parts.append(struct.pack("<4Q", *sizes))
    parts += [item.name.encode() + b"\0" for item in items]
    parts += [struct.pack(f"<{len(item.shape)}i", *item.shape) for item in items]
    padding = -(sum(map(len, parts)) + 8) % 256
    parts += [struct.pack("<Q", padding), bytes(padding)]
    path.write_bytes(b"".join([*parts, *(item.content for item in items)]))


def write_lexicon(path: Path, lists: Sequence[Sequence[int]], first: int) -> None:
    """Write a binary shortlist: the `first` pieces for all sources, and a list per piece."""
    starts = np.cumsum([0, *map(len, lists)])
    words = [first, max(map(len, lists)), len(starts), starts[-1], *starts.tolist()]
    content = struct.pack(f"<{len(words)}Q", *words)
    content += struct.pack(f"<{starts[-1]}I", *(piece for each in lists for piece in each))
    seed = 0
    for (word,) in struct.iter_unpack("<Q", content[: len(content) // 8 * 8]):
        seed ^= (word + 0x9E3779B9 + (seed << 6) + (seed >> 2)) % 2**64
    path.write_bytes(struct.pack("<QQ", 0xF11A48D5013417F5, seed) + content)


def random_lists(vocab_size: int) -> list[list[int]]:
    """One to nine translations per piece."""
    generator = np.random.default_rng(8)
    return [
        sorted(generator.choice(vocab_size, generator.integers(1, 10), replace=False).tolist())
        for _ in range(vocab_size)
    ]


def write_student(folder: Path) -> dict[str, Array]:
    """Write a Bergamot student: int8 model, vocabulary, shortlist and decoder YAML. Returns the
    parameters before quantisation."""
    folder.mkdir(parents=True, exist_ok=True)
    write_vocabulary(folder / "vocab.deen.spm")
    parameters = random_parameters(120)
    write_binary(folder / "model.deen.intgemm.alphas.bin", items_of(parameters))
    write_lexicon(folder / "lex.50.50.deen.s2t.bin", random_lists(120), 20)
    decoder = {
        "relative-paths": True,
        "models": ["model.deen.intgemm.alphas.bin"],
        "vocabs": ["vocab.deen.spm", "vocab.deen.spm"],
        "shortlist": ["lex.50.50.deen.s2t.bin", False],
        "beam-size": 1,
        "normalize": 1.0,
        "word-penalty": 0,
        "mini-batch": 64,
        "max-length-factor": 2.5,
        "gemm-precision": "int8shiftAlphaAll",
    }
    (folder / "config.intgemm8bitalpha.yml").write_text(yaml.safe_dump(decoder))
    return parameters


class Reading:
    """A Marian model in numpy, float64, one sentence at a time, from its equations."""

    def __init__(
        self, parameters: Mapping[str, Array], changed: Mapping[str, Any] | None = None
    ) -> None:
        self._p = {name: value.astype(np.float64) for name, value in parameters.items()}
        self._options = OPTIONS | (changed or {})

    def logits(self, source: Sequence[int], target: Sequence[int]) -> Array:
        """Logits [len(target) + 1, V] after the start and each target piece; the source ends with
        eos."""
        memory = self._encode(source)
        table = self._p["decoder_Wemb" if "decoder_Wemb" in self._p else "Wemb"]
        # The first input is a vector of zeros.
        x = np.concatenate([np.zeros((1, DIM)), table[list(target)] * DIM**0.5])
        x = self._embed("decoder", x)
        for layer in range(1, DECODER + 1):
            there = f"decoder_l{layer}"
            if self._options["transformer-decoder-autoreg"] == "rnn":
                x = self._recur(f"{there}_rnn", x)
            else:
                mask = np.triu(np.full((len(x), len(x)), -np.inf), 1)
                x = self._attend(f"{there}_self", x, None, mask)
            x = self._attend(f"{there}_context", x, memory, 0.0)
            x = self._feed_forward(f"{there}_ffn", x)
        x = self._top("decoder", x)
        output = self._p.get("decoder_ff_logit_out_W", np.empty(0)).T
        if not output.size:
            output = self._p.get("decoder_ff_logit_out_Wt", table)
        logits: Array = x @ output.T + self._p["decoder_ff_logit_out_b"]
        return logits

    def greedy(self, source: Sequence[int], most: int, listed: Iterable[int]) -> list[int]:
        """The likeliest piece at each step among those listed, never <unk>."""
        allowed = sorted(set(listed) - {1})
        found: list[int] = []
        while len(found) < most:
            logits = self.logits(source, found)[-1]
            best = allowed[int(np.argmax(logits[allowed]))]
            if best == 0:
                break
            found.append(best)
        return found

    def _encode(self, source: Sequence[int]) -> Array:
        table = self._p["encoder_Wemb" if "encoder_Wemb" in self._p else "Wemb"]
        x = self._embed("encoder", table[list(source)] * DIM**0.5)
        for layer in range(1, ENCODER + 1):
            x = self._attend(f"encoder_l{layer}_self", x, None, 0.0)
            x = self._feed_forward(f"encoder_l{layer}_ffn", x)
        return self._top("encoder", x)

    def _embed(self, side: str, x: Array) -> Array:
        half = DIM // 2
        frequencies = 10000.0 ** (-np.arange(half) / (half - 1))
        angles = np.arange(len(x))[:, None] * frequencies
        x = x + np.concatenate([np.sin(angles), np.cos(angles)], 1)
        has_norm = "n" in self._options["transformer-postprocess-emb"]
        return self._norm(x, f"{side}_emb", "_pre") if has_norm else x

    def _top(self, side: str, x: Array) -> Array:
        return self._norm(x, f"{side}_top") if self._options["transformer-postprocess-top"] else x

    def _norm(self, x: Array, name: str, suffix: str = "") -> Array:
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)
        normal: Array = x * self._p[f"{name}_ln_scale{suffix}"] + self._p[f"{name}_ln_bias{suffix}"]
        return normal

    def _before(self, x: Array, name: str) -> Array:
        return self._norm(x, name, "_pre") if self._options["transformer-preprocess"] else x

    def _after(self, x: Array, name: str) -> Array:
        return x if self._options["transformer-preprocess"] else self._norm(x, name)

    def _affine(self, x: Array, name: str, part: str) -> Array:
        product: Array = x @ self._p[f"{name}_W{part}"] + self._p[f"{name}_b{part}"]
        return product

    def _attend(self, name: str, x: Array, memory: Array | None, mask: Array | float) -> Array:
        normal = self._before(x, f"{name}_Wo")
        memory = normal if memory is None else memory
        query, key, value = (
            self._affine(rows, name, part).reshape(len(rows), HEADS, -1).transpose(1, 0, 2)
            for rows, part in ((normal, "q"), (memory, "k"), (memory, "v"))
        )
        scores = query @ key.transpose(0, 2, 1) / (DIM // HEADS) ** 0.5 + mask
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        out = (weights @ value).transpose(1, 0, 2).reshape(len(x), DIM)
        return self._after(x + self._affine(out, name, "o"), f"{name}_Wo")

    def _recur(self, name: str, x: Array) -> Array:
        normal = self._before(x, name)
        gates = 1.0 / (1.0 + np.exp(-self._affine(normal, name, "f")))
        states, state = [], np.zeros(DIM)
        for gate, new in zip(gates, normal @ self._p[f"{name}_W"], strict=True):
            state = gate * state + (1.0 - gate) * new
            states.append(np.maximum(state, 0.0))
        return self._after(x + np.stack(states), f"{name}_ffn")

    def _feed_forward(self, name: str, x: Array) -> Array:
        hidden = self._affine(self._before(x, f"{name}_ffn"), name, "1")
        swish = self._options["transformer-ffn-activation"] == "swish"
        hidden = hidden / (1.0 + np.exp(-hidden)) if swish else np.maximum(hidden, 0.0)
        return self._after(x + self._affine(hidden, name, "2"), f"{name}_ffn")
