"""Makes training text with a teacher: translations for a student, or of monolingual text.

Sequence-level distillation and, with `metric`, its interpolation with the references: Kim and Rush
2016, sections 3.2 and 3.3. Back-translation: Sennrich et al. 2016. The teacher decodes with
`serving.bulk`, which resumes after an interruption.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from serving.bulk.run import failed_rows, run
from serving.bulk.worker import BulkTask
from serving.bundle.folder import MANIFEST, file_hash, parse_manifest
from serving.errors import ServingError
from serving.lines import one_line
from serving.search.options import RANGES
from serving.threads import default_threads
from training.corpora.origin_note import write_note
from training.corpora.pairs import Pair, read_lines, read_pairs
from training.derive.teacher import as_bundle
from training.errors import ConfigError
from training.runs.checkpoint import write_atomically
from training.runs.replacing import check_free

METRICS = ("chrf", "bleu")
Direction = tuple[str | None, str | None]
"""Languages of source and target; None uses the bundle's."""
_ROWS_AT_ONCE = 500
"""Rows that one process scores at a time."""


@dataclass(frozen=True)
class Workers:
    """The decoding workers, see `serving.bulk.run.run`."""

    count: int | None = None
    address: str | None = None


@dataclass(frozen=True)
class Choice:
    """How one translation is chosen for each row: among the `n_best` translations, the one nearest
    to the reference by a sentence-level metric."""

    n_best: int = 8
    metric: str = "chrf"

    def __post_init__(self) -> None:
        if self.metric not in METRICS:
            raise ConfigError(f"--metric must be one of {', '.join(METRICS)}, got {self.metric!r}")
        most = int(RANGES["beam_size"][1])
        if not 1 <= self.n_best <= most:
            raise ConfigError(f"--n-best must be in [1, {most}], got {self.n_best}")


@dataclass(frozen=True)
class Made:
    """Parallel text that was made."""

    source: Path
    target: Path
    pairs: int
    dropped: int
    """Number of rows that the teacher could not translate, or translated to nothing."""


def distill(
    teacher: Path,
    source: Path,
    reference: Path,
    out: Path,
    *,
    choice: Choice,
    direction: Direction = (None, None),
    workers: Workers,
    force: bool = False,
) -> Made:
    """Write OUT.<source language> and OUT.<target language>: the sources, and the chosen one of the
    teacher's translations of each.

    The teacher is a bundle, a run or a checkpoint. With one translation a row the references are
    ignored. `direction` is source and target if the teacher has several. Raises ConfigError or
    CorpusError if it is not possible. An interrupted run resumes when called again.
    """
    pairs = read_pairs(source, reference)

    def choose(lists: list[list[str]]) -> Iterator[Pair]:
        rows = [(found, text) for found, (_, text) in zip(lists, pairs, strict=True)]
        if choice.n_best == 1:
            chosen: Iterable[str] = map(_best, lists)
        else:
            chosen = _nearest(rows, choice.metric, workers)
        return zip((text for text, _ in pairs), chosen, strict=True)

    with as_bundle(teacher, out) as bundle:
        languages = chosen_direction(bundle, direction)
        making = _Making(
            bundle, teacher.name, out, languages, languages, choice.n_best, [source, reference]
        )
        return making.run([text for text, _ in pairs], choose, workers, force=force)


def backtranslate(
    teacher: Path,
    text: Path,
    out: Path,
    *,
    direction: Direction = (None, None),
    workers: Workers,
    force: bool = False,
) -> Made:
    """Write OUT.<target language of the teacher>, its translations of a text, and OUT.<source
    language>, the text itself: parallel text for a model of the opposite direction.

    Teacher, errors and resuming are as in `distill`.
    """
    lines = read_lines(text)
    with as_bundle(teacher, out) as bundle:
        source, target = chosen_direction(bundle, direction)
        making = _Making(bundle, teacher.name, out, (source, target), (target, source), 1, [text])
        return making.run(
            lines, lambda lists: zip(map(_best, lists), lines, strict=True), workers, force=force
        )


@dataclass(frozen=True)
class _Making:
    """Parallel text OUT that is being made. Decoded blocks are kept beside it until it is complete,
    so an interruption costs at most one block."""

    bundle: Path
    teacher: str
    """Name of the checkpoint that the bundle was made from, or of the bundle."""
    out: Path
    direction: tuple[str, str]
    """Direction in which the bundle translates."""
    languages: tuple[str, str]
    """Languages of source and target of the result."""
    n_best: int
    read: Sequence[Path]
    """Input files, which the result must not replace."""

    def run(
        self,
        texts: Sequence[str],
        choose: Callable[[list[list[str]]], Iterable[Pair]],
        workers: Workers,
        *,
        force: bool,
    ) -> Made:
        """Decode the texts, unless an earlier run has decoded them, and write the pairs that
        `choose` makes from the lists of translations. A list is empty if the bundle failed."""
        lines = (json.dumps({"text": text}, ensure_ascii=False) for text in texts)
        content = "".join(f"{line}\n" for line in lines).encode()
        given, found = self._work_files(content)
        if not found.exists():
            for path in self._paths():
                check_free(path, self.read, force=force)
            write_atomically(given, content)
            self._decode(given, found, workers)
        rows = [json.loads(line)["translations"] or [] for line in found.read_bytes().splitlines()]
        made = self._write(list(choose(rows)))
        for path in (given, found, failed_rows(found)):
            path.unlink(missing_ok=True)
        return made

    def _work_files(self, content: bytes) -> tuple[Path, Path]:
        """The files of texts and of translations. Another input, bundle or list length gives other
        names."""
        names = "".join(f"{code} " for code in self.direction)
        key = f"{self.n_best} {file_hash(self.bundle / MANIFEST)} {names}".encode()
        name = f"{self.out.name}.{hashlib.sha256(key + content).hexdigest()[:12]}"
        given, found = (self.out.with_name(f"{name}.{part}.jsonl") for part in ("texts", "made"))
        return given, found

    def _paths(self) -> tuple[Path, Path]:
        source, target = (self.out.with_name(f"{self.out.name}.{code}") for code in self.languages)
        return source, target

    def _decode(self, given: Path, found: Path, workers: Workers) -> None:
        task = BulkTask(
            bundle=self.bundle.resolve(),
            file=given.resolve(),
            columns=("text",),
            into="translations",
            options={"beam_size": max(5, self.n_best)},
            n_best=self.n_best,
            source=self.direction[0],
            target=self.direction[1],
        )
        try:
            run(task, found.resolve(), workers=workers.count, address=workers.address)
        except ServingError as error:
            raise ConfigError(str(error)) from error

    def _write(self, pairs: Sequence[Pair]) -> Made:
        kept = [pair for pair in pairs if all(map(str.strip, pair))]
        paths = self._paths()
        for side, path in enumerate(paths):
            lines = "".join(f"{one_line(pair[side])}\n" for pair in kept)
            write_atomically(path, lines.encode())
        write_note(self.out, self.languages, self.teacher)
        return Made(*paths, len(kept), len(pairs) - len(kept))


def _best(texts: Sequence[str]) -> str:
    return texts[0] if texts else ""


def chosen_direction(bundle: Path, direction: Direction) -> tuple[str, str]:
    """The direction for a translation bundle; raises ConfigError for another bundle, and if it does
    not translate that direction or several fit."""
    try:
        manifest = parse_manifest(bundle)
    except ServingError as error:
        raise ConfigError(str(error)) from error
    if manifest.task != "translate":
        raise ConfigError(
            f"{bundle}: a bundle that translates is needed, this one's task is {manifest.task}"
        )
    source, target = direction
    try:
        return manifest.languages.choose(source, target)
    except ServingError as error:
        raise ConfigError(f"{bundle}: {error}; name them with --from and --to") from error


def _nearest(rows: Sequence[tuple[list[str], str]], metric: str, workers: Workers) -> list[str]:
    """The text of each list that is nearest to its reference: the first of equals, and an empty
    text for an empty list."""
    parts = [rows[i : i + _ROWS_AT_ONCE] for i in range(0, len(rows), _ROWS_AT_ONCE)]
    if len(parts) < 2:
        return [text for part in parts for text in _nearest_of_part(part, metric)]
    count = workers.count or default_threads()
    # Not forked, because Ray's threads have run in this process.
    with ProcessPoolExecutor(count, multiprocessing.get_context("spawn")) as pool:
        done = pool.map(_nearest_of_part, parts, [metric] * len(parts))
        return [text for part in done for text in part]


def _nearest_of_part(rows: Sequence[tuple[list[str], str]], metric: str) -> list[str]:
    score = _sentence_score(metric)
    return [max(texts, key=lambda text: score(text, ref), default="") for texts, ref in rows]


def _sentence_score(metric: str) -> Callable[[str, str], float]:
    scorer = CHRF() if metric == "chrf" else BLEU(effective_order=True)
    return lambda text, reference: float(scorer.sentence_score(text, [reference]).score)
