"""The manifest of a bundle: everything that a reader of the bundle needs to know."""

from __future__ import annotations

import math
from typing import Any, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveInt, field_validator, model_validator

from serving.bundle.engines import EngineFile
from serving.bundle.graph import Graph, Tensor
from serving.bundle.languages import Languages
from serving.bundle.strict import Strict
from serving.errors import BundleError, InvalidOptionError
from serving.search.ids import OWN_IDS, SpecialIds
from serving.search.options import SearchOptions

CARD = "README.md"
"""File name of the model card. People may edit it: the hashes do not cover it."""

Family = Literal["transformer", "macaron", "joint", "lm", "bert"]
Precision = Literal["fp32", "int8", "fp16", "bf16", "w8a16"]
"""Type of the numbers in a model's products. `w8a16` means products in fp16 whose weights are
stored in int8."""
Task = Literal["translate", "generate", "encode", "classify"]
DECODED: tuple[Task, ...] = ("translate", "generate")
"""Tasks that decode outputs step by step. The other tasks read each text once."""
Activations = Literal["row", "row16", "static"]
DecoderKind = Literal["cross", "joint", "lm", "none"]


class ShortlistFiles(Strict):
    """The files that decoding with shortlists needs."""

    lexicon: str
    """Name of the file with the target pieces of each source piece."""
    step: Graph
    """The step graph that chooses from each sentence's pieces."""


class ModelSizes(Strict):
    """The sizes of the model that the runtime needs."""

    model_dim: PositiveInt
    num_heads: PositiveInt
    num_encoder_layers: NonNegativeInt
    num_decoder_layers: NonNegativeInt
    vocab_size: PositiveInt
    source_vocab_size: PositiveInt | None = Field(
        default=None, exclude_if=lambda size: size is None
    )
    """Rows of the source's own embedding; null if it uses the target's."""
    max_source: PositiveInt | None = None
    """Longest source, in ids with eos; for encoders the longest text, in ids with all special ones.
    null if there is no source."""
    usual_source: PositiveInt | None = Field(default=None, exclude_if=lambda size: size is None)
    """Ids with eos up to which the model translates a sentence whole; longer ones are divided into
    clauses. null: all that it reads."""
    max_positions: PositiveInt | None = None
    """Longest target; for language models prompt and output together. null if positions are
    computed and the length is open."""
    reach: tuple[PositiveInt, ...] | None = None
    """Slots that each layer can see; null if it sees all."""
    recurrent: bool = False
    """Whether a state is computed from the parent's. If so, given tokens are read one per call."""
    follows: bool = Field(default=False, exclude_if=lambda follows: not follows)
    """Whether a step may put several tokens into one row, with outputs equal to the bit to those of
    one token after another. That holds where the native kernels are used, which then compute all
    attention."""
    alignment_layer: NonNegativeInt | None = None
    """Decoder layer of the alignment queries; null is the last, as in older bundles. It has no
    meaning if the graph gives the alignment itself."""
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
    """The vocabulary of the source, if its ids differ from the target's."""
    source_end: bool = Field(default=True, exclude_if=lambda ends: ends)
    """Whether eos ends each source; models of OpenNMT read sources without it."""
    chat_template_file: str | None = Field(default=None, exclude_if=lambda file: file is None)
    """File with a Jinja template that writes the messages of a chat as one text; for language
    models."""

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if (self.kind in ("pieces", "moses")) != (self.vocabulary_file is not None):
            raise ValueError("vocabulary_file and the kinds 'pieces' and 'moses' go together")
        if self.source_vocabulary_file is not None and self.vocabulary_file is None:
            raise ValueError("source_vocabulary_file needs vocabulary_file, the target's")
        return self


class Reading(Strict):
    """The values that the graph computes for each text from an encoder's states."""

    pooling: Literal["cls", "mean"]
    """Whether the first token's state is used, or the mean of all states."""
    normalised: bool = False
    """Whether a vector has length one."""
    labels: tuple[str, ...] = ()
    """The classes, in the order of the scores. A single class is a score by itself."""
    prompts: dict[str, str] = Field(default={}, exclude_if=lambda prompts: not prompts)
    """Prompts that may stand before a text, by name."""
    default_prompt: str | None = Field(default=None, exclude_if=lambda name: name is None)
    """Name of the prompt for a text whose request names none."""

    def prompt(self, name: str | None) -> str:
        """The prompt before a text: the one of that name, the default one or an empty text. Raises
        InvalidOptionError for an unknown name."""
        name = self.default_prompt if name is None else name
        if name is None:
            return ""
        if name not in self.prompts:
            known = ", ".join(map(repr, self.prompts)) or "none; leave it out"
            raise InvalidOptionError(
                f"prompt_name must be one of the model's prompts, got {name!r}; there are: {known}",
                parameter="prompt_name",
            )
        return self.prompts[name]


class Quality(Strict):
    """A measured score on a named data set."""

    data: str
    metric: str
    value: float
    signature: str = ""
    note: str = ""


class Calibration(Strict):
    """The probability that a translation is good, as a function of its score under the bundle's own
    search options."""

    method: Literal["logistic"] = "logistic"
    """The function fitted: 1 / (1 + exp(-(slope * score + intercept)))."""
    event: str
    """Description of a good translation: the event whose probability is computed."""
    slope: float
    intercept: float
    data: str
    pairs: PositiveInt
    """The number of pairs that it was fitted on."""
    held_out_pairs: PositiveInt
    """The number of pairs that it was measured on."""
    held_out_rate: float
    """The share of good translations among these."""
    brier: float
    """The mean square of probability minus outcome."""
    expected_error: float
    """Expected calibration error, over ten bins."""

    def probability(self, score: float) -> float:
        """The probability that a translation with that score is good."""
        return 0.5 * (1.0 + math.tanh((self.slope * score + self.intercept) / 2.0))


class Manifest(Strict):
    """The contents of `manifest.json`."""

    format_version: int
    name: str
    task: Task
    family: Family
    decoder_kind: DecoderKind
    block: str
    precision: Precision
    activations: Activations = "row"
    """Scales of the activations in int8 products: one for each row, the same with 16 bits, or
    static ones from a text at export."""
    target: Literal["cpu", "cuda", "tensorrt"]
    priority: int = 0
    """If several models serve a language pair, the one with the highest priority is used."""
    sizes: ModelSizes
    special_ids: SpecialIds | None = OWN_IDS
    """Ids of the special pieces; null if the tokenizer's file has them."""
    other_ends: tuple[int, ...] = Field(default=(), exclude_if=lambda ids: not ids)
    """Further ids that end a text, as eos does; for language models."""
    languages: Languages
    tokenizer: TokenizerFiles
    reading: Reading | None = Field(default=None, exclude_if=lambda reading: reading is None)
    """The values that an encoder's graph gives for each text; encoders only."""
    encoder: Graph | None
    step: Graph | None
    """The step graph; null if nothing is decoded."""
    engines: tuple[EngineFile, ...] = ()
    """The graphs as TensorRT engines, if they were built."""
    shortlist: ShortlistFiles | None = None
    probe_file: str | None = None
    """File with a small int8 product of known result, which the runtime checks when it loads."""
    phrases_file: str | None = Field(default=None, exclude_if=lambda name: name is None)
    """File with set phrases: tab-separated language, phrase, language and translation."""
    dictionary_file: str | None = Field(default=None, exclude_if=lambda name: name is None)
    """File with words that the model does not know: tab-separated language, word, language and
    translations (`serving.text.dictionary`)."""
    search: dict[str, Any] = Field(default_factory=dict)
    """Default search options; for language models default generation options."""
    parity: dict[str, Any] = Field(default_factory=dict)
    """The figures of the comparison of the bundle with its checkpoint."""
    quality: tuple[Quality, ...] = ()
    calibration: Calibration | None = None
    """The function from a translation's score to the probability that it is good, if it was
    fitted."""
    attribution: str = ""
    demonstration: str = Field(default="", exclude_if=lambda text: not text)
    """Purpose and limits of a demonstration model, in a sentence or two; empty if the model is
    meant for real use."""
    recipe: dict[str, Any] = Field(default_factory=dict)
    versions: dict[str, str] = Field(default_factory=dict)
    commit: str = ""
    files: dict[str, str] = Field(default_factory=dict)
    """The sha256, in hexadecimal, of every other file in the folder, by name, except the card and
    the engines."""

    @property
    def step_graph(self) -> Graph:
        """The step graph; raises BundleError if the bundle does not decode."""
        if self.step is None:
            raise BundleError(f"{self.name}: a bundle for {self.task!r} has no step graph")
        return self.step

    @property
    def decoding_ids(self) -> SpecialIds:
        """The special ids; raises BundleError if the bundle does not decode."""
        if self.special_ids is None:
            raise BundleError(f"{self.name}: a bundle for {self.task!r} has no special_ids")
        return self.special_ids

    @property
    def ends(self) -> tuple[int, ...]:
        """The ids that end an output, eos first; raises BundleError if nothing is decoded."""
        return (self.decoding_ids.eos, *self.other_ends)

    @property
    def source_pieces(self) -> int:
        """The number of ids in the vocabulary of the source."""
        own = self.sizes.source_vocab_size if self.tokenizer.source_vocabulary_file else None
        return own or self.sizes.vocab_size

    @property
    def caches(self) -> list[Tensor]:
        """The values that a step keeps for each position: keys and values, and states of other
        modules."""
        return [tensor for tensor in self.step_graph.inputs if tensor.is_cache]

    @property
    def lookback(self) -> int:
        """The number of nearest ancestors that each query of a step gets; 0 if it gets none."""
        found = [tensor.axes[-1] for tensor in self.step_graph.inputs if tensor.role == "ancestor"]
        return int(found[0]) if found else 0

    @field_validator("files")
    @classmethod
    def _leave_out_card(cls, files: dict[str, str]) -> dict[str, str]:
        """Drop the card's hash, which older bundles list."""
        return {name: found for name, found in files.items() if name != CARD}

    @field_validator("special_ids")
    @classmethod
    def _tell_ids_apart(cls, ids: SpecialIds | None) -> SpecialIds | None:
        if ids is None:
            return None
        if min(vars(ids).values()) < 0:
            raise ValueError("ids must be 0 or more")
        return ids


def check_shortlist(options: SearchOptions, manifest: Manifest) -> None:
    """Raise InvalidOptionError if a shortlist is requested and the bundle has none."""
    if options.shortlist and manifest.shortlist is None:
        raise InvalidOptionError(
            f"shortlist must be false for the model {manifest.name!r}, whose bundle has none; got "
            "true; export it with --shortlist",
            parameter="shortlist",
        )
