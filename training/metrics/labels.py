"""Metrics of a model's answers on labelled text, by scikit-learn and scipy.

Shape letters: B lines, C classes, D features.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

from serving.arrays import Floats

_BLOCK = 1024
"""Number of texts that are compared with all others at once."""
Figures = dict[str, float | str]
"""Metrics by name, from 0 (correlations: -1) to 1. A remark on a metric has the key NAME_note."""


def class_metrics(logits_BC: Floats, wanted: Sequence[int], labels: Sequence[str]) -> Figures:
    """Accuracy; F1, for two classes that of the second one, for more the mean of all; Matthews'
    correlation. Undefined values are 0, with a note that gives the reason."""
    # Slow to import, and every export and training would wait for it.
    from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

    found = logits_BC.argmax(axis=1)
    truth = np.asarray(wanted)
    numbers = list(range(len(labels)))
    binary = len(labels) == 2
    figures: Figures = {"accuracy": float(accuracy_score(truth, found))}
    if binary:
        figures["f1"] = float(f1_score(truth, found, zero_division=0))
        if not truth.any():
            figures["f1_note"] = f"undefined: no line is {labels[1]!r}"
        elif not found.any():
            figures["f1_note"] = f"0: no line was taken for {labels[1]!r}"
    else:
        figures["f1"] = float(
            f1_score(truth, found, labels=numbers, average="macro", zero_division=0)
        )
        missing = [labels[number] for number in numbers if number not in truth]
        if missing:
            more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
            figures["f1_note"] = f"0 of classes without a line: {', '.join(missing[:3])}{more}"
    for name, values in (("line is", truth), ("answer is", found)):
        if len(np.unique(values)) < 2:
            note = f"undefined: every {name} {labels[int(values[0])]!r}"
            return figures | {"matthews": 0.0, "matthews_note": note}
    figures["matthews"] = float(matthews_corrcoef(truth, found))
    return figures


def score_metrics(found: Floats, wanted: Sequence[float]) -> Figures:
    """Pearson's and Spearman's correlation; 0 with a note if all answers or all scores are equal,
    where correlation is undefined."""
    from scipy.stats import pearsonr, spearmanr  # slow to import

    for name, values in (("scores", np.asarray(wanted)), ("answers", np.asarray(found))):
        if len(np.unique(values)) < 2:
            note = f"undefined: all {name} are equal"
            return {"pearson": 0.0, "pearson_note": note, "spearman": 0.0, "spearman_note": note}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nearly equal answers
        return {
            "pearson": float(pearsonr(found, wanted).statistic),
            "spearman": float(spearmanr(found, wanted).statistic),
        }


def matching_metrics(first_BD: Floats, second_BD: Floats) -> Figures:
    """Retrieval accuracy by cosine: the share of lines whose second text is the nearest of all
    second texts to the first, the same in reverse, and the mean of both."""
    from sklearn.metrics import accuracy_score  # slow to import

    lines, sides = np.arange(len(first_BD)), (_unit(first_BD), _unit(second_BD))
    shares = [accuracy_score(lines, _nearest(*each)) for each in (sides, sides[::-1])]
    return {"accuracy": float(np.mean(shares))}


def _nearest(queries_BD: Floats, found_BD: Floats) -> np.ndarray:
    """The number of the row in `found_BD` that has the largest dot product with each row of
    `queries_BD`, [B]."""
    blocks = range(0, len(queries_BD), _BLOCK)
    return np.concatenate(
        [(queries_BD[start : start + _BLOCK] @ found_BD.T).argmax(axis=1) for start in blocks]
    )


def _unit(vectors_BD: Floats) -> Floats:
    lengths_B1 = np.linalg.norm(vectors_BD, axis=1, keepdims=True)
    found: Floats = (vectors_BD / np.maximum(lengths_B1, 1e-12)).astype(np.float32)
    return found
