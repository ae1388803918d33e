"""Checkpoints of many languages, imported: what their own library and CTranslate2 make of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
import torch
from starlette.testclient import TestClient

from export.bundles.subject import Form
from export.importing.bundle import import_bundle
from export.importing.hugging_face.m2m100 import read_m2m100
from export.importing.hugging_face.mbart import read_mbart
from export.importing.model import AS_TOLD, Declared, Imported, LanguageChoice
from serving.search.beams.beam import decode
from serving.search.beams.sentence import Hypothesis, Sentence
from serving.search.options import SearchOptions
from serving.server.app import create_app
from serving.server.http.settings import Settings
from serving.server.models.bundles import load_bundles
from serving.server.models.registry import Registry
from serving.translation.ticket import Request
from serving.translation.translator import Translator, Wishes
from tests.toy.checkpoints import write_m2m100, write_mbart50, write_nllb
from tests.toy.corpus import toy_pairs
from training.decoding.stepper import TorchStepper

pytestmark = pytest.mark.usefixtures("traced_once", "one_thread", "short_sentences")

TEXTS = [source for source, _ in toy_pairs(10, seed=11)]
BEAMS = SearchOptions(beam_size=4, num_hypotheses=4, max_length=20, loop_guard=False)


@dataclass(frozen=True)
class Many:
    """A checkpoint, its model and its tokenizer as their own library has them."""

    folder: Path
    theirs: Any
    tokenizer: Any
    imported: Imported

    def decode(self, options: SearchOptions, target: str) -> list[list[Hypothesis]]:
        """What a search finds for the texts, from German."""
        ids = self.imported.special_ids
        first = [self.tokenizer.get_lang_id(target)]
        sentences = [
            Sentence(
                self.tokenizer(text)["input_ids"], options, first, start=ids.bos, ends=(ids.eos,)
            )
            for text in TEXTS
        ]
        found = decode(TorchStepper(self.imported.model), sentences)
        return [list(each.hypotheses) for each in found]


@pytest.fixture(scope="module")
def m2m100(tmp_path_factory: pytest.TempPathFactory) -> Many:
    from transformers import M2M100Tokenizer

    folder = tmp_path_factory.mktemp("m2m100") / "toy"
    theirs = write_m2m100(folder)
    tokenizer = M2M100Tokenizer(
        str(folder / "vocab.json"), str(folder / "sentencepiece.bpe.model"), src_lang="de"
    )
    tokenizer.save_pretrained(folder)
    return Many(folder, theirs, tokenizer, read_m2m100(folder, AS_TOLD))


def test_greedy_outputs_are_those_of_its_own_library(m2m100: Many) -> None:
    inputs = m2m100.tokenizer(TEXTS, return_tensors="pt", padding=True)
    first = m2m100.tokenizer.get_lang_id("en")
    wanted = m2m100.theirs.generate(
        **inputs, num_beams=1, do_sample=False, max_new_tokens=21, forced_bos_token_id=first
    )
    options = SearchOptions(beam_size=1, length_penalty=0.0, max_length=20, loop_guard=False)
    for row, (best,) in zip(wanted.tolist(), m2m100.decode(options, "en"), strict=True):
        output = row[1:]  # after the decoder's start
        length = len(best.tokens) + best.finished
        assert [*best.tokens, *([2] if best.finished else [])] == output[:length]


def test_scores_are_those_of_its_own_library(m2m100: Many) -> None:
    for text, hypotheses in zip(TEXTS, m2m100.decode(BEAMS, "fr"), strict=True):
        inputs = m2m100.tokenizer(text, return_tensors="pt")
        for found in hypotheses:
            given = torch.tensor([[2, *found.tokens]])
            with torch.no_grad():
                logits = m2m100.theirs(**inputs, decoder_input_ids=given).logits[0]
            labels = torch.tensor([*found.tokens, 2])[:, None]
            wanted = logits.log_softmax(-1).gather(1, labels)[:, 0].tolist()
            scores = found.token_scores
            np.testing.assert_allclose(scores, wanted[: len(scores)], atol=1e-4)


def test_ctranslate2_makes_the_same_of_it(
    m2m100: Many, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ctranslate2 = pytest.importorskip("ctranslate2")
    # It asks the tokenizer for its tags by a name that the library has no more.
    monkeypatch.setattr(
        ctranslate2.converters.transformers.M2M100Loader,
        "get_vocabulary",
        lambda *_: list(m2m100.imported.pieces.written),
    )
    converter = ctranslate2.converters.TransformersConverter(str(m2m100.folder))
    converter.convert(str(tmp_path / "ct2"))
    peer = ctranslate2.Translator(str(tmp_path / "ct2"), device="cpu", intra_threads=1)
    tokenizer = m2m100.tokenizer
    tokens = [tokenizer.convert_ids_to_tokens(tokenizer(text)["input_ids"]) for text in TEXTS]
    wanted = peer.translate_batch(
        tokens,
        target_prefix=[["__en__"]] * len(TEXTS),
        beam_size=4,
        num_hypotheses=4,
        max_decoding_length=21,  # it counts the prefix
        min_decoding_length=0,
        length_penalty=0.0,  # for which the prefix counts there, too
        return_scores=True,
    )
    options = replace(BEAMS, length_penalty=0.0)
    for hypotheses, theirs in zip(m2m100.decode(options, "en"), wanted, strict=True):
        for found, output, score in zip(hypotheses, theirs.hypotheses, theirs.scores, strict=True):
            assert found.score == pytest.approx(score, abs=1e-3)
            assert tokenizer.convert_ids_to_tokens(list(found.tokens)) == output


@pytest.fixture(scope="module")
def bundles(m2m100: Many, tmp_path_factory: pytest.TempPathFactory, traced_once: None) -> Path:
    folder = tmp_path_factory.mktemp("bundles")
    codes = ("de", "en", "fr")
    import_bundle(
        m2m100.folder,
        folder / "many",
        Form("int8"),
        declared=Declared(languages=LanguageChoice(codes, codes)),
    )
    return folder


@pytest.fixture(scope="module")
def client(bundles: Path) -> Iterator[TestClient]:
    settings = Settings(bundles=bundles, threads=1, decode_in="threads")
    registry = Registry(settings)
    registry.start(load_bundles(settings))
    with TestClient(create_app(registry, settings)) as client:
        yield client
    registry.close()


def test_tags_stand_on_both_sides_and_are_not_given(m2m100: Many, bundles: Path) -> None:
    translator, tokenizer = Translator(bundles / "many"), m2m100.tokenizer
    sentence = translator.texts.prepare(
        Request(text=TEXTS[0], options=BEAMS, source="de", target="fr")
    )
    assert sentence is not None
    assert sentence.source == tokenizer(TEXTS[0])["input_ids"]
    assert list(sentence.target_prefix) == [tokenizer.get_lang_id("fr")]
    (found,) = translator.translate(
        TEXTS[0], BEAMS, source="de", target="fr", wishes=Wishes(alignments=True)
    )
    for each in found.hypotheses:
        assert "__fr__" not in (*each.tokens, each.text)
        assert len(each.token_scores) == len(each.tokens) + each.finished
    assert found.hypotheses[0].alignment is not None
    ((scored,), *_) = (translator.score([(TEXTS[0], found.text)], source="de", target="fr"),)
    assert "__fr__" not in scored.tokens
    assert len(scored.token_scores) == len(scored.tokens) + 1


def test_any_batch_of_any_pairs_is_the_same_to_the_bit(bundles: Path, client: TestClient) -> None:
    translator = Translator(bundles / "many")
    pairs = [(s, t) for s in ("de", "en", "fr") for t in ("de", "en", "fr") if s != t]
    options = translator.default_options
    read = [
        translator.read(text, options, source=s, target=t) for text in TEXTS[:3] for s, t in pairs
    ]
    together = dict(translator.translate_read(read))
    asked = [(text, s, t) for text in TEXTS[:3] for s, t in pairs]
    for index, (text, source, target) in enumerate(asked):
        (alone,) = translator.translate(text, source=source, target=target)
        assert together[index] == alone
        body = {"q": text, "source": source, "target": target}
        assert client.post("/translate", json=body).json()["translatedText"] == alone.text


def test_the_pairs_are_listed(client: TestClient) -> None:
    found = {each["code"]: each["targets"] for each in client.get("/languages").json()}
    assert found == {"de": ["en", "fr"], "en": ["de", "fr"], "fr": ["de", "en"]}
    body = {"q": "a", "source": "de", "target": "it"}
    assert client.post("/translate", json=body).status_code == 400


def test_a_stream_tells_no_tag(client: TestClient) -> None:
    body = {"q": TEXTS[1], "source": "de", "target": "fr", "stream": True}
    with client.stream("POST", "/translate", json=body) as response:
        text = "".join(response.iter_text())
    assert "event: done" in text
    assert "__fr__" not in text


def test_ids_of_nllb_are_those_of_its_tokenizer_file(tmp_path: Path) -> None:
    tags = ["ace_Arab", "ace_Latn", "deu_Latn", "fra_Latn", "zho_Hans", "zho_Hant"]
    write_nllb(tmp_path / "nllb", tags)
    found = read_m2m100(tmp_path / "nllb", AS_TOLD)
    assert found.kind.startswith("NLLB")
    names = {"ace-Arab", "ace-Latn", "de", "fr", "zh-Hans", "zh-Hant"}
    assert set(found.languages.source_tags) == names == set(found.languages.first_pieces)
    model = sentencepiece.SentencePieceProcessor(model_file=str(found.pieces.source_model))
    for i in range(3, model.vocab_size()):  # fairseq counts one more before them
        assert found.pieces.written[i + 1] == model.id_to_piece(i)
    assert found.special_ids.unk == 3
    assert found.languages.translates("de", "fr")
    assert not found.languages.translates("de", "de")


@pytest.fixture(scope="module")
def mbart(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, Imported]:
    folder = tmp_path_factory.mktemp("mbart") / "toy"
    theirs = write_mbart50(folder)
    return folder, theirs, read_mbart(folder, LanguageChoice(("de", "en"), ("en", "fr")))


def test_mbart_scores_as_its_own_library_does(mbart: tuple[Path, Any, Imported]) -> None:
    _, theirs, ours = mbart
    assert ours.languages.trained == (("de", "en"), ("de", "fr"), ("en", "fr"))
    tag = ours.pieces.written.index
    sources = [[tag("de_DE"), *range(9, 9 + length), 2] for length in (3, 12, 40)]
    sentences = [Sentence(ids, BEAMS, [tag("fr_XX")], start=2, ends=(2,)) for ids in sources]
    for ids, found in zip(sources, decode(TorchStepper(ours.model), sentences), strict=True):
        for hypothesis in found.hypotheses:
            given = torch.tensor([[2, *hypothesis.tokens]])
            with torch.no_grad():
                logits = theirs(input_ids=torch.tensor([ids]), decoder_input_ids=given).logits[0]
            labels = torch.tensor([*hypothesis.tokens, 2])[:, None]
            wanted = logits.log_softmax(-1).gather(1, labels)[:, 0].tolist()
            scores = hypothesis.token_scores
            np.testing.assert_allclose(scores, wanted[: len(scores)], atol=1e-4)


def test_mbart_becomes_a_bundle(mbart: tuple[Path, Any, Imported], tmp_path: Path) -> None:
    codes = LanguageChoice(("de",), ("en", "fr"))
    manifest = import_bundle(
        mbart[0], tmp_path / "mbart", Form("fp32"), declared=Declared(languages=codes)
    )
    assert manifest.parity["logits_max_difference"] < 1e-3
    translator = Translator(tmp_path / "mbart")
    together = translator.translate(TEXTS, BEAMS, source="de", target="fr")
    alone = [translator.translate(text, BEAMS, source="de", target="fr")[0] for text in TEXTS]
    assert together == alone
