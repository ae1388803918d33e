"""Marian's `.npz` and `.bin`, read as data."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from export.errors import ExportError
from export.importing.marian.file import MODEL_OPTIONS, is_model, read_mapping, read_model
from tests.toy.marian_files import Item, write_binary

TEXT = b"type: transformer\ndim-emb: 4\n\0"
OPTIONS = Item(MODEL_OPTIONS, 0x101, (len(TEXT),), TEXT)
MATRIX = np.arange(6, dtype=np.float32).reshape(2, 3) - 2


def floats(name: str, value: np.ndarray, code: int = 0x404, padding: int = 12) -> Item:
    return Item(name, code, value.shape, value.tobytes() + bytes(padding))


def integers(name: str, value: np.ndarray, code: int, multiplier: float) -> Item:
    return Item(name, code, MATRIX.shape, value.tobytes() + struct.pack("<f", multiplier))


@pytest.mark.parametrize(("code", "kind"), [(0x402, "f2"), (0x404, "f4"), (0x408, "f8")])
def test_floats_of_each_width_are_read_from_a_binary_file(
    code: int, kind: str, tmp_path: Path
) -> None:
    path = tmp_path / "model.bin"
    write_binary(path, [floats("W", MATRIX.astype(kind), code), OPTIONS])
    assert is_model(path)
    file = read_model(path)
    assert file.options.integer("dim-emb") == 4
    np.testing.assert_array_equal(file.weights.take("W", 2, 3).numpy(), MATRIX)


@pytest.mark.parametrize(("code", "kind"), [(0x4101, "i1"), (0x4102, "i2")])
def test_integers_are_divided_by_their_multiplier_and_products_turned(
    code: int, kind: str, tmp_path: Path
) -> None:
    path = tmp_path / "model.bin"
    product, table = MATRIX.T.astype(kind), MATRIX.astype(kind)
    items = [
        integers("l1_W", product, code, 4.0),
        floats("l1_W_QuantMultA", np.ones((1, 1), np.float32)),
        integers("Wemb", table, code, 2.0),
        OPTIONS,
    ]
    write_binary(path, items)
    weights = read_model(path).weights
    np.testing.assert_array_equal(weights.take("l1_W", 2, 3).numpy(), MATRIX / 4)
    np.testing.assert_array_equal(weights.take("Wemb", 2, 3).numpy(), MATRIX / 2)
    weights.finish()  # scales of inputs are none of it


def test_an_npz_has_the_same(tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    np.savez(path, **{"W": MATRIX, MODEL_OPTIONS: np.frombuffer(TEXT, np.int8)})
    assert is_model(path)
    file = read_model(path)
    assert file.options.integer("dim-emb") == 4
    np.testing.assert_array_equal(file.weights.take("W", 2, 3).numpy(), MATRIX)


@pytest.mark.parametrize(
    ("items", "words"),
    [
        ([floats("W", MATRIX)], "special:model.yml is missing, so it is not a model of Marian"),
        ([floats("W", MATRIX, 0x4201), OPTIONS], r"'W' has a type \(0x4201\) that is not"),
        ([integers("W", MATRIX.astype("i1"), 0x4101, 0.0), OPTIONS], "a multiplier > 0"),
        ([Item("W", 0x4101, (3,), bytes(3) + struct.pack("<f", 1.0)), OPTIONS], "must be a matrix"),
        ([Item(MODEL_OPTIONS, 0x101, (2,), b"[]")], "must be a mapping of options, got list"),
        ([Item(MODEL_OPTIONS, 0x101, (2,), b"{a")], "not valid YAML"),
    ],
)  # fmt: skip
def test_what_is_no_model_is_named(items: list[Item], words: str, tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    write_binary(path, items)
    with pytest.raises(ExportError, match=words):
        read_model(path)


@pytest.mark.parametrize("part", [0.05, 0.3, 0.6, 0.97])
def test_a_file_that_ends_early_is_cut_off(part: float, tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    write_binary(path, [floats("W", MATRIX, padding=0), OPTIONS])
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * part)])
    with pytest.raises(ExportError, match=r"model\.bin: cannot be read, it may be cut off"):
        read_model(path)


def test_other_versions_and_other_files_are_none(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    write_binary(path, [OPTIONS])
    path.write_bytes(struct.pack("<Q", 2) + path.read_bytes()[8:])
    assert not is_model(path)
    with pytest.raises(ExportError, match="its version is 2, 1 is supported"):
        read_model(path)
    other = tmp_path / "model.txt"
    other.write_bytes(struct.pack("<Q", 1))
    assert not is_model(other)
    assert not is_model(tmp_path / "nothing.bin")
    with pytest.raises(ExportError, match=r"nothing\.bin: cannot be read: No such file"):
        read_model(tmp_path / "nothing.bin")
    (tmp_path / "cut.npz").write_bytes(b"PK\3\4")
    with pytest.raises(ExportError, match=r"cut\.npz: cannot be read, it may be cut off"):
        read_model(tmp_path / "cut.npz")


def test_names_of_options_are_texts() -> None:
    assert read_mapping(Path("a.yml"), "no: 1\nb: [2]\n") == {"False": 1, "b": [2]}
