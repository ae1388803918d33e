"""Text that a teacher translates: for a student to learn from, or of text in one language alone.

Sequence-level distillation and, by `metric`, its interpolation with the references: Kim and Rush
2016, sections 3.2 and 3.3. Back-translation: Sennrich et al. 2016. The teacher decodes by
`serving.bulk`, which goes on after a kill.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from serving.bulk.run import run
from serving.bulk.worker import Task
from serving.bundle.manifest import MANIFEST, Languages, parse_manifest
from serving.errors import ServingError
from training.checkpoint import write_atomically
from training.corpus import read_lines, read_pairs
from training.errors import ConfigError

METRICS = ("chrf", "bleu")
_ROWS_AT_ONCE = 500
"""Rows that one process scores between two answers."""


@dataclass(frozen=True)
class Workers:
    """Who decodes: see `serving.bulk.run.run`."""

    count: int | None = None
    address: str | None = None


@dataclass(frozen=True)
class Made:
    """Parallel text that was made."""

    source: Path
    target: Path
    pairs: int
    dropped: int
    """Rows that the teacher could not translate, or translated to nothing."""


def distill(
    teacher: Path,
    source: Path,
    reference: Path,
    out: Path,
    *,
    n_best: int = 8,
    metric: str = "chrf",
    workers: Workers,
    force: bool = False,
) -> Made:
    """Write OUT.<source language> and OUT.<target language>: the sources, and of the teacher's
    `n_best` translations of each the one nearest to its reference by that metric of sentences.

    With one translation a row the references count for nothing. Raises ConfigError or CorpusError
    where it cannot be done; a run that was ended goes on when it is called again.
    """
    if metric not in METRICS:
        raise ConfigError(f"--metric must be one of {', '.join(METRICS)}, got {metric!r}")
    if n_best < 1:
        raise ConfigError(f"--n-best must be >= 1, got {n_best}")
    pairs = read_pairs(source, reference)
    lists = _translated(teacher, [text for text, _ in pairs], out, n_best, workers, force=force)
    rows = list(zip(lists, [text for _, text in pairs], strict=True))
    chosen = (
        _nearest(rows, metric) if n_best > 1 else [found[0] if found else "" for found in lists]
    )
    made = [(text, best) for (text, _), best in zip(pairs, chosen, strict=True)]
    languages = _languages(teacher)
    return _write(made, out, languages.source[0], languages.target[0])


def backtranslate(
    bundle: Path, text: Path, out: Path, *, workers: Workers, force: bool = False
) -> Made:
    """Write OUT.<target language of the bundle>, what the bundle makes of a text, and OUT.<source
    language>, the text itself: parallel text for a model of the other direction.

    Raises as `distill` does, and goes on as it does.
    """
    lines = read_lines(text)
    lists = _translated(bundle, lines, out, 1, workers, force=force)
    made = [(found[0] if found else "", line) for found, line in zip(lists, lines, strict=True)]
    languages = _languages(bundle)
    return _write(made, out, languages.target[0], languages.source[0])


def _translated(
    bundle: Path, texts: Sequence[str], out: Path, n_best: int, workers: Workers, *, force: bool
) -> list[list[str]]:
    """The teacher's translations of each text, best first; none where it has failed."""
    languages = _languages(bundle)
    for language in (languages.source[0], languages.target[0]):
        path = _named(out, language)
        if path.exists() and not force:
            raise ConfigError(f"{path} exists already; give --force to replace it")
    given = out.with_name(f"{out.name}.texts.jsonl")
    found = out.with_name(f"{out.name}.translated.jsonl")
    lines = (json.dumps({"text": text}, ensure_ascii=False) for text in texts)
    write_atomically(given, "".join(f"{line}\n" for line in lines).encode())
    task = Task(
        bundle=bundle.resolve(),
        file=given.resolve(),
        columns=("text",),
        into="translations",
        options={"beam_size": max(5, n_best)},
        n_best=n_best,
    )
    try:
        run(task, found.resolve(), workers=workers.count, address=workers.address, force=True)
    except ServingError as error:
        raise ConfigError(str(error)) from error
    rows = [json.loads(line)["translations"] or [] for line in found.read_bytes().splitlines()]
    given.unlink()
    found.unlink()
    return rows


def _languages(bundle: Path) -> Languages:
    """Of a translation bundle; raises ConfigError for anything else."""
    if not (bundle / MANIFEST).is_file():
        raise ConfigError(
            f"{bundle}: no bundle; make one of a run or a checkpoint with "
            "`python -m macaron export bundle RUN BUNDLE`"
        )
    try:
        manifest = parse_manifest(bundle)
    except ServingError as error:
        raise ConfigError(str(error)) from error
    if manifest.task != "translate":
        raise ConfigError(
            f"{bundle}: a bundle that translates is needed, this one's task is {manifest.task}"
        )
    return manifest.languages


def _nearest(rows: Sequence[tuple[list[str], str]], metric: str) -> list[str]:
    """Of each list the text nearest to the reference, the first of equals; empty for an empty
    list."""
    parts = [rows[i : i + _ROWS_AT_ONCE] for i in range(0, len(rows), _ROWS_AT_ONCE)]
    if len(parts) == 1:
        return _nearest_of_part(parts[0], metric)
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        done = pool.map(_nearest_of_part, parts, [metric] * len(parts))
        return [text for part in done for text in part]


def _nearest_of_part(rows: Sequence[tuple[list[str], str]], metric: str) -> list[str]:
    score = _sentence_score(metric)
    return [max(texts, key=lambda text: score(text, ref), default="") for texts, ref in rows]


def _sentence_score(metric: str) -> Callable[[str, str], float]:
    scorer = CHRF() if metric == "chrf" else BLEU(effective_order=True)
    return lambda text, reference: float(scorer.sentence_score(text, [reference]).score)


def _named(out: Path, language: str) -> Path:
    return out.with_name(f"{out.name}.{language}")


def _write(pairs: Sequence[tuple[str, str]], out: Path, source: str, target: str) -> Made:
    kept = [(a, b) for a, b in pairs if a.strip() and b.strip()]
    paths = _named(out, source), _named(out, target)
    for path, side in zip(paths, _sides(kept), strict=True):
        write_atomically(
            path, "".join(f"{' '.join(text.splitlines())}\n" for text in side).encode()
        )
    return Made(*paths, len(kept), len(pairs) - len(kept))


def _sides(pairs: Sequence[tuple[str, str]]) -> Iterator[list[str]]:
    return ([pair[side] for pair in pairs] for side in (0, 1))
