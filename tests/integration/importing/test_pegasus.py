"""Pegasus, imported: what its own library makes of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import sentencepiece
import torch

from export.bundles.subject import Form
from export.errors import ExportError
from export.importing.bundle import import_bundle, recognise
from export.importing.model import Declared
from serving.search.beams.beam import decode
from serving.search.beams.sentence import Sentence
from serving.search.options import SearchOptions
from serving.translation.translator import Translator
from tests.toy.checkpoints import write_pegasus
from tests.toy.corpus import toy_pairs
from training.decoding.stepper import TorchStepper

pytestmark = pytest.mark.usefixtures("traced_once", "one_thread", "short_sentences")

TEXTS = [source for source, _ in toy_pairs(6, seed=11)]
BEAMS = SearchOptions(beam_size=4, num_hypotheses=4, max_length=20, loop_guard=False)


def test_it_scores_as_its_own_library_does_and_becomes_a_bundle(tmp_path: Path) -> None:
    theirs = write_pegasus(tmp_path / "pegasus")
    ours = recognise(tmp_path / "pegasus").read(tmp_path / "pegasus", Declared())
    model = sentencepiece.SentencePieceProcessor(
        model_file=str(tmp_path / "pegasus" / "spiece.model")
    )
    sources = [[*(i + 103 for i in model.encode(text)), 1] for text in TEXTS]
    sentences = [Sentence(ids, BEAMS, start=0, ends=(1,)) for ids in sources]
    for ids, found in zip(sources, decode(TorchStepper(ours.model), sentences), strict=True):
        for hypothesis in found.hypotheses:
            given = torch.tensor([[0, *hypothesis.tokens]])
            with torch.no_grad():
                logits = theirs(input_ids=torch.tensor([ids]), decoder_input_ids=given).logits[0]
            labels = torch.tensor([*hypothesis.tokens, 1])[:, None]
            wanted = logits.log_softmax(-1).gather(1, labels)[:, 0].tolist()
            scores = hypothesis.token_scores
            np.testing.assert_allclose(scores, wanted[: len(scores)], atol=1e-4)
    manifest = import_bundle(tmp_path / "pegasus", tmp_path / "bundle", Form("fp32"))
    assert (manifest.languages.source, manifest.languages.target) == (("en",), ("en",))
    translator = Translator(tmp_path / "bundle")
    assert [translator.texts.encode_source(text) for text in TEXTS] == sources
    found = decode(TorchStepper(ours.model), sentences)
    for result, wanted in zip(translator.translate_sentences(TEXTS, BEAMS), found, strict=True):
        tokens = wanted.hypotheses[0].tokens
        assert list(result.hypotheses[0].tokens) == [ours.pieces.written[i] for i in tokens]


def test_what_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "pegasus"
    write_pegasus(folder, vocab_size=240)
    with pytest.raises(
        ExportError, match=r"spiece.model: with special pieces there are 233, .*240"
    ):
        recognise(folder).read(folder, Declared())
    (folder / "tokenizer_config.json").write_text('{"offset": 0}')
    with pytest.raises(ExportError, match="offset must be 103, got 0"):
        recognise(folder).read(folder, Declared())
