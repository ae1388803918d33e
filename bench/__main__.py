"""Measure this engine beside other systems; `--help` loads none of them."""

from __future__ import annotations

import argparse
import sys

from bench.arguments import make_parser

_PROG = f"python -m {__package__}"


def main(arguments: list[str] | None = None, prog: str = _PROG) -> int:
    """Run one verb; returns the exit status."""
    options = _parser(prog).parse_args(arguments)
    from bench.commands import VERBS
    from bench.errors import BenchError
    from export.errors import ExportError
    from serving.errors import ServingError
    from training.errors import TrainingError

    try:
        return VERBS[options.verb](options)
    except (BenchError, ExportError, ServingError, TrainingError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _parser(prog: str = _PROG) -> argparse.ArgumentParser:
    return make_parser(prog, __doc__)


if __name__ == "__main__":
    sys.exit(main())
