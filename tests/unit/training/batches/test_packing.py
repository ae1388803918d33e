"""Packed texts, against loops over their ids."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from training.batches.packing import pack_texts

texts = st.lists(st.lists(st.integers(1, 99), min_size=1, max_size=7), min_size=1, max_size=6)


@given(texts)
def test_every_id_has_its_place_in_the_row_and_in_its_text(ids: list[list[int]]) -> None:
    segments = [[place % 2 for place in range(len(text))] for text in ids]
    packed = pack_texts(ids, segments)
    token_ids_1M, segment_ids_1M, packing = packed.inputs
    assert token_ids_1M.tolist() == [[id_ for text in ids for id_ in text]]
    assert segment_ids_1M.tolist() == [[segment for text in segments for segment in text]]
    assert packing.positions_1M.tolist() == [[place for text in ids for place in range(len(text))]]
    width = max(map(len, ids))
    assert packing.slots_BS.shape == packing.mask_BS.shape == (len(ids), width)
    before, rows = 0, []
    for row, text in enumerate(ids):
        assert int(packed.firsts_B[row]) == before
        for place in range(width):
            real = place < len(text)
            slot = int(packing.slots_BS[row, place])
            assert slot == before + min(place, len(text) - 1)
            assert float(packing.mask_BS[row, place]) == (0.0 if real else -np.inf)
            if real:
                assert int(token_ids_1M[0, slot]) == text[place]
                rows.append(row * width + place)
        before += len(text)
    assert packing.rows_M.tolist() == rows


def test_arrays_are_packed_as_lists_are_and_moved_whole() -> None:
    ids = [[5, 9], [7]]
    listed, arrays = (
        pack_texts(each, [[0] * len(text) for text in ids])
        for each in (ids, [np.array(text, np.int32) for text in ids])
    )
    moved = arrays.to(torch.device("cpu"))
    for found in (arrays, moved):
        assert found.token_ids_1M.equal(listed.token_ids_1M)
        assert found.packing.mask_BS.equal(listed.packing.mask_BS)
        assert found.packing.rows_M.equal(listed.packing.rows_M)
        assert found.token_ids_1M.dtype == torch.int64
