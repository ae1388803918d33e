"""Surnames after a title, which are put back where a translation lost them."""

from __future__ import annotations

import pytest

from serving.checking.invariants import Fault, faults, is_noteworthy
from serving.checking.repairs import put_right
from serving.checking.surnames import lost_surnames, surnames
from serving.text.alignment import Link
from serving.text.edits import edited


def found(text: str, source: str = "de", target: str = "en") -> list[str]:
    return [text[begin:end] for begin, end in surnames(text, source, target)]


@pytest.mark.parametrize(
    ("language", "text", "names"),
    [
        ("de", "Frau Schneider und Herr Koch rufen an.", ["Schneider", "Koch"]),
        ("de", "Ich traf Herrn Prof. Dr. Klein.", ["Klein"]),
        ("de", "Herr O'Neill und Herr O’Brien", ["Neill", "Brien"]),
        ("de", "Fragen Sie Frau Peters nach dem Schlüssel.", ["Peters"]),
        ("en", "Mr. Baker, Mrs Young, Ms Page and Miss Hill", ["Baker", "Young", "Page", "Hill"]),
        ("en", "I saw Mr Kinnock's papers.", ["Kinnock"]),
        ("fr", "Monsieur Boulanger et Mme Petit, avec M. Roi", ["Boulanger", "Petit", "Roi"]),
        ("es", "La señora Flores y el Sr. Rojo", ["Flores", "Rojo"]),
        # No surnames.
        ("de", "Seine Frau Maria und die Frau Meier von nebenan", []),
        ("de", "Was für eine Frau Maria war!", []),
        ("de", "Herr Präsident, Frau Ministerin, Herr Bundeskanzler!", []),
        ("de", "Herr Richter, Frau Rechtsanwältin, Frau Nachbarin", []),
        ("de", "Sprechen der Herr Türkisch?", []),
        ("de", "Das Auto von Herrn Jacksons Vater", []),
        ("de", "Frau Kowalczyk-Meier", []),
        ("de", "Eine Frau kam, und der Herr ging.", []),
        ("en", "Mr President, Mr Speaker and Madam Chairman", []),
        ("en", "Mr President-in-Office of the Council", []),
        ("en", "the MRS NASA sent", []),
        ("fr", "Monsieur le Président, Madame la Ministre", []),
        ("es", "Señor Presidente, la señora vino.", []),
        ("nl", "Mevrouw Bakker", []),
    ],
)
def test_which_words_are_surnames(language: str, text: str, names: list[str]) -> None:
    assert found(text, language, "de" if language == "en" else "en") == names
    assert found(text, language, "nl") == []
    assert found(text, language, "") == []


@pytest.mark.parametrize(
    ("text", "output", "lost"),
    [
        ("Frau Schneider rief an.", "Mrs Cutren called.", True),
        ("Frau Schneider rief an.", "Mrs Schneider called.", False),
        ("Frau Schneider rief an.", "MRS SCHNEIDER CALLED.", False),
        ("Herr Neumann kommt.", "Mr Newmann is coming.", True),
        ("Herr Müller kommt.", "Mr Mueller is coming.", False),
        ("Herr Müller kommt.", "Mr Muller's coming.", False),
        ("Herr Weiß kommt.", "Mr Weiss is coming.", False),
        ("Herr Jelzin sprach.", "Mr Yeltsin spoke.", False),
        ("Herr Gorbatschow sprach.", "Mr Gorbachev spoke.", False),
        ("Herr Gorbatschow sprach.", "A man spoke.", True),
        ("Herr Winter sprach.", "Mr winter spoke.", True),
    ],
)
def test_what_counts_as_lost(text: str, output: str, lost: bool) -> None:
    assert bool([*lost_surnames(text, output, "de", "en")]) == lost
    kinds = [fault.kind for fault in faults(text, output, ("de", "en"))]
    assert kinds == ["names"] * lost


def test_it_is_put_where_the_attention_points() -> None:
    text, output = "Frau Schneider rief an.", "Mrs Cutren called."
    links = [Link((5, 14), (4, 10), 0.9), Link((15, 19), (11, 17), 0.9)]
    edits = put_right(text, output, links, ("de", "en"))
    assert edits
    assert edited(output, edits) == "Mrs Schneider called."
    assert put_right(text, output, [Link((5, 14), (4, 10), 0.3)], ("de", "en")) is None
    (fault,) = faults(text, output, ("de", "en"))
    assert fault == Fault("names", "Schneider", source=(5, 14), wanted="Schneider")


def test_such_sentences_are_noteworthy() -> None:
    assert is_noteworthy("Frau Schneider rief an.", ("de", "en"))
    assert not is_noteworthy("Die Frau rief an.", ("de", "en"))
