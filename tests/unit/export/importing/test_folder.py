"""Options, tensors and files of a folder, and what is said where one is wrong."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from export.errors import ExportError
from export.importing.folder import (
    MOST,
    Options,
    Weights,
    checkpoint_file,
    find_pair,
    has_checkpoint_file,
    has_config,
    read_json,
    read_objects,
    read_pickled,
    read_weights,
)

PATH = Path("config.json")
MATRIX = torch.arange(6.0).reshape(2, 3)


def options(**tree: Any) -> Options:
    return Options(PATH, tree)


def weights(**tensors: Tensor) -> Weights:
    return Weights(Path("model.bin"), tensors)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot be read"),
        ("{", "not valid JSON"),
        ("[1]", "must be a JSON object, got list"),
        ("[" * 100_000, "not valid JSON"),
    ],
)
def test_what_is_no_json_object_is_refused(content: str | None, words: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ExportError, match=f"{re.escape(str(path))}: {words}"):
        read_json(path)


def test_objects_are_a_list_of_them(tmp_path: Path) -> None:
    path = tmp_path / "modules.json"
    path.write_text('[{"a": 1}, {}]')
    assert read_objects(path) == [{"a": 1}, {}]
    for wrong in ('{"a": 1}', '[{"a": 1}, 2]'):
        path.write_text(wrong)
        with pytest.raises(ExportError, match="must be a list of JSON objects"):
            read_objects(path)


def test_options_that_are_null_have_their_default() -> None:
    found = options(a=None, b=0)
    assert (found.get("a", 5), found.get("b", 5), found.get("c", 5)) == (5, 0, 5)


@pytest.mark.parametrize("value", [-1, 1.0, "8", True, None, [3]])
def test_what_is_no_integer_from_0_on_is_refused(value: object) -> None:
    with pytest.raises(ExportError, match=r"config\.json: size must be an integer >= 0, got"):
        options(size=value).integer("size")


@pytest.mark.parametrize("value", [0, 1, MOST])
def test_integers_from_0_on_are_taken(value: int) -> None:
    assert options(size=value).integer("size") == value


@pytest.mark.parametrize("value", [MOST + 1, 10**400])
def test_a_size_that_no_model_has_is_refused(value: int) -> None:
    with pytest.raises(ExportError, match=f"size must be an integer from 0 to {MOST}, got 1"):
        options(size=value).integer("size")


def test_an_integer_has_a_default_and_bounds_of_its_own() -> None:
    found = options(a=None, b=3)
    assert [found.integer(name, 7) for name in "abc"] == [7, 3, 7]
    assert [found.integer_or_none(name, 7) for name in "abc"] == [None, 3, 7]
    with pytest.raises(ExportError, match="b must be an integer >= 4, got 3"):
        found.integer("b", least=4)
    with pytest.raises(ExportError, match="b must be an integer from 0 to 2, got 3"):
        found.integer_or_none("b", None, most=2)


def test_numbers_are_finite_and_flags_are_flags() -> None:
    found = options(a=None, b=2, c=0.5, d=True)
    assert [found.number(name, 7.0) for name in "abce"] == [7.0, 2.0, 0.5, 7.0]
    assert [found.flag(name, False) for name in "ade"] == [False, True, False]
    with pytest.raises(ExportError, match=r"config\.json: c must be a finite number > 1, got 0\.5"):
        found.number("c", above=1.0)
    for value in ("2", [], True, {}, math.nan, math.inf, -math.inf, 10**400):
        with pytest.raises(ExportError, match=r"config\.json: x must be a finite number, got"):
            options(x=value).number("x", 1.0)
    for value in ("true", 1, [], {}, 0.0):
        with pytest.raises(ExportError, match=r"config\.json: x must be true or false, got"):
            options(x=value).flag("x", False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_a_tensor_that_is_not_finite_is_named(dtype: torch.dtype, wrong: float) -> None:
    tensors = {"good": torch.ones(2, 3, dtype=dtype), "empty": torch.ones(0, 3, dtype=dtype)}
    tensors["bad"] = torch.tensor([[1.0, wrong], [wrong, -2.0]], dtype=dtype)
    weights = Weights(Path("model.safetensors"), tensors)
    assert weights.take("good", 2, 3).dtype == torch.float32
    assert weights.take("empty", 0, 3).shape == (0, 3)
    said = r"model\.safetensors: 'bad' must hold finite numbers, but 2 of 4 are NaN or infinite"
    with pytest.raises(ExportError, match=said):
        weights.take("bad", 2, 2)


def test_what_is_needed_has_its_type() -> None:
    assert options(a=[1]).need("a", list) == [1]
    with pytest.raises(ExportError, match="a must be of the type int, got bool"):
        options(a=True).need("a", int)
    with pytest.raises(ExportError, match="b must be of the type int, got nothing"):
        options().need("b", int)


def test_sides_of_one_size_and_values_that_are_supported() -> None:
    assert options(a=4, b=4).equal("a", "b") == 4
    with pytest.raises(ExportError, match=r"a and b must be equal, got \[4, 5\]"):
        options(a=4, b=5).equal("a", "b")
    assert options(kind="x").must("kind", "x", "y") == "x"
    assert options().must("kind", "x", default="x") == "x"
    with pytest.raises(ExportError, match="kind 'z' is not supported; it must be 'x' or 'y'"):
        options(kind="z").must("kind", "x", "y")
    options(a=True).must_be(True, "a", "b")
    with pytest.raises(ExportError, match="b False is not supported"):
        options(a=True, b=False).must_be(True, "a", "b")


def test_an_option_that_nobody_asked_for_is_refused() -> None:
    found = options(known=1, harmless=2, _private=3)
    found.get("known")
    found.finish(["harmless"])
    more = options(known=1, rotary=True)
    more.get("known")
    with pytest.raises(ExportError, match=r"'rotary' \(True\) is not known; supported: kn"):
        more.finish(["harmless"])


def test_a_pair_is_in_the_first_folder_that_has_it(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
    pair, shared = ("source.spm", "target.spm"), ("spm.model", "spiece.model")
    assert find_pair([first, second], pair, shared) is None
    (first / "source.spm").touch()  # half a pair is none
    (second / "spiece.model").touch()
    both = (second / "spiece.model", second / "spiece.model")
    assert find_pair([first, second], pair, shared) == both
    (first / "target.spm").touch()
    assert find_pair([first, second], pair, shared) == (first / "source.spm", first / "target.spm")


def test_a_tensor_is_taken_once_in_floats_of_32_bits() -> None:
    found = weights(a=MATRIX.half())
    assert "a" in found
    assert found.shape("a") == (2, 3)
    taken = found.take("a", 2, 3)
    assert taken.dtype == torch.float32
    assert torch.equal(taken, MATRIX)
    with pytest.raises(ExportError, match=r"model\.bin: the tensor 'a' is missing"):
        found.take("a", 2, 3)


def test_a_tensor_of_another_form_is_refused() -> None:
    with pytest.raises(ExportError, match=r"'a' must be \[3, 2\] by config\.json, got \[2, 3\]"):
        weights(a=MATRIX).take("a", 3, 2)
    with pytest.raises(ExportError, match=r"'a' must hold floats, got torch\.int64"):
        weights(a=MATRIX.long()).take("a", 2, 3)
    told = Weights(Path("m"), {"a": MATRIX}, "its header")
    with pytest.raises(ExportError, match="by its header"):
        told.take("a", 1)


def test_names_of_one_matrix_stand_for_the_same() -> None:
    names = ["a", "b", "c"]
    assert torch.equal(weights(b=MATRIX, c=MATRIX).take_one(names, 2, 3), MATRIX)
    with pytest.raises(ExportError, match=r"'c' differs from 'b'; by config\.json they share one"):
        weights(b=MATRIX, c=MATRIX + 1).take_one(names, 2, 3)
    with pytest.raises(ExportError, match="the tensor 'a' is missing"):
        weights().take_one(names, 2, 3)
    assert weights(a=MATRIX, b=MATRIX.clone()).same("a", "b")
    assert not weights(a=MATRIX).same("a", "b")
    assert not weights(a=MATRIX, b=MATRIX + 1).same("a", "b")


def test_a_tensor_that_nothing_has_taken_is_refused() -> None:
    found = weights(a=MATRIX, b=MATRIX)
    assert found.drop("a") is MATRIX
    assert found.drop("a") is None
    with pytest.raises(ExportError, match=r"the layer 'b' \[2, 3\] is not known to this family"):
        found.finish()
    found.take("b", 2, 3)
    found.finish()


def test_tensors_are_renamed_and_those_without_a_name_left_out() -> None:
    found = weights(a=MATRIX, b=MATRIX + 1).renamed({"a": "c", "b": None}.get)
    assert torch.equal(found.take("c", 2, 3), MATRIX)
    found.finish()


def write(folder: Path, form: str) -> None:
    """Tensors `a` and `b` in one of the forms that a folder may have."""
    tensors = {"a": MATRIX, "b": MATRIX + 1}
    if form == "safetensors":
        save_file(tensors, folder / "model.safetensors")
    elif form == "pickled":
        torch.save(tensors, folder / "pytorch_model.bin")
    else:
        for name, tensor in tensors.items():
            save_file({name: tensor}, folder / f"{name}.safetensors")
        index = {"weight_map": {name: f"{name}.safetensors" for name in tensors}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))


@pytest.mark.parametrize("form", ["safetensors", "pickled", "shards"])
def test_weights_are_the_same_in_each_form(form: str, tmp_path: Path) -> None:
    write(tmp_path, form)
    found = read_weights(tmp_path)
    assert torch.equal(found.take("a", 2, 3), MATRIX)
    assert torch.equal(found.take("b", 2, 3), MATRIX + 1)
    found.finish()


def test_weights_that_are_not_there_or_elsewhere_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"has no weights, neither model\.safetensors nor pyt"):
        read_weights(tmp_path)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text('{"weight_map": {"a": "../a.safetensors"}}')
    with pytest.raises(
        ExportError, match=r"names '\.\./a\.safetensors', which is not a file beside"
    ):
        read_weights(tmp_path)
    index.write_text("{}")
    with pytest.raises(ExportError, match="weight_map must say which file holds each tensor"):
        read_weights(tmp_path)


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_what_is_missing_of_weights_in_parts_is_named(name: str, tmp_path: Path) -> None:
    stem, suffix = name.split(".")
    parts = [f"{stem}-{number:05}-of-00002.{suffix}" for number in (1, 2)]
    (tmp_path / parts[1]).write_bytes(b"")
    with pytest.raises(ExportError, match=f"{name}.index.json: is missing, .* 1 files {parts[1]}"):
        read_weights(tmp_path)
    index = tmp_path / f"{name}.index.json"
    index.write_text(json.dumps({"weight_map": {"a": parts[0]}}))
    with pytest.raises(ExportError, match=rf"{parts[0]}: is missing, .* by {name}\.index\.json"):
        read_weights(tmp_path)


@pytest.mark.parametrize("form", ["safetensors", "pickled"])
def test_files_that_are_cut_off_are_refused(form: str, tmp_path: Path) -> None:
    write(tmp_path, form)
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:90])
    with pytest.raises(ExportError, match=f"{path.name}: cannot be read, it may be cut off"):
        read_weights(tmp_path)


def test_a_file_of_more_than_tensors_is_refused(tmp_path: Path) -> None:
    torch.save({"a": MATRIX, "epoch": 3}, tmp_path / "pytorch_model.bin")
    with pytest.raises(ExportError, match="must hold only tensors by name"):
        read_weights(tmp_path)


class Stranger:
    """An object that no file may hold unless it is allowed."""


def test_objects_are_read_where_they_are_allowed(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    torch.save({"told": Stranger()}, path)
    with pytest.raises(ExportError, match="would be executed and never is; save it anew"):
        read_pickled(path, "save it anew")
    found = read_pickled(path, "save it anew", allowed=[Stranger])
    assert isinstance(found["told"], Stranger)


def test_a_checkpoint_file_is_the_only_one_of_its_folder(tmp_path: Path) -> None:
    assert not has_checkpoint_file(tmp_path)
    with pytest.raises(ExportError, match=r"must be a checkpoint \(\.pt\), or a folder that holds"):
        checkpoint_file(tmp_path)
    path = tmp_path / "a.pt"
    path.touch()
    assert checkpoint_file(tmp_path) == checkpoint_file(path) == path
    assert has_checkpoint_file(tmp_path)
    (tmp_path / "config.json").touch()
    assert has_config(tmp_path)
    assert not has_checkpoint_file(tmp_path)
    (tmp_path / "b.pt").touch()
    with pytest.raises(ExportError, match="must be a checkpoint"):
        checkpoint_file(tmp_path)
    other = tmp_path / "a.txt"
    other.touch()
    assert not has_checkpoint_file(other)
