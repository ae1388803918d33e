"""The bench of documents: what it writes, and what it puts beside them."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import docx

from bench.runs.decoding.documents import (
    DocumentMemory,
    DocumentsPlan,
    DocumentsResult,
    distinct_sentences,
    time_document,
)
from bench.subjects.documents import WORDS_A_PAGE, report_of, subtitles_of
from tests.unit.serving.echo import EchoTranslator

TEXTS = [f"Das hier ist der kurze Satz mit dem Namen {chr(97 + n)}." for n in range(20)]


def plan(pages: int = 1, cues: int = 4) -> DocumentsPlan:
    return DocumentsPlan(Path("x"), TEXTS, ("de", "en"), pages, cues, 0.0, 2, 1)


def test_a_report_has_its_pages_and_a_bold_word_in_every_fifth_paragraph() -> None:
    found = docx.Document(BytesIO(report_of(TEXTS, 3))).paragraphs
    words = sum(len(paragraph.text.split()) for paragraph in found)
    assert 3 * WORDS_A_PAGE <= words < 3.3 * WORDS_A_PAGE
    bold = [n for n, p in enumerate(found) if any(run.bold for run in p.runs)]
    assert bold == list(range(0, len(found), 5))


def test_sentences_of_subtitles_run_over_cues() -> None:
    cues = subtitles_of(TEXTS, 3).decode().split("\n\n")
    assert cues[0] == "1\n00:00:00,000 --> 00:00:02,000\nDas hier ist der kurze Satz mit dem"
    assert cues[1].endswith("00:00:02,000 --> 00:00:04,000\nNamen a.")
    assert len(cues) == 3


def test_a_document_is_timed_beside_each_of_its_sentences_once(tmp_path: Path) -> None:
    path = tmp_path / "a.srt"
    path.write_bytes(subtitles_of(TEXTS[:2], 8))
    times = time_document(EchoTranslator(), path, "srt", plan(), lambda _: None)
    sentences = [
        read.document.sentences for read in distinct_sentences(EchoTranslator(), path, ("de", "en"))
    ]
    assert sentences == [[TEXTS[0]], [TEXTS[1]]]
    assert (times.sentences, len(times.document), len(times.engine)) == (2, 2, 2)
    assert times.ratio(lambda took: took.seconds) > 0
    assert list(tmp_path.iterdir()) == [path]
    assert DocumentsResult([times], DocumentMemory(3, 2, 1), [], []).times == [times]
