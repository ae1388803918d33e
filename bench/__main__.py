"""`python -m bench engine | quality`; `--help` imports no engine."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def main(arguments: list[str] | None = None) -> int:
    """Run one verb; returns the exit status."""
    options = _parser().parse_args(arguments)
    from bench import commands
    from bench.errors import BenchError
    from export.errors import ExportError
    from serving.errors import ServingError
    from training.errors import TrainingError

    try:
        return int(getattr(commands, options.verb)(options))
    except (BenchError, ExportError, ServingError, TrainingError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)

    engine = verbs.add_parser(
        "engine",
        help="whole calls beside PyTorch eager and CTranslate2, on the same weights",
        description="Whole calls of a model beside PyTorch eager and CTranslate2 (which has no "
        "joint-representation models), on the same weights: speed, memory, agreement of outputs, "
        "cache slots, share of the speed of int8 products.",
    )
    engine.add_argument(
        "--shape",
        help="random weights of a size: demo (default), base, iwslt (baseline), joint-small, "
        "iwslt-joint-base, iwslt-joint-fast (joint), tiny, joint-tiny (for tests)",
    )
    engine.add_argument(
        "--random-weights", type=int, metavar="SEED", help="seed of weights and sources (default 1)"
    )
    engine.add_argument("--checkpoint", type=Path, metavar="RUN", help="a run, baseline or joint")
    engine.add_argument("--source", type=Path, metavar="FILE", help="text for --checkpoint")
    engine.add_argument("--reference", type=Path, metavar="FILE", help="its translation, for BLEU")
    engine.add_argument("--repetitions", type=int, default=5, metavar="N", help="default 5")
    engine.add_argument("--batch", default="1,32", metavar="N,...", help="default 1,32")
    engine.add_argument("--beam", default="1,5", metavar="N,...", help="default 1,5")
    engine.add_argument("--threads", type=int, metavar="N", help="cores to use (default: all)")
    engine.add_argument("--json", type=Path, metavar="FILE", help="write the whole record there")

    quality = verbs.add_parser(
        "quality", help="BLEU, chrF and their spread over seeds of several trained systems"
    )
    quality.add_argument(
        "--system",
        action="append",
        required=True,
        metavar="NAME=RUN,...",
        help="a system and its runs, one a seed; the first system is the baseline",
    )
    quality.add_argument("--source", type=Path, required=True, metavar="FILE")
    quality.add_argument("--reference", type=Path, required=True, metavar="FILE")
    quality.add_argument("--beam-size", type=int, default=5, metavar="N", help="default 5")
    quality.add_argument("--threads", type=int, metavar="N", help="cores to use (default: all)")
    quality.add_argument("--json", type=Path, metavar="FILE", help="write the whole record there")
    return parser


if __name__ == "__main__":
    sys.exit(main())
