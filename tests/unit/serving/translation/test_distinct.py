from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from serving.documents.unit import Unit
from serving.errors import DecodingError, ServingError
from serving.search.beams.sentence import Sentence
from serving.text.alignment import Link
from serving.text.document import Document
from serving.translation import distinct
from serving.translation.distinct import (
    Key,
    KnownSentences,
    translate_distinct,
    translate_units,
)
from serving.translation.reading import TextInSentences
from serving.translation.results import TextHypothesis, Translation


def text(source: str, *, links: bool = False) -> TextInSentences:
    document = Document(source, "text")
    document.divide("de", lambda _: True)
    return TextInSentences(document, [None] * len(document.sentences), links, links, "en")


class Decoder:
    """Capitals; fails on some sentences, and breaks down after so many."""

    def __init__(self, failing: str = "", lasts: int = 1000) -> None:
        self.seen: list[Key] = []
        self._failing, self._lasts = failing, lasts

    def __call__(
        self, sentences: Mapping[Key, Sentence | None]
    ) -> Iterator[tuple[Key, Translation | ServingError]]:
        for key in sentences:
            if len(self.seen) == self._lasts:
                raise KeyboardInterrupt
            self.seen.append(key)
            if self._failing and self._failing in key[0]:
                yield key, DecodingError("no")
                continue
            links = (Link((0, 1), (0, 1), 0.5),) if key[1] else None
            words = key[0].upper()
            best = TextHypothesis(words, 0.0, 0.0, (), (), finished=True, alignment=links)
            yield key, Translation(words, (best,))


def test_equal_sentences_are_decoded_once(tmp_path: Path) -> None:
    decoder, progress = Decoder(), list[tuple[int, int]]()
    known = KnownSentences(tmp_path / "known", "me")
    found, failed, _ = translate_distinct(
        ["Ja. Nein.", "Nein.\nJa."],
        text,
        decoder,
        known,
        lambda done, total: progress.append((done, total)),
    )
    assert [translation.text for translation in found] == ["JA. NEIN.", "NEIN.\nJA."]
    assert (failed, decoder.seen) == (0, [("Ja.", False), ("Nein.", False)])
    assert progress == [(0, 2), (1, 2), (2, 2)]
    known.close(remove=True)
    assert not list(tmp_path.iterdir())


def test_what_was_done_before_an_interruption_is_not_done_again(tmp_path: Path) -> None:
    def linked(source: str) -> TextInSentences:
        return text(source, links=True)

    units = ["Ja. Nein. Doch."]
    known = KnownSentences(tmp_path / "known", "me")
    with pytest.raises(KeyboardInterrupt):
        translate_distinct(units, linked, Decoder(lasts=2), known, lambda *_: None)
    known.close(remove=False)
    with (tmp_path / "known").open("a") as file:
        file.write('{"sentence": "Doch.", "wi')  # a line that was cut off

    decoder = Decoder()
    known = KnownSentences(tmp_path / "known", "me")
    found, _, _ = translate_distinct(units, linked, decoder, known, lambda *_: None)
    known.close(remove=True)
    assert decoder.seen == [("Doch.", True)]
    assert found[0].text == "JA. NEIN. DOCH."
    assert [link.source for link in found[0].links] == [(0, 1), (4, 5), (10, 11)]


def test_what_another_model_did_is_done_again(tmp_path: Path) -> None:
    known = KnownSentences(tmp_path / "known", "me")
    translate_distinct(["Ja."], text, Decoder(), known, lambda *_: None)
    known.close(remove=False)
    for made_by, expected in (("me", 1), ("you", 0)):
        known = KnownSentences(tmp_path / "known", made_by)
        known.close(remove=False)
        assert len(known) == expected


def test_a_sentence_that_fails_stays_and_is_counted(tmp_path: Path) -> None:
    known = KnownSentences(tmp_path / "known", "me")
    found, failed, _ = translate_distinct(
        ["Ja. Nein."], text, Decoder("Nein"), known, lambda *_: None
    )
    assert (found[0].text, failed) == ("JA. Nein.", 1)
    assert (("Ja.", False) in known, ("Nein.", False) in known) == (True, False)
    known.close(remove=True)


def test_what_an_earlier_window_has_translated_or_not_is_not_decoded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distinct, "_WINDOW", 2)
    decoder, progress = Decoder("Nein"), list[tuple[int, int]]()
    known = KnownSentences(tmp_path / "known", "me")
    found, failed, _ = translate_distinct(
        ["Ja.", "Nein.", "Nein.", "Ja.", "Doch."],
        text,
        decoder,
        known,
        lambda done, total: progress.append((done, total)),
    )
    known.close(remove=True)
    assert [each.text for each in found] == ["JA.", "Nein.", "Nein.", "JA.", "DOCH."]
    assert (failed, [words for words, _ in decoder.seen]) == (1, ["Ja.", "Nein.", "Doch."])
    assert progress == [(0, 3), (1, 3), (2, 3), (3, 3)]


def test_a_unit_with_an_element_that_got_the_words_of_the_source_is_named(tmp_path: Path) -> None:
    def read(unit: Unit) -> TextInSentences:
        document = Document(unit.text, unit.format)
        document.divide("de", lambda _: True)
        return TextInSentences(document, [None] * len(document.sentences), False, True, "en")

    def decode(
        waiting: Mapping[Key, Sentence | None],
    ) -> Iterator[tuple[Key, Translation | ServingError]]:
        for key in waiting:  # one word for both elements
            yield (
                key,
                Translation("Open", (TextHypothesis("Open", 0.0, 0.0, (), (), finished=True),)),
            )

    units = [Unit("<a>Tür</a> <b>öffnen</b>", "xml"), Unit("Tür öffnen", "xml")]
    _, warnings = translate_units(units, read, decode, tmp_path / "out", "me", None)
    assert len(warnings) == 1
    assert "<a>Tür</a> <b>öffnen</b>" in warnings[0]
