"""Scores of translations, and the translations they are computed on."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch

from serving.bundle.tokenizer import Tokenizer
from serving.search.beams.beam import decode
from serving.search.beams.sentence import Finished, Sentence
from serving.search.ids import EOS_ID
from serving.search.options import SearchOptions
from tests.toy.corpus import toy_pairs
from training.decoding.stepper import TorchStepper
from training.decoding.translate import translate
from training.errors import DivergedError
from training.metrics.bleu import measure_edit_rate, measure_paper_bleu, measure_quality
from training.models import (
    JointConfig,
    ModelConfig,
    TransformerConfig,
    TranslationModel,
    build_model,
)
from training.vocabularies.sentence_pieces import train_tokenizer

VOCAB_SIZE = 340


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path = tmp_path_factory.mktemp("tokenizer") / "toy.model"
    train_tokenizer((t for p in toy_pairs(300, seed=1) for t in p), path, vocab_size=VOCAB_SIZE)
    return Tokenizer(path)


@pytest.fixture(params=[TransformerConfig, JointConfig])
def model(request: pytest.FixtureRequest) -> TranslationModel:
    torch.manual_seed(1)
    config: ModelConfig = request.param(
        model_dim=16, num_heads=2, ffn_dim=16, num_encoder_layers=1, num_decoder_layers=1,
        vocab_size=VOCAB_SIZE,
    )  # fmt: skip
    return build_model(config)


def test_perfect_translations_score_100() -> None:
    references = [target for _, target in toy_pairs(20, seed=1)]
    quality = measure_quality(references, references)
    assert quality.bleu == pytest.approx(100)
    assert quality.chrf == pytest.approx(100)
    assert quality.length_ratio == 1.0
    assert "tok:13a" in quality.bleu_signature
    assert "case:mixed" in quality.bleu_signature
    assert "nw:0" in quality.chrf_signature


def test_bleu_is_the_papers_formula() -> None:
    # Papineni et al. 2002: precisions 5/6, 4/5, 3/4, 2/3 and no brevity penalty
    quality = measure_quality(["the cat sat on the mat"], ["the cat sat on the rug"])
    assert quality.bleu == pytest.approx(100 * (5 / 6 * 4 / 5 * 3 / 4 * 2 / 3) ** 0.25)
    assert measure_quality(["a b c"], ["a b c d e f"]).length_ratio == 0.5


def test_edits_are_counted_for_each_hundred_words() -> None:
    # One substitution, and one shift of "on the mat", which is one edit (Snover et al. 2006).
    assert measure_edit_rate(["the cat sat on the rug"], ["the cat sat on the mat"]).ter == (
        pytest.approx(100 / 6)
    )
    shifted = measure_edit_rate(["on the mat the cat sat"], ["the cat sat on the mat"])
    assert shifted.ter == pytest.approx(100 / 6)
    assert "case:lc" in shifted.ter_signature


def test_case_counts() -> None:
    assert measure_quality(["THE CAT SAT ON IT"], ["the cat sat on it"]).bleu < 10


def test_empty_output_scores_zero() -> None:
    quality = measure_quality(["", ""], ["a b", ""])
    assert (quality.bleu, quality.length_ratio) == (0.0, 0.0)


def test_translations_come_in_input_order_whatever_the_batches(
    model: TranslationModel, tokenizer: Tokenizer
) -> None:
    texts = [source for source, _ in toy_pairs(7, seed=2)] + ["Hund", "", " \t"]
    options = SearchOptions(beam_size=2, max_length=9)
    expected = []
    for text in texts[:8]:
        sentence = Sentence([*tokenizer.encode(text), EOS_ID], options)
        (result,) = decode(TorchStepper(model), [sentence])
        expected.append(tokenizer.decode(list(result.hypotheses[0].tokens)))
    assert len(set(expected)) > 1
    for token_budget in (1, 60, 10_000, None):
        found = translate(model, tokenizer, texts, options, token_budget=token_budget)
        assert found == [*expected, "", ""]


def test_batches_keep_beams_times_cost_within_the_budget(
    model: TranslationModel, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches: list[list[Sentence]] = []

    def recorded(stepper: TorchStepper, sentences: list[Sentence]) -> list[Finished]:
        batches.append(sentences)
        return decode(stepper, sentences)

    monkeypatch.setattr("training.decoding.translate.decode", recorded)
    texts = [source for source, _ in toy_pairs(12, seed=2)]
    budget, options = 5000, SearchOptions(beam_size=2, max_length=2)
    translate(model, tokenizer, texts, options, token_budget=budget)
    for batch in batches:
        longest = max(len(sentence.source) for sentence in batch)
        assert 2 * len(batch) * model.config.batch_cost(longest, longest) <= budget
    # Twelve sources of 20 to 30 pieces: one batch of 360 pieces, or several of up to 2500 squares.
    assert (len(batches) == 1) == isinstance(model.config, TransformerConfig)
    assert len(batches) < len(texts)


def test_nothing_to_translate(model: TranslationModel, tokenizer: Tokenizer) -> None:
    assert translate(model, tokenizer, [], SearchOptions(), token_budget=10) == []
    assert translate(model, tokenizer, ["", ""], SearchOptions(), token_budget=10) == ["", ""]


def test_scores_that_are_not_finite_name_the_text(
    model: TranslationModel, tokenizer: Tokenizer
) -> None:
    with torch.no_grad():
        next(model.parameters()).fill_(torch.nan)  # the embedding
    with pytest.raises(DivergedError, match=r"text 2: .*non-finite"):
        translate(model, tokenizer, ["", "Hund"], SearchOptions(), token_budget=10)


def multi_bleu(translations: list[list[str]], references: list[list[str]]) -> float:
    """multi-bleu.perl, gram by gram."""
    logs = 0.0
    for n in range(1, 5):
        right = total = 0
        for found, wanted in zip(translations, references, strict=True):
            grams, known = (
                Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))
                for words in (found, wanted)
            )
            right += sum(min(count, known[gram]) for gram, count in grams.items())
            total += sum(grams.values())
        logs += math.log(right / total) / 4
    lengths = [sum(map(len, side)) for side in (translations, references)]
    return 100 * math.exp(logs + min(0.0, 1 - lengths[1] / lengths[0]))


def test_bleu_as_papers_have_it_is_that_of_their_scripts() -> None:
    translations = [
        "A well-known man walks on the old road , he said .",
        "Two cats sleep here now .",
    ]
    references = [
        "A well-known man walked on the old road , he said .",
        "two cats sleep here now .",
    ]
    names = ["multi_bleu", "multi_bleu_lc", "compound_split"]
    found = measure_paper_bleu(names, translations, references, tokenized=True)
    words = [[line.split() for line in side] for side in (translations, references)]
    small = [[[word.lower() for word in line] for line in side] for side in words]
    split = [
        [line.replace("well-known", "well ##AT##-##AT## known").split() for line in side]
        for side in (translations, references)
    ]
    assert found["multi_bleu"] == pytest.approx(multi_bleu(*words))
    assert found["multi_bleu_lc"] == pytest.approx(multi_bleu(*small))
    assert found["compound_split"] == pytest.approx(multi_bleu(*split))
    assert len({round(float(found[name]), 6) for name in names}) == 3
    assert "case:lc" in str(found["multi_bleu_lc_signature"])
    assert "smooth:none" in str(found["compound_split_signature"])
    assert str(found["multi_bleu_signature"]).endswith("|tokens:own")


def test_bleu_as_papers_have_it_tokenizes_plain_text() -> None:
    plain = measure_paper_bleu(
        ["multi_bleu"], ["He said: yes, it is."], ["He said: yes, it is!"], tokenized=False
    )
    tokens = ["He", "said", ":", "yes", ",", "it", "is"]
    words = [[[*tokens, "."]], [[*tokens, "!"]]]
    assert plain["multi_bleu"] == pytest.approx(multi_bleu(*words))
    assert str(plain["multi_bleu_signature"]).endswith("|tokens:13a")
