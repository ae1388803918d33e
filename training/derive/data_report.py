"""The training data of a run in figures: `python -m training data`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from serving.arrays import Ints
from serving.bundle.tokenizer import TextTokenizer
from training.loop.budget import with_budget
from training.recipe.config import AUTO, Recipe, TranslationRecipe
from training.runs.claim import check_claim, has_begun, write_claim
from training.tasks.finetuning import LabelledData
from training.tasks.language import TextData
from training.tasks.pretraining import PretrainingData
from training.tasks.task import prepare_task
from training.tasks.translation import RunData

Prepared = RunData | TextData | PretrainingData | LabelledData
_PERCENTILES = (50, 99)


def report_data(recipe: Recipe, run: Path, *, as_json: bool) -> str:
    """Prepare a run without training, and describe its text in tables or as one JSON object.

    As with `tokenizer`, the run folder then has its vocabulary and its report; a run that has
    started is not changed. Raises CorpusError, ConfigError or CheckpointError as `train` does.
    """
    found = describe(prepare_run(recipe, run))
    return json.dumps(found, indent=1) if as_json else format_report(found)


def prepare_run(recipe: Recipe, run: Path) -> Prepared:
    """Do the work of `train` up to its first step; parts that are done already are not repeated."""
    check_claim(recipe, run)
    settled = recipe
    if isinstance(recipe, TranslationRecipe) and recipe.data.token_budget == AUTO:
        settled = with_budget(recipe, 1)  # no figure of the report needs it
    data = prepare_task(settled, run)
    assert isinstance(data, RunData | TextData | PretrainingData | LabelledData)
    if not has_begun(run):
        data.write(run)
        write_claim(recipe, run)
    return data


def describe(data: Prepared) -> dict[str, Any]:
    """Plain data. Translation recipes: by corpus, with shares of an epoch in pairs and tokens
    (pieces of both sides), lengths, and pieces per word. Other models: the text as a whole."""
    if isinstance(data, RunData):
        return _describe_pairs(data)
    if isinstance(data, TextData):
        return {**data.report, "validation_tokens": len(data.validation)}
    return data.report


class _Side:
    """Statistics of the tokenizer on one side of the training pairs, each counted once."""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self._tokenizer = tokenizer
        self._words = self._characters = 0
        self._counts = np.zeros(tokenizer.vocab_size, dtype=np.int64)

    def add(self, texts: Sequence[str], ids: Sequence[Sequence[int]]) -> None:
        """Add texts."""
        self._words += sum(len(text.split()) for text in texts)
        self._characters += sum(map(len, texts))
        self._counts += count_ids(ids, len(self._counts))

    def describe(self, sizes: Ints) -> dict[str, Any]:
        """Plain data; `sizes` are the numbers of pieces of all texts."""
        pieces = self._counts.sum()
        return {
            "words": self._words,
            "characters": self._characters,
            "pieces": _lengths(sizes),
            "pieces_per_word": _ratio(pieces, self._words),
            "byte_share": _ratio(self._counts[byte_ids(self._tokenizer)].sum(), pieces, digits=6),
        }


def _describe_pairs(data: RunData) -> dict[str, Any]:
    sides = _Side(data.tokenizer), _Side(data.tokenizer)
    nothing = np.empty((0, 2), dtype=np.int64)
    found = [[nothing] for _ in data.report.corpora]
    weights: dict[int, float] = {}
    for chunk in data.train.chunks():
        weights[chunk.origin] = chunk.weight
        lengths = [(len(source), len(target)) for source, target in chunk.ids]
        found[chunk.origin].append(np.array(lengths, dtype=np.int64))
        for number, side in enumerate(sides):
            side.add([pair[number] for pair in chunk.texts], [pair[number] for pair in chunk.ids])
    sizes = [np.concatenate(some) for some in found]
    epoch_pairs = np.array([weights.get(i, 0.0) * len(some) for i, some in enumerate(sizes)])
    epoch_tokens = np.array([weights.get(i, 0.0) * some.sum() for i, some in enumerate(sizes)])
    corpora = []
    for origin, (files, report) in enumerate(
        zip(data.recipe.data.corpora, data.report.corpora, strict=True)
    ):
        corpora.append(
            report.to_dict()
            | {
                "tag": files.tag,
                "trained_on": len(sizes[origin]),
                "weight": round(weights[origin], 4) if origin in weights else None,
                "epoch_pairs": round(float(epoch_pairs[origin]), 1),
                "epoch_pairs_share": _ratio(epoch_pairs[origin], epoch_pairs.sum()),
                "epoch_tokens": round(float(epoch_tokens[origin]), 1),
                "epoch_tokens_share": _ratio(epoch_tokens[origin], epoch_tokens.sum()),
                "source_pieces": _lengths(sizes[origin][:, 0]),
                "target_pieces": _lengths(sizes[origin][:, 1]),
            }
        )
    whole = np.concatenate(sizes)
    return data.report.to_dict() | {
        "corpora": corpora,
        "trained_on": len(whole),
        "unused": [
            corpus["name"] for corpus in corpora if corpus["trained_on"] and not corpus["weight"]
        ],
        "epoch_pairs": round(float(epoch_pairs.sum()), 1),
        "epoch_tokens": round(float(epoch_tokens.sum()), 1),
        "source": sides[0].describe(whole[:, 0]),
        "target": sides[1].describe(whole[:, 1]),
    }


def count_ids(texts: Sequence[Sequence[int]], vocab_size: int) -> Ints:
    """Frequency of each id of a vocabulary."""
    ids = np.fromiter((id_ for text in texts for id_ in text), dtype=np.int64)
    return np.bincount(ids, minlength=vocab_size)


def byte_ids(tokenizer: TextTokenizer) -> list[int]:
    """Ids of single bytes, for characters without a piece."""
    return [id_ for id_ in range(tokenizer.vocab_size) if tokenizer.is_byte(id_)]


def _lengths(sizes: Ints) -> dict[str, float]:
    if not len(sizes):
        return {}
    median, high = np.percentile(sizes, _PERCENTILES, method="higher")
    return {
        "mean": round(float(sizes.mean()), 2),
        "median": int(median),
        "p99": int(high),
        "longest": int(sizes.max()),
    }


def _ratio(part: float, whole: float, digits: int = 4) -> float | None:
    return round(float(part / whole), digits) if whole else None


def format_report(found: dict[str, Any]) -> str:
    """The result of `describe` as tables."""
    if "corpora" not in found:
        return "\n".join(f"{key.replace('_', ' ')}: {value}" for key, value in found.items())
    blocks = [_corpora_table(found), _dropped_table(found), _tokenizer_table(found)]
    notes = [f"weight 0, never trained on: {name}" for name in found["unused"]]
    notes += [
        f"nothing left to train on: {corpus['name']}"
        for corpus in found["corpora"]
        if not corpus["trained_on"]
    ]
    return "\n\n".join(block for block in (*blocks, "\n".join(notes)) if block)


def _corpora_table(found: dict[str, Any]) -> str:
    rows: list[Sequence[str]] = [
        ("corpus", "tag", "read", "kept", "trained on", "weight", "epoch pairs", "share", "tokens",
         "share", "mean pieces", "p99", "longest"),
    ]  # fmt: skip
    for corpus in found["corpora"]:
        source, target = corpus["source_pieces"], corpus["target_pieces"]
        rows.append(
            (
                corpus["name"],
                corpus["tag"] or "",
                f"{corpus['pairs']:,}",
                f"{corpus['kept']:,}",
                f"{corpus['trained_on']:,}",
                "" if corpus["weight"] is None else f"{corpus['weight']:g}",
                f"{corpus['epoch_pairs']:,.0f}",
                _percent(corpus["epoch_pairs_share"]),
                f"{corpus['epoch_tokens']:,.0f}",
                _percent(corpus["epoch_tokens_share"]),
                *(
                    f"{source[key]:g} / {target[key]:g}" if source else ""
                    for key in ("mean", "p99", "longest")
                ),
            )
        )
    total = (
        "all", "", f"{sum(corpus['pairs'] for corpus in found['corpora']):,}", f"{found['kept']:,}",
        f"{found['trained_on']:,}", "", f"{found['epoch_pairs']:,.0f}", "",
        f"{found['epoch_tokens']:,.0f}",
    )  # fmt: skip
    held = f"held out for validation: {found['held_out']:,}"
    return f"{_table([*rows, total])}\n{held}"


def _dropped_table(found: dict[str, Any]) -> str:
    rows: list[Sequence[str]] = [("corpus", "dropped by", "pairs", "first line")]
    for corpus in found["corpora"]:
        for reason, count in sorted(corpus["dropped"].items(), key=lambda item: -item[1]):
            place = corpus["first_line"].get(reason, "").rpartition(":")[2]
            rows.append((corpus["name"], reason, f"{count:,}", place))
    return _table(rows) if len(rows) > 1 else "no pair was dropped"


def _tokenizer_table(found: dict[str, Any]) -> str:
    rows: list[Sequence[str]] = [
        ("side", "", "words", "pieces per word", "byte pieces", "mean pieces", "median", "p99",
         "longest"),
    ]  # fmt: skip
    for name in ("source", "target"):
        side = found[name]
        rows.append(
            (
                name,
                "",
                f"{side['words']:,}",
                "" if side["pieces_per_word"] is None else f"{side['pieces_per_word']:.2f}",
                _percent(side["byte_share"], digits=3),
                *(
                    f"{side['pieces'].get(key, 0):g}"
                    for key in ("mean", "median", "p99", "longest")
                ),
            )
        )
    return _table(rows)


def _percent(share: float | None, digits: int = 1) -> str:
    return "" if share is None else f"{100 * share:.{digits}f} %"


def _table(rows: Sequence[Sequence[str]]) -> str:
    """A table with columns as wide as their longest cell; the first two are left-aligned."""
    width = max(map(len, rows))
    full = [[*row, *[""] * (width - len(row))] for row in rows]
    widths = [max(map(len, column)) for column in zip(*full, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(size) if place < 2 else cell.rjust(size)
            for place, (cell, size) in enumerate(zip(row, widths, strict=True))
            if size
        ).rstrip()
        for row in full
    )
