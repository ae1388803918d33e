"""T5 and its kin, imported: what their own library makes of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import sentencepiece
import torch

from export.bundles.subject import Form
from export.errors import ExportError
from export.importing.bundle import import_bundle, recognise
from export.importing.hugging_face.t5 import read_t5
from export.importing.model import AS_TOLD, Declared, Imported, LanguageChoice
from serving.errors import UnknownLanguageError
from serving.search.beams.beam import decode
from serving.search.beams.sentence import Sentence
from serving.search.options import SearchOptions
from serving.translation.translator import Translator, Wishes
from tests.toy.checkpoints import write_t5
from tests.toy.corpus import toy_pairs
from training.decoding.stepper import TorchStepper

pytestmark = pytest.mark.usefixtures("traced_once", "one_thread", "short_sentences")

TEXTS = [*(source for source, _ in toy_pairs(7, seed=11)), " ".join(["das haus"] * 14)]
BEAMS = SearchOptions(beam_size=4, num_hypotheses=4, max_length=20, loop_guard=False)
TIE = 1e-4
"""Log-probabilities nearer than this may stand in either order."""
TASKS = {
    "summarization": {"prefix": "summarize: ", "num_beams": 4},
    "translation_en_to_de": {"prefix": "translate English to German: "},
    "translation_en_to_fr": {"prefix": "translate English to French: "},
}
MODELS: dict[str, dict[str, Any]] = {
    "t5": {},
    "flan": {"tied": False, "feed_forward_proj": "gated-gelu"},
    "mt5": {"kind": "MT5", "tied": False, "relative_attention_num_buckets": 8},
    "three": {"num_layers": 3, "num_decoder_layers": 2, "relative_attention_max_distance": 20},
}


@dataclass(frozen=True)
class Case:
    """A checkpoint, and its model as its own library has it."""

    folder: Path
    theirs: Any
    imported: Imported

    @property
    def sources(self) -> list[list[int]]:
        model = sentencepiece.SentencePieceProcessor(model_file=str(self.folder / "spiece.model"))
        return [[*ids, 1] for ids in model.encode(TEXTS)]


@pytest.fixture(scope="module", params=MODELS)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    folder = tmp_path_factory.mktemp("t5") / "toy"
    theirs = write_t5(folder, **MODELS[request.param])
    return Case(folder, theirs, recognise(folder).read(folder, Declared()))


def test_it_scores_as_its_own_library_does(case: Case) -> None:
    sentences = [Sentence(ids, BEAMS, start=0, ends=(1,)) for ids in case.sources]
    found = decode(TorchStepper(case.imported.model), sentences)
    for ids, each in zip(case.sources, found, strict=True):
        for hypothesis in each.hypotheses:
            given = torch.tensor([[0, *hypothesis.tokens]])
            with torch.no_grad():
                logits = case.theirs(input_ids=torch.tensor([ids]), decoder_input_ids=given).logits
            assert logits.std() > 0.3  # else all models would be alike
            labels = torch.tensor([*hypothesis.tokens, 1])[:, None]
            wanted = logits[0].log_softmax(-1).gather(1, labels)[:, 0].tolist()
            scores = hypothesis.token_scores
            np.testing.assert_allclose(scores, wanted[: len(scores)], atol=1e-4)


def test_beams_are_those_of_its_own_library(case: Case) -> None:
    """Without a penalty both searches end when no beam can become better."""
    options = replace(BEAMS, num_hypotheses=1, length_penalty=0.0)
    sentences = [Sentence(ids, options, start=0, ends=(1,)) for ids in case.sources]
    found = [each.hypotheses[0] for each in decode(TorchStepper(case.imported.model), sentences)]
    assert len({best.tokens for best in found}) > 3
    for ids, best in zip(case.sources, found, strict=True):
        theirs = case.theirs.generate(
            torch.tensor([ids]),
            num_beams=4,
            max_new_tokens=20,
            length_penalty=0.0,
            early_stopping="never",
            return_dict_in_generate=True,
            output_scores=True,
        )
        if [*best.tokens, *([1] if best.finished else [])] != theirs.sequences[0].tolist()[1:]:
            assert best.cumulative == pytest.approx(theirs.sequences_scores[0].item(), abs=TIE)


def pieces_of_model(folder: Path) -> Callable[[str], list[int]]:
    """The ids of a text with its end, tags and all, as the model itself splits it."""
    model = sentencepiece.SentencePieceProcessor(model_file=str(folder / "spiece.model"))
    return lambda text: [*model.encode(text), 1]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory, traced_once: None) -> Path:
    """A checkpoint with tasks in words, and its bundle beside it."""
    folder = tmp_path_factory.mktemp("tasks")
    write_t5(folder / "toy", task_specific_params=TASKS)
    manifest = import_bundle(folder / "toy", folder / "bundle", Form("int8"))
    assert manifest.languages.trained == (("en", "de"), ("en", "fr"))
    return folder


def test_each_step_reads_the_slots_that_are_seen_alone(told: Path) -> None:
    """By the kernels, whose results in any batch are compared below."""
    nodes = onnx.load(told / "bundle" / "step.onnx", load_external_data=False).graph.node
    called = {node.op_type for node in nodes}
    assert any(name.startswith("BiasedTreeAttention") for name in called)
    assert not called & {"Softmax", "TensorScatter"}


def test_a_task_stands_before_each_source(told: Path) -> None:
    texts, ids_of = Translator(told / "bundle", threads=1).texts, pieces_of_model(told / "toy")
    for text in TEXTS:
        for target in ("de", "fr"):
            prefix = TASKS[f"translation_en_to_{target}"]["prefix"]
            assert texts.encode_source(text, "en", target) == ids_of(f"{prefix}{text}")
    with pytest.raises(UnknownLanguageError, match="must be one of"):
        texts.encode_source(TEXTS[0], "en", "it")


def test_any_batch_of_any_targets_is_the_same_to_the_bit(told: Path) -> None:
    translator = Translator(told / "bundle", threads=1)
    asked = [(text, target) for text in TEXTS for target in ("de", "fr")]
    read = [
        translator.read(text, BEAMS, source="en", target=target, wishes=Wishes(alignments=True))
        for text, target in asked
    ]
    together = dict(translator.translate_read(read))
    for index, (text, target) in enumerate(asked):
        (alone,) = translator.translate(text, BEAMS, target=target, wishes=Wishes(alignments=True))
        assert together[index] == alone
        links = alone.hypotheses[0].alignment
        assert links is not None
        assert all(0 <= link.source[0] < link.source[1] <= len(text) for link in links)
    assert len({each.text for each in together.values()}) > 5  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("choice", "pairs", "prefixes"),
    [
        (LanguageChoice(target=("fr",)), [("en", "fr")], {"fr": "translation_en_to_fr"}),
        (LanguageChoice(("en",), ("en",)), [("en", "en")], {"en": "summarization"}),
        (LanguageChoice(("de",), ("en",)), [("de", "en")], {}),
    ],
)
def test_a_choice_has_the_words_of_its_task(
    told: Path, choice: LanguageChoice, pairs: list[tuple[str, str]], prefixes: dict[str, str]
) -> None:
    languages = recognise(told / "toy").read(told / "toy", Declared(languages=choice)).languages
    model = sentencepiece.SentencePieceProcessor(model_file=str(told / "toy" / "spiece.model"))
    assert list(languages.trained) == pairs
    wanted = {code: TASKS[name]["prefix"] for code, name in prefixes.items()}
    assert {code: model.decode(list(found)) for code, found in languages.prefixes.items()} == {
        code: text.strip() for code, text in wanted.items()
    }


def test_a_tag_of_the_target_stands_before_each_source(tmp_path: Path) -> None:
    """As in MADLAD-400, whose decoder starts with another piece than padding."""
    tags = ["<2de>", "<2fr>", "<2zh_Hant>", "<2translate>"]
    folder = tmp_path / "toy"
    write_t5(folder, tags=tags, decoder_start_token_id=2)
    found = recognise(folder).read(folder, Declared())
    assert set(found.languages.target) == {"de", "fr", "zh-Hant"}
    assert found.special_ids.bos == 2
    codes = LanguageChoice(("en", "de"), ("de", "fr"))
    import_bundle(folder, tmp_path / "bundle", Form("fp32"), declared=Declared(languages=codes))
    translator, ids_of = Translator(tmp_path / "bundle", threads=1), pieces_of_model(folder)
    assert set(translator.manifest.languages.trained) == {("en", "de"), ("en", "fr"), ("de", "fr")}
    for text in TEXTS:
        ids = translator.texts.encode_source(text, "en", "fr")
        assert ids == ids_of(f"<2fr> {text}")
    tag = ids_of("<2de>")[-2]
    assert tag not in translator.texts.encode_source("<2de> das", "en", "fr")  # out of reach
    with pytest.raises(ExportError, match=r"--to must be of the languages of the model.*'it'"):
        read_t5(folder, LanguageChoice((), ("it",)))


def test_bytes_are_pieces_of_their_own(tmp_path: Path) -> None:
    from transformers import ByT5Tokenizer

    tasks = {"translation_en_to_de": {"prefix": "to German: "}}
    write_t5(tmp_path / "toy", task_specific_params=tasks)
    (tmp_path / "toy" / "spiece.model").unlink()
    (tmp_path / "toy" / "tokenizer_config.json").write_text('{"tokenizer_class": "ByT5Tokenizer"}')
    import_bundle(tmp_path / "toy", tmp_path / "bundle", Form("int8"))
    translator, tokenizer = Translator(tmp_path / "bundle", threads=1), ByT5Tokenizer()
    texts = [*TEXTS[:3], "Zürich, 3 % ≠ 漢字! 🙂"]
    for text in texts:
        ids = translator.texts.encode_source(text, "en", "de")
        assert ids == tokenizer(f"to German: {text}")["input_ids"]
        assert translator.texts.target.decode(ids) == f"to German: {text}"
    together = translator.translate_sentences(texts, BEAMS)
    assert together == [translator.translate_sentences(text, BEAMS)[0] for text in texts]


def test_a_vocabulary_in_a_file_of_tokenizers_is_the_same(told: Path, tmp_path: Path) -> None:
    from transformers import T5Tokenizer

    write_t5(tmp_path, task_specific_params=TASKS)
    T5Tokenizer.from_pretrained(tmp_path).save_pretrained(tmp_path / "saved")
    (tmp_path / "saved" / "tokenizer.json").rename(tmp_path / "tokenizer.json")
    wanted = recognise(tmp_path).read(tmp_path, Declared())
    (tmp_path / "spiece.model").unlink()
    found = recognise(tmp_path).read(tmp_path, Declared())
    assert found.special_ids == wanted.special_ids
    assert found.languages == wanted.languages
    import_bundle(tmp_path, tmp_path / "bundle", Form("fp32"))
    texts = [Translator(folder / "bundle", threads=1).texts for folder in (tmp_path, told)]
    for text in TEXTS:
        ids, same = (each.encode_source(text, "en", "de") for each in texts)
        assert ids == same
        assert texts[0].target.decode(ids) == texts[1].target.decode(ids)


def test_what_is_refused(told: Path, tmp_path: Path) -> None:
    write_t5(tmp_path, feed_forward_proj="gated-gelu_new")

    def change(**options: Any) -> None:
        tree = json.loads((told / "toy" / "config.json").read_text()) | options
        (tmp_path / "config.json").write_text(json.dumps(tree))

    with pytest.raises(ExportError, match="feed_forward_proj 'gated-gelu_new' is not supported"):
        read_t5(tmp_path, AS_TOLD)
    tasks = {"translation_de_to_en": {"prefix": "a "}, "translation_fr_to_en": {"prefix": "b "}}
    write_t5(tmp_path)
    change(task_specific_params=tasks)
    with pytest.raises(ExportError, match=r"another prefix into en .*de,fr.*--from CODE"):
        read_t5(tmp_path, AS_TOLD)
    assert read_t5(tmp_path, LanguageChoice(("fr",))).languages.trained == (("fr", "en"),)
    change(relative_attention_max_distance=16)
    with pytest.raises(ExportError, match=r"config.json: max_distance .*num_buckets / 2 = 16"):
        read_t5(tmp_path, AS_TOLD)
    change(num_experts=8)
    with pytest.raises(ExportError, match=r"the option 'num_experts' .*is not known"):
        read_t5(tmp_path, AS_TOLD)
    change(d_model=30)
    with pytest.raises(ExportError, match=r"must be .* by config.json"):
        read_t5(tmp_path, AS_TOLD)
    change(vocab_size=300)
    with pytest.raises(ExportError, match=r"spiece.model: has 150 pieces, .* 300 rows"):
        read_t5(tmp_path, AS_TOLD)
