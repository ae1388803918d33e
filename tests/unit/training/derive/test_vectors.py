"""What a teacher makes of texts, narrowed and turned to a student."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from serving.arrays import Floats
from training.__main__ import main
from training.corpora.teacher_vectors import TeacherVectors
from training.derive.vectors import MadeVectors, make_vectors
from training.errors import ConfigError, CorpusError

TEXTS = [f"text number {number}" for number in range(300)]


class FakeReader:
    """Gives each text a vector of length one, which a matrix may turn."""

    def __init__(
        self, width: int, *, rank: int | None = None, turned: Floats | None = None
    ) -> None:
        drawn = np.random.default_rng(7)
        values = drawn.standard_normal((len(TEXTS), rank or width))
        basis = np.linalg.qr(drawn.standard_normal((width, width)))[0][: rank or width]
        rows = values @ basis
        if turned is not None:
            rows = rows @ turned
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        self.vectors = dict(zip(TEXTS, rows.astype(np.float32), strict=True))

    def __call__(self, texts: Sequence[str]) -> Floats:
        return np.stack([self.vectors[text] for text in texts])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("\n".join([*TEXTS, "", TEXTS[0], "text  number 1"]) + "\n")
    return path


def rows(path: Path) -> Floats:
    file = TeacherVectors.read(path)
    found = [vector for text in TEXTS if (vector := file.get(text)) is not None]
    assert len(found) == len(TEXTS)
    return np.stack(found).astype(np.float32)


def test_every_text_has_the_teachers_vector_once(file: Path, tmp_path: Path) -> None:
    teacher, out = FakeReader(8), tmp_path / "vectors.npz"
    made = make_vectors(teacher, [file, file], out, force=False)
    assert made == MadeVectors(out, texts=len(TEXTS), width=8, kept=1.0)
    wanted = np.stack(list(teacher.vectors.values()))
    np.testing.assert_allclose(rows(out), wanted, atol=1e-3)


def test_narrower_vectors_keep_cosines_of_texts_that_need_no_more(
    file: Path, tmp_path: Path
) -> None:
    teacher, out = FakeReader(12, rank=5), tmp_path / "vectors.npz"
    made = make_vectors(teacher, [file], out, width=5, force=False)
    assert (made.width, made.kept) == (5, 1.0)
    wanted = np.stack(list(teacher.vectors.values()))
    found = rows(out)
    np.testing.assert_allclose(found @ found.T, wanted @ wanted.T, atol=5e-3)
    narrow = make_vectors(teacher, [file], out, width=3, force=True)
    assert 0.4 < narrow.kept < 0.99


def test_vectors_are_turned_to_the_students(file: Path, tmp_path: Path) -> None:
    turned = np.linalg.qr(np.random.default_rng(3).standard_normal((6, 6)))[0]
    teacher, student = FakeReader(6), FakeReader(6, turned=turned)
    out = tmp_path / "vectors.npz"
    make_vectors(teacher, [file], out, like=student, force=False)
    np.testing.assert_allclose(rows(out), np.stack(list(student.vectors.values())), atol=1e-3)


def test_what_cannot_be_made_is_reported(file: Path, tmp_path: Path) -> None:
    teacher, out = FakeReader(4), tmp_path / "vectors.npz"
    with pytest.raises(ConfigError, match=r"OUT must end in \.npz, got .*vectors\.bin"):
        make_vectors(teacher, [file], tmp_path / "vectors.bin", force=False)
    with pytest.raises(ConfigError, match="width must be 1 to 4, which is the teacher's, got 5"):
        make_vectors(teacher, [file], out, width=5, force=False)
    out.touch()
    with pytest.raises(ConfigError, match="exists already; give --force"):
        make_vectors(teacher, [file], out, force=False)
    (tmp_path / "empty.txt").write_text("\n \n")
    with pytest.raises(CorpusError, match=r"empty\.txt: these files hold no text"):
        make_vectors(teacher, [tmp_path / "empty.txt"], out, force=True)


def test_a_teacher_that_is_none_is_one_line(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["vectors", str(tmp_path / "none"), str(file), str(tmp_path / "v.npz")]) == 1
    assert "none: there is no such file or folder" in capsys.readouterr().err
