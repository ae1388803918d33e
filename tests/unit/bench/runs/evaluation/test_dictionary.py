"""Words, names, numbers and dates that come out right."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from bench.runs.evaluation.dictionary import (
    DictionaryLine,
    DictionaryResult,
    dictionary_markdown,
    measure_dictionary,
    plain,
    read_dictionary,
)
from training.errors import CorpusError

TABLE = (
    "Abführmittel\tlaxative\tword\n"
    "Abführmittel\tcathartic\tword.med\n"
    "rennen\tto run\tword\n"
    "Rom\tRome\tcity\n"
    "am 12. Mai 1988\ton May 12, 1988\tdate\n"
    "Rom hat 2.800 Brunnen, Köln 12.\tRome has 2,800 fountains, Cologne 12.\tcarrier\n"
    "nur hin\tthere only\tphrase\tde>en\n"
)


class FakeTranslator:
    """Gives texts their translations from a table."""

    def __init__(self, found: dict[str, str]) -> None:
        self._found = found

    def translate(self, texts: Sequence[str], *, source: str, target: str) -> list[SimpleNamespace]:
        assert (source, target) == ("de", "en")
        return [SimpleNamespace(text=self._found[text]) for text in texts]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "dev.tsv"
    path.write_text(TABLE, encoding="utf-8")
    return path


def test_lines_are_read_in_either_direction(path: Path) -> None:
    there, back = read_dictionary(path, "de>en"), read_dictionary(path, "en>de")
    assert (len(there), len(back)) == (7, 6)  # one is good for the first direction only
    assert there[1] == DictionaryLine("Abführmittel", "cathartic", "word")
    assert back[2] == DictionaryLine("to run", "rennen", "word")
    path.write_text("one\ttwo\n")
    with pytest.raises(CorpusError, match=r"dev\.tsv:1: .* and a kind, .*, got 2 columns"):
        read_dictionary(path)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("to Run.", "run"), ("The  drain-pipe!", "drain pipe"), ("das Rohr", "rohr"), ("to", "to")],
)
def test_words_are_compared_without_article_case_and_punctuation(text: str, wanted: str) -> None:
    assert plain(text) == wanted


@pytest.mark.parametrize(
    ("changed", "rights"),
    [
        ({}, [1, 2, 1, 1, 2, 2]),
        ({"Abführmittel": "purgative", "rennen": "running"}, [1, 0, 1, 1, 2, 2]),
        ({"am 12. Mai 1988": "May 12th 1988"}, [1, 2, 1, 1, 2, 2]),
        ({"am 12. Mai 1988": "on May 12, 1989"}, [1, 2, 1, 0, 2, 2]),
        ({"Rom hat 2.800 Brunnen, Köln 12.": "Romes 2.8 Cologne, 12"}, [1, 2, 1, 1, 1, 1]),
    ],
)
def test_what_is_right_is_counted_by_kind(
    path: Path, changed: dict[str, str], rights: list[int]
) -> None:
    outputs = {
        "Abführmittel": "A laxative.",
        "rennen": "run",
        "Rom": "rome",
        "am 12. Mai 1988": "12 May 1988",
        "Rom hat 2.800 Brunnen, Köln 12.": "Cologne has 12, Rome 2,800.",
        "nur hin": "there only",
    } | changed
    lines = read_dictionary(path, "de>en")
    names = [DictionaryLine("Köln", "Cologne", "city"), *lines]
    systems = {"fake": FakeTranslator(outputs)}
    told: list[str] = []
    found = measure_dictionary(systems, ("de", "en"), lines, names, told.append)  # type: ignore[arg-type]
    kinds = ["phrase", "word", "city", "date", "names", "numbers"]
    by_kind = {each.kind.split()[0]: each for each in found}
    assert by_kind.keys() == set(kinds)
    counted = {"word": 2, "names": 2, "numbers": 2}
    assert all(by_kind[kind].counted == counted.get(kind, 1) for kind in kinds)
    assert [by_kind[kind].right for kind in kinds] == rights
    assert told == ["fake: 6 of 6"]


def test_the_table_has_a_column_for_each_system() -> None:
    results = [DictionaryResult("a", "word", 3, 1), DictionaryResult("b", "word", 3, 3)]
    assert dictionary_markdown(results).splitlines() == [
        "| kind | counted | a | b |",
        "| --- | ---: | ---: | ---: |",
        "| word | 3 | 33.3 % | 100.0 % |",
    ]
