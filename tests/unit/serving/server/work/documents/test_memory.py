"""How much memory the server takes for a document of very many paragraphs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.serving.documents.packages import docx

COUNT = 100_000
MOST_KILOBYTES = 300_000
GROWTH = """
import asyncio, io, sys
from pathlib import Path
from types import SimpleNamespace

from serving.server.http.settings import Settings
from serving.server.work.documents.shelf import DocumentRecord, Shelf, new_id
from serving.server.work.documents.translating import DocumentTranslation
from serving.queue.ticket import RequestTiming
from serving.text.alignment import Link
from serving.text.document import Document
from serving.translation.results import TextHypothesis, Translation
from serving.translation.ticket import Completed, Request, TranslationTicket

class Jobs:
    idle_s, decoded = 60.0, 0

    async def translate(self, job, *_):
        return SimpleNamespace(translations=await asyncio.to_thread(self._all, job))

    def _all(self, job):
        documents = [Document(text, job.format) for text in job.texts]
        for document in documents:
            document.divide("de", lambda _: True)
        requests = [Request(text=each, alignments=True) for d in documents for each in d.sentences]
        tickets = iter(job.sentences.submit_all(requests, "model", self._decoded))
        every = (next(tickets).result().translation.linked for _ in requests)
        rendered = [d.render([next(every) for _ in d.sentences]) for d in documents]
        return [SimpleNamespace(text=each.text, hypotheses=()) for each in rendered]

    def _decoded(self, requests):
        self.decoded += len(requests)
        return [self._ticket(request.text) for request in requests]

    def _ticket(self, text):
        words = text.upper()
        links = tuple(Link((n, n + 1), (n, n + 1), 0.5) for n in range(0, len(words), 5))
        best = TextHypothesis(words, 0.0, 0.0, (), (), finished=True, alignment=links)
        ticket = TranslationTicket()
        ticket.complete(Completed(Translation(words, (best,)), RequestTiming(0.0, 0.0, 0.0, 1)))
        return ticket

def memory(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))

shelf, jobs = Shelf(Path(sys.argv[1])), Jobs()
catalogue = SimpleNamespace(pivot=lambda *_: None, codes=lambda source, target, _: (source, target))
translation = DocumentTranslation(shelf, jobs, catalogue, Settings(threads=2))

def run(path):
    record = DocumentRecord(
        id=new_id(), owner="", client="c", name="a.docx", source="de", target="en", created=1.0
    )
    with open(path, "rb") as file:
        shelf.add(record, file)
    asyncio.run(translation.run(record))
    return shelf.get(record.id, "")

run(sys.argv[3])  # what is imported and read once
before, jobs.decoded = memory("VmRSS"), 0
record = run(sys.argv[2])
print(record.state, record.done, jobs.decoded, memory("VmHWM") - before)
"""


def styled(count: int) -> bytes:
    """So many paragraphs with a bold word, each with a sentence of its own and one that all have;
    without figures, for sentences that differ in figures alone are equal."""
    paragraphs = []
    for number in range(count):
        name = "".join("abdefgiklm"[int(digit)] for digit in f"{number:05}")
        paragraphs.append(
            "<w:p><w:r><w:t xml:space='preserve'>Das ist der </w:t></w:r>"
            f"<w:r><w:rPr><w:b/></w:rPr><w:t>wichtige Satz {name}.</w:t></w:r>"
            "<w:r><w:t xml:space='preserve'> Das steht immer da.</w:t></w:r></w:p>"
        )
    return docx("".join(paragraphs))


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="needs /proc")
def test_a_hundred_thousand_styled_segments_take_less_than_300_mb(tmp_path: Path) -> None:
    large, small = tmp_path / "large.docx", tmp_path / "small.docx"
    large.write_bytes(styled(COUNT))
    small.write_bytes(styled(1))
    words = [sys.executable, "-c", GROWTH, str(tmp_path / "shelf"), str(large), str(small)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    state, units, decoded, kilobytes = done.stdout.split()
    assert (state, int(units), int(decoded)) == ("done", COUNT, COUNT + 1)
    assert int(kilobytes) < MOST_KILOBYTES
