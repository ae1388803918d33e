"""CTranslate2's file, read as data."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from export.errors import ExportError
from export.importing.toolkits.ctranslate2_file import is_spec_file, read_spec_file
from tests.unit.export.importing.toolkits.spec_files import write_spec

MATRIX = np.array([[1, 2, 3], [4, 5, 6]], np.float32)


def test_floats_and_options_are_read_by_name(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    write_spec(path, {"a": MATRIX, "b": MATRIX.astype(np.float16), "heads": np.array(8, np.int8)})
    assert is_spec_file(path)
    found = read_spec_file(path)
    assert found.spec == "TransformerSpec"
    assert found.options == {"heads": 8.0}
    for name in "ab":
        np.testing.assert_array_equal(found.tensors[name].numpy(), MATRIX)


def test_integers_are_divided_by_the_scale_of_their_row_or_by_one(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    levels = MATRIX.astype(np.int8)
    by_row = np.array([2, 4], np.float32)
    variables = {
        "a": levels,
        "a_scale": by_row,
        "b": MATRIX.astype(np.int16),
        "b_scale": np.array(8, np.float32),
    }
    write_spec(path, variables, {"same": "a", "same_scale": "a_scale"})
    found = read_spec_file(path).tensors
    assert found.keys() == {"a", "b", "same"}
    np.testing.assert_array_equal(found["a"].numpy(), MATRIX / by_row[:, None])
    np.testing.assert_array_equal(found["b"].numpy(), MATRIX / 8)
    np.testing.assert_array_equal(found["same"].numpy(), found["a"].numpy())


@pytest.mark.parametrize(
    ("variables", "aliases", "words"),
    [
        ({"a": MATRIX.astype(np.int8)}, {}, "'a' has integers and no 'a_scale'"),
        (
            {"a": MATRIX.astype(np.int8), "a_scale": np.ones(3, np.float32)},
            {},
            r"'a_scale' must have a number for each of the 2 rows of 'a', got \[3\]",
        ),
        ({"a": MATRIX}, {"b": "c"}, "'b' stands for 'c', which is missing"),
        ({"a": np.ones([1] * 9, np.float32)}, {}, "'a' has 9 axes; the file is damaged"),
    ],
)
def test_what_does_not_fit_is_named(
    tmp_path: Path, variables: dict[str, np.ndarray], aliases: dict[str, str], words: str
) -> None:
    write_spec(tmp_path / "model.bin", variables, aliases)
    with pytest.raises(ExportError, match=words):
        read_spec_file(tmp_path / "model.bin")


def test_a_type_or_a_size_that_is_none_is_named(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    write_spec(path, {"a": MATRIX})
    content = path.read_bytes()
    place = content.index(struct.pack("<BI", 0, 24))
    for edit, words in (
        (struct.pack("<BI", 9, 24), "'a' has the type 9, which is not known"),
        (struct.pack("<BI", 0, 20), r"'a' has 20 bytes where its shape \[2, 3\] needs 24"),
    ):
        path.write_bytes(content[:place] + edit + content[place + 5 :])
        with pytest.raises(ExportError, match=words):
            read_spec_file(path)


@pytest.mark.parametrize("version", [3, 7])
def test_other_versions_are_refused(tmp_path: Path, version: int) -> None:
    write_spec(tmp_path / "model.bin", {"a": MATRIX}, version=version)
    with pytest.raises(ExportError, match=rf"binary version {version} is not supported, .* 4 to 6"):
        read_spec_file(tmp_path / "model.bin")


def test_a_file_that_ends_early_says_where(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    write_spec(path, {"matrix": MATRIX}, {"b": "matrix"})
    content = path.read_bytes()
    for size in range(len(content)):
        path.write_bytes(content[:size])
        with pytest.raises(ExportError, match=r"ends within .*; the file is cut off"):
            read_spec_file(path)


def test_other_files_are_none(tmp_path: Path) -> None:
    assert not is_spec_file(tmp_path)
    path = tmp_path / "model.bin"
    with pytest.raises(ExportError, match=r"model\.bin: cannot be read: No such file"):
        read_spec_file(path)
    path.write_bytes(struct.pack("<QQ", 1, 5))
    assert not is_spec_file(path)
    path.write_bytes(struct.pack("<IH", 6, 3) + b"\xff\xff\0")
    with pytest.raises(
        ExportError, match=r"the specification is not a text; is this a model\.bin\?"
    ):
        read_spec_file(path)
