"""Quality of a trained model on a test set."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from serving.errors import InvalidOptionError
from serving.options import SearchOptions
from training.checkpoint import write_atomically
from training.corpus import read_pairs
from training.errors import ConfigError
from training.quality import measure_quality
from training.run import load_trained
from training.translation import translate

_TOKEN_BUDGET = 8192  # beams x source tokens of a batch: a few hundred short sentences


def evaluate(
    path: Path,
    source: Path,
    reference: Path,
    *,
    beam_size: int = 5,
    output: Path | None = None,
    force: bool = False,
    device: str = "cpu",
) -> dict[str, Any]:
    """Translate `source` with a run's or checkpoint's model and score it against `reference`.

    Returns the scores with their signatures, sentence count and seconds of decoding. `output`
    receives the translations in input order. Raises a TrainingError where a file cannot be used,
    and, before any work, where `output` exists and `force` is not given.
    """
    if output is not None and output.exists() and not force:
        raise ConfigError(f"{output} exists already; give --force to replace it")
    try:
        options = SearchOptions(beam_size=beam_size)
    except InvalidOptionError as error:
        raise ConfigError(str(error)) from error
    pairs = read_pairs(source, reference)
    trained = load_trained(path, device)
    start = time.perf_counter()
    translations = translate(
        trained.model,
        trained.tokenizer,
        [text for text, _ in pairs],
        options,
        token_budget=_TOKEN_BUDGET,
        progress=True,
    )
    seconds = time.perf_counter() - start
    if output is not None:
        lines = [" ".join(text.splitlines()) for text in translations]  # bytes may spell a line end
        write_atomically(output, "".join(f"{line}\n" for line in lines).encode())
    quality = measure_quality(translations, [text for _, text in pairs])
    return {
        "checkpoint": str(trained.checkpoint),
        "sentences": len(pairs),
        "beam_size": beam_size,
        **asdict(quality),
        "seconds": round(seconds, 3),
    }
