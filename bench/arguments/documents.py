"""Options of the verbs that write tables and pictures into documents."""

from __future__ import annotations

from pathlib import Path

from bench.arguments.options import Verbs


def add_tables(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "tables",
        help="renew the tables of docs/background/benchmarks.md",
        description="Runs the commands above the tables of a document, each in its own "
        "process, and replaces the tables by their output. Tables that were written by hand are "
        "rendered from their data files.",
    )
    document = Path("docs/background/benchmarks.md")
    parser.add_argument("document", type=Path, nargs="?", default=document)
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="commands and names that contain it"
    )


def add_picture(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "picture",
        help="draw the speed of the systems in a table of docs/background/benchmarks.md",
    )
    document = Path("docs/background/benchmarks.md")
    parser.add_argument("document", type=Path, nargs="?", default=document)
    parser.add_argument("--output", type=Path, default=Path("docs/images/speed.svg"))
    parser.add_argument(
        "--table",
        default="engine --shape base",
        metavar="COMMAND",
        help="beginning of verb and options in the command above the table (default: %(default)s)",
    )
