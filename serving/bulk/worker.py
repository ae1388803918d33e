"""Decodes one block in one process: reads it, decodes it and returns its content with the
results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from serving.bulk.blocks import Form, Result, Row, RowBlock, read, written
from serving.bundle.manifest import check_shortlist
from serving.errors import ServingError
from serving.search.options import parse_options
from serving.text.document import Format
from serving.threads import keep_numpy_single
from serving.translation.results import Translation
from serving.translation.translator import Translator, Wishes


@dataclass(frozen=True, kw_only=True)
class BulkTask:
    """The work on every row of a file."""

    bundle: Path
    file: Path
    columns: tuple[str, ...]
    """Column of the text; columns of source and translation if translations are scored."""
    into: str
    """Column, or member, that receives the results."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Search options that differ from the bundle's defaults."""
    target_prefix: str = ""
    format: Format = "text"
    split: bool = True
    source: str | None = None
    """Language codes of the texts and of their translations, for a bundle of several directions."""
    target: str | None = None
    zero_shot: bool = False
    n_best: int = 0
    """Number of translations of each row; 0 returns the best one, not in a list."""
    threads: int = 1
    """Number of threads of one process."""

    @property
    def form(self) -> Form:
        """The form of a result: if two columns are named, the given translations are scored."""
        if len(self.columns) == 2:
            return "number"
        return "texts" if self.n_best else "text"


class Failure(NamedTuple):
    """A row without a result."""

    row: int
    """Number of the row in the file, from 1."""
    reason: str


class BulkWorker:
    """Decodes blocks with a bundle that is loaded once. Ray calls it with a block as a mapping and
    gets a mapping back."""

    def __init__(self, task: BulkTask) -> None:
        keep_numpy_single()
        self._task = task
        # One batch at a time for each thread, as in the translation of a whole file.
        self._translator = Translator(
            task.bundle, threads=task.threads, workers=task.threads, zero_shot=task.zero_shot
        )
        wanted = {"num_hypotheses": task.n_best} if task.n_best else {}
        self._options = parse_options(
            {**self._translator.manifest.search, **task.options, **wanted}
        )

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        block = RowBlock(**row)
        content, failures = self.decode(block)
        return {
            "number": block.number,
            "rows": block.rows,
            "content": content,
            "failed_rows": [failure.row for failure in failures],
            "reasons": [failure.reason for failure in failures],
        }

    def check(self) -> None:
        """Raise the RequestError that every row would cause."""
        self._translator.texts.encode_target(self._task.target_prefix, "target_prefix")
        check_shortlist(self._options, self._translator.manifest)
        self._translator.direction(self._task.source, self._task.target)

    def decode(self, block: RowBlock) -> tuple[bytes, list[Failure]]:
        """Decode a block; returns its content with the results (`blocks.written`) and the failed
        rows."""
        task = self._task
        rows, table = read(task.file, block, task.columns, task.into)
        failures, results = [], list[Result]()
        for index, (row, found) in enumerate(zip(rows, self._found(rows), strict=True)):
            reason = row.error or (_reason(found) if isinstance(found, Exception) else "")
            if reason:
                failures.append(Failure(block.first + index + 1, reason))
            results.append(None if isinstance(found, Exception) else found)
        content = written(task.file, block, (rows, table), results, task.into, form=task.form)
        return content, failures

    def _found(self, rows: Sequence[Row]) -> list[Result | Exception]:
        """The result of each row. If a batch fails and the error names no row, its halves are
        decoded separately, so that one bad row does not cost the others their results."""
        try:
            return self._scored(rows) if self._task.form == "number" else self._translated(rows)
        except Exception as error:
            if len(rows) == 1:
                return [error]
            middle = len(rows) // 2
            return [*self._found(rows[:middle]), *self._found(rows[middle:])]

    def _translated(self, rows: Sequence[Row]) -> list[Result | Exception]:
        task, found = self._task, list[Result | Exception]([None] * len(rows))
        texts = {index: row.texts[0] for index, row in enumerate(rows) if row.texts}
        numbers = list(texts)
        for index, result in self._translator.translate_each(
            list(texts.values()),
            self._options,
            source=task.source,
            target=task.target,
            format=task.format,
            split=task.split,
            wishes=Wishes(target_prefix=task.target_prefix),
        ):
            found[numbers[index]] = (
                result if isinstance(result, ServingError) else self._wanted(result)
            )
        return found

    def _wanted(self, translation: Translation) -> str | list[str]:
        if not self._task.n_best:
            return translation.text
        # A text without words has no hypotheses, and stays as it is.
        return [hypothesis.text for hypothesis in translation.hypotheses] or [translation.text]

    def _scored(self, rows: Sequence[Row]) -> list[Result | Exception]:
        """Log-probabilities; a row that is blank on both sides has none."""
        pairs = {
            index: (row.texts[0], row.texts[1])
            for index, row in enumerate(rows)
            if row.texts and any(map(str.strip, row.texts))
        }
        task = self._task
        found = self._translator.score(list(pairs.values()), source=task.source, target=task.target)
        scores = dict(zip(pairs, found, strict=True))
        return [scores[index].cumulative if index in scores else None for index in range(len(rows))]


def _reason(error: Exception) -> str:
    """An error as text; an unforeseen one with its type."""
    return str(error) if isinstance(error, ServingError) else f"{type(error).__name__}: {error}"
