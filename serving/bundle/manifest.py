"""The bundle: a folder with `manifest.json`, ONNX graphs and a tokenizer, checked before use.

This is the only module that reads or writes a manifest.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import reprlib
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveInt,
    ValidationError,
    field_validator,
    model_validator,
)

from serving.bundle.engines import EngineFile
from serving.errors import (
    BundleError,
    FormatVersionError,
    HashMismatchError,
    InvalidOptionError,
    UnknownLanguageError,
)
from serving.search.ids import OWN_IDS, SpecialIds
from serving.search.options import SearchOptions, parse_options
from serving.search.prefix_tree import REPACK_EVERY, round_up
from serving.search.sampling_options import parse_generation_options

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
CARD = "README.md"
"""The model card, which people may edit: it is no part of what the hashes cover."""
MOST_JOINT_STATES = 256
"""One or two sentences at beam 5: their matrix products are large already, and their states fit the
processor's cache (docs/decisions.md)."""

Family = Literal["transformer", "macaron", "joint", "lm", "bert"]
Precision = Literal["fp32", "int8", "fp16", "bf16", "w8a16"]
"""w8a16: products of fp16 whose weights are stored in int8."""
Task = Literal["translate", "generate", "encode", "classify"]
DECODED: tuple[Task, ...] = ("translate", "generate")
"""Tasks whose outputs are decoded step by step; of the others each text is read once."""
Activations = Literal["row", "static"]
DecoderKind = Literal["cross", "joint", "lm", "none"]
DType = Literal["int64", "int32", "float32", "float16", "bfloat16"]
FLOAT_BYTES: dict[DType, int] = {"float32": 4, "float16": 2, "bfloat16": 2}
Role = Literal[
    "token",
    "position",
    "slot_position",
    "ancestor",
    "write_index",
    "visible",
    "score",
    "label",
    "self",
    "state",
    "source",
    "source_mask",
    "candidate_score",
    "candidate_token",
    "candidate_parent",
    "label_score",
    "logits",
    "output_index",
    "top_rank",
    "top_score",
    "top_token",
    "alignment",
    "alignment_query",
    "column",
    "segment",
    "slot",
    "packed_row",
    "vector",
    "class_score",
]


_MOST_LISTED = 40
"""Pairs of languages in one message."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Tensor(_Strict):
    """One input or output of a graph."""

    name: str
    dtype: DType
    axes: tuple[str | int, ...]
    """Letters B K Q C S D V N R T, M rows of logits or ids of packed texts, BS = B * S, L pieces of
    the longest shortlist, or fixed sizes."""
    role: Role

    @property
    def slot_size(self) -> int:
        """Of a cache: numbers in one slot of a row."""
        return math.prod(axis for axis in self.axes if isinstance(axis, int))


class Graph(_Strict):
    """One ONNX file, and the inputs and outputs of its graph by role."""

    file: str
    opset: int
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


class ShortlistFiles(_Strict):
    """What decoding with shortlists needs."""

    lexicon: str
    """Name of the file with the target pieces of each source piece."""
    step: Graph
    """The step graph that chooses from each sentence's pieces."""


class ModelSizes(_Strict):
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


class TokenizerFiles(_Strict):
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


class Languages(_Strict):
    """Language codes (ISO 639-1) that the model reads and writes.

    A model of several directions was trained on `pairs` of them, or, where none are named, on all.
    It is told the languages by tags: pieces that no text is encoded to, or in words. For others all
    of these are empty, and left out of the file.
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...] = Field(default=(), exclude_if=lambda pairs: not pairs)
    tags: dict[str, str] = Field(default={}, exclude_if=lambda tags: not tags)
    """The piece of each target language that stands before each source."""
    source_tags: dict[str, str] = Field(default={}, exclude_if=lambda tags: not tags)
    """The piece of each source language that stands before each source, first of all."""
    prefixes: dict[str, tuple[str, ...]] = Field(default={}, exclude_if=lambda found: not found)
    """The pieces of each target language that stand before each source, behind tags: a task in
    words, as T5 is told it. They may be any."""
    first_pieces: dict[str, str] = Field(default={}, exclude_if=lambda tags: not tags)
    """The piece of each target language with which each translation begins."""

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if {source for source, _ in self.pairs} - set(self.source):
            raise ValueError("pairs hold a language that source does not")
        if {target for _, target in self.pairs} - set(self.target):
            raise ValueError("pairs hold a language that target does not")
        if self.pairs and not self.is_multilingual:
            raise ValueError(
                "pairs need tags, prefixes or first_pieces, by which the model is told of them"
            )
        for name, codes in (
            ("tags", self.target),
            ("prefixes", self.target),
            ("first_pieces", self.target),
            ("source_tags", self.source),
        ):
            named = getattr(self, name)
            if named and set(named) != set(codes):
                raise ValueError(f"{name} must have each language of its side, and no other")
        return self

    @property
    def is_multilingual(self) -> bool:
        """Whether the model has to be told the target language."""
        return bool(self.tags or self.prefixes or self.first_pieces)

    @property
    def most_before(self) -> int:
        """How many pieces stand before a source at most."""
        words = max(map(len, self.prefixes.values()), default=0)
        return bool(self.source_tags) + bool(self.tags) + words

    @functools.cached_property
    def trained(self) -> tuple[tuple[str, str], ...]:
        """The pairs of source and target that the model was trained on."""
        every = ((s, t) for s in self.source for t in self.target)
        return self.pairs or tuple(p for p in every if p[0] != p[1] or not self.is_multilingual)

    def translates(self, source: str, target: str) -> bool:
        """Whether the model was trained on the pair."""
        if self.pairs:
            return (source, target) in self.pairs
        known = source in self.source and target in self.target
        return known and (source != target or not self.is_multilingual)

    def zero_shot(self, source: str, target: str) -> bool:
        """Whether the model knows both languages and was not trained on the pair."""
        known = source in self.source and target in self.target
        return known and source != target and not self.translates(source, target)

    def choose(
        self,
        source: str | None,
        target: str | None,
        *,
        allowing: str = "",
        zero_shot: bool = False,
    ) -> tuple[str, str]:
        """The pair that is meant, where what is None is clear from the rest.

        Raises UnknownLanguageError, which lists the pairs, where none is, or several, and for a
        pair that the model was not trained on unless `zero_shot` is set; `allowing` tells how.
        """
        if source is not None and target is not None and self.translates(source, target):
            return source, target
        fitting = [
            pair for pair in self.trained if source in (None, pair[0]) and target in (None, pair[1])
        ]
        if len(fitting) == 1 or (fitting and not self.is_multilingual):
            return fitting[0]  # without tags all are one to the model
        parameter = "source" if source is None or target is not None else "target"
        if source and target and self.zero_shot(source, target):
            if zero_shot:
                return source, target
            hint = f"; {allowing} lets it try all the same" if allowing else ""
            raise UnknownLanguageError(
                f"the model was trained on {self.listing}, not from {source} to {target}{hint}",
                parameter=parameter,
            )
        given = f"{source or 'any language'} to {target or 'any language'}"
        raise UnknownLanguageError(
            f"source and target must be one of {self.listing}, got {given}", parameter=parameter
        )

    @property
    def listing(self) -> str:
        """The trained pairs, for people; of very many the languages alone."""
        if len(self.trained) <= _MOST_LISTED:
            return ", ".join(" to ".join(pair) for pair in self.trained)
        sides = dict.fromkeys((*self.source, *self.target))
        return f"{len(self.trained)} pairs of {', '.join(sides)}"


class Reading(_Strict):
    """What is read from an encoder's states for each text, inside the graph."""

    pooling: Literal["cls", "mean"]
    """The first token's state, or the mean of all."""
    normalised: bool = False
    """Whether a vector has length one."""
    labels: tuple[str, ...] = ()
    """The classes, in the order of the scores; a single one is a score by itself."""


class Quality(_Strict):
    """One measured score on a named data set."""

    data: str
    metric: str
    value: float
    signature: str = ""
    note: str = ""


class Calibration(_Strict):
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


class Manifest(_Strict):
    """The contents of `manifest.json`: all that a reader of the bundle needs to know of it."""

    format_version: int
    name: str
    task: Task
    family: Family
    decoder_kind: DecoderKind
    block: str
    precision: Precision
    activations: Activations = "row"
    """int8: a scale for each row, or static ones from a text at export."""
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
        return [tensor for tensor in self.step_graph.inputs if tensor.role in ("self", "state")]

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
        self._kind = manifest.decoder_kind
        self.lookback = manifest.lookback
        """How many slots of its nearest ancestors each query is told; 0 where none."""
        self._caches = manifest.caches
        self._cache_dtype: DType = self._caches[0].dtype if self._caches else "float32"

    @property
    def repack_every(self) -> int:
        """Steps after which a sentence drops its dead cache slots."""
        return REPACK_EVERY[self._kind]

    @property
    def most_states(self) -> int | None:
        """Rows x beams x source positions beyond which a batch of a joint model is no faster; None
        for others, whose batches may have any size."""
        return MOST_JOINT_STATES if self._kind == "joint" else None

    def cache_bytes(self, rows: int, source_length: int, slots: int) -> int:
        """Bytes that caches of that size take, the spare copy that a repack writes included."""
        height = round_up(source_length) if self._kind == "joint" else 1
        numbers = sum(tensor.slot_size for tensor in self._caches)
        return 2 * FLOAT_BYTES[self._cache_dtype] * numbers * rows * height * slots


def read_manifest(folder: Path) -> Manifest:
    """Read and check a bundle's manifest and the hash of every file it lists.

    Raises BundleError (FormatVersionError, HashMismatchError) with one line that names both sides.
    """
    manifest = parse_manifest(folder)
    _check_files(folder, manifest)
    return manifest


def parse_manifest(folder: Path) -> Manifest:
    """Read and check a bundle's manifest alone; raises BundleError as `read_manifest` does."""
    path = folder / MANIFEST
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BundleError(f"{folder}: no readable {MANIFEST} ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{path}: not valid JSON ({error})") from error
    version = tree.get("format_version") if isinstance(tree, dict) else None
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise BundleError(
            f"{path}: format_version must be an integer from 1 on, got {reprlib.repr(version)}"
        )
    if version > FORMAT_VERSION:
        raise FormatVersionError(
            f"{folder}: bundle format {version} is newer than this runtime reads "
            f"({FORMAT_VERSION}); upgrade serving or export again"
        )
    if isinstance(tree.get("shortlist"), dict) and "lexicon" not in tree["shortlist"]:
        raise BundleError(f"{path}: its shortlists have an earlier form; export it again")
    try:
        manifest = Manifest.model_validate(tree)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        got = "" if first["type"] == "missing" else f", got {reprlib.repr(first['input'])}"
        raise BundleError(" ".join(f"{path}: {where}: {first['msg']}{got}".split())) from error
    if manifest.task in DECODED:
        _check_decoding(path, manifest)
    else:
        _check_reading(path, manifest)
    return manifest


def _check_decoding(path: Path, manifest: Manifest) -> None:
    """Raise BundleError where a bundle lacks what decoding with it needs, or says what cannot be of
    it."""
    sizes = manifest.sizes
    if manifest.step is None or manifest.special_ids is None or not sizes.num_decoder_layers:
        raise BundleError(
            f"{path}: a bundle for {manifest.task!r} needs step, special_ids and decoder layers"
        )
    try:
        if manifest.task == "generate":
            parse_generation_options(manifest.search)
        else:
            check_shortlist(parse_options(manifest.search), manifest)
    except InvalidOptionError as error:
        raise BundleError(f"{path}: search: {error}") from error
    if sizes.alignment_layer is not None and sizes.alignment_layer >= sizes.num_decoder_layers:
        raise BundleError(
            f"{path}: sizes.alignment_layer must be below {sizes.num_decoder_layers}, the number "
            f"of decoder layers, got {sizes.alignment_layer}"
        )
    ids = manifest.special_ids
    if manifest.task == "translate" and ids.eos in (ids.pad, ids.unk):
        raise BundleError(f"{path}: special_ids must have eos neither pad nor unk, got {vars(ids)}")
    if ids != OWN_IDS and manifest.tokenizer.kind in ("sentencepiece", "words"):
        raise BundleError(
            f"{path}: special_ids must be {vars(OWN_IDS)} for a tokenizer of kind "
            f"{manifest.tokenizer.kind!r}, got {vars(ids)}"
        )
    if max(vars(ids).values()) >= sizes.vocab_size or min(vars(ids).values()) < 0:
        raise BundleError(
            f"{path}: special_ids must be in [0, {sizes.vocab_size - 1}], got {vars(ids)}"
        )
    others = manifest.other_ends
    if others and (manifest.task != "generate" or len({ids.eos, *others}) <= len(others)):
        raise BundleError(
            f"{path}: other_ends must be a language model's, each once and without eos, got "
            f"{list(others)}"
        )
    if not all(0 <= end < sizes.vocab_size for end in others):
        raise BundleError(
            f"{path}: other_ends must be in [0, {sizes.vocab_size - 1}], got {list(others)}"
        )
    if manifest.task == "translate" and (manifest.encoder is None or sizes.max_source is None):
        raise BundleError(f"{path}: a translation bundle needs encoder and sizes.max_source")


def _check_reading(path: Path, manifest: Manifest) -> None:
    """Raise BundleError where a bundle of an encoder lacks what reading with it needs."""
    encoder, reading = manifest.encoder, manifest.reading
    if encoder is None or reading is None or manifest.sizes.max_source is None:
        raise BundleError(
            f"{path}: a bundle for {manifest.task!r} needs encoder, reading and sizes.max_source"
        )
    width = encoder.outputs[0].axes[-1]
    if manifest.task == "classify" and width != len(reading.labels):
        raise BundleError(
            f"{path}: reading.labels must name {width} classes, got {len(reading.labels)}"
        )


def check_shortlist(options: SearchOptions, manifest: Manifest) -> None:
    """Raise InvalidOptionError where a shortlist is asked for that the bundle does not have."""
    if options.shortlist and manifest.shortlist is None:
        raise InvalidOptionError(
            f"shortlist must be false for the model {manifest.name!r}, whose bundle has none; got "
            "true; export it with --shortlist",
            parameter="shortlist",
        )


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest into the folder, with the hashes of all files there but the card and
    engines, which have theirs."""
    others = {MANIFEST, CARD, *(engine.file for engine in manifest.engines)}
    files = {
        path.name: file_hash(path)
        for path in sorted(folder.iterdir())
        if path.is_file() and path.name not in others
    }
    tree = manifest.model_copy(update={"files": files}).model_dump(mode="json")
    text = json.dumps(tree, indent=1, ensure_ascii=False)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")


def file_hash(path: Path) -> str:
    """The sha256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_files(folder: Path, manifest: Manifest) -> None:
    files = manifest.tokenizer
    needed = {files.source_file, files.target_file}
    others = (files.vocabulary_file, files.source_vocabulary_file, files.chat_template_file)
    needed |= {file for file in others if file}
    needed |= {graph.file for graph in (manifest.encoder, manifest.step) if graph}
    needed |= {manifest.probe_file} if manifest.probe_file else set()
    if manifest.shortlist:
        needed |= {manifest.shortlist.lexicon, manifest.shortlist.step.file}
    unlisted = needed - manifest.files.keys()
    if unlisted:
        raise BundleError(f"{folder}: {MANIFEST} lists no sha256 for {sorted(unlisted)[0]!r}")
    for name, wanted in manifest.files.items():
        path = folder / name
        if name != path.name or name == "..":
            raise BundleError(
                f"{folder}: {MANIFEST} lists {name!r}, which is not the plain name of a file in it"
            )
        try:
            found = file_hash(path)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise BundleError(
                f"{folder}: {name!r} is listed in {MANIFEST} but cannot be read ({reason})"
            ) from error
        if found != wanted:
            raise HashMismatchError(
                f"{path}: sha256 is {found[:12]}, {MANIFEST} says {wanted[:12]}; "
                "the file is damaged or was changed, copy the bundle again"
            )


def find_bundles(root: Path) -> list[Path]:
    """The bundle folders directly under `root`, sorted by name; they are not read."""
    return sorted(path.parent for path in root.glob(f"*/{MANIFEST}"))
