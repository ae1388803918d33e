"""Encoders of others: a Hugging Face folder of a BERT or one of its kin to a model of this project.

What such a folder holds: `config.json`, `model.safetensors` or `pytorch_model.bin`,
`tokenizer.json`, `vocab.txt` or `vocab.json` with `merges.txt`; from sentence-transformers also
`modules.json` with the pooling, which may name a folder below with all that.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as FastTokenizer
from torch import Tensor, nn

from export.bundles.encoder import ReadEncoder
from export.errors import ExportError
from export.importing.encoder_family import FAMILIES, EncoderFamily
from export.importing.folder import CONFIG, Weights, read_json, read_objects, read_weights
from export.importing.model import ACTIVATIONS
from export.importing.pointers import refuse_pointer
from training.errors import ConfigError
from training.models import (
    BertConfig,
    BidirectionalEncoder,
    SentenceEmbedder,
    TextClassifier,
    TextModel,
    find_block,
)
from training.models.bert import Pooling

TOKENIZER, VOCABULARY = "tokenizer.json", "vocab.txt"
BYTE_PAIRS, MERGES = "vocab.json", "merges.txt"
TOKENIZER_SETTINGS = "tokenizer_config.json"
_MODULES = "modules.json"
_SENTENCES, _PROMPTS = "sentence_bert_config.json", "config_sentence_transformers.json"
_OF_NORMALIZER = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}
"""What a tokenizer's settings say of BERT's normalizer, which wins over `tokenizer.json`."""


def read_encoder(folder: Path, pooling: Pooling | None = None) -> ReadEncoder:
    """Read a folder; a model with a classifier classifies, any other one embeds.

    `pooling`, `cls` or `mean`, is for embeddings of folders that do not name theirs. The model is
    for packed texts: RoBERTa's id 0 begins a text, and is no padding, as it is elsewhere. Raises
    ExportError where something is missing or of a kind that this project has not.
    """
    root, folder = folder, transformer_folder(folder)
    tree = read_json(folder / CONFIG)
    config, family = encoder_config(tree, folder / CONFIG), _family(tree, folder / CONFIG)
    weights = EncoderWeights(read_weights(folder), family.prefix)
    encoder = BidirectionalEncoder(config, find_block(config.block))
    load_encoder(encoder, weights, family, family.skipped_positions(tree))
    tokenizer = read_tokenizer(folder)
    sentences = _settings(folder, _SENTENCES)
    if sentences.get("do_lower_case"):
        _put_first(tokenizer, normalizers.Lowercase())
    if tokenizer.get_vocab_size() > config.vocab_size:
        raise ExportError(
            f"{folder}: the tokenizer has {tokenizer.get_vocab_size()} ids, the model "
            f"{config.vocab_size}; take both from one checkpoint"
        )
    length = min(config.max_positions, _most_tokens(folder, sentences))
    model: TextModel
    if weights.has(f"{family.head_output}.weight"):
        labels = _labels(tree, weights.rows(f"{family.head_output}.weight"), folder / CONFIG)
        model = TextClassifier(encoder, len(labels))
        weights.copy(model.output, family.head_output)
        assert model.pooler.dense is not None
        weights.copy(model.pooler.dense, family.head_dense)
        return ReadEncoder(model.eval(), tokenizer, length, labels)
    found, normalised = _pooling(root)
    _check_prompt(root)
    pooling = pooling or found
    if pooling is None:
        trained = tree.get("architectures")
        told = f" ({trained[0]})" if isinstance(trained, list) and trained else ""
        raise ExportError(
            f"{folder}: neither a classifier nor a pooling is in it{told}; say --pooling cls or "
            "mean to `python -m macaron export import`, for its vectors"
        )
    model = SentenceEmbedder(encoder, pooling, normalised=normalised)
    return ReadEncoder(model.eval(), tokenizer, length, ())


def transformer_folder(folder: Path) -> Path:
    """Where the model itself lies: in a folder below, where sentence-transformers' `modules.json`
    says so and the folder has none. Raises ExportError for a place outside."""
    path = folder / _MODULES
    if (folder / CONFIG).exists() or not path.exists():
        return folder
    places = [
        str(module.get("path", ""))
        for module in read_objects(path)
        if str(module.get("type", "")).endswith(".Transformer")
    ]
    below = folder / (places[0] if places else "")
    if not below.resolve().is_relative_to(folder.resolve()):
        raise ExportError(f"{path}: path of Transformer must lie in the folder, got {places[0]!r}")
    return below


def encoder_config(tree: dict[str, Any], path: Path) -> BertConfig:
    """The sizes that a `config.json` tells; raises ExportError for what is of no known family."""
    family = _family(tree, path)
    for key, wanted in (("position_embedding_type", "absolute"), ("is_decoder", False)):
        if tree.get(key, wanted) != wanted:
            raise ExportError(f"{path}: {key} must be {wanted!r}, got {tree.get(key)!r}")
    activation = family.sizes["activation"]
    if tree.get(activation) not in ACTIVATIONS:
        raise ExportError(
            f"{path}: {activation} must be one of {sorted(ACTIVATIONS)}, "
            f"got {tree.get(activation)!r}"
        )
    sizes = family.sizes
    try:
        segments = tree[family.segments] if family.segments else 0
        return BertConfig(
            model_dim=tree[sizes["model_dim"]],
            num_heads=tree[sizes["num_heads"]],
            ffn_dim=tree[sizes["ffn_dim"]],
            num_encoder_layers=tree[sizes["num_encoder_layers"]],
            vocab_size=tree["vocab_size"],
            max_positions=tree["max_position_embeddings"] - family.skipped_positions(tree),
            # The vector of the only kind is part of each position's.
            num_segments=0 if segments == 1 else segments,
            norm_eps=family.norm_eps or tree[sizes["norm_eps"]],
            activation=ACTIVATIONS[tree[activation]],
            dropout=tree.get(sizes["dropout"], 0.1),
            attention_dropout=tree.get(sizes["attention_dropout"], 0.1),
            pooler=family.pooler,
        )
    except KeyError as error:
        raise ExportError(f"{path}: {error.args[0]} is missing") from error
    except (TypeError, ConfigError) as error:
        raise ExportError(f"{path}: {error}") from error


def _family(tree: dict[str, Any], path: Path) -> EncoderFamily:
    kind = str(tree.get("model_type"))
    if kind not in FAMILIES:
        raise ExportError(f"{path}: model_type must be one of {list(FAMILIES)}, got {kind!r}")
    return FAMILIES[kind]


class EncoderWeights:
    """The tensors of an encoder, whose names may have their family's before them."""

    def __init__(self, weights: Weights, prefix: str) -> None:
        self._weights, self._prefix = weights, prefix

    def has(self, name: str) -> bool:
        """Whether there is a tensor of that name."""
        return self._name(name) in self._weights

    def rows(self, name: str) -> int:
        """Of a tensor that is there."""
        return self._weights.shape(self._name(name))[0]

    def copy(self, module: Any, name: str) -> None:
        """Copy weight and bias into a layer or a norm."""
        names = [(f"{name}.weight", f"{name}.bias")]
        names += [(f"{name}.gamma", f"{name}.beta")]  # as the first BERT called those of norms
        weight, bias = next((pair for pair in names if self.has(pair[0])), names[0])
        self.assign(module.weight, weight)
        self.assign(module.bias, bias)

    def assign(self, parameter: Tensor, *names: str) -> None:
        """Copy one tensor, or several of one shape below each other, into a parameter; raises
        ExportError where one is missing or of another shape."""
        rows, *others = parameter.shape
        shape = (rows // len(names), *others)
        value = torch.cat([self._weights.take(self._name(name), *shape) for name in names])
        with torch.no_grad():
            parameter.copy_(value)

    def table(self, name: str, first: int, rows: int, width: int) -> Tensor:
        """Rows of a table from `first` on; raises ExportError where it is missing or of another
        shape."""
        return self._weights.take(self._name(name), first + rows, width)[first:]

    def _name(self, name: str) -> str:
        return name if name in self._weights else f"{self._prefix}.{name}"


def load_encoder(
    encoder: BidirectionalEncoder, weights: EncoderWeights, family: EncoderFamily, skipped: int
) -> None:
    """Copy an encoder's weights into one of its sizes, but for `skipped` positions at the
    beginning; raises ExportError where one is missing or of another shape."""
    embedding, config = encoder.embedding, encoder.config
    weights.assign(embedding.weight, "embeddings.word_embeddings.weight")
    assert embedding.positions is not None
    positions = weights.table(
        "embeddings.position_embeddings.weight", skipped, config.max_positions, config.model_dim
    )
    kinds = "embeddings.token_type_embeddings.weight"
    if embedding.segments is not None:
        weights.assign(embedding.segments.weight, kinds)
    elif family.segments:
        positions = positions + weights.table(kinds, 0, 1, config.model_dim)
    with torch.no_grad():
        embedding.positions.weight.copy_(positions)
    weights.copy(embedding.norm, "embeddings.LayerNorm")
    for number, layer in enumerate(encoder.layers):
        prefix = f"{family.layers}.{number}"
        parts = [f"{prefix}.{part}" for part in family.attention]
        projection = layer.get_submodule("self_attention.in_proj")
        assert isinstance(projection, nn.Linear)
        weights.assign(projection.weight, *(f"{part}.weight" for part in parts))
        weights.assign(projection.bias, *(f"{part}.bias" for part in parts))
        for own, name in family.layer.items():
            weights.copy(layer.get_submodule(own), f"{prefix}.{name}")


def read_tokenizer(folder: Path) -> FastTokenizer:
    """The tokenizer of a folder, without truncation and padding; raises ExportError."""
    path = folder / TOKENIZER
    refuse_pointer(path)
    if path.exists():
        try:
            tokenizer = FastTokenizer.from_file(str(path))
        except Exception as error:  # the library raises nothing more special
            raise ExportError(f"{path}: not a tokenizer: {error}") from error
        tokenizer.no_truncation()
        tokenizer.no_padding()
        if isinstance(tokenizer.normalizer, normalizers.BertNormalizer):
            tokenizer.normalizer = _normalizer(folder, tokenizer.normalizer)
        return tokenizer
    if (folder / VOCABULARY).exists():
        return _word_pieces(folder)
    if (folder / MERGES).exists():
        return _byte_pairs(folder)
    raise ExportError(f"{folder}: there is neither {TOKENIZER} nor {VOCABULARY} nor {MERGES}")


def _byte_pairs(folder: Path) -> FastTokenizer:
    """RoBERTa's own tokenizer of byte pairs and their merges."""
    try:
        model = models.BPE.from_file(str(folder / BYTE_PAIRS), str(folder / MERGES))
    except Exception as error:  # the library raises nothing more special
        raise ExportError(f"{folder / MERGES}: not merges of byte pairs: {error}") from error
    tokenizer = FastTokenizer(model)
    space = bool(_settings(folder, TOKENIZER_SETTINGS).get("add_prefix_space", False))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=space)
    tokenizer.decoder = decoders.ByteLevel()
    special = ("<s>", "</s>", "<pad>", "<unk>")
    ids = {piece: tokenizer.token_to_id(piece) for piece in special}
    first, last = ids["<s>"], ids["</s>"]
    if first is None or last is None:
        raise ExportError(f"{folder / BYTE_PAIRS}: there must be pieces '<s>' and '</s>'")
    tokenizer.add_special_tokens([piece for piece in special if ids[piece] is not None])
    if tokenizer.token_to_id("<mask>") is not None:
        tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])
    tokenizer.post_processor = processors.RobertaProcessing(
        ("</s>", last), ("<s>", first), add_prefix_space=space
    )
    return tokenizer


def _word_pieces(folder: Path) -> FastTokenizer:
    """BERT's own tokenizer of a list of pieces."""
    path = folder / VOCABULARY
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise ExportError(f"{path}: cannot be read: {error}") from error
    ids = {piece: number for number, piece in enumerate(lines)}
    missing = [piece for piece in ("[UNK]", "[CLS]", "[SEP]") if piece not in ids]
    if missing:
        raise ExportError(f"{path}: there is no piece {missing[0]!r}")
    tokenizer = FastTokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    tokenizer.normalizer = _normalizer(folder, normalizers.BertNormalizer())
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", ids["[CLS]"]), ("[SEP]", ids["[SEP]"])],
    )
    tokenizer.decoder = decoders.WordPiece()
    special = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    tokenizer.add_special_tokens([piece for piece in special if piece in ids])
    return tokenizer


def _labels(tree: dict[str, Any], count: int, path: Path) -> tuple[str, ...]:
    """The names of so many classes in order; those of `config.json`, or LABEL_0 and so on."""
    names = tree.get("id2label") or {str(number): f"LABEL_{number}" for number in range(count)}
    if isinstance(names, list):
        if len(names) != count:
            raise ExportError(f"{path}: id2label has {len(names)} names, of {count} classes")
        names = {str(number): name for number, name in enumerate(names)}
    if not isinstance(names, dict):
        raise ExportError(
            f"{path}: id2label must map numbers to names, or list the names, got {names!r}"
        )
    try:
        labels = tuple(str(names[str(number)]) for number in range(count))
    except KeyError as error:
        raise ExportError(f"{path}: id2label has no {error.args[0]}, of {count} classes") from error
    for number, label in enumerate(map(names.get, map(str, range(count)))):
        if label is None or isinstance(label, list | dict):
            raise ExportError(
                f"{path}: id2label must have one name for class {number}, got {label!r}; write a "
                "name there"
            )
    if tree.get("problem_type") == "multi_label_classification":
        raise ExportError(f"{path}: problem_type multi_label_classification is not supported")
    return labels


def _settings(folder: Path, name: str) -> dict[str, Any]:
    """What a file says that need not be there."""
    path = folder / name
    return read_json(path) if path.exists() else {}


def _normalizer(folder: Path, given: normalizers.BertNormalizer) -> normalizers.BertNormalizer:
    """BERT's normalizer with what the tokenizer's settings say of it; raises ExportError for what
    is no setting."""
    settings = _settings(folder, TOKENIZER_SETTINGS)
    for key, name in _OF_NORMALIZER.items():
        value = settings.get(key)
        if value is None:  # as where it is not there
            continue
        if not isinstance(value, bool):
            raise ExportError(
                f"{folder / TOKENIZER_SETTINGS}: {key} must be true or false, got {value!r}"
            )
        setattr(given, name, value)
    return given


def _most_tokens(folder: Path, sentences: dict[str, Any]) -> int:
    """Tokens of a text, special ones included: those of sentence-transformers' own settings, else
    the tokenizer's. Raises ExportError where these keep the ends of texts that are too long."""
    settings = _settings(folder, TOKENIZER_SETTINGS)
    side = settings.get("truncation_side", "right")
    if side != "right":
        raise ExportError(
            f"{folder / TOKENIZER_SETTINGS}: truncation_side must be 'right', got {side!r}: of "
            "texts that are too long bundles keep the beginning; set it to 'right' if that will do"
        )
    told = sentences.get("max_seq_length"), settings.get("model_max_length")
    # A tokenizer without such a limit writes 1e30.
    return next((most for most in told if isinstance(most, int)), sys.maxsize)


def _put_first(tokenizer: FastTokenizer, first: normalizers.Normalizer) -> None:
    """Have texts pass a normalizer before the tokenizer's own."""
    own = tokenizer.normalizer
    tokenizer.normalizer = normalizers.Sequence([first, own] if own else [first])


def _check_prompt(folder: Path) -> None:
    """Raise ExportError where sentence-transformers would put words before every text."""
    tree = _settings(folder, _PROMPTS)
    name, prompts = tree.get("default_prompt_name"), tree.get("prompts") or {}
    if name is not None and prompts.get(name, name):
        raise ExportError(
            f"{folder / _PROMPTS}: default_prompt_name must be null, got {name!r}, whose prompt "
            f"({prompts.get(name, 'not there')!r}) stands before every text, as in bundles none "
            "does; set it to null, and send texts with what is to stand before them"
        )


def _pooling(folder: Path) -> tuple[Pooling | None, bool]:
    """The pooling of a sentence-transformers folder, and whether a normalisation follows it."""
    path = folder / _MODULES
    if not path.exists():
        return None, True
    kinds = {module["type"].rpartition(".")[2]: module["path"] for module in read_objects(path)}
    other = kinds.keys() - {"Transformer", "Pooling", "Normalize"}
    if other or "Pooling" not in kinds:
        raise ExportError(
            f"{path}: modules must be Transformer, Pooling and perhaps Normalize, got "
            f"{sorted(kinds)}"
        )
    place = folder / kinds["Pooling"] / CONFIG
    tree = read_json(place)
    if tree.get("include_prompt", True) is not True and _settings(folder, _PROMPTS).get("prompts"):
        raise ExportError(
            f"{place}: include_prompt must be true, got {tree['include_prompt']!r}: bundles take "
            f"every token of a text into its vector, those of its prompt as well; remove prompts "
            f"from {_PROMPTS} if texts come without any"
        )
    modes = [key for key, on in tree.items() if key.startswith("pooling_mode") and on]
    known: dict[str, Pooling] = {
        "pooling_mode_mean_tokens": "mean",
        "pooling_mode_cls_token": "cls",
    }
    if len(modes) != 1 or modes[0] not in known:
        raise ExportError(f"{place}: one of {sorted(known)} must be true alone, got {modes}")
    return known[modes[0]], "Normalize" in kinds
