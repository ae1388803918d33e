"""What the import of Marian's files refuses: one line with file and entry, and nothing left."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from export.__main__ import main
from tests.toy.marian_files import (
    Array,
    Item,
    items_of,
    random_lists,
    random_parameters,
    write_binary,
    write_lexicon,
    write_npz,
    write_student,
    write_vocabulary,
)

MODEL, LEXICON, VOCABULARY = (
    "model.deen.intgemm.alphas.bin",
    "lex.50.50.deen.s2t.bin",
    "vocab.deen.spm",
)
DECODER = "config.intgemm8bitalpha.yml"
SIZE = 120
Change = Callable[[Path], object]


@pytest.fixture(scope="module")
def student(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("student")
    write_student(folder)
    return folder


def options(**changed: Any) -> Change:
    named = {name.replace("_", "-"): value for name, value in changed.items()}
    return lambda folder: write_binary(
        folder / MODEL, items_of(random_parameters(SIZE), {"dim-vocabs": [SIZE, SIZE]} | named)
    )


def parameters(edit: Callable[[dict[str, Array]], object]) -> Change:
    def change(folder: Path) -> None:
        found = random_parameters(SIZE)
        edit(found)
        write_binary(folder / MODEL, items_of(found))

    return change


def items(edit: Callable[[list[Item]], Sequence[Item]]) -> Change:
    return lambda folder: write_binary(folder / MODEL, edit(items_of(random_parameters(SIZE))))


def decoder(**changed: Any) -> Change:
    def change(folder: Path) -> None:
        path = folder / DECODER
        named = {name.replace("_", "-"): value for name, value in changed.items()}
        path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | named))

    return change


def cut_off(name: str, part: float = 0.5) -> Change:
    def change(folder: Path) -> None:
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: int(len(content) * part)])

    return change


def damaged(name: str, place: int) -> Change:
    def change(folder: Path) -> None:
        content = bytearray((folder / name).read_bytes())
        content[place] ^= 1
        (folder / name).write_bytes(content)

    return change


def remove(*names: str) -> Change:
    return lambda folder: [(folder / name).unlink() for name in names]


def packed(found: list[Item]) -> list[Item]:
    return [dataclasses.replace(found[0], type=0x1801), *found[1:]]


def cut_npz(folder: Path) -> None:
    write_npz(folder / "model.npz", random_parameters(SIZE))
    cut_off("model.npz")(folder)
    decoder(models=["model.npz"])(folder)


def pickled_npz(folder: Path) -> None:
    array = np.array([folder], dtype=object)
    np.savez(folder / "model.npz", Wemb=array)
    decoder(models=["model.npz"])(folder)


def bare_npz(folder: Path) -> None:
    np.savez(folder / "model.npz", Wemb=np.zeros((2, 2), np.float32))
    decoder(models=["model.npz"])(folder)


def other_vocabulary(folder: Path) -> None:
    write_vocabulary(folder / "vocab.other.spm", 110)
    decoder(vocabs=[VOCABULARY, "vocab.other.spm"])(folder)


def unnamed_vocabulary(folder: Path) -> None:
    write_vocabulary(folder / "vocab.other.spm", 110)
    (folder / DECODER).unlink()


def yaml_vocabulary(text: str) -> Change:
    def change(folder: Path) -> None:
        (folder / "vocab.yml").write_text(text)
        decoder(vocabs=["vocab.yml", "vocab.yml"])(folder)

    return change


def two_models(folder: Path) -> None:
    shutil.copy(folder / MODEL, folder / "model.best.bin")
    (folder / DECODER).unlink()


def no_names(folder: Path) -> None:
    (folder / MODEL).rename(folder / "model.bin")
    (folder / DECODER).unlink()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (cut_off(MODEL), [MODEL, "it may be cut off"]),
        (cut_off(MODEL, 0.001), [MODEL, "it may be cut off"]),
        (cut_npz, ["model.npz", "it may be cut off"]),
        (pickled_npz, ["model.npz", "allow_pickle=False"]),
        (bare_npz, ["model.npz", "special:model.yml is missing"]),
        (items(lambda found: found[:-1]), [MODEL, "special:model.yml is missing"]),
        (items(packed), [MODEL, "'Wemb' has a type (0x1801)", "packed for one machine"]),
        (options(type="s2s"), ["special:model.yml", "type 's2s'", "'transformer'"]),
        (options(use_magic=3), ["special:model.yml", "'use-magic' (3) is not known", "enc-depth"]),
        (options(dec_cell="gru"), ["dec-cell 'gru'", "'ssru'"]),
        (
            options(transformer_decoder_autoreg="average-attention"),
            ["transformer-decoder-autoreg 'average-attention'", "'self-attention' or 'rnn'"],
        ),
        (options(transformer_ffn_activation="gelu"), ["transformer-ffn-activation 'gelu'"]),
        (options(transformer_preprocess="dn"), ["transformer-preprocess 'dn'"]),
        (options(transformer_tied_layers=[1, 1]), ["transformer-tied-layers [1, 1]"]),
        (options(tied_embeddings_all=False), ["'encoder_Wemb' is missing"]),
        (options(dim_vocabs=[SIZE, 90]), ["dim-vocabs", "[120, 90]"]),
        (options(dim_vocabs=["a", "a"]), ["dim-vocabs must be an integer >= 1, got 'a'"]),
        (
            options(dim_emb=64),
            [MODEL, "'Wemb' must be [120, 64] by special:model.yml", "[120, 32]"],
        ),
        (options(dim_vocabs=[110, 110]), [VOCABULARY, "110 rows of the embedding", "120 pieces"]),
        (
            parameters(lambda p: p.update({"encoder_l1_gate_W": np.ones((2, 3), np.float32)})),
            [MODEL, "the layer 'encoder_l1_gate_W' [2, 3] is not known", "special:model.yml"],
        ),
        (
            parameters(lambda p: p.pop("decoder_l2_rnn_bf")),
            [MODEL, "'decoder_l2_rnn_bf' is missing"],
        ),
        (
            parameters(lambda p: p.update(encoder_l1_ffn_b1=np.ones((1, 9), np.float32))),
            ["'encoder_l1_ffn_b1' must be [1, 48]", "[1, 9]"],
        ),
        (cut_off(LEXICON), [LEXICON, "cannot be read as a shortlist", "bytes expected"]),
        (damaged(LEXICON, 600), [LEXICON, "damaged", "checksum"]),
        (damaged(LEXICON, 0), [LEXICON, "not a binary shortlist"]),
        (
            lambda folder: write_lexicon(folder / LEXICON, random_lists(90), 20),
            [LEXICON, "does not fit a vocabulary of 120 pieces", "for 90 of the source"],
        ),
        (cut_off(VOCABULARY), [VOCABULARY, "no usable SentencePiece model"]),
        (remove(VOCABULARY), [DECODER, "vocabs names 'vocab.deen.spm'", "not beside it"]),
        (remove(VOCABULARY, DECODER), ["a vocabulary (.spm) is missing"]),
        (other_vocabulary, ["vocab.other.spm", "120 rows", "110 pieces"]),
        (unnamed_vocabulary, ["vocab.other.spm", "source.spm and target.spm"]),
        (yaml_vocabulary("- a\n"), ["vocab.yml", "gives pieces their ids"]),
        (yaml_vocabulary("</s>: 0\n<unk>: 1\na: 3\n"), ["vocab.yml", "from 0 on, each once"]),
        (yaml_vocabulary("</s>: 0\na: 1\n"), ["vocab.yml", "<unk> is missing"]),
        (yaml_vocabulary("</s>: 0\n<unk>: 1\n"), ["source.spm is missing"]),
        (decoder(models=[MODEL, MODEL]), [DECODER, "models must name one file", "ensembles"]),
        (decoder(vocabs=3), [DECODER, "vocabs must be a list of files"]),
        (decoder(word_penalty=0.5), [DECODER, "word-penalty 0.5"]),
        (decoder(allow_unk=True), [DECODER, "allow-unk True"]),
        (decoder(force_decode=True), [DECODER, "'force-decode' (True) is not known"]),
        (decoder(beam_size=500), [DECODER, "beam-size", "[1, 64], got 500"]),
        (decoder(normalize="much"), [DECODER, "normalize", "'much'"]),
        (
            lambda folder: (folder / DECODER).write_text("models:\n- [a"),
            [DECODER, "not valid YAML"],
        ),
        (two_models, ["must hold one model", "model.best.bin", MODEL]),
        (no_names, ["model.bin", "contains no languages", "--from CODE"]),
    ],
)
def test_what_is_refused(
    student: Path,
    change: Change,
    words: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "given"
    shutil.copytree(student, folder)
    change(folder)
    before = sorted(tmp_path.rglob("*"))
    assert main(["import", str(folder), str(tmp_path / "out"), "--precision", "fp32"]) == 1
    told = capsys.readouterr()
    (line,) = [line for line in told.err.splitlines() if line.startswith("error: ")]
    assert [word for word in words if word not in line] == []
    assert told.err.splitlines()[-1] == line
    assert told.out == ""
    assert sorted(tmp_path.rglob("*")) == before


def test_what_is_no_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, content in {"a.bin": b"0" * 9, "b.npz": b"none", "c.txt": b"models:\n"}.items():
        (tmp_path / name).write_bytes(content)
        assert main(["import", str(tmp_path / name), str(tmp_path / "out")]) == 1
        assert f"{name}: not a known checkpoint; SOURCE must" in capsys.readouterr().err
    assert main(["import", str(tmp_path), str(tmp_path / "out")]) == 1
    assert "no model of Marian" in capsys.readouterr().err
    assert main(["import", str(tmp_path / "nothing"), str(tmp_path / "out")]) == 1
    assert "nothing: there is no such file or folder; SOURCE must" in capsys.readouterr().err
    words = ["import", str(tmp_path / "nothing" / "m.bin"), str(tmp_path / "out")]
    assert main([*words, "--family", "marian-nmt"]) == 1
    assert "m.bin: there is no such file or folder" in capsys.readouterr().err
