"""Inputs of pre-training: shares of what is masked, parts that follow, and cuts."""

from __future__ import annotations

import numpy as np
import pytest

from training.batches.masking import LEAST_PART, DocumentCorpus, MaskedText
from training.vocabularies.word_pieces import CLS_ID, MASK_ID, SEP_ID, SPECIAL

VOCAB = 1000


def documents(count: int = 40, seed: int = 0) -> list[list[list[int]]]:
    """Lines of ids, of which none stands twice in the text."""
    random = np.random.default_rng(seed)
    ids = iter(range(VOCAB, 10**6))
    return [
        [[next(ids) for _ in range(random.integers(3, 30))] for _ in range(random.integers(2, 12))]
        for _ in range(count)
    ]


def corpus(texts: list[list[list[int]]], *, pairs: bool = True, seed: int = 1) -> DocumentCorpus:
    return DocumentCorpus(
        texts, vocab_size=VOCAB, max_length=48, mask_share=0.15, next_sentence=pairs, seed=seed
    )


def unmasked(text: MaskedText) -> list[int]:
    ids = text.ids.copy()
    ids[text.places] = text.labels
    return [int(id_) for id_ in ids]


def split(text: MaskedText) -> list[list[int]]:
    """The parts of an input, without special ids, by a loop."""
    parts: list[list[int]] = []
    for id_, segment in zip(unmasked(text)[1:], text.segments[1:], strict=True):
        if id_ != SEP_ID:
            while len(parts) <= segment:
                parts.append([])
            parts[segment].append(id_)
    return parts


def test_shares_of_masked_changed_and_kept_ids_are_berts() -> None:
    texts = corpus(documents(400)).epoch(0)
    for text in texts:
        assert len(text.places) == max(1, round(0.15 * sum(map(len, split(text)))))
        assert len(set(text.places)) == len(text.places)
        assert not set(text.labels) & {CLS_ID, SEP_ID}
    shown = np.concatenate([text.ids[text.places] for text in texts])
    labels = np.concatenate([text.labels for text in texts])
    count = len(labels)
    assert count > 5000
    for share, found in (
        (0.8, shown == MASK_ID),
        (0.1, shown == labels),
        (0.1, (shown < VOCAB) & (shown >= len(SPECIAL))),  # no id of the text is below VOCAB
    ):
        assert found.mean() == pytest.approx(share, abs=4 * (share * (1 - share) / count) ** 0.5)
    assert ((shown == MASK_ID) | (shown == labels) | (shown >= len(SPECIAL))).all()


def test_what_is_not_masked_stays() -> None:
    texts = documents()
    known = {id_ for document in texts for line in document for id_ in line}
    for text in corpus(texts).epoch(3):
        assert set(unmasked(text)) <= known | {CLS_ID, SEP_ID}


def test_second_parts_follow_or_are_of_another_document_and_the_label_says_which() -> None:
    texts = documents(300)
    streams = [[id_ for line in document for id_ in line] for document in texts]
    place = {id_: (d, n) for d, stream in enumerate(streams) for n, id_ in enumerate(stream)}
    starts = {line[0] for document in texts for line in document}
    found = corpus(texts).epoch(0)
    for text in found:
        first, second = split(text)
        assert min(len(first), len(second)) >= 1
        assert len(first) >= LEAST_PART
        assert len(text.ids) <= 48
        (document, end), (other, start) = place[first[-1]], place[second[0]]
        assert streams[document][end - len(first) + 1 : end + 1] == first
        assert streams[other][start : start + len(second)] == second
        assert text.follows == ((document, end + 1) == (other, start))
        assert text.follows or (document != other and second[0] in starts)
    shares = np.mean([text.follows for text in found])
    assert shares == pytest.approx(0.5, abs=2 / len(found) ** 0.5)
    cuts_at_lines = np.mean([split(text)[1][0] in starts for text in found])
    assert cuts_at_lines > 0.9


def test_special_ids_and_segments_are_laid_out_as_in_bert() -> None:
    for text in corpus(documents(5)).epoch(0):
        first, second = split(text)
        assert unmasked(text) == [CLS_ID, *first, SEP_ID, *second, SEP_ID]
        assert text.segments.tolist() == [0] * (len(first) + 2) + [1] * (len(second) + 1)


def test_without_pairs_an_epoch_holds_each_document_once() -> None:
    texts = documents()
    found = corpus(texts, pairs=False).epoch(2)
    assert all(text.follows is None and not text.segments.any() for text in found)
    seen = [id_ for text in found for id_ in unmasked(text)[1:-1]]
    assert len(seen) == len(set(seen))
    everything = sum(len(line) for document in texts for line in document)
    assert everything - len(seen) < LEAST_PART * len(texts)  # ends that are too short


def test_an_epoch_is_the_same_whenever_asked_for_and_unlike_the_next() -> None:
    texts = documents()
    again = [[unmasked(t) for t in corpus(texts).epoch(epoch)] for epoch in (0, 0, 1)]
    assert again[0] == again[1] != again[2]
    masks = [[t.places.tolist() for t in corpus(texts).epoch(0)] for _ in range(2)]
    assert masks[0] == masks[1]
    assert [unmasked(t) for t in corpus(texts, seed=2).epoch(0)] != again[0]
    assert corpus(texts).digest == corpus(texts, seed=2).digest != corpus(texts[1:]).digest
