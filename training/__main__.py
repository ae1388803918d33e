"""`python -m training tokenizer | train | evaluate | average`; `--help` imports no torch."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path


def main(arguments: list[str] | None = None) -> int:
    """Run one verb; returns the exit status."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    from training import commands
    from training.errors import TrainingError

    try:
        return int(getattr(commands, options.verb)(options))
    except TrainingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m training", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)

    train = verbs.add_parser("train", help="train a recipe, or resume it")
    train.add_argument("recipe", help="a name under training/recipes, or a YAML file")
    train.add_argument("overrides", nargs="*", metavar="key=value", help="for example loop.seed=2")
    train.add_argument("--run", type=Path, help="run folder (default runs/RECIPE)")
    train.add_argument("--stop-after", type=int, help="save and stop at this step; resume later")
    train.add_argument("--threads", type=int, help="CPU threads (part of what makes runs equal)")

    tokenizer = verbs.add_parser("tokenizer", help="train a recipe's SentencePiece model alone")
    tokenizer.add_argument("recipe")
    tokenizer.add_argument("overrides", nargs="*", metavar="key=value")
    tokenizer.add_argument("--run", type=Path, help="run folder (default runs/RECIPE)")

    evaluate = verbs.add_parser("evaluate", help="BLEU and chrF of a checkpoint on a test set")
    evaluate.add_argument("checkpoint", type=Path, help="a run or checkpoint folder")
    evaluate.add_argument("source", type=Path)
    evaluate.add_argument("reference", type=Path)
    evaluate.add_argument("--beam-size", type=int, default=5)
    evaluate.add_argument("--output", type=Path, help="write the translations there")

    average = verbs.add_parser("average", help="average the last checkpoints of a run")
    average.add_argument("run", type=Path)
    average.add_argument("--last", type=int, default=5, help="how many (default 5)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
