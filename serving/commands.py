"""The verbs of `python -m serving`; only results go to stdout, in the order of the input."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Callable
from typing import Any

from serving.errors import InvalidOptionError, InvalidTextError, RequestError
from serving.lines import LineEncodingError, decode_lines
from serving.search.options import parse_options
from serving.threads import default_threads
from serving.translation.results import Score, Translation
from serving.translation.translator import Translator


def translate(options: argparse.Namespace) -> int:
    """Translate each line of stdin."""
    threads = _threads(options)
    # A worker a thread: a file is many sentences.
    translator = Translator(options.bundle, threads=threads, workers=threads)
    search = parse_options(translator.manifest.search | _assignments(options.option))
    lines, prefix = _read_lines(), options.target_prefix
    progress = ProgressLine(len(lines))
    try:
        results = translator.translate(lines, search, target_prefix=prefix, progress=progress.add)
    except RequestError:
        _find_line(lines, lambda line: translator.texts.prepare(line, search, prefix))
        raise
    progress.finish()
    for result in results:
        print(_json(result) if options.json else result.text.replace("\n", " "))
    return 0


def score(options: argparse.Namespace) -> int:
    """Score each line of stdin: source, a tab, translation. A blank line stays blank."""
    translator = Translator(options.bundle, threads=_threads(options))
    lines = _read_lines()
    filled = [line for line in lines if line.strip()]
    progress = ProgressLine(len(filled))
    try:
        results = translator.score([_split(line) for line in filled])
    except RequestError:
        _find_line(lines, lambda line: line.strip() and translator.score([_split(line)]))
        raise
    progress.add(len(filled))
    progress.finish()
    scores = iter(results)
    for line in lines:
        if not line.strip():
            print()
            continue
        result = next(scores)
        print(_json(result) if options.json else f"{result.cumulative:.6f}")
    return 0


def generate(options: argparse.Namespace) -> int:
    """Continue each line of stdin: the line itself, then what follows it."""
    # Here, for the other verbs start sooner without.
    from serving.generation.generator import Generator
    from serving.search.sampling_options import parse_generation_options

    generator = Generator(options.bundle, threads=_threads(options))
    values = generator.manifest.search | _assignments(options.option)
    if options.seed is not None:
        values["seed"] = options.seed
    search = parse_generation_options(values)
    lines = _read_lines()
    progress = ProgressLine(len(lines), "prompts")
    try:
        found = generator.generate(lines, search, progress=progress.add) if lines else []
    except RequestError:
        _find_line(lines, generator.encode)
        raise
    progress.finish()
    for line, outputs in zip(lines, found, strict=True):
        for output in outputs:
            text = json.dumps(dataclasses.asdict(output), ensure_ascii=False)
            print(text if options.json else (line + output.text).replace("\n", " "))
    return 0


class ProgressLine:
    """A counter on stderr: live on a terminal, one line at the end elsewhere."""

    def __init__(self, total: int, what: str = "sentences") -> None:
        self._total, self._done, self._start = total, 0, time.perf_counter()
        self._what = what
        self._live = sys.stderr.isatty()

    def add(self, count: int) -> None:
        """Count what is finished."""
        self._done += count
        if self._live:
            print(f"\r{self._line()}", end="", file=sys.stderr, flush=True)

    def finish(self) -> None:
        """Print the totals."""
        print(("\r" if self._live else "") + self._line(), file=sys.stderr)

    def _line(self) -> str:
        seconds = time.perf_counter() - self._start
        rate = self._done / seconds if seconds > 0 else 0.0
        return f"{self._done}/{self._total} {self._what}, {seconds:.1f} s, {rate:.1f}/s"


def _threads(options: argparse.Namespace) -> int:
    if options.threads is not None and options.threads < 1:
        raise InvalidOptionError(
            f"--threads must be >= 1, got {options.threads}", parameter="threads"
        )
    return options.threads or default_threads()


def _read_lines() -> list[str]:
    """Lines of stdin; raises InvalidTextError where one is not UTF-8."""
    try:
        return decode_lines(sys.stdin.buffer.read())
    except LineEncodingError as error:
        raise InvalidTextError(str(error)) from error


def _find_line(lines: list[str], check: Callable[[str], object]) -> None:
    """Raise the error of the first line that `check` refuses, naming the line."""
    for number, line in enumerate(lines, 1):
        try:
            check(line)
        except RequestError as error:
            raise type(error)(f"line {number}: {error}", parameter=error.parameter) from error


def _split(line: str) -> tuple[str, str]:
    source, tab, target = line.partition("\t")
    if not tab:
        raise InvalidTextError("there must be a tab between source and translation")
    return source, target


def _assignments(texts: list[str]) -> dict[str, Any]:
    """`key=value` texts to option values; a value is JSON, or else text."""
    values: dict[str, Any] = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator:
            raise InvalidOptionError(f"--option must be KEY=VALUE, got {text!r}")
        try:
            values[key] = json.loads(value)
        except ValueError:
            values[key] = value
    return values


def _json(result: Translation | Score) -> str:
    tree = dataclasses.asdict(result)
    if isinstance(result, Score):
        tree["cumulative"] = result.cumulative
    return json.dumps(tree, ensure_ascii=False)
