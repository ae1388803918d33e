"""The loss of pre-training against loops over single texts, and how text becomes documents."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.toy.encoder_recipe import write_encoder_recipe
from tests.unit.training.tiny_encoder import tiny_bert
from training.batches.masking import DocumentCorpus, MaskedText
from training.batches.packing import pack_texts
from training.errors import ConfigError, CorpusError
from training.models import Bert, build_network
from training.recipe.config import DocumentFile, PretrainingRecipe, load_recipe
from training.tasks.pretraining import (
    PretrainingData,
    cut_by_ids,
    prepare_pretraining,
    read_documents,
)


def inputs(model: Bert, *, pairs: bool = True) -> list[MaskedText]:
    random = np.random.default_rng(0)
    texts = [[random.integers(5, 37, 9).tolist() for _ in range(4)] for _ in range(5)]
    return DocumentCorpus(
        texts,
        vocab_size=model.config.vocab_size,
        max_length=24,
        mask_share=0.3,
        next_sentence=pairs,
        seed=1,
    ).epoch(0)


def data(folder: Path, *overrides: str) -> PretrainingData:
    recipe = load_recipe(str(write_encoder_recipe(folder)), list(overrides))
    assert isinstance(recipe, PretrainingRecipe)
    return prepare_pretraining(recipe, folder)


@pytest.mark.parametrize("block", ["standard", "macaron"])
def test_states_of_packed_texts_are_those_of_each_alone(block: str) -> None:
    model = tiny_bert(block=block)
    texts = inputs(model)
    packed = pack_texts([text.ids for text in texts], [text.segments for text in texts])
    found = model.encode_packed(*packed.inputs)[0]
    for text, first in zip(texts, packed.firsts_B.tolist(), strict=True):
        alone = model.encode(
            torch.from_numpy(text.ids)[None].long(), torch.from_numpy(text.segments)[None].long()
        )[0]
        torch.testing.assert_close(found[first : first + len(alone)], alone, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("pairs", [True, False])
@torch.no_grad()
def test_the_loss_is_that_of_loops_over_texts_and_masked_ids(tmp_path: Path, pairs: bool) -> None:
    model = tiny_bert()
    texts = inputs(model, pairs=pairs)
    task = data(tmp_path, f"data.next_sentence={str(pairs).lower()}")
    batch = task.collate(texts, torch.device("cpu"))
    masked: list[float] = []
    following: list[float] = []
    for text in texts:
        ids, segments = (torch.from_numpy(a)[None].long() for a in (text.ids, text.segments))
        log_p = model(ids, segments)[0].log_softmax(-1)  # of every id
        masked += [
            -float(log_p[place, label])
            for place, label in zip(text.places, text.labels, strict=True)
        ]
        if text.follows is not None:
            odds = float(model.next_sentence_logits(model.encode(ids, segments)))
            following.append(np.log1p(np.exp(-odds if text.follows else odds)))
    assert batch.num_labels == len(masked)
    mean = np.mean(masked) + (np.mean(following) if pairs else 0.0)
    found = float(task.loss(model, batch, 0.0)) / batch.num_labels
    assert found == pytest.approx(mean, rel=1e-5)


def test_only_masked_ids_go_through_the_head(tmp_path: Path) -> None:
    model, seen = tiny_bert(), []
    texts = inputs(model)
    batch = data(tmp_path).collate(texts, torch.device("cpu"))
    model.mlm_dense.register_forward_hook(lambda _, given, __: seen.append(given[0].shape[:-1]))
    data(tmp_path).loss(model, batch, 0.0)
    assert seen == [(sum(len(text.places) for text in texts),)]


def test_validation_reports_perplexity_and_accuracy(tmp_path: Path) -> None:
    task = data(tmp_path)
    torch.manual_seed(0)
    model = build_network(task.recipe.model)
    assert isinstance(model, Bert)
    first, again = task.validate(model), task.validate(model)
    assert first == again  # always the same masks
    assert first["perplexity"] == pytest.approx(task.recipe.model.vocab_size, rel=0.2)
    with torch.no_grad():
        model.next_sentence.weight.zero_()
        model.next_sentence.bias.fill_(1.0)  # all follow
    wanted = np.mean([text.follows for text in task.validation.epoch(0)])
    found = task.validate(model)
    assert found["next_sentence_accuracy"] == pytest.approx(wanted)
    assert not model.training


def test_batches_hold_as_many_ids_as_fit(tmp_path: Path) -> None:
    task = data(tmp_path)
    batches = task.epoch(0)
    texts = [text for batch in batches for text in batch]
    assert [t.ids.tolist() for t in texts] == [t.ids.tolist() for t in task.train.epoch(0)]
    sizes = [sum(len(text.ids) for text in batch) for batch in batches]
    assert max(sizes) <= 256
    for size, following in zip(sizes, batches[1:], strict=False):
        assert size + len(following[0].ids) > 256
    assert cut_by_ids([], 10) == []


def test_a_blank_line_ends_a_document(tmp_path: Path) -> None:
    path = tmp_path / "text.txt.gz"
    path.write_bytes(gzip.compress(b"\na b\nc\n \n\nd\n"))
    assert read_documents(DocumentFile(file=str(path))) == ([["a b", "c"], ["d"]], {})


def test_a_document_of_wikitext_is_an_article(tmp_path: Path) -> None:
    path = tmp_path / "wiki.txt"
    path.write_text(
        " \n = First = \n \n Some text . \n\n = = Part = = \n More <unk> text . \n Last . \n"
        " = Second = \n \n Other @-@ text . \n"
    )
    documents, dropped = read_documents(DocumentFile(file=str(path), cleaning="wikitext"))
    assert documents == [
        ["= First =", "Some text.", "== Part ==", "Last."],
        ["= Second =", "Other-text."],
    ]
    assert dropped["<unk>"] == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("one document\nof two lines\n", "has 1 documents, but a second part"),
        ("\n\n", "no line with words"),
        ("a\n\nb\n", "no document has the 8 ids"),
    ],
)
def test_text_that_makes_no_inputs_is_refused(tmp_path: Path, text: str, message: str) -> None:
    recipe = write_encoder_recipe(tmp_path)
    first = load_recipe(str(recipe), [])
    assert isinstance(first, PretrainingRecipe)
    prepare_pretraining(first, tmp_path)  # makes the vocabulary
    (tmp_path / "train.txt").write_text(text)
    with pytest.raises(CorpusError, match=message):
        prepare_pretraining(first, tmp_path)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("data.max_length=49", "data.max_length must be at most model.max_positions = 48, got 49"),
        ("data.token_budget=31", r"data.token_budget must be >= 32, got 31"),
        ("data.mask_share=0", r"data.mask_share must be in \[0.01, 0.99\], got 0"),
        ("tokenizer.kind=words", "tokenizer.kind of an encoder must be 'wordpiece', got 'words'"),
        ("loop.compile=true", "loop.compile is for translation and language models"),
        ("loop.best_by=f1", "loop.best_by of this model must be 'loss'"),
        ("data.train=[]", "data.train must name at least one file"),
        ("data.validation.cleaning=html", "unknown data.cleaning 'html'"),
    ],
)
def test_a_recipe_that_makes_no_sense_is_refused(
    tmp_path: Path, override: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        load_recipe(str(write_encoder_recipe(tmp_path)), [override])


def test_small_recipes_have_equal_budgets_and_parameters() -> None:
    plain, macaron = (load_recipe(name, []) for name in ("bert-small", "bert-small-macaron"))
    assert (plain.data, plain.optim, plain.loop, plain.tokenizer) == (
        macaron.data, macaron.optim, macaron.loop, macaron.tokenizer,
    )  # fmt: skip
    sizes: list[Any] = [
        sum(p.numel() for p in build_network(recipe.model).parameters())
        for recipe in (plain, macaron)
    ]
    assert sizes[1] == pytest.approx(sizes[0], rel=1e-3)


def test_the_papers_recipes_have_berts_budget() -> None:
    for name in ("bert-base", "bert-base-macaron"):
        recipe = load_recipe(name, [])
        assert isinstance(recipe, PretrainingRecipe)
        assert recipe.data.max_length == 512
        assert recipe.data.token_budget * recipe.optim.accumulation == 256 * 512
        assert (recipe.loop.max_steps, recipe.optim.warmup_steps) == (1_000_000, 10_000)
