"""Tables of labelled text: TSV without quoting, CSV or JSON lines; columns are named or found
out."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from training.corpora.pairs import iterate_lines
from training.errors import ConfigError, CorpusError
from training.recipe.checks import nearest
from training.recipe.encoder_sections import CLASSES, KINDS, LabelledConfig

Column = int | str
"""A column of a table, given by its number, counted from 1, or by its name."""

_LABELS = (
    "label", "labels", "class", "category", "intent", "sentiment", "score", "similarity",
    "rating", "quality", "is_duplicate", "gold_label",
)  # fmt: skip
_PAIRS = (
    ("sentence1", "sentence2"), ("text1", "text2"), ("question1", "question2"),
    ("premise", "hypothesis"), ("#1 string", "#2 string"), ("text_a", "text_b"),
    ("sentence_a", "sentence_b"), ("query", "passage"), ("anchor", "positive"),
    ("question", "answer"), ("question", "sentence"), ("first", "second"),
)  # fmt: skip
_TEXTS = ("text", "sentence", "utterance", "question", "query", "review", "content", "title")
_NAMES = {*_LABELS, *_TEXTS, *(name for pair in _PAIRS for name in pair)}
_HELD_OUT_SEED = 1
"""Runs that differ in their seed are compared on the same lines."""
_MOST_RATINGS = 20
"""With up to this many different whole numbers as labels, these are taken for classes rather than
scores."""


class _Structured(str):
    """The JSON of a list or an object; it is neither a text nor a label."""


_NO_TEXT = "a text must be one string; join its words"
_NO_LABEL = (
    "a line has one label, a string or a number: several labels of a text cannot be learnt at "
    "once; fit a model to each, or keep one"
)


@dataclass(frozen=True)
class LabelledLine:
    """A text or two with their label."""

    number: int
    """Number of the line in its file."""
    texts: tuple[str, ...]
    label: str
    """Empty if there are no labels."""


@dataclass(frozen=True)
class Sheet:
    """All cells of a file."""

    path: Path
    names: tuple[str, ...]
    """Names of the columns; empty if the first line holds no names."""
    rows: list[tuple[int, Sequence[str]]]
    """Cells with the number of their line."""

    def lines(self, columns: Sequence[Column], num_texts: int) -> list[LabelledLine]:
        """The given columns of each row as texts and a label: the first `num_texts` columns are the
        texts.

        Raises CorpusError, with the line's number, for a missing column, an empty text, and a list
        or an object in place of a text or a label.
        """
        places = [self._place(column) for column in columns]
        found = []
        for number, cells in self.rows:
            for position, place in enumerate(places):
                if isinstance(cells[place], _Structured):
                    raise CorpusError(
                        f"{self.path}:{number}: column {columns[position]!r} is "
                        f"{cells[place]:.80}; {_NO_TEXT if position < num_texts else _NO_LABEL}"
                    )
            chosen = [cells[place].strip() for place in places]
            if not all(chosen):
                raise CorpusError(
                    f"{self.path}:{number}: column {columns[chosen.index('')]!r} is empty; leave "
                    "the line out"
                )
            label = chosen[num_texts] if len(chosen) > num_texts else ""
            found.append(LabelledLine(number, tuple(chosen[:num_texts]), label))
        return found

    def _place(self, column: Column) -> int:
        if isinstance(column, str):
            if column not in self.names:
                raise CorpusError(
                    f"{self.path}: no column {column!r}{nearest(column, self.names)}; there are "
                    f"{list(self.names)}"
                )
            return self.names.index(column)
        width = len(self.rows[0][1])
        if not 1 <= column <= width:
            raise CorpusError(f"{self.path}: has {width} columns, column {column} is wanted")
        return column - 1


def read_sheet(path: Path, columns: Sequence[Column] | None = None) -> Sheet:
    """Read the cells of a file. If `columns` are names, or the first line has known names, the
    first line holds the names of the columns.

    Raises CorpusError, with the line, for a file that cannot be read, holds no rows, or has rows
    with different columns.
    """
    kind = [suffix for suffix in path.suffixes if suffix not in (".gz", ".zst")][-1:]
    if kind and kind[0] in (".jsonl", ".ndjson", ".json"):
        return _read_objects(path)
    rows = list(_csv_rows(path) if kind == [".csv"] else _tsv_rows(path))
    for number, cells in rows:
        if len(cells) != len(rows[0][1]):
            raise CorpusError(
                f"{path}:{number}: has {len(cells)} columns, line {rows[0][0]} has "
                f"{len(rows[0][1])}"
            )
    names: tuple[str, ...] = ()
    named = any(isinstance(column, str) for column in columns or ())
    if rows and (named or _holds_names(rows[0][1])):
        names = tuple(cell.strip() for cell in rows.pop(0)[1])
    if not rows:
        raise CorpusError(f"{path}: the file has no rows")
    return Sheet(path, names, rows)


def _tsv_rows(path: Path) -> Iterator[tuple[int, Sequence[str]]]:
    for number, line in enumerate(iterate_lines(path), 1):
        if line.strip():
            yield number, line.split("\t")


def _csv_rows(path: Path) -> Iterator[tuple[int, Sequence[str]]]:
    reader = csv.reader((f"{line}\n" for line in iterate_lines(path)), strict=True)
    number = 1
    try:
        for cells in reader:
            if cells:
                yield number, cells
            number = reader.line_num + 1
    except csv.Error as error:
        raise CorpusError(f"{path}:{reader.line_num}: not a CSV row: {error}") from error


def _read_objects(path: Path) -> Sheet:
    names: tuple[str, ...] = ()
    rows: list[tuple[int, Sequence[str]]] = []
    for number, line in enumerate(iterate_lines(path), 1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except ValueError as error:
            raise CorpusError(f"{path}:{number}: not a JSON value: {error}") from error
        if not isinstance(found, dict):
            raise CorpusError(f"{path}:{number}: a line must be a JSON object, got {found!r:.80}")
        names = names or tuple(found)
        if set(found) != set(names):
            raise CorpusError(
                f"{path}:{number}: has the keys {sorted(found)}, the first line {sorted(names)}"
            )
        rows.append((number, [_cell(found[name]) for name in names]))
    if not rows:
        raise CorpusError(f"{path}: the file has no rows")
    return Sheet(path, names, rows)


def _cell(value: object) -> str:
    if isinstance(value, str) or value is None:
        return value or ""
    kind = _Structured if isinstance(value, list | dict) else str
    return kind(json.dumps(value, ensure_ascii=False))


def _holds_names(cells: Sequence[str]) -> bool:
    """Whether a first line names the columns: it holds two known names, or the name of a label."""
    known = [cell.strip().lower() for cell in cells if cell.strip().lower() in _NAMES]
    return len(known) > 1 or any(name in _LABELS for name in known)


def find_columns(sheet: Sheet, kind: str | None, advice: str = "") -> tuple[Column, ...]:
    """Find the columns of texts and label, by their known names or else by their content: the label
    is the one of two or three columns with the fewest different values.

    Raises CorpusError, with this advice or that of naming them by `--columns`, if they cannot be
    recognised.
    """
    labelled = kind != "contrastive"
    names = {name.strip().lower(): name for name in reversed(sheet.names)}
    label = [names[name] for name in _LABELS if name in names][:1] if labelled else []
    pair = next((pair for pair in _PAIRS if all(name in names for name in pair)), None)
    single = next((name for name in _TEXTS if name in names), None)
    if bool(label) == labelled:
        if pair is not None and kind != "single":
            return (*(names[name] for name in pair), *label)
        if single is not None and kind not in ("pair", "contrastive"):
            return names[single], *label
    width = len(sheet.rows[0][1])
    wanted = {"single": (2,), "pair": (3,), "contrastive": (2,)}.get(kind or "", (2, 3))
    if width not in wanted:
        named = "sentence1,sentence2" if kind == "contrastive" else "text,label"
        how = advice or f"name them with --columns, as in --columns {named} or --columns 2,1"
        raise CorpusError(
            f"{sheet.path}: which of its {width} columns are texts"
            f"{' and label' if labelled else ''} cannot be guessed; {how}; line "
            f"{sheet.rows[0][0]} is {list(sheet.rows[0][1])!r:.200}"
        )
    columns: list[Column] = list(sheet.names or range(1, width + 1))
    if labelled:
        different = [len({cells[place] for _, cells in sheet.rows}) for place in range(width)]
        # Of equally many, the last: where labels stand most often.
        label_place = min(range(width), key=lambda place: (different[place], -place))
        columns.append(columns.pop(label_place))
    return tuple(columns)


def find_kind(lines: Sequence[LabelledLine]) -> str:
    """The kind of labels: `regression` if all of them are numbers, and one is not whole or there
    are many; else the classes of one text or two."""
    scores = [_number(line.label) for line in lines]
    values = {score for score in scores if score is not None}
    numeric = None not in scores
    whole = all(value.is_integer() for value in values)
    if numeric and (not whole or len(values) > _MOST_RATINGS):
        return "regression"
    return "single" if len(lines[0].texts) == 1 else "pair"


def find_labels(path: Path, lines: Sequence[LabelledLine]) -> tuple[str, ...]:
    """The classes of a training text, in order; raises CorpusError if they are fewer than two,
    or nearly as many as lines."""
    labels = {line.label for line in lines}
    if len(labels) < 2:
        raise CorpusError(
            f"{path}: all lines have the label {lines[0].label!r}; give lines of two classes"
        )
    if len(labels) > max(_MOST_RATINGS, len(lines) // 2):
        raise CorpusError(
            f"{path}: the column of labels has {len(labels)} different values in {len(lines)} "
            "lines; name the columns with --columns, texts first, or give --kind regression"
        )
    numeric = all(_number(label) is not None for label in labels)
    return tuple(sorted(labels, key=lambda label: (float(label) if numeric else 0.0, label)))


def hold_out(
    lines: Sequence[LabelledLine], share: float, *, classes: bool
) -> tuple[list[LabelledLine], list[LabelledLine]]:
    """Split lines into training and validation, with a fixed seed. With `classes`, each label
    occurs in training."""
    order = np.random.default_rng(_HELD_OUT_SEED).permutation(len(lines))
    wanted = max(1, round(share * len(lines)))
    left: dict[str, int] = {}
    for line in lines:
        left[line.label] = left.get(line.label, 0) + 1
    held: set[int] = set()
    for place in map(int, order):
        if len(held) < wanted and (left[lines[place].label] > 1 or not classes):
            left[lines[place].label] -= 1
            held.add(place)
    kept = [line for place, line in enumerate(lines) if place not in held]
    return kept, [lines[place] for place in sorted(held)]


def targets(path: Path, lines: Sequence[LabelledLine], data: LabelledConfig) -> list[float]:
    """The number of each line's class, or its score from 0 to 1.

    Raises CorpusError, with the line, for a label that does not occur in training, or a score that
    is not a number.
    """
    if data.kind == "contrastive":
        return [0.0] * len(lines)
    if data.kind in CLASSES:
        numbers = {label: float(number) for number, label in enumerate(data.labels)}
        for line in lines:
            if line.label not in numbers:
                hint = nearest(line.label, data.labels)
                raise CorpusError(
                    f"{path}:{line.number}: the label {line.label!r} is not one of the "
                    f"{len(numbers)} in training{hint}"
                )
        return [numbers[line.label] for line in lines]
    assert data.score_range is not None
    low, high = data.score_range
    return [(score - low) / (high - low) for score in scores(path, lines)]


def scores(path: Path, lines: Sequence[LabelledLine]) -> list[float]:
    """The labels as numbers; raises CorpusError, with the line, for a label that is not a
    number."""
    found = []
    for line in lines:
        score = _number(line.label)
        if score is None:
            raise CorpusError(
                f"{path}:{line.number}: the score must be a number, got {line.label!r}"
            )
        found.append(score)
    return found


def _number(text: str) -> float | None:
    with suppress(ValueError):
        value = float(text)
        return value if math.isfinite(value) else None
    return None


def parse_columns(text: str) -> tuple[Column, ...]:
    """`text,label` or `2,1` as columns."""
    return tuple(int(word) if word.isdigit() else word for word in text.split(","))


def check_kind(kind: str | None) -> None:
    """Raise ConfigError for an unknown kind."""
    if kind is not None and kind not in KINDS:
        raise ConfigError(f"--kind must be one of {', '.join(KINDS)}, got {kind!r}")
