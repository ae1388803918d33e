"""Quotation marks of a translation."""

from __future__ import annotations

import pytest

from serving.text.edits import edited
from serving.text.placing.marks import mark_edits


@pytest.mark.parametrize(
    ("source", "output", "target", "expected"),
    [
        ('"Let\'s go," he said.', "„Gehen wir,“ sagte er.", "de", "„Gehen wir“, sagte er."),
        ('"It rains," he said.', "„Es regnet,“, sagte er.", "de", "„Es regnet“, sagte er."),
        ('"I love it," said Mary.', "„Ich mag es“ sagte Mary.", "de", "„Ich mag es“, sagte Mary."),
        ("„Ich gehe“, sagte er.", '"I go" he said.', "en", '"I go," he said.'),
        (
            "Le mot « chat » est court.",
            'The word " chat" is short.',
            "en",
            'The word "chat" is short.',
        ),
    ],
)
def test_blanks_and_commas_beside_quotation_marks(
    source: str, output: str, target: str, expected: str
) -> None:
    assert edited(output, mark_edits(source, output, target)) == expected


@pytest.mark.parametrize(
    ("source", "output", "target"),
    [
        ("Der „Druck“, der wächst, ist groß.", 'The "pressure" that grows is high.', "en"),
        ("„Wo bist du?“, fragte er.", '"Where are you?" he asked.', "en"),
        ("He said yes.", "Il a dit « oui ».", "fr"),
        ('"I go," he said.', '"Voy" dijo.', "es"),
        ('A 5" disk and a "big" one', 'Eine 5" Platte und eine "große" Platte', "de"),
    ],
)
def test_other_quotations_stay(source: str, output: str, target: str) -> None:
    assert mark_edits(source, output, target) == []
