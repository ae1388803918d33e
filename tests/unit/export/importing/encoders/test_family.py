"""Kin of BERT against transformers: vectors, classes and ids of texts and pairs."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
import torch
import transformers
from sentencepiece import SentencePieceProcessor
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers

from export.bundles.encoder import ReadEncoder
from export.comparison.encoder import read_all
from export.errors import ExportError
from export.importing.bundle import READERS
from export.importing.encoders.config import encoder_config
from export.importing.encoders.folder import read_encoder
from export.importing.encoders.modern_bert import classifier_pooling
from export.importing.encoders.sentences import transformer_folder
from export.importing.encoders.tokenizer import read_tokenizer
from serving.bundle.encoder_tokenizer import EncodedText
from tests.unit.export.importing.vocabularies.small_pieces import write_pieces

TEXTS = [
    "the cat sat on the mat.",
    "A dog",
    "  Größe und Straße – 42 €!  ",
    "🙂 naïve 東京",
    "don't stop",
    "",
]
CORPUS = [*TEXTS, "the dog ran over the tree and the bird flew.", "small red hill"] * 4
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def byte_pairs(folder: Path) -> int:
    """RoBERTa's `vocab.json` and `merges.txt`; gives the number of ids."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=340, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.model.save(str(folder))
    return tokenizer.get_vocab_size()


def unigram(folder: Path) -> int:
    """XLM-RoBERTa's `tokenizer.json`; gives the number of ids."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=150, special_tokens=SPECIAL, unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    ids = [(piece, tokenizer.token_to_id(piece)) for piece in ("<s>", "</s>")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=ids
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    return tokenizer.get_vocab_size()


def sentence_pieces(folder: Path) -> int:
    """XLM-RoBERTa's `sentencepiece.bpe.model`; gives the number of ids."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS), model_writer=model, vocab_size=54, minloglevel=2
    )
    (folder / "sentencepiece.bpe.model").write_bytes(model.getvalue())
    return 56


def words(folder: Path) -> int:
    """BERT's `vocab.txt`; gives the number of ids."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "dog", "a", "##s", "."]
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n")
    return len(pieces)


def mpnet_words(folder: Path) -> int:
    """MPNet's `vocab.txt`; gives the number of ids."""
    pieces = ["<s>", "<pad>", "</s>", "[UNK]", "the", "cat", "dog", "a", "##s", ".", "<mask>"]
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n")
    return len(pieces)


def byte_pairs_file(folder: Path) -> int:
    """RoBERTa's pieces in a `tokenizer.json`, as ModernBERT has its own."""
    size = byte_pairs(folder)
    read_tokenizer(folder).save(str(folder / "tokenizer.json"))
    for name in ("vocab.json", "merges.txt"):
        (folder / name).unlink()
    return size


def without(options: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in options.items() if key != name}


SIZES: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 82,
    "type_vocab_size": 1,
    "initializer_range": 0.3,
}
KINDS: dict[str, tuple[str, Callable[[Path], int], dict[str, Any]]] = {
    "roberta": ("Roberta", byte_pairs, SIZES),
    "xlm-roberta": ("XLMRoberta", unigram, SIZES),
    "distilbert": (
        "DistilBert",
        words,
        {
            "dim": 16,
            "n_layers": 2,
            "n_heads": 2,
            "hidden_dim": 32,
            "max_position_embeddings": 40,
            "initializer_range": 0.3,
        },
    ),
    "mpnet": ("MPNet", mpnet_words, without(SIZES, "type_vocab_size")),
    "modernbert": (
        "ModernBert",
        byte_pairs_file,
        {
            **without(SIZES, "type_vocab_size"),
            "num_hidden_layers": 4,
            "local_attention": 6,
            "pad_token_id": 1,
            "eos_token_id": 2,
            "bos_token_id": 0,
            "cls_token_id": 0,
            "sep_token_id": 2,
        },
    ),
}


def saved(folder: Path, kind: str, labels: int = 0, **changes: Any) -> Any:
    """A folder with random weights, and the model of transformers."""
    folder.mkdir(exist_ok=True)
    name, write, sizes = KINDS[kind]
    torch.manual_seed(1)
    more: dict[str, Any] = {"num_labels": labels} if labels else {}
    config = getattr(transformers, f"{name}Config")(
        vocab_size=write(folder), **{**sizes, **more, **changes}
    )
    use = "ForSequenceClassification" if labels else "Model"
    model = getattr(transformers, name + use)(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # biases and gains, too
            parameter.add_(torch.randn_like(parameter) * 0.05)
    model.save_pretrained(folder)
    return model


def inputs(read: ReadEncoder, texts: list[str], pairs: list[str] | None = None) -> list[Any]:
    read.tokenizer.no_padding()
    encoded = [
        read.tokenizer.encode(text) if pairs is None else read.tokenizer.encode(text, pairs[n])
        for n, text in enumerate(texts)
    ]
    return [EncodedText(tuple(each.ids), tuple(each.type_ids)) for each in encoded]


@torch.no_grad()
def wanted_states(model: Any, ids: tuple[int, ...]) -> torch.Tensor:
    return model(torch.tensor([ids])).last_hidden_state[0]  # type: ignore[no-any-return]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_vectors_are_those_of_transformers(tmp_path: Path, kind: str, pooling: Any) -> None:
    model = saved(tmp_path, kind)
    read = read_encoder(tmp_path, pooling)
    given = inputs(read, TEXTS)
    found = read_all(read.model, given)
    for row, each in zip(found, given, strict=True):
        states = wanted_states(model, each.ids)
        vector = states[0] if pooling == "cls" else states.mean(0)
        np.testing.assert_allclose(row, (vector / vector.norm()).numpy(), atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_classes_are_those_of_transformers(tmp_path: Path, kind: str) -> None:
    model = saved(tmp_path, kind, labels=3)
    read = read_encoder(tmp_path)
    given = inputs(read, TEXTS, TEXTS[::-1])
    found = read_all(read.model, given)
    for row, each in zip(found, given, strict=True):
        logits = model(torch.tensor([each.ids])).logits[0]
        np.testing.assert_allclose(row, logits.numpy(), atol=1e-4)
    assert read.labels == ("LABEL_0", "LABEL_1", "LABEL_2")


@pytest.mark.parametrize("kind", ["mpnet", "modernbert"])
@torch.no_grad()
def test_states_of_long_texts_and_all_options_are_those_of_transformers(
    tmp_path: Path, kind: str
) -> None:
    """As far as distances and windows reach, alone, packed and beside a shorter one."""
    model = saved(tmp_path, kind)
    config = model.config.to_dict() | {"_name_or_path": "x"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    read = read_encoder(tmp_path, "mean")
    ids = torch.randint(4, 11, (2, 78), generator=torch.Generator().manual_seed(3))
    states = model(ids).last_hidden_state
    torch.testing.assert_close(read.model.encoder(ids), states, atol=1e-4, rtol=0)
    texts = [EncodedText(tuple(row.tolist()), (0,) * len(row)) for row in (*ids, ids[0, :20])]
    wanted = [*states.mean(1), wanted_states(model, texts[2].ids).mean(0)]
    found = read_all(read.model, texts)
    np.testing.assert_allclose(found, [(w / w.norm()).numpy() for w in wanted], atol=1e-5)
    (tmp_path / "config.json").write_text(json.dumps(config | {"attention_sinks": 4}))
    with pytest.raises(ExportError, match=r"'attention_sinks' .4. is not known"):
        read_encoder(tmp_path, "mean")


@torch.no_grad()
def test_a_modern_bert_may_have_biases_and_classify_by_the_mean(tmp_path: Path) -> None:
    biases = ("attention_bias", "mlp_bias", "norm_bias", "classifier_bias")
    more = {**dict.fromkeys(biases, True), "classifier_pooling": "mean"}
    model = saved(tmp_path, "modernbert", labels=1, **more)
    read = read_encoder(tmp_path)
    given = inputs(read, TEXTS)
    wanted = [model(torch.tensor([each.ids])).logits[0].numpy() for each in given]
    np.testing.assert_allclose(read_all(read.model, given), wanted, atol=1e-4)


def test_older_files_of_a_modern_bert_have_their_options_beside_each_other(tmp_path: Path) -> None:
    model = saved(tmp_path, "modernbert", layer_types=None)
    tree = json.loads((tmp_path / "config.json").read_text())
    new = encoder_config(tree, tmp_path)
    assert (new.layer_windows, new.rotary_base, new.window_rotary_base) == ((0, 3, 3, 0), 16e4, 1e4)
    bases = {"global_rope_theta": 16e4, "local_rope_theta": 1e4, "global_attn_every_n_layers": 3}
    old = tree | bases | {"position_embedding_type": "sans_pos", "layer_norm_eps": 1e-5}
    old |= {"sentence_transformers": {"version": "4"}, "reference_compile": None}
    del old["layer_types"], old["rope_parameters"]
    assert encoder_config(old, tmp_path) == new
    assert encoder_config(old | {"local_rope_theta": None}, tmp_path).window_rotary_base == 16e4
    assert model.config.sliding_window == 3


def test_kinds_of_parts_are_kept_where_there_are_several(tmp_path: Path) -> None:
    model = saved(tmp_path, "roberta", type_vocab_size=2)
    read = read_encoder(tmp_path, "mean")
    assert read.model.config.num_segments == 2
    given = inputs(read, TEXTS)
    states = wanted_states(model, given[0].ids).mean(0)
    found = read_all(read.model, given)[0]
    np.testing.assert_allclose(found, (states / states.norm()).numpy(), atol=1e-5)


@pytest.mark.parametrize("space", [False, True])
def test_ids_of_byte_pairs_are_robertas(tmp_path: Path, space: bool) -> None:
    saved(tmp_path, "roberta")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"add_prefix_space": space}))
    own = read_encoder(tmp_path, "mean").tokenizer
    theirs = transformers.RobertaTokenizerFast.from_pretrained(tmp_path)
    for text in [*TEXTS, "<s>"]:
        assert own.encode(text).ids == theirs(text)["input_ids"]
        assert own.encode(text, "the pair").ids == theirs(text, "the pair")["input_ids"]


def test_ids_of_sentence_pieces_are_xlm_robertas(tmp_path: Path) -> None:
    assert sentence_pieces(tmp_path) == 56
    own = read_tokenizer(tmp_path)
    assert own.get_vocab_size() == 56
    theirs = transformers.XLMRobertaTokenizer.from_pretrained(tmp_path)
    model = SentencePieceProcessor(model_file=str(tmp_path / "sentencepiece.bpe.model"))
    for text in [*TEXTS, "the\tcat \u3000 ﬁlled\nthe  Ⅳ", "a ▁ dog\u200b", "東京 x 東京"]:
        pieces = [id_ + 1 if id_ else 3 for id_ in model.encode(text)]  # fairseq's, and its <unk>
        assert own.encode(text).ids == [0, *pieces, 2] == theirs(text)["input_ids"]
        assert own.encode(text, "the pair").ids == theirs(text, "the pair")["input_ids"]
    marked = "the <mask> sat</s>"
    assert own.encode(marked).ids == theirs(marked)["input_ids"]
    assert own.decode(own.encode("the cat sat on").ids) == "the cat sat on"
    (tmp_path / "sentencepiece.bpe.model").write_bytes(b"none")
    with pytest.raises(ExportError, match="no usable SentencePiece model"):
        read_tokenizer(tmp_path)
    write_pieces(tmp_path / "sentencepiece.bpe.model")
    with pytest.raises(ExportError, match="must be a SentencePiece model of the type unigram"):
        read_tokenizer(tmp_path)


def test_ids_of_word_pieces_are_mpnets(tmp_path: Path) -> None:
    saved(tmp_path, "mpnet")
    own = read_tokenizer(tmp_path)
    theirs = transformers.MPNetTokenizer.from_pretrained(tmp_path)
    for text in [*TEXTS, "The CATS <mask>.</s>"]:
        assert own.encode(text).ids == theirs(text)["input_ids"]
        assert own.encode(text, "the pair").ids == theirs(text, "the pair")["input_ids"]
    (tmp_path / "vocab.txt").write_text("<s>\n<pad>\n[UNK]\n")
    with pytest.raises(ExportError, match="there is no piece '</s>'"):
        read_tokenizer(tmp_path)


def test_the_longest_text_is_the_models(tmp_path: Path) -> None:
    saved(tmp_path, "roberta")
    read = read_encoder(tmp_path, "mean")
    # Positions begin behind the padding's id: two rows of the table are never read.
    assert read.model.config.max_positions == 80
    assert read.max_length == 80


@pytest.mark.parametrize("kind", ["xlm-roberta", "mpnet", "modernbert"])
def test_a_model_below_the_folder_is_read_with_the_pooling_above(tmp_path: Path, kind: str) -> None:
    model = saved(tmp_path / "0_Transformer", kind)
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling/config.json").write_text(json.dumps({"pooling_mode_cls_token": True}))
    parts = {"0_Transformer": "Transformer", "1_Pooling": "Pooling"}
    modules = [
        {"idx": n, "name": str(n), "path": path, "type": f"sentence_transformers.models.{part}"}
        for n, (path, part) in enumerate(parts.items())
    ]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    reader = next(reader for reader in READERS if reader.recognises(tmp_path))
    assert reader.family == kind
    read = read_encoder(tmp_path)
    given = inputs(read, TEXTS[:1])
    found = read_all(read.model, given)[0]
    np.testing.assert_allclose(found, wanted_states(model, given[0].ids)[0].numpy(), atol=1e-5)
    modules[0]["path"] = "../elsewhere"
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(ExportError, match="must be in the folder"):
        transformer_folder(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "xlnet"}, "model_type must be one of"),
        ({"hidden_act": "sine"}, "hidden_act must be one of"),
        ({"is_decoder": True}, "is_decoder must be False"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type must be 'absolute'"),
        ({"max_position_embeddings": 3}, "max_positions must be >= 2"),
        ({"num_hidden_layers": 3}, "encoder.layer.2"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    saved(tmp_path, "roberta")
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, **changes}))
    with pytest.raises(ExportError, match=message):
        read_encoder(tmp_path, "mean")


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("mpnet", {"relative_attention_num_buckets": 64}, "must be 32"),
        ("modernbert", {"hidden_activation": "relu"}, "hidden_activation 'relu' is not supported"),
        ("modernbert", {"classifier_activation": "silu"}, "classifier_activation 'silu' is not"),
        ("modernbert", {"classifier_pooling": "max"}, "must be 'cls' or 'mean', got 'max'"),
        ("modernbert", {"local_attention": 1}, "local_attention must be >= 2"),
        ("modernbert", {"layer_types": ["x"]}, "for each of the 4 layers"),
        ("modernbert", {"global_attn_every_n_layers": 0}, "an integer >= 1"),
        (
            "modernbert",
            {"rope_parameters": {"full_attention": {"factor": 2}}},
            "must have only rope_type and",
        ),
        (
            "modernbert",
            {"rope_parameters": {"sliding_attention": {"rope_type": "linear"}}},
            "of the type 'default', got",
        ),
        ("modernbert", {"rope_scaling": {"factor": 2}}, "rope_scaling .* is not supported"),
        ("modernbert", {"vocab_size": None}, "vocab_size must be an integer >= 0, got None"),
    ],
)
def test_what_newer_families_do_not_have_is_refused_by_name(
    kind: str, changes: dict[str, Any], message: str
) -> None:
    _, _, sizes = KINDS[kind]
    name = "hidden_activation" if kind == "modernbert" else "hidden_act"
    eps = {"norm_eps" if kind == "modernbert" else "layer_norm_eps": 1e-5}
    tree = {"model_type": kind, **sizes, **eps, name: "gelu", "vocab_size": 12, **changes}
    read = classifier_pooling if "classifier_pooling" in changes else encoder_config
    with pytest.raises(ExportError, match=message):
        read(tree, Path("config.json"))


def test_merges_that_are_none_are_refused(tmp_path: Path) -> None:
    saved(tmp_path, "roberta")
    (tmp_path / "merges.txt").write_text("a b c d\n")
    with pytest.raises(ExportError, match="not merges"):
        read_encoder(tmp_path, "mean")
    (tmp_path / "merges.txt").write_text("#version: 0.2\n")
    with pytest.raises(ExportError, match=r"merges\.txt: its 0 merges make 0 of the \d+ pieces"):
        read_encoder(tmp_path, "mean")
    (tmp_path / "merges.txt").unlink()
    with pytest.raises(ExportError, match="there is neither"):
        read_encoder(tmp_path, "mean")
