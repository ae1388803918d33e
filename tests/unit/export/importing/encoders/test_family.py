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
from export.importing.encoders.folder import read_encoder
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


def test_the_longest_text_is_the_models(tmp_path: Path) -> None:
    saved(tmp_path, "roberta")
    read = read_encoder(tmp_path, "mean")
    # Positions begin behind the padding's id: two rows of the table are never read.
    assert read.model.config.max_positions == 80
    assert read.max_length == 80


def test_a_model_below_the_folder_is_read_with_the_pooling_above(tmp_path: Path) -> None:
    model = saved(tmp_path / "0_Transformer", "xlm-roberta")
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling/config.json").write_text(json.dumps({"pooling_mode_cls_token": True}))
    kinds = {"0_Transformer": "Transformer", "1_Pooling": "Pooling"}
    modules = [
        {"idx": n, "name": str(n), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for n, (path, kind) in enumerate(kinds.items())
    ]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    reader = next(reader for reader in READERS if reader.recognises(tmp_path))
    assert reader.family == "xlm-roberta"
    read = read_encoder(tmp_path)
    given = inputs(read, TEXTS[:1])
    found = read_all(read.model, given)[0]
    np.testing.assert_allclose(found, wanted_states(model, given[0].ids)[0].numpy(), atol=1e-5)
    modules[0]["path"] = "../elsewhere"
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(ExportError, match="must lie in the folder"):
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


def test_merges_that_are_none_are_refused(tmp_path: Path) -> None:
    saved(tmp_path, "roberta")
    (tmp_path / "merges.txt").write_text("a b c d\n")
    with pytest.raises(ExportError, match="not merges"):
        read_encoder(tmp_path, "mean")
    (tmp_path / "merges.txt").unlink()
    with pytest.raises(ExportError, match="there is neither"):
        read_encoder(tmp_path, "mean")
