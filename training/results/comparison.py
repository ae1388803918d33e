"""Compares the translations of several systems: which differences may be chance, and where
translations are worst."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sacrebleu.significance import PairedTest

from training.metrics.fidelity import measure_fidelity
from training.results.page import page, table

Outputs = Mapping[str, list[str]]
"""The translations of each system, by its name."""


def compare_systems(sources: list[str], references: list[str], outputs: Outputs) -> dict[str, Any]:
    """BLEU, chrF2 and TER of each system with 95 % intervals, and whether each differs from the
    first: sacreBLEU's paired bootstrap (Koehn 2004), 1,000 samples of a fixed seed.

    `p` is the probability that such a difference occurs by chance although there is none; the first
    system has no `p`.
    """
    metrics = {"BLEU": BLEU(), "chrF2": CHRF(), "TER": TER()}
    test = PairedTest(list(outputs.items()), metrics, [references], test_type="bs", n_samples=1000)
    signatures, results = test()
    systems = []
    for row, (name, translations) in enumerate(outputs.items()):
        scores = {name: _figures(results[name][0], results[name][row]) for name in metrics}
        fidelity = asdict(measure_fidelity(sources, translations))
        systems.append({"name": name, **scores, **fidelity})
    return {
        "sentences": len(sources),
        "systems": systems,
        "signatures": {name: str(signature) for name, signature in signatures.items()},
    }


def _figures(first: Any, result: Any) -> dict[str, float | None]:
    """The figures of one metric, from sacreBLEU's results of the first system and of the compared
    one."""
    chance = result.p_value
    if chance is not None and result.score == first.score:
        chance = 1.0  # sacreBLEU takes no difference for a significant one
    return {
        "score": round(float(result.score), 2),
        "low": round(float(result.mean - result.ci), 2),
        "high": round(float(result.mean + result.ci), 2),
        "p": None if chance is None else round(float(chance), 4),
    }


def render_comparison(
    compared: Mapping[str, Any],
    sources: list[str],
    references: list[str],
    outputs: Outputs,
    worst: int,
) -> str:
    """A page with the figures of `compare_systems` and the `worst` sentences: those in which a
    system's translation has the lowest chrF2."""
    metric = CHRF()
    scores = {
        name: [
            metric.sentence_score(translation, [reference]).score
            for translation, reference in zip(translations, references, strict=True)
        ]
        for name, translations in outputs.items()
    }
    order = sorted(range(len(sources)), key=lambda row: min(s[row] for s in scores.values()))
    blocks = []
    for row in order[:worst]:
        lines = [("source", "", sources[row]), ("reference", "", references[row])]
        lines += [
            (name, f"{scores[name][row]:.0f}", translations[row])
            for name, translations in outputs.items()
        ]
        title = html.escape(f"Line {row + 1}")
        blocks.append(f"<h3>{title}</h3>\n{table(('', 'chrF2', ''), lines)}")
    body = [_overview(compared), f"<h2>The {len(blocks)} worst sentences</h2>", *blocks]
    return page("Translations side by side", "\n".join(body))


def _overview(compared: Mapping[str, Any]) -> str:
    metrics = list(compared["signatures"])
    rows = []
    for system in compared["systems"]:
        cells = [system["name"]]
        for name in metrics:
            found = system[name]
            chance = "" if found["p"] is None else f", p = {found['p']}"
            cells.append(f"{found['score']} [{found['low']}, {found['high']}]{chance}")
        for share in ("copied", "repeated", "numbers_kept", "placeholders_kept"):
            value = system[share]
            cells.append("–" if value is None else f"{100 * value:.1f} %")
        rows.append(cells)
    head = ["system", *metrics, "copied", "repeated", "numbers kept", "placeholders kept"]
    signatures = "".join(
        f"<li>{html.escape(f'{name}: {signature}')}</li>"
        for name, signature in compared["signatures"].items()
    )
    sentences = (
        f"<p>{compared['sentences']:,} sentences; p: how likely such a difference to the first "
        "system is by chance.</p>"
    )
    return f"{table(head, rows)}\n{sentences}\n<ul>{signatures}</ul>"
