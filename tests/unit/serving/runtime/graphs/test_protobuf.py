"""Messages of protocol buffers, field by field."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.runtime.graphs.protobuf import VARINT, fields, message, number, varints


@given(st.lists(st.integers(0, 2**64 - 1), max_size=20))
def test_numbers_are_read_as_they_were_written(numbers: list[int]) -> None:
    data = message(5, b"".join(map(number, numbers)))
    (packed,) = fields(data, 0, len(data))
    assert packed.number == 5
    assert varints(data, packed) == numbers


@given(st.lists(st.tuples(st.integers(1, 3000), st.binary(max_size=300)), max_size=9))
def test_fields_are_found_in_order(written: list[tuple[int, bytes]]) -> None:
    data = b"".join(message(field, content) for field, content in written)
    found = [(each.number, data[each.begin : each.end]) for each in fields(data, 0, len(data))]
    assert found == written
    keys = [each.key for each in fields(data, 0, len(data))]
    assert keys == sorted(keys)


def test_a_number_alone_is_a_field_of_its_own_kind() -> None:
    data = number(3 << 3 | VARINT) + number(300) + number(4 << 3 | 5) + b"abcd"
    alone, four = fields(data, 0, len(data))
    assert (alone.number, alone.begin, alone.end) == (3, 300, -1)
    assert varints(data, alone) == [300]
    assert data[four.begin : four.end] == b"abcd"


def test_numbers_of_eight_bytes_are_passed_over() -> None:
    data = number(3 << 3 | 1) + b"12345678" + message(4, b"next")
    eight, after = fields(data, 0, len(data))
    assert data[eight.begin : eight.end] == b"12345678"
    assert after.number == 4


def test_what_is_cut_off_is_refused() -> None:
    data = message(5, b"some words")
    with pytest.raises(ValueError, match="ends after the message"):
        list(fields(data[:-1], 0, len(data) - 1))
    data = number(3 << 3 | 5) + b"abc"
    with pytest.raises(ValueError, match="ends after the message"):
        list(fields(data, 0, len(data)))
    with pytest.raises(IndexError):
        list(fields(b"\xff\xff", 0, 2))
