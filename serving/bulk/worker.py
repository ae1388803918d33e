"""What one process does with a block: read it, decode it, and give back what is to be written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from serving.bulk.blocks import Block, Form, Result, Row, kind_of, read, written
from serving.bundle.manifest import check_shortlist
from serving.errors import ServingError
from serving.search.options import parse_options
from serving.text.document import Format
from serving.threads import keep_numpy_single
from serving.translation.results import Translation
from serving.translation.translator import Translator


@dataclass(frozen=True, kw_only=True)
class Task:
    """What is asked of every row."""

    bundle: Path
    file: Path
    columns: tuple[str, ...]
    """Of the text; of source and translation where translations are scored."""
    into: str
    """The column, or member, that results are written to."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the search that differ from the bundle's own."""
    target_prefix: str = ""
    format: Format = "text"
    split: bool = True
    n_best: int = 0
    """How many translations of each row are wanted; 0 is the best one, not in a list."""
    threads: int = 1
    """Of one process."""

    @property
    def form(self) -> Form:
        """What a result is: where two columns are named, translations are given, and scored."""
        if len(self.columns) == 2:
            return "number"
        return "texts" if self.n_best else "text"


class Failure(NamedTuple):
    """A row that has no result."""

    row: int
    """Its number in the file, from 1."""
    reason: str


class Worker:
    """Decodes blocks with a bundle that is loaded once. Ray calls it with a block as a mapping, and
    gets one back."""

    def __init__(self, task: Task) -> None:
        keep_numpy_single()
        self._task = task
        # One batch at once for each thread, as where a whole file is translated.
        self._translator = Translator(task.bundle, threads=task.threads, workers=task.threads)
        wanted = {"num_hypotheses": task.n_best} if task.n_best else {}
        self._options = parse_options(
            {**self._translator.manifest.search, **task.options, **wanted}
        )

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        block = Block(**row)
        content, failures = self.decode(block)
        return {
            "number": block.number,
            "rows": block.rows,
            "content": content,
            "failed_rows": [failure.row for failure in failures],
            "reasons": [failure.reason for failure in failures],
        }

    def check(self) -> None:
        """Raise a RequestError for what would be wrong with every row."""
        self._translator.texts.encode_target(self._task.target_prefix, "target_prefix")
        check_shortlist(self._options, self._translator.manifest)

    def decode(self, block: Block) -> tuple[bytes, list[Failure]]:
        """The block with its results, as `blocks.written` makes it, and the rows that have none."""
        task = self._task
        rows, table = read(task.file, block, task.columns)
        found: dict[int, Result | ServingError] = {}
        if task.form == "number":
            found.update(self._score(rows))
        else:
            found.update(self._translate(rows))
        failures, results = [], list[Result]()
        for index, row in enumerate(rows):
            result = found.get(index)
            reason = row.error or (str(result) if isinstance(result, ServingError) else "")
            if reason:
                failures.append(Failure(block.first + index + 1, reason))
            results.append(None if isinstance(result, ServingError) else result)
        kind = kind_of(task.file)
        return written(kind, rows, table, results, task.into, form=task.form), failures

    def _translate(self, rows: Sequence[Row]) -> dict[int, Result | ServingError]:
        task = self._task
        texts = {index: row.texts[0] for index, row in enumerate(rows) if row.texts}
        numbers = list(texts)
        ended = self._translator.translate_each(
            list(texts.values()),
            self._options,
            task.target_prefix,
            format=task.format,
            split=task.split,
        )
        return {
            numbers[index]: result if isinstance(result, ServingError) else self._wanted(result)
            for index, result in ended
        }

    def _wanted(self, translation: Translation) -> str | list[str]:
        if not self._task.n_best:
            return translation.text
        # A text without words has no hypotheses, and stays what it is.
        return [hypothesis.text for hypothesis in translation.hypotheses] or [translation.text]

    def _score(self, rows: Sequence[Row]) -> dict[int, Result | ServingError]:
        pairs = {index: (row.texts[0], row.texts[1]) for index, row in enumerate(rows) if row.texts}
        return dict(zip(pairs, self._scores(list(pairs.values())), strict=True))

    def _scores(self, pairs: Sequence[tuple[str, str]]) -> list[float | ServingError]:
        """Each pair's log-probability; all at once, and one by one where one of them fails."""
        try:
            return [score.cumulative for score in self._translator.score(pairs)]
        except ServingError as error:
            if len(pairs) == 1:
                return [error]
            return [found for pair in pairs for found in self._scores([pair])]
