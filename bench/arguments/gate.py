"""Options of the gate."""

from __future__ import annotations

from pathlib import Path

from bench.arguments.options import BUSY, Verbs, add_threads


def add_gate(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "gate",
        help="a short look at all speeds, compared with the last one of the same processor",
        description="Every kind of model beside its rival in about a quarter of an hour. The "
        "result is kept in a file; a row that lost more than 3 % of its speed over the rival's, "
        "beyond the spread of its repetitions, is an error.",
    )
    records = Path("docs/runs/gate")
    parser.add_argument("--records", type=Path, default=records, metavar="DIR", help=f"{records}")
    parser.add_argument("--repetitions", type=int, default=5, metavar="N", help="default 5")
    add_threads(parser)
    parser.add_argument("--busy", action="store_true", help=BUSY)
