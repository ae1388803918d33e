"""The verbs of `python -m serving`; only results go to stdout, in the order of the input."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from serving.bundle.manifest import check_shortlist
from serving.documents.files import FileWishes, files_to_translate
from serving.documents.tables.columns import named_columns
from serving.errors import InvalidOptionError, InvalidTextError, RequestError, ServingError
from serving.hub.pull import bundle_folder
from serving.lines import LineEncodingError, decode_line, decode_lines
from serving.progress import ProgressLine
from serving.search.options import parse_options
from serving.text.terms import NO_TERMS, Terms
from serving.threads import default_threads
from serving.translation.results import Score, Translation
from serving.translation.translator import Translator, Wishes

if TYPE_CHECKING:
    from serving.arrays import Floats
    from serving.encoding.reader import TextReader

FAILED_LINES = 3
"""Exit status if some lines could not be translated and the others were."""


def translate(options: argparse.Namespace) -> int:
    """Translate each line of stdin: all together, or with --stream each as it arrives.

    A line that cannot be translated is named on stderr and stays empty.
    """
    threads = _threads(options)
    # One worker per thread, since a file has many sentences. All threads share a single line.
    workers = 1 if options.stream else threads
    translator = Translator(
        options.bundle, threads=threads, workers=workers, zero_shot=options.zero_shot
    )
    lines = TranslatedLines(translator, options)
    if options.stream:
        for line in sys.stdin.buffer:
            lines.translate([line])
    else:
        content = sys.stdin.buffer.read().split(b"\n")
        if content[-1] == b"":
            content.pop()
        lines.progress = ProgressLine(len(content))
        lines.translate(content)
        lines.progress.finish()
    return FAILED_LINES if lines.failed else 0


class TranslatedLines:
    """Translates lines and prints them in order."""

    def __init__(self, translator: Translator, options: argparse.Namespace) -> None:
        self._translator, self._options = translator, options
        self._search = parse_options(translator.manifest.search | _assignments(options.option))
        # An error in the options concerns every line.
        translator.texts.encode_target(options.target_prefix, "target_prefix")
        check_shortlist(self._search, translator.manifest)
        self._languages = translator.direction(options.source_language, options.target_language)
        self._count = 0
        self.failed = False
        self.progress: ProgressLine | None = None

    def translate(self, lines: Sequence[bytes]) -> None:
        """Translate these lines together, and print them."""
        first, self._count = self._count + 1, self._count + len(lines)
        texts: dict[int, str] = {}
        for number, line in enumerate(lines, first):
            try:
                texts[number] = decode_line(line, number)
            except LineEncodingError as error:
                self._refuse(str(error))
        numbers = list(texts)
        found: dict[int, Translation] = {}
        source, target = self._languages
        for index, result in self._translator.translate_each(
            list(texts.values()),
            self._search,
            format=self._options.format,
            split=self._options.split,
            source=source,
            target=target,
            wishes=Wishes(target_prefix=self._options.target_prefix),
        ):
            if isinstance(result, ServingError):
                self._refuse(f"line {numbers[index]}: {result}")
                continue
            found[numbers[index]] = result
            if self.progress:
                self.progress.add(1)
        for number in range(first, self._count + 1):
            print(self._written(found.get(number)))
        sys.stdout.flush()

    def _written(self, translation: Translation | None) -> str:
        if translation is None:
            return ""
        return _json(translation) if self._options.json else translation.text.replace("\n", " ")

    def _refuse(self, reason: str) -> None:
        self.failed = True
        print(f"error: {reason}", file=sys.stderr)


def translate_file(options: argparse.Namespace) -> int:
    """Translate a file, or each file of a folder or pattern; prints nothing.

    Of several files, one that fails is named on stderr, and those whose output exists are skipped,
    so that an interrupted run can be continued.
    """
    columns = named_columns(options.columns)
    found = files_to_translate(options.input, options.output, tables=bool(columns))
    terms = _glossary(options.glossary) if options.glossary else NO_TERMS
    threads = _threads(options)
    translator = Translator(
        options.bundle, threads=threads, workers=threads, zero_shot=options.zero_shot
    )
    search = parse_options(translator.manifest.search | _assignments(options.option))
    source, target = translator.direction(options.source_language, options.target_language)
    memory = None
    if options.memory:
        # Imported here, because its libraries are optional.
        from serving.documents.localisation.segments import memory_of_file

        memory = dataclasses.replace(
            memory_of_file(options.memory, source, target, options.memory_threshold),
            as_prefix=options.memory_fuzzy == "prefix",
        )
    wishes = FileWishes(
        force=options.force,
        bilingual=options.bilingual,
        terms=terms,
        memory=memory,
        retranslate=options.retranslate,
        columns=columns,
    )
    several = len(found) > 1 or Path(options.input).is_dir()
    failed = False
    for number, (path, out) in enumerate(found, 1):
        if several and out.exists() and not options.force:
            print(f"{out} exists and stays; --force replaces it", file=sys.stderr)
            continue
        out.parent.mkdir(parents=True, exist_ok=True)
        progress = _FileProgress(f"sentences of {path.name} ({number} of {len(found)})")
        try:
            done = translator.translate_file(
                path,
                out,
                search,
                source=source,
                target=target,
                wishes=wishes,
                progress=progress.add,
            )
        except (ServingError, OSError) as error:
            failed = True
            print(f"error: {path}: {error}", file=sys.stderr)
            continue
        progress.finish()
        for warning in done.warnings:
            print(f"warning: {path}: {warning}", file=sys.stderr)
    if failed and not several:
        return 1
    return FAILED_LINES if failed else 0


class _FileProgress:
    """A progress line that begins when the number of sentences in a file is known."""

    def __init__(self, what: str) -> None:
        self._what, self._done = what, 0
        self._line: ProgressLine | None = None

    def add(self, done: int, total: int) -> None:
        """Report the number of finished sentences, and the total."""
        if self._line is None:
            self._line = ProgressLine(total, self._what, done)
        else:
            self._line.add(done - self._done)
        self._done = done

    def finish(self) -> None:
        """Write the line for the last time."""
        if self._line:
            self._line.finish()


def _glossary(path: Path) -> Terms:
    """The terms in a file. Raises InvalidOptionError for a file that cannot be read, or a line
    without a tab."""
    try:
        lines = decode_lines(path.read_bytes())
        return Terms(glossary=tuple(_split(line) for line in lines if line.strip()))
    except (OSError, LineEncodingError, InvalidTextError) as error:
        raise InvalidOptionError(f"--glossary {path}: {error}", parameter="glossary") from error


def bulk(options: argparse.Namespace) -> int:
    """Translate or score every row of a file into another file; prints nothing."""
    # Imported here, because the other verbs do not need Ray.
    from serving.bulk.run import failed_rows, run
    from serving.bulk.worker import BulkTask

    _check_bulk(options)
    scored = (options.target_column or "translation",) if options.score else ()
    task = BulkTask(
        bundle=bundle_folder(options.bundle).resolve(),
        file=options.input.resolve(),
        columns=(options.column, *scored),
        into=options.into or ("score" if options.score else "translation"),
        options=_assignments(options.option),
        target_prefix=options.target_prefix,
        format=options.format,
        split=options.split,
        source=options.source_language,
        target=options.target_language,
        zero_shot=options.zero_shot,
        n_best=options.n_best,
        threads=options.threads_per_worker,
    )
    failed = run(
        task,
        options.output,
        workers=options.workers,
        address=options.address,
        force=options.force,
    )
    if failed:
        why = failed_rows(options.output)
        print(f"error: {failed} rows have no result; {why} says why", file=sys.stderr)
    return FAILED_LINES if failed else 0


def _check_bulk(options: argparse.Namespace) -> None:
    """Raise InvalidOptionError for options that would have no effect."""
    of_translation = {
        "--option": options.option,
        "--target-prefix": options.target_prefix,
        "--format": options.format != "text",
        "--no-split": not options.split,
        "--n-best": options.n_best,
    }
    for name, given in of_translation.items():
        if options.score and given:
            raise InvalidOptionError(f"{name} is for translating, not for --score; leave it out")
    if options.target_column and not options.score:
        raise InvalidOptionError("--target-column is only for --score; leave it out")


def score(options: argparse.Namespace) -> int:
    """Score each line of stdin: source, a tab, translation. A blank line stays blank."""
    translator = Translator(options.bundle, threads=_threads(options), zero_shot=options.zero_shot)
    source, target = translator.direction(options.source_language, options.target_language)
    score = functools.partial(translator.score, source=source, target=target)
    lines = _read_lines()
    filled = [line for line in lines if line.strip()]
    progress = ProgressLine(len(filled))
    try:
        results = score([_split(line) for line in filled])
    except RequestError:
        _find_line(lines, lambda line: line.strip() and score([_split(line)]))
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
    # Imported here, so that the other verbs start sooner.
    from serving.generation.generator import Generator
    from serving.search.sampling_options import over_defaults, parse_generation_options

    generator = Generator(options.bundle, threads=_threads(options))
    given = _assignments(options.option)
    if options.seed is not None:
        given["seed"] = options.seed
    search = parse_generation_options(over_defaults(given, generator.manifest.search))
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


def embed(options: argparse.Namespace) -> int:
    """Print the vector of each line of stdin, as numbers separated by spaces."""
    from serving.encoding.reader import Embedder

    embedder = Embedder(options.bundle, threads=_threads(options))
    lines = _read_lines()
    for vector in _read_each(embedder, lines, options):
        numbers = [float(f"{number:.7g}") for number in vector.tolist()]
        print(json.dumps(numbers) if options.json else " ".join(map(str, numbers)))
    return 0


def classify(options: argparse.Namespace) -> int:
    """Print the likeliest class of each line of stdin, a tab, and its probability."""
    from serving.encoding.reader import Classifier, probabilities, ranked

    classifier = Classifier(options.bundle, threads=_threads(options))
    lines = [_split(line) for line in _read_lines()] if options.pairs else _read_lines()
    for scores in _read_each(classifier, lines, options):
        found = ranked(classifier.reading.labels, probabilities(scores[None])[0])
        label, probability = found[0]
        print(json.dumps(dict(found)) if options.json else f"{label}\t{probability:.4f}")
    return 0


def _read_each(
    reader: TextReader, lines: Sequence[str | tuple[str, str]], options: argparse.Namespace
) -> Floats:
    """A reader's output for each line. Raises RequestError that names the line which it refuses."""
    encoded = []
    for number, line in enumerate(lines, 1):
        try:
            encoded.append(reader.encode(line, truncate=options.truncate))
        except RequestError as error:
            raise type(error)(f"line {number}: {error}", parameter=error.parameter) from error
    return reader.encoder.run(encoded)


def _threads(options: argparse.Namespace) -> int:
    if options.threads is not None and options.threads < 1:
        raise InvalidOptionError(
            f"--threads must be >= 1, got {options.threads}", parameter="threads"
        )
    return options.threads or default_threads()


def _read_lines() -> list[str]:
    """The lines of stdin. Raises InvalidTextError if one is not UTF-8."""
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
        raise InvalidTextError("there must be a tab between the two texts of a line")
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
