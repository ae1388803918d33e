"""Bundles: a good one is read, each kind of corruption is one line that names both sides."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from serving.bundle.folder import (
    FORMAT_VERSION,
    MANIFEST,
    file_hash,
    find_bundles,
    read_manifest,
    write_manifest,
)
from serving.bundle.graph import Tensor
from serving.bundle.languages import Languages
from serving.bundle.manifest import CARD, Manifest
from serving.errors import (
    BundleError,
    FormatVersionError,
    HashMismatchError,
    UnknownLanguageError,
)
from serving.translation.translator import Translator

GRAPH = {"file": "step.onnx", "opset": 24, "inputs": [], "outputs": []}
TREE: dict[str, Any] = {
    "format_version": FORMAT_VERSION,
    "name": "toy",
    "task": "translate",
    "family": "macaron",
    "decoder_kind": "cross",
    "block": "macaron",
    "precision": "fp32",
    "target": "cpu",
    "sizes": {
        "model_dim": 8,
        "num_heads": 2,
        "num_encoder_layers": 1,
        "num_decoder_layers": 1,
        "vocab_size": 30,
        "max_source": 64,
        "num_parameters": 1000,
    },
    "languages": {"source": ["de"], "target": ["en"]},
    "tokenizer": {"kind": "sentencepiece", "source_file": "t.model", "target_file": "t.model"},
    "encoder": GRAPH | {"file": "encoder.onnx"},
    "step": GRAPH,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A bundle whose graphs and tokenizer are only bytes."""
    folder = tmp_path / "toy"
    folder.mkdir()
    for name in ("encoder.onnx", "step.onnx", "t.model"):
        (folder / name).write_bytes(f"the bytes of {name}".encode())
    write_manifest(folder, Manifest.model_validate(TREE))
    return folder


def edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    tree = json.loads((folder / MANIFEST).read_text())
    change(tree)
    (folder / MANIFEST).write_text(json.dumps(tree))


def refused(folder: Path, *words: object) -> BundleError:
    """The error; one line that holds the words."""
    with pytest.raises(BundleError) as caught:
        read_manifest(folder)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert len(message) < 400
    for word in (folder, *words):
        assert str(word) in message
    return caught.value


def test_what_is_written_is_read(folder: Path) -> None:
    manifest = read_manifest(folder)
    assert sorted(manifest.files) == ["encoder.onnx", "step.onnx", "t.model"]
    assert manifest.files["t.model"] == file_hash(folder / "t.model")
    assert manifest.model_dump() == Manifest.model_validate(TREE).model_dump() | {
        "files": manifest.files
    }
    assert json.loads((folder / MANIFEST).read_text()).popitem()[0] == "files"
    assert next(iter(json.loads((folder / MANIFEST).read_text()))) == "format_version"
    assert "other_ends" not in json.loads((folder / MANIFEST).read_text())


def test_a_bundle_of_one_direction_has_no_pairs_and_no_tags(folder: Path) -> None:
    assert json.loads((folder / MANIFEST).read_text())["languages"] == TREE["languages"]
    languages = read_manifest(folder).languages
    assert languages.trained == (("de", "en"),)
    assert languages.choose(None, None) == languages.choose("de", "en") == ("de", "en")
    with pytest.raises(UnknownLanguageError, match="must be one of de to en, got fr to any lang"):
        languages.choose("fr", None)


def test_without_tags_all_pairs_are_one_to_the_model() -> None:
    languages = Languages(source=("de", "fr"), target=("en",))
    assert languages.trained == (("de", "en"), ("fr", "en"))
    assert languages.choose(None, None) == ("de", "en")
    assert languages.choose("fr", None) == ("fr", "en")


SEVERAL = {
    "source": ["fr", "en", "es"],
    "target": ["en", "fr", "es"],
    "pairs": [["fr", "en"], ["en", "fr"], ["es", "en"], ["en", "es"]],
    "tags": {"en": "<2en>", "fr": "<2fr>", "es": "<2es>"},
}


def test_a_bundle_of_several_directions_reports_them(folder: Path) -> None:
    write_manifest(folder, Manifest.model_validate(TREE | {"languages": SEVERAL}))
    assert json.loads((folder / MANIFEST).read_text())["languages"] == SEVERAL
    languages = read_manifest(folder).languages
    assert languages.choose("fr", None) == ("fr", "en")
    assert languages.choose(None, "es") == ("en", "es")
    assert languages.choose("fr", "es", zero_shot=True) == ("fr", "es")
    for given, said in {
        (None, None): "source and target must be one of fr to en, en to fr, es to en, en to es, go",
        (None, "en"): "got any language to en",
        ("fr", "fr"): "got fr to fr",
        ("fr", "de"): "got fr to de",
        ("fr", "es"): "was trained on fr to en, .*, not from fr to es; this allows it",
    }.items():
        with pytest.raises(UnknownLanguageError, match=said):
            languages.choose(*given, allowing="this")


@pytest.mark.parametrize(
    "change",
    [
        {"tags": {}},
        {"source_tags": {"en": "<2en>"}},
        {"first_pieces": {"en": "<2en>"}},
        {"tags": {"en": "<2en>", "fr": "<2fr>"}},
        {"source": ["fr", "en"]},
        {"target": ["en", "fr"], "tags": {"en": "<2en>", "fr": "<2fr>"}},
    ],
)
def test_languages_that_contradict_each_other(change: dict[str, Any], folder: Path) -> None:
    tree = json.loads((folder / MANIFEST).read_text()) | {"languages": SEVERAL | change}
    (folder / MANIFEST).write_text(json.dumps(tree))
    with pytest.raises(BundleError, match=r"languages: Value error, (pairs|\w*tags|first_pieces)"):
        read_manifest(folder)


def test_without_pairs_a_model_of_several_languages_has_all() -> None:
    codes = {code: f"__{code}__" for code in ("en", "fr", "es")}
    several = Languages(
        source=tuple(codes), target=("en", "fr"), source_tags=codes,
        first_pieces={code: codes[code] for code in ("en", "fr")},
    )  # fmt: skip
    wanted = {("en", "fr"), ("fr", "en"), ("es", "en"), ("es", "fr")}
    assert set(several.trained) == wanted
    for pair in [(a, b) for a in codes for b in codes]:
        assert several.translates(*pair) == (pair in wanted)
    assert several.choose("es", "fr") == ("es", "fr")
    with pytest.raises(UnknownLanguageError, match="got es to any language"):
        several.choose("es", None)
    assert not {"pairs", "tags"} & several.model_dump().keys()
    assert set(Languages(source=("de",), target=("en",)).model_dump()) == {"source", "target"}
    words = {"en": ("\u2581to", "\u2581English"), "fr": ("\u2581to",)}
    summaries = Languages(
        source=("en",), target=("en", "fr"), pairs=(("en", "en"), ("en", "fr")), prefixes=words
    )
    assert (summaries.is_multilingual, summaries.most_before) == (True, 2)
    assert summaries.choose(None, "en") == ("en", "en")
    with pytest.raises(ValidationError, match="prefixes must have each language of its side"):
        Languages(source=("en",), target=("en",), prefixes=words)
    many = tuple(f"{a}{b}" for a in "abcdefg" for b in "abcdefg")
    tags = {code: code for code in many}
    listing = Languages(source=many, target=many, source_tags=tags, first_pieces=tags).listing
    assert listing.startswith(f"{49 * 48} pairs of aa, ab, ac")


def test_bundles_are_found_by_name(folder: Path) -> None:
    (folder.parent / "empty").mkdir()
    (folder.parent / "another").mkdir()
    (folder.parent / "another" / MANIFEST).write_text("{}")
    assert find_bundles(folder.parent) == [folder.parent / "another", folder]


@pytest.mark.parametrize("name", ["encoder.onnx", "step.onnx", "t.model"])
def test_missing_file(folder: Path, name: str) -> None:
    (folder / name).unlink()
    refused(folder, repr(name), "listed", MANIFEST, "No such file")


def test_a_folder_in_place_of_a_file(folder: Path) -> None:
    (folder / "step.onnx").unlink()
    (folder / "step.onnx").mkdir()
    refused(folder, "'step.onnx'", "cannot be read")


@pytest.mark.parametrize("content", [b"", b"the bytes of step.onnX", b"the bytes of step.onnx "])
def test_changed_file(folder: Path, content: bytes) -> None:
    wanted = file_hash(folder / "step.onnx")
    (folder / "step.onnx").write_bytes(content)
    error = refused(folder, file_hash(folder / "step.onnx")[:12], wanted[:12], "copy the bundle")
    assert isinstance(error, HashMismatchError)


def test_a_needed_file_must_have_a_hash(folder: Path) -> None:
    edit(folder, lambda tree: tree["files"].pop("step.onnx"))
    refused(folder, "lists no sha256 for 'step.onnx'")


def test_the_card_is_no_part_of_what_the_hashes_cover(folder: Path) -> None:
    (folder / CARD).write_text("# toy")
    write_manifest(folder, Manifest.model_validate(TREE))
    assert CARD not in read_manifest(folder).files
    (folder / CARD).write_text("# toy\n\nLicence: CC BY 4.0")
    read_manifest(folder)
    (folder / CARD).unlink()
    read_manifest(folder)


@pytest.mark.parametrize("card", ["# toy", "# toy, edited", None])
def test_a_bundle_that_lists_its_card_is_read_whatever_became_of_it(
    folder: Path, card: str | None
) -> None:
    (folder / CARD).write_text("# toy")
    edit(folder, lambda tree: tree["files"].update({CARD: file_hash(folder / CARD)}))
    if card is None:
        (folder / CARD).unlink()
    else:
        (folder / CARD).write_text(card)
    assert sorted(read_manifest(folder).files) == ["encoder.onnx", "step.onnx", "t.model"]


def test_no_graph_goes_unchecked_by_the_cards_name(folder: Path) -> None:
    (folder / CARD).write_text("a graph")
    edit(folder, lambda tree: tree["step"].update(file=CARD))
    edit(folder, lambda tree: tree["files"].update({CARD: file_hash(folder / CARD)}))
    refused(folder, f"lists no sha256 for {CARD!r}")


def test_newer_format(folder: Path) -> None:
    edit(folder, lambda tree: tree.update(format_version=FORMAT_VERSION + 1, new_field=1))
    error = refused(folder, f"format {FORMAT_VERSION + 1}", f"({FORMAT_VERSION})", "upgrade")
    assert isinstance(error, FormatVersionError)


@pytest.mark.parametrize("version", [None, "1", 1.0, True, 0, -1, [], "x" * 10_000])
def test_bad_format_version(folder: Path, version: object) -> None:
    edit(folder, lambda tree: tree.update(format_version=version))
    refused(folder, MANIFEST, "format_version must be an integer")


def test_no_manifest(tmp_path: Path) -> None:
    refused(tmp_path, MANIFEST, "No such file")
    refused(tmp_path / "nowhere", MANIFEST, "No such file")


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"nonsense\n\n", b"\xff\xfe{}", b"[" * 200_000, b'{"format_version": 1'],
    ids=["empty", "brace", "text", "utf-16", "deep", "cut"],
)
def test_invalid_json(folder: Path, content: bytes) -> None:
    (folder / MANIFEST).write_bytes(content)
    refused(folder, MANIFEST, "not valid JSON")


@pytest.mark.parametrize("content", ["[]", "1", "null", '"x"', "{}"])
def test_json_that_is_no_manifest(folder: Path, content: str) -> None:
    (folder / MANIFEST).write_text(content)
    refused(folder, MANIFEST, "format_version", "None")


def own_pieces(tree: dict[str, Any], *, eos: int, **files: str) -> None:
    """A tokenizer whose special ids are the bundle's."""
    vocabulary = next(iter(tree["files"]))
    tree["tokenizer"].update(kind="pieces", vocabulary_file=vocabulary, **files)
    tree["special_ids"] = {"eos": eos}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.pop("name"), ["name", "required"]),
        (lambda t: t.update(family="mamba"), ["family", "'transformer'", "'mamba'"]),
        (lambda t: t.update(sizes=[]), ["sizes", "dict", "[]"]),
        (lambda t: t["sizes"].update(max_source="many"), ["sizes.max_source", "integer", "'many'"]),
        (lambda t: t["sizes"].update(max_source=0), ["sizes.max_source", "greater than 0", "0"]),
        (
            lambda t: t["sizes"].update(alignment_layer=t["sizes"]["num_decoder_layers"]),
            ["sizes.alignment_layer must be below"],
        ),
        (lambda t: t["step"].update(inputs=[{"name": "x"}]), ["step.inputs.0.", "required"]),
        (lambda t: t.update(extra=1), ["extra", "not permitted"]),
        (lambda t: t.update({"two\nlines": 1}), ["two lines", "not permitted"]),
        (
            lambda t: t.update(special_ids={"eos": 7}),
            ["special_ids must be", "'eos': 3", "'eos': 7"],
        ),
        (lambda t: t.update(special_ids={"eos": 0}), ["special_ids", "eos neither pad nor unk"]),
        (lambda t: t.update(special_ids={"end": 3}), ["special_ids.end", "nexpected", "got 3"]),
        (lambda t: t.update(other_ends=[5]), ["other_ends must be a language model's", "got [5]"]),
        (lambda t: t["tokenizer"].update(kind="pieces"), ["vocabulary_file", "go together"]),
        (lambda t: own_pieces(t, eos=30), ["special_ids must be in [0, 29]", "'eos': 30"]),
        (
            lambda t: t["tokenizer"].update(source_vocabulary_file="a.json"),
            ["source_vocabulary_file needs vocabulary_file"],
        ),
        (
            lambda t: own_pieces(t, eos=3, source_vocabulary_file="a.json"),
            ["lists no sha256 for 'a.json'"],
        ),
        (lambda t: t.update(search={"beamsize": 1}), ["search", "did you mean 'beam_size'"]),
        (lambda t: t.update(search={"beam_size": 0}), ["search", "[1, 64], got 0"]),
        (lambda t: t.update(files={"step.onnx": 1}), ["files.step.onnx", "string", "got 1"]),
        (lambda t: t.update(name=["x"] * 10_000), ["name", "string"]),
        (
            lambda t: t.update(shortlist={"file": "l.npz", "step": GRAPH}),
            ["shortlists have an earlier form", "export it again"],
        ),
    ],
)
def test_wrong_fields(
    folder: Path, change: Callable[[dict[str, Any]], object], words: list[str]
) -> None:
    edit(folder, change)
    refused(folder, MANIFEST, *words)


@pytest.mark.parametrize(
    "name",
    ["../secret", "sub/secret", "/etc/hostname", "..", ".", "", "sub/../step.onnx", "./step.onnx"],
)
def test_a_file_name_cannot_leave_the_folder(folder: Path, name: str) -> None:
    for place in (folder.parent / "secret", folder / "sub" / "secret"):
        place.parent.mkdir(exist_ok=True)
        place.write_text("secret")
    digest = file_hash(folder.parent / "secret")
    edit(folder, lambda tree: tree["files"].update({name: digest}))
    refused(folder, MANIFEST, repr(name), "plain name")
    edit(folder, lambda tree: tree["step"].update(file=name))
    refused(folder, MANIFEST, repr(name), "plain name")


@pytest.mark.parametrize("name", ["nul\0byte", "x" * 5000, "lone\ud800", "two\nlines"])
def test_a_file_name_that_no_file_can_have(folder: Path, name: str) -> None:
    edit(folder, lambda tree: tree["files"].update({name: "0" * 64}))
    with pytest.raises(BundleError, match="cannot be read") as caught:
        read_manifest(folder)
    assert len(str(caught.value).splitlines()) == 1


def test_a_translator_wants_a_translating_bundle(folder: Path) -> None:
    write_manifest(folder, Manifest.model_validate(TREE | {"task": "generate", "encoder": None}))
    with pytest.raises(BundleError, match="task must be 'translate', got 'generate'"):
        Translator(folder)


def test_a_tokenizer_that_is_none(folder: Path) -> None:
    with pytest.raises(BundleError, match=r"toy/t.model: not a tokenizer") as caught:
        Translator(folder)
    assert len(str(caught.value).splitlines()) == 1


def test_caches_are_floats() -> None:
    for dtype in ("float32", "float16", "bfloat16"):
        assert Tensor(name="self_key_0", dtype=dtype, axes=("B", "C", 4), role="self").is_cache
    with pytest.raises(ValidationError, match=r"'self_key_0' must be one of float32, float16, bf"):
        Tensor(name="self_key_0", dtype="int32", axes=("B", "C", 4), role="self")
    assert not Tensor(name="rows", dtype="int32", axes=("B",), role="output_index").is_cache
