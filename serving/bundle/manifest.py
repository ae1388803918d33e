"""What the manifest of a bundle says: all that a reader of the bundle needs to know of it."""

from __future__ import annotations

import math
from typing import Any, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveInt, field_validator, model_validator

from serving.bundle.engines import EngineFile
from serving.bundle.graph import FLOAT_BYTES, Graph, Tensor
from serving.bundle.languages import Languages
from serving.bundle.strict import Strict
from serving.errors import BundleError, InvalidOptionError
from serving.search.ids import OWN_IDS, SpecialIds
from serving.search.options import SearchOptions
from serving.search.prefix_tree import REPACK_EVERY, round_up

CARD = "README.md"
"""The model card, which people may edit: it is no part of what the hashes cover."""
MOST_JOINT_STATES = 256
"""One or two sentences at beam 5: their matrix products are large already, and their states fit the
processor's cache (docs/background/decisions.md)."""

Family = Literal["transformer", "macaron", "joint", "lm", "bert"]
Precision = Literal["fp32", "int8", "fp16", "bf16", "w8a16"]
"""w8a16: products of fp16 whose weights are stored in int8."""
Task = Literal["translate", "generate", "encode", "classify"]
DECODED: tuple[Task, ...] = ("translate", "generate")
"""Tasks whose outputs are decoded step by step; of the others each text is read once."""
Activations = Literal["row", "row16", "static"]
DecoderKind = Literal["cross", "joint", "lm", "none"]


class ShortlistFiles(Strict):
    """What decoding with shortlists needs."""

    lexicon: str
    """Name of the file with the target pieces of each source piece."""
    step: Graph
    """The step graph that chooses from each sentence's pieces."""


class ModelSizes(Strict):
    """Sizes of the model that the runtime needs to know."""

    model_dim: PositiveInt
    num_heads: PositiveInt
    num_encoder_layers: NonNegativeInt
    num_decoder_layers: NonNegativeInt
    vocab_size: PositiveInt
    source_vocab_size: PositiveInt | None = Field(
        default=None, exclude_if=lambda size: size is None
    )
    """Rows of an embedding of the source's own; null where it has the target's."""
    max_source: PositiveInt | None = None
    """Longest source in ids with eos, or text in ids with all special ones; null where there is no
    source."""
    max_positions: PositiveInt | None = None
    """Longest target, of a language model with its prompt; null where positions are computed and
    length is open."""
    reach: tuple[PositiveInt, ...] | None = None
    """Slots that each layer can see; null where it is all of them."""
    recurrent: bool = False
    """Whether states are computed from those of the parent: tokens that are given are then read one
    a call."""
    alignment_layer: NonNegativeInt | None = None
    """Decoder layer of the alignment queries; null is the last, as bundles had it once, and is
    without meaning where the graph gives the alignment itself."""
    num_parameters: PositiveInt


class TokenizerFiles(Strict):
    """The files that turn text into ids and back, and their kind."""

    kind: Literal["sentencepiece", "words", "pieces", "moses", "tokenizers"]
    """`pieces`: SentencePiece models whose pieces have the ids of `vocabulary_file`; `moses`: BPE
    of Moses' tokens, with the same; `tokenizers`: a file of that library."""
    source_file: str
    target_file: str
    vocabulary_file: str | None = Field(default=None, exclude_if=lambda file: file is None)
    source_vocabulary_file: str | None = Field(default=None, exclude_if=lambda file: file is None)
    """The source's, where it has other ids than the target."""
    source_end: bool = Field(default=True, exclude_if=lambda ends: ends)
    """Whether eos ends each source; models of OpenNMT read sources without one."""
    chat_template_file: str | None = Field(default=None, exclude_if=lambda file: file is None)
    """Of a language model: a Jinja template that writes the messages of a chat as one text."""

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if (self.kind in ("pieces", "moses")) != (self.vocabulary_file is not None):
            raise ValueError("vocabulary_file and the kinds 'pieces' and 'moses' go together")
        if self.source_vocabulary_file is not None and self.vocabulary_file is None:
            raise ValueError("source_vocabulary_file needs vocabulary_file, the target's")
        return self


class Reading(Strict):
    """What is read from an encoder's states for each text, inside the graph."""

    pooling: Literal["cls", "mean"]
    """The first token's state, or the mean of all."""
    normalised: bool = False
    """Whether a vector has length one."""
    labels: tuple[str, ...] = ()
    """The classes, in the order of the scores; a single one is a score by itself."""


class Quality(Strict):
    """One measured score on a named data set."""

    data: str
    metric: str
    value: float
    signature: str = ""
    note: str = ""


class Calibration(Strict):
    """How likely a translation is good, by its score under the bundle's own search options."""

    method: Literal["logistic"] = "logistic"
    """1 / (1 + exp(-(slope * score + intercept)))"""
    event: str
    """What is meant by good."""
    slope: float
    intercept: float
    data: str
    pairs: PositiveInt
    """On which it was fitted."""
    held_out_pairs: PositiveInt
    """On which it was measured."""
    held_out_rate: float
    """Share of good ones among these."""
    brier: float
    """Mean square of probability less outcome."""
    expected_error: float
    """Expected calibration error, over ten bins."""

    def probability(self, score: float) -> float:
        """How likely a translation with that score is good, between 0 and 1."""
        return 0.5 * (1.0 + math.tanh((self.slope * score + self.intercept) / 2.0))


class Manifest(Strict):
    """The contents of `manifest.json`: all that a reader of the bundle needs to know of it."""

    format_version: int
    name: str
    task: Task
    family: Family
    decoder_kind: DecoderKind
    block: str
    precision: Precision
    activations: Activations = "row"
    """int8: a scale for each row, the same with 16 bits, or static ones from a text at export."""
    target: Literal["cpu", "cuda", "tensorrt"]
    priority: int = 0
    """Where several models serve a language pair, the highest is used."""
    sizes: ModelSizes
    special_ids: SpecialIds | None = OWN_IDS
    """null where the tokenizer's file tells them."""
    other_ends: tuple[int, ...] = Field(default=(), exclude_if=lambda ids: not ids)
    """Of a language model: ids that end a text just as eos does."""
    languages: Languages
    tokenizer: TokenizerFiles
    reading: Reading | None = Field(default=None, exclude_if=lambda reading: reading is None)
    """Of encoders alone."""
    encoder: Graph | None
    step: Graph | None
    """null where nothing is decoded."""
    engines: tuple[EngineFile, ...] = ()
    """These graphs as TensorRT engines, where such were built."""
    shortlist: ShortlistFiles | None = None
    probe_file: str | None = None
    """A small int8 product with known result, run at load."""
    search: dict[str, Any] = Field(default_factory=dict)
    """Search options of requests that name none; for language models generation options."""
    parity: dict[str, Any] = Field(default_factory=dict)
    """What the export found when it compared the bundle with its checkpoint."""
    quality: tuple[Quality, ...] = ()
    calibration: Calibration | None = None
    """How likely a translation is good by its score, if that was fitted. (The ranges of static int8
    activations are no part of the manifest; the graphs hold them.)"""
    attribution: str = ""
    recipe: dict[str, Any] = Field(default_factory=dict)
    versions: dict[str, str] = Field(default_factory=dict)
    commit: str = ""
    files: dict[str, str] = Field(default_factory=dict)
    """The sha256 of every other file in the folder but the card and engines, in hexadecimal, by
    name."""

    @property
    def step_graph(self) -> Graph:
        """The step graph of a bundle that decodes; raises BundleError for another one."""
        if self.step is None:
            raise BundleError(f"{self.name}: a bundle for {self.task!r} has no step graph")
        return self.step

    @property
    def decoding_ids(self) -> SpecialIds:
        """The special ids of a bundle that decodes; raises BundleError for another one."""
        if self.special_ids is None:
            raise BundleError(f"{self.name}: a bundle for {self.task!r} has no special_ids")
        return self.special_ids

    @property
    def ends(self) -> tuple[int, ...]:
        """The ids any of which ends an output, eos first; raises BundleError where none does."""
        return (self.decoding_ids.eos, *self.other_ends)

    @property
    def source_pieces(self) -> int:
        """How many ids the vocabulary of the source has."""
        own = self.sizes.source_vocab_size if self.tokenizer.source_vocabulary_file else None
        return own or self.sizes.vocab_size

    @property
    def caches(self) -> list[Tensor]:
        """What a step keeps of each position: keys and values, and other modules' states."""
        return [tensor for tensor in self.step_graph.inputs if tensor.is_cache]

    @property
    def lookback(self) -> int:
        """How many of its nearest ancestors each query of a step is told; 0 where it is none."""
        found = [tensor.axes[-1] for tensor in self.step_graph.inputs if tensor.role == "ancestor"]
        return int(found[0]) if found else 0

    @field_validator("files")
    @classmethod
    def _leave_out_card(cls, files: dict[str, str]) -> dict[str, str]:
        """Bundles once listed the card's hash as every file's."""
        return {name: found for name, found in files.items() if name != CARD}

    @field_validator("special_ids")
    @classmethod
    def _tell_ids_apart(cls, ids: SpecialIds | None) -> SpecialIds | None:
        if ids is None:
            return None
        if min(vars(ids).values()) < 0:
            raise ValueError("ids must be 0 or more")
        return ids


class CacheSizes:
    """What a bundle's model takes of memory and gains by a larger batch, from its manifest alone: a
    process that only fills batches needs no session."""

    def __init__(self, manifest: Manifest) -> None:
        self._kind, self._target = manifest.decoder_kind, manifest.target
        self.lookback = manifest.lookback
        """How many slots of its nearest ancestors each query is told; 0 where none."""
        self._caches = manifest.caches
        self._slot_bytes = sum(FLOAT_BYTES[each.dtype] * each.slot_size for each in self._caches)

    @property
    def repack_every(self) -> int:
        """Steps after which a sentence drops its dead cache slots."""
        return REPACK_EVERY[self._kind]

    @property
    def most_states(self) -> int | None:
        """Rows x beams x source positions beyond which a batch of a joint model is no faster; None
        for others, and on CUDA, where batches are as large as their caches may be."""
        return MOST_JOINT_STATES if self._kind == "joint" and self._target != "cuda" else None

    def cache_bytes(self, rows: int, source_length: int, slots: int) -> int:
        """Bytes that caches of that size take, the spare copy that a repack writes included."""
        height = round_up(source_length) if self._kind == "joint" else 1
        return 2 * self._slot_bytes * rows * height * slots


def check_shortlist(options: SearchOptions, manifest: Manifest) -> None:
    """Raise InvalidOptionError where a shortlist is asked for that the bundle does not have."""
    if options.shortlist and manifest.shortlist is None:
        raise InvalidOptionError(
            f"shortlist must be false for the model {manifest.name!r}, whose bundle has none; got "
            "true; export it with --shortlist",
            parameter="shortlist",
        )
