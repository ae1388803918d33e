"""What an encoder learns from a teacher's vectors."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from serving.bundle.encoder_tokenizer import EncodedText
from training.corpora.teacher_vectors import TeacherVectors
from training.tasks.finetuning import Example, collate_examples, distance, own_or_pairs


def test_the_distance_is_that_of_a_loop_over_the_rows_that_have_a_vector() -> None:
    torch.manual_seed(0)
    vectors_BD = torch.randn(5, 8)
    taught_BD = nn.functional.normalize(torch.randn(5, 8))
    taught_BD[[1, 4]] = 0.0
    wanted = sum(
        1.0 - float(vectors_BD[row] @ taught_BD[row] / vectors_BD[row].norm())
        for row in (0, 2, 3)
    )  # fmt: skip
    assert abs(float(distance(vectors_BD, taught_BD)) - wanted) < 1e-5
    assert float(distance(taught_BD * 3, taught_BD)) < 1e-5


def test_a_text_without_a_vector_learns_that_of_its_pair() -> None:
    dog, hound = np.eye(2, 4, dtype=np.float32)
    teacher = TeacherVectors.of(["The dog.", "The hound."], np.stack([dog, hound]))
    for texts, wanted in [
        (("Der Hund.", "The dog."), (dog, dog)),
        (("The dog.", "Der Hund."), (dog, dog)),
        (("The dog.", "The hound."), (dog, hound)),
        (("Der Hund.", "Ein Hund."), ()),
    ]:
        np.testing.assert_array_equal(own_or_pairs(teacher, texts), wanted)
    assert own_or_pairs(None, ("The dog.", "Der Hund.")) == ()


def test_lines_without_a_teacher_are_rows_of_zeros_in_a_batch() -> None:
    text = EncodedText((1, 2), (0, 0))
    vector = np.ones(4, np.float16)
    plain, taught = Example((text, text), 0.0), Example((text, text), 0.0, (vector, vector * 2))
    batch = collate_examples([plain, taught])
    assert len(batch.taught) == 2
    np.testing.assert_array_equal(batch.taught[1], [[0] * 4, [2] * 4])
    assert collate_examples([plain, plain]).taught == ()
