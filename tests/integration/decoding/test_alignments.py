"""Word links of the demo bundles, against links by hand."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from serving.search.beams.beam import decode
from serving.search.beams.sentence import Sentence
from serving.search.options import SearchOptions
from serving.text.alignment import word_spans
from serving.translation.ticket import Request
from serving.translation.translator import Translator, Wishes

MODELS = Path(__file__).resolve().parents[3] / "models"
GREEDY = SearchOptions(beam_size=1, loop_guard=False)
Links = set[tuple[int, int]]


def pairs_by_hand() -> list[tuple[str, str, Links, Links]]:
    """Source, target, sure links, and possible ones, which hold the sure ones."""
    pairs = []
    for line in Path(__file__).with_name("alignments_de_en.txt").read_text("utf-8").splitlines():
        if line.startswith("#"):
            continue
        source, target, marks = line.split("\t")
        links = {
            mark: (int(mark.split("-")[0]), int(mark.rstrip("?").split("-")[1]))
            for mark in marks.split()
        }
        sure = {link for mark, link in links.items() if not mark.endswith("?")}
        texts = [re.sub(r" ([.,?])", r"\1", side) for side in (source, target)]
        for text, words in zip(texts, (source, target), strict=True):
            assert [text[begin:end] for begin, end in word_spans(text)] == words.split()
        pairs.append((texts[0], texts[1], sure, set(links.values())))
    return pairs


@pytest.mark.parametrize(("name", "limit"), [("macaron-de-en", 0.08), ("joint-fast-de-en", 0.30)])
def test_alignment_error_rate(name: str, limit: float) -> None:
    """Of given translations (Och & Ney 2003)."""
    translator = Translator(MODELS / name, threads=1)
    found = sure = found_sure = found_possible = 0
    for source, target, sure_links, possible_links in pairs_by_hand():
        (result,) = translator.translate_sentences(
            source, GREEDY, wishes=Wishes(target_prefix=target, alignments=True)
        )
        hypothesis = result.hypotheses[0]
        assert hypothesis.text.startswith(target)
        assert hypothesis.alignment is not None
        starts = [begin for begin, _ in word_spans(source)], [b for b, _ in word_spans(target)]
        links = {
            (starts[0].index(link.source[0]), starts[1].index(link.target[0]))
            for link in hypothesis.alignment
            if link.target[1] <= len(target)
        }
        found, sure = found + len(links), sure + len(sure_links)
        found_sure += len(links & sure_links)
        found_possible += len(links & possible_links)
    rate = 1 - (found_sure + found_possible) / (found + sure)
    print(f"{name}: {rate:.3f} of {found} links, {sure} sure ones")
    assert rate <= limit


@pytest.mark.parametrize("name", ["macaron-de-en", "joint-fast-de-en"])
def test_attention_is_the_same_in_any_company_and_changes_nothing(name: str) -> None:
    translator = Translator(MODELS / name, threads=1)
    options = SearchOptions(beam_size=4, num_hypotheses=4, max_length=14, loop_guard=False)
    long = " ".join(pair[0] for pair in pairs_by_hand()[:30])
    texts = [*(pair[0] for pair in pairs_by_hand()[:3]), long]
    prefixes = ["", "The", "I have no", ""]
    wanted = [
        translator.texts.prepare(
            Request(text=text, options=options, target_prefix=prefix, alignments=True)
        )
        for text, prefix in zip(texts, prefixes, strict=True)
    ]
    stepper = translator.steppers.whole
    sentences = [sentence for sentence in wanted if sentence is not None]
    assert max(len(sentence.source) for sentence in sentences) > 128
    together = decode(stepper, sentences)
    for sentence, found in zip(sentences, together, strict=True):
        plain = Sentence(sentence.source, options, sentence.target_prefix)
        assert decode(stepper, [plain])[0].hypotheses == found.hypotheses
        (alone,) = decode(stepper, [sentence])
        for first, second in zip(alone.hypotheses, found.hypotheses, strict=True):
            assert first.attention_TS is not None
            assert second.attention_TS is not None
            np.testing.assert_array_equal(first.attention_TS, second.attention_TS)
            np.testing.assert_allclose(first.attention_TS.sum(axis=1), 1.0, atol=1e-4)
