"""Options that several verbs have."""

from __future__ import annotations

import argparse
from pathlib import Path

SHORTLIST = "int8 with vocabulary shortlists as well (of --checkpoint's training text)"
COMPILED = "PyTorch through torch.compile as well, which needs a C++ compiler"
DEVICE = "cuda: all systems on the first GPU, in 16 bits (default cpu)"
BUSY = "measure even if the machine is busy; the table says so"
Verbs = argparse._SubParsersAction  # argparse has no public name for it


def add_threads(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--threads", type=int, metavar="N", help="cores to use (default: all)")


def add_texts(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    parser.add_argument("--languages", required=required, metavar="SOURCE-TARGET")
    for name, help in (("--source", "of any number"), ("--reference", "one for each source")):
        parser.add_argument(
            name,
            type=Path,
            action="append",
            default=[],
            required=required,
            metavar="FILE",
            help=help,
        )


def add_subject(parser: argparse.ArgumentParser) -> None:
    """The model and the text that a verb measures."""
    parser.add_argument(
        "--shape",
        help="random weights of a size: demo (default), demo-6-2, demo-12-1 (layers of encoder and "
        "decoder), demo-relative, base, opus-mt, m2m100, iwslt (baseline), joint-small, "
        "iwslt-joint-base, iwslt-joint-fast (joint), tiny, joint-tiny (for tests)",
    )
    parser.add_argument(
        "--random-weights", type=int, metavar="SEED", help="seed of weights and sources (default 1)"
    )
    parser.add_argument("--checkpoint", type=Path, metavar="RUN", help="a run, baseline or joint")
    parser.add_argument("--source", type=Path, metavar="FILE", help="text for --checkpoint")
    parser.add_argument("--reference", type=Path, metavar="FILE", help="its translation, for BLEU")
