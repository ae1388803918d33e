"""`python -m bench documents`: whole documents beside the decoding of their sentences, their
memory, and the latency of other clients while a server translates one."""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import serving
from bench.errors import BenchError
from bench.machine.load import Load
from bench.machine.stopwatch import time_process
from bench.reports.report import Machine, head_lines, table_head, table_line
from bench.runs.decoding.beside import LoadsBeside, latency_lines, loads_beside
from bench.subjects.documents import WORDS_A_PAGE, report_of, subtitles_of
from bench.systems.processes.background_server import BackgroundServer
from bench.systems.processes.repetitions import Progress
from serving.documents.recognition import recognised
from serving.translation.reading import TextInSentences
from serving.translation.translator import ModelTranslator, Translator, Wishes

_BESIDE = "beside a document"
_WARM_UP = 64
"""Number of sentences for warming up."""
_MIB = 2**20


@dataclass(frozen=True)
class DocumentsPlan:
    """The parameters of a measurement of documents."""

    bundle: Path
    texts: Sequence[str]
    """Texts of one sentence each."""
    languages: tuple[str, str]
    pages: int
    cues: int
    seconds: float
    """Duration of each load on the server; 0 for none."""
    repetitions: int
    threads: int


@dataclass(frozen=True)
class Took:
    """The times of one run."""

    seconds: float
    processor_s: float
    """Processor seconds of all threads of the process."""


@dataclass(frozen=True)
class DocumentTimes:
    """A document beside its distinct sentences in one list; one entry per repetition."""

    name: str
    sentences: int
    """Number of distinct sentences, with and without word links."""
    document: list[Took] = field(default_factory=list)
    engine: list[Took] = field(default_factory=list)

    def ratio(self, of: Callable[[Took], float]) -> float:
        """Time of the document divided by that of the engine: the median of the pairs."""
        pairs = zip(self.document, self.engine, strict=True)
        return statistics.median(of(whole) / of(alone) for whole, alone in pairs)


@dataclass(frozen=True)
class DocumentMemory:
    """Peak memory of whole processes in bytes."""

    document: int
    """`translate-file` of the report."""
    sentences: int
    """`translate` of the same number of sentences."""
    sentence: int
    """`translate` of one sentence, which is the memory of the model."""


@dataclass(frozen=True)
class DocumentsResult:
    """All results."""

    times: list[DocumentTimes]
    memory: DocumentMemory
    alone: list[Load]
    """Latency of clients without a document; empty if it was not measured."""
    beside: list[Load]
    """Latency of clients beside a document."""


def run_documents(plan: DocumentsPlan, progress: Progress) -> DocumentsResult:
    """Measure speed, memory, and the latency beside a document. Raises BenchError if a process
    fails, or if the document ends before the load on the server does."""
    report = report_of(plan.texts, plan.pages)
    files = {
        "report.docx": (f"docx, {plan.pages} pages of {WORDS_A_PAGE} words", report),
        "film.srt": (f"srt, {plan.cues} cues", subtitles_of(plan.texts, plan.cues)),
    }
    with tempfile.TemporaryDirectory(prefix="macaron-bench-") as name:
        folder = Path(name)
        for file, (_, content) in files.items():
            (folder / file).write_bytes(content)
        translator = Translator(plan.bundle, threads=plan.threads, workers=plan.threads)
        times = [
            time_document(translator, folder / file, what, plan, progress)
            for file, (what, _) in files.items()
        ]
        del translator
        memory = _memory(plan, folder, progress)
        alone, beside = _loads(plan, report, folder, progress) if plan.seconds else ([], [])
    return DocumentsResult(times, memory, alone, beside)


def time_document(
    translator: ModelTranslator, path: Path, name: str, plan: DocumentsPlan, progress: Progress
) -> DocumentTimes:
    """Time a file from reading to writing, in turns with one list of its distinct sentences, after
    a warm-up."""
    source, target = plan.languages
    sentences = distinct_sentences(translator, path, plan.languages)
    times = DocumentTimes(name, len(sentences))

    def whole() -> None:
        out = path.with_name(f"out-{path.name}")
        translator.translate_file(path, out, source=source, target=target)
        out.unlink()

    def alone() -> None:
        for _ in translator.translate_read(sentences):
            pass

    list(translator.translate_read(sentences[:_WARM_UP]))
    for repetition in range(plan.repetitions):
        progress(f"{name}: repetition {repetition + 1} of {plan.repetitions}")
        times.document.append(_took(whole))
        times.engine.append(_took(alone))
    return times


def distinct_sentences(
    translator: ModelTranslator, path: Path, languages: tuple[str, str]
) -> list[TextInSentences]:
    """The sentences that the engine decodes for a file, each once, with word links if the file
    needs them."""
    source, target = languages
    options = translator.default_options
    content = path.read_bytes()
    found: dict[tuple[str, bool], None] = {}
    for unit in recognised(content, path.name).read(content).units:
        read = translator.read(
            unit.text,
            options,
            source=source,
            target=target,
            format=unit.format,
            wishes=Wishes(alignments=unit.links),
        )
        found |= dict.fromkeys((text, read.with_links) for text in read.document.sentences)
    return [
        translator.read(
            text,
            options,
            source=source,
            target=target,
            split=False,
            wishes=Wishes(alignments=links),
        )
        for text, links in found
    ]


def documents_markdown(
    command: str, machine: Machine, plan: DocumentsPlan, result: DocumentsResult
) -> str:
    """The tables: speed, memory, latency."""
    subject = f"{plan.bundle.name}; medians of {plan.repetitions} interleaved repetitions."
    columns = ["document", "distinct sentences", "document, s", "its sentences alone, s"]
    columns += ["ratio", "ratio of processor times"]
    lines = [*head_lines(command, machine, subject), "", *table_head(columns)]
    for each in result.times:
        seconds = [
            f"{statistics.median(took.seconds for took in runs):.1f}"
            for runs in (each.document, each.engine)
        ]
        ratios = [each.ratio(lambda t: t.seconds), each.ratio(lambda t: t.processor_s)]
        cells = [each.name, str(each.sentences), *seconds, *(f"{r:.2f}" for r in ratios)]
        lines.append(table_line(cells))
    names = ("the document", "as many sentences", "one sentence")
    memory = result.memory
    peaks = (memory.document, memory.sentences, memory.sentence)
    lines += ["", *table_head([f"a process with {result.times[0].name}", "memory at most, MiB"])]
    lines += [table_line([n, f"{p / _MIB:.0f}"]) for n, p in zip(names, peaks, strict=True)]
    beside = (memory.document - memory.sentence) / _MIB
    lines.append(table_line(["document beside the model", f"{beside:.0f}"]))
    if result.alone:
        loads = LoadsBeside(result.alone, {_BESIDE: result.beside})
        lines += ["", *latency_lines("without a document", loads, plan.seconds)]
    return "\n".join(lines)


def write_documents(path: Path, command: str, machine: Machine, result: DocumentsResult) -> None:
    """Write the whole record as JSON."""
    record = {"command": command, "machine": asdict(machine), **asdict(result)}
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def _took(run: Callable[[], None]) -> Took:
    begin, processor = time.monotonic(), time.process_time()
    run()
    return Took(time.monotonic() - begin, time.process_time() - processor)


def _memory(plan: DocumentsPlan, folder: Path, progress: Progress) -> DocumentMemory:
    source, target = plan.languages
    base = [sys.executable, "-m", serving.__name__]
    options = ["--threads", str(plan.threads), "--from", source, "--to", target]
    lines = [*dict.fromkeys(plan.texts)]
    (folder / "one").write_text(f"{lines[0]}\n")
    count = plan.pages * WORDS_A_PAGE // max(1, sum(len(t.split()) for t in lines) // len(lines))
    (folder / "all").write_text("".join(f"{line}\n" for line in lines[: count + 1]))
    out = folder / "out.docx"
    document = ["translate-file", str(plan.bundle), str(folder / "report.docx"), str(out)]
    peaks = []
    for words, given in (
        (document, "one"),
        (["translate", str(plan.bundle)], "all"),
        (["translate", str(plan.bundle)], "one"),
    ):
        progress(f"memory: {words[0]}")
        command = [*base, *words, *options]
        usage = time_process(words[0], command, folder / given, folder / "output")
        peaks.append(usage.peak_rss)
    return DocumentMemory(*peaks)


def _loads(
    plan: DocumentsPlan, report: bytes, folder: Path, progress: Progress
) -> tuple[list[Load], list[Load]]:
    """Poisson arrivals at a server, in turns without a document and beside one."""
    source, target = plan.languages
    bodies = [{"q": text, "source": source, "target": target} for text in plan.texts]
    with BackgroundServer(plan.bundle, plan.threads, folder) as server:

        @contextmanager
        def document() -> Iterator[None]:
            id = server.submit_document(report, "report.docx", source, target)
            yield
            state = server.document(id)
            server.remove_document(id)
            if state["state"] != "translating":
                raise BenchError(f"the document must outlast the load: more --pages; got {state}")

        found = loads_beside(
            f"{server.url}/translate",
            bodies,
            {_BESIDE: document},
            plan.seconds,
            plan.repetitions,
            progress,
        )
    return found.alone, found.beside[_BESIDE]
