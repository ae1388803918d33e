"""Measure this engine beside other systems; `--help` loads none of them."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

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
        with _interrupted_by_sigterm():
            return VERBS[options.verb](options)
    except (BenchError, ExportError, ServingError, TrainingError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


@contextmanager
def _interrupted_by_sigterm() -> Iterator[None]:
    """SIGTERM has the effect of Ctrl-C, so that `timeout` leaves no server or rival behind."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN)  # another one must not interrupt the cleaning up
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _parser(prog: str = _PROG) -> argparse.ArgumentParser:
    return make_parser(prog, __doc__)


if __name__ == "__main__":
    sys.exit(main())
