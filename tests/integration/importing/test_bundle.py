"""Checkpoints of `transformers`, imported: what their own library and CTranslate2 make of them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from starlette.testclient import TestClient

from export.bundles.subject import Form
from export.importing.bundle import import_bundle
from export.importing.hugging_face.marian import read_marian
from export.importing.model import AS_TOLD, Declared, Imported, LanguageChoice
from serving.search.options import SearchOptions
from serving.server.app import create_app
from serving.server.http.settings import Settings
from serving.server.models.bundles import load_bundles
from serving.server.models.registry import Registry
from serving.text.terms import Terms
from serving.translation.ticket import Request
from serving.translation.translator import Translator, Wishes
from tests.toy.checkpoints import write_opus, write_opus_apart
from tests.toy.corpus import toy_pairs

pytestmark = pytest.mark.usefixtures("traced_once", "one_thread", "short_sentences")

TEXTS = [source for source, _ in toy_pairs(14, seed=11)]
GREEDY = SearchOptions(beam_size=1, length_penalty=0.0, max_length=24, loop_guard=False)
BEAMS = SearchOptions(beam_size=4, num_hypotheses=4, max_length=24, loop_guard=False)


@dataclass(frozen=True)
class Opus:
    """A checkpoint, its model as its own library has it, and its bundles."""

    folder: Path
    theirs: Any
    imported: Imported
    fp32: Path
    int8: Path


@pytest.fixture(scope="module")
def opus(tmp_path_factory: pytest.TempPathFactory, traced_once: None) -> Opus:
    folder = tmp_path_factory.mktemp("opus")
    source = folder / "opus-mt-de-en"
    theirs = write_opus(source)
    for precision in ("fp32", "int8"):
        import_bundle(source, folder / precision / "opus", Form(precision))
    return Opus(
        source,
        theirs,
        read_marian(source, AS_TOLD),
        folder / "fp32" / "opus",
        folder / "int8" / "opus",
    )


def tokenizer_of(folder: Path) -> Any:
    from transformers import MarianTokenizer

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it recommends a package that it does not use here
        return MarianTokenizer.from_pretrained(folder)


def inputs_of(opus: Opus, texts: Sequence[str]) -> Any:
    return tokenizer_of(opus.folder)(list(texts), return_tensors="pt", padding=True)


def their_log_probs(opus: Opus, inputs: Any, outputs: Sequence[Sequence[int]]) -> list[list[float]]:
    """Of given outputs and their ends; padding has no share of the distribution."""
    ids, found = opus.imported.special_ids, []
    for row, output in enumerate(outputs):
        chosen = {name: value[row : row + 1] for name, value in inputs.items()}
        given = torch.tensor([[ids.bos, *output]])
        with torch.no_grad():
            logits = opus.theirs(**chosen, decoder_input_ids=given).logits[0]
        logits[:, ids.pad] = -torch.inf
        labels = torch.tensor([*output, ids.eos])
        found.append(logits.log_softmax(-1).gather(1, labels[:, None])[:, 0].tolist())
    return found


def ids_of(translator: Translator, tokens: Sequence[str]) -> list[int]:
    written = translator.texts.target.pieces(list(range(translator.texts.target.vocab_size)))
    return [written.index(token) for token in tokens]


def test_logits_are_those_of_its_own_library(opus: Opus) -> None:
    from training.decoding.stepper import TorchStepper

    ours, ids = opus.imported, opus.imported.special_ids
    inputs = inputs_of(opus, TEXTS)
    outputs = torch.randint(3, 78, (len(TEXTS), 9), generator=torch.Generator().manual_seed(1))
    starts = torch.full((len(TEXTS), 1), ids.bos)
    with torch.no_grad():
        wanted = opus.theirs(**inputs, decoder_input_ids=torch.cat([starts, outputs], 1)).logits
    stepper = TorchStepper(ours.model)
    state = stepper.encode([row[row != ids.pad].tolist() for row in inputs["input_ids"]])
    wanted[:, :, ids.pad] = -1e4
    scores = stepper.prefill(
        state, torch.cat([starts, outputs], 1).numpy(), torch.cat([outputs, starts], 1).numpy()
    ).scores_BP
    labels = torch.cat([outputs, starts], 1)[..., None]
    theirs = wanted.log_softmax(-1).gather(2, labels)[..., 0].numpy()
    np.testing.assert_allclose(scores[:, :-1], theirs[:, :-1], atol=1e-4)
    assert (scores[:, -1] < -1e3).all()  # padding is never written


def test_texts_have_the_ids_of_its_own_tokenizer(opus: Opus) -> None:
    tokenizer, texts = tokenizer_of(opus.folder), Translator(opus.fp32).texts
    for text in [*TEXTS, "Zürich, 3 % ≠ 漢字!", "a  b", "…"]:
        assert texts.encode_source(text) == tokenizer(text)["input_ids"]
        assert texts.encode_target(text, "q") == tokenizer(text_target=text)["input_ids"][:-1]


def test_greedy_outputs_are_those_of_its_own_library(opus: Opus) -> None:
    inputs, ids = inputs_of(opus, TEXTS), opus.imported.special_ids
    wanted = opus.theirs.generate(
        **inputs, num_beams=1, do_sample=False, max_new_tokens=24, bad_words_ids=[[ids.pad]],
        forced_eos_token_id=None,
    )  # fmt: skip
    translator = Translator(opus.fp32)
    found = translator.translate_sentences(TEXTS, GREEDY)
    for row, result in zip(wanted.tolist(), found, strict=True):
        output = [i for i in row if i not in (ids.pad, ids.eos)]
        assert ids_of(translator, result.hypotheses[0].tokens) == output
    assert any(result.hypotheses[0].finished for result in found)


def test_scores_are_those_of_its_own_library(opus: Opus) -> None:
    inputs, translator = inputs_of(opus, TEXTS), Translator(opus.fp32)
    for rank in (0, 3):
        found = [r.hypotheses[rank] for r in translator.translate_sentences(TEXTS, BEAMS)]
        outputs = [ids_of(translator, each.tokens) for each in found]
        for each, wanted in zip(found, their_log_probs(opus, inputs, outputs), strict=True):
            np.testing.assert_allclose(
                each.token_scores, wanted[: len(each.token_scores)], atol=1e-4
            )


def test_ctranslate2_makes_the_same_of_it(opus: Opus, tmp_path: Path) -> None:
    ctranslate2 = pytest.importorskip("ctranslate2")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        converter = ctranslate2.converters.TransformersConverter(str(opus.folder))
        converter.convert(str(tmp_path / "ct2"))
    tokenizer, translator = tokenizer_of(opus.folder), Translator(opus.fp32)
    peer = ctranslate2.Translator(str(tmp_path / "ct2"), device="cpu", intra_threads=1)
    tokens = [tokenizer.convert_ids_to_tokens(tokenizer(text)["input_ids"]) for text in TEXTS]
    wanted = peer.translate_batch(
        tokens,
        beam_size=4,
        num_hypotheses=4,
        max_decoding_length=24,
        min_decoding_length=0,
        return_scores=True,
    )
    for result, theirs in zip(translator.translate_sentences(TEXTS, BEAMS), wanted, strict=True):
        for ours, output, score in zip(
            result.hypotheses, theirs.hypotheses, theirs.scores, strict=True
        ):
            assert ours.score == pytest.approx(score, abs=1e-4)
            assert list(ours.tokens) == output


def test_int8_is_the_same_to_the_bit_in_any_batch(opus: Opus) -> None:
    translator = Translator(opus.int8)
    together = translator.translate(TEXTS, BEAMS)
    alone = [translator.translate(text, BEAMS)[0] for text in TEXTS]
    assert together == alone
    assert len({result.text for result in together}) > 5


def test_terms_and_alignments(opus: Opus) -> None:
    translator = Translator(opus.int8)
    for text in TEXTS[:4]:
        (plain,) = translator.translate(text, BEAMS, wishes=Wishes(alignments=True))
        best = plain.hypotheses[0]
        assert best.alignment is not None
        for link in best.alignment:
            assert text[slice(*link.source)].strip() == text[slice(*link.source)]
            assert best.text[slice(*link.target)].strip()
        (held,) = translator.translate(
            text, BEAMS, wishes=Wishes(terms=Terms(required=("garden",)))
        )
        assert "garden" in held.text
        (without,) = translator.translate(
            text, BEAMS, wishes=Wishes(terms=Terms(forbidden=("garden", "old")))
        )
        assert not {"garden", "old"} & set(without.text.split())
        (begun,) = translator.translate(text, BEAMS, wishes=Wishes(target_prefix="The old"))
        assert begun.text.startswith("The old")


def test_pieces_that_only_the_source_has_are_written_as_words(opus: Opus) -> None:
    texts = Translator(opus.fp32).texts
    ids = [texts.encode_source("die Katze")[1], *texts.encode_target("the old", "q")]
    for order in (ids, ids[::-1]):
        text, spans = texts.target.decode(order), texts.target.decoded_spans(order)
        assert "\u2581" not in text
        assert text == text.strip()
        assert "".join(text[slice(*span)] for span in spans) == text


@pytest.fixture(scope="module")
def tagged(tmp_path_factory: pytest.TempPathFactory, traced_once: None) -> tuple[Path, Path]:
    """A checkpoint of one source and two target languages, and a folder with its bundle."""
    folder = tmp_path_factory.mktemp("tagged")
    write_opus(folder / "opus-mt-de-mul", tags=("eng", "fra", "pt_br"))
    import_bundle(
        folder / "opus-mt-de-mul",
        folder / "bundles" / "many",
        Form("int8"),
        declared=Declared(languages=LanguageChoice(target=("fr", "en"))),
    )
    return folder / "opus-mt-de-mul", folder / "bundles"


@pytest.fixture(scope="module")
def client(tagged: tuple[Path, Path]) -> Iterator[TestClient]:
    settings = Settings(bundles=tagged[1], threads=1, decode_in="threads")
    registry = Registry(settings)
    registry.start(load_bundles(settings))
    with TestClient(create_app(registry, settings)) as client:
        yield client
    registry.close()


def test_a_tag_chooses_the_target_language(tagged: tuple[Path, Path], client: TestClient) -> None:
    translator = Translator(tagged[1] / "many")
    tokenizer = tokenizer_of(tagged[0])
    for target, tag in (("fr", ">>fra<<"), ("en", ">>eng<<")):
        sentence = translator.texts.prepare(Request(text=TEXTS[0], options=BEAMS, target=target))
        assert sentence is not None
        assert sentence.source == tokenizer(tag + TEXTS[0])["input_ids"]
        (wanted,) = translator.translate(TEXTS[0], source="de", target=target)
        body = {"q": TEXTS[0], "source": "de", "target": target}
        assert client.post("/translate", json=body).json()["translatedText"] == wanted.text
    (listed,) = [each for each in client.get("/languages").json() if each["targets"]]
    assert (listed["code"], sorted(listed["targets"])) == ("de", ["en", "fr"])
    assert "cc-by-4.0" in listed["models"][0]["attribution"]


APART: dict[str, dict[str, Any]] = {
    "as they are published": {"sizes": (78, 80), "tags": ("eng", "fra")},
    "of two sizes": {"sizes": (78, 84), "tie_word_embeddings": False},
}


@pytest.fixture(scope="module", params=APART)
def apart(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, traced_once: None
) -> Opus:
    """A checkpoint whose sides have vocabularies and embeddings of their own."""
    source = tmp_path_factory.mktemp("apart") / "opus-mt-de-en"
    theirs = write_opus_apart(source, **APART[request.param])
    fp32 = source.parent / "fp32" / "opus"
    import_bundle(source, fp32, Form("fp32"))
    return Opus(source, theirs, read_marian(source, AS_TOLD), fp32, fp32)


def test_logits_of_sides_that_share_nothing(apart: Opus) -> None:
    test_logits_are_those_of_its_own_library(apart)


def test_beams_of_sides_that_share_nothing(apart: Opus) -> None:
    translator, tokenizer = Translator(apart.fp32), tokenizer_of(apart.folder)
    languages, ids = apart.imported.languages, apart.imported.special_ids
    assert translator.manifest.tokenizer.source_vocabulary_file == "source.vocabulary.json"
    assert languages.target == (("en", "fr") if languages.tags else ("en",))
    apart.theirs.final_logits_bias[0, ids.pad] = -1e4  # as here, it has no share of anything
    options, outputs = replace(BEAMS, length_penalty=1.0, eos_in_length=True), set()
    for target in languages.target:
        texts = [languages.tags.get(target, "") + text for text in TEXTS]
        for text, wanted in zip(TEXTS, tokenizer(texts)["input_ids"], strict=True):
            assert translator.texts.encode_source(text, target=target) == wanted
        found = translator.translate_sentences(TEXTS, options, target=target)
        theirs = apart.theirs.generate(
            **inputs_of(apart, texts), num_beams=4, num_return_sequences=4, early_stopping=True,
            do_sample=False, length_penalty=1.0, max_new_tokens=24, forced_eos_token_id=None,
            bad_words_ids=[[ids.pad]],
        )  # fmt: skip
        rows = iter(theirs.tolist())
        for hypothesis in (each for result in found for each in result.hypotheses):
            output = [i for i in next(rows) if i not in (ids.pad, ids.eos)]
            assert ids_of(translator, hypothesis.tokens) == output
            outputs.add((target, *output))
    assert len(outputs) > 20 * len(languages.target)
    english = [target for _, target in toy_pairs(14, seed=11)]
    for text, wanted in zip(english, tokenizer(text_target=english)["input_ids"], strict=True):
        assert translator.texts.encode_target(text, "q") == wanted[:-1]
