"""The verbs that write documents."""

from __future__ import annotations

import argparse

from bench.commands.machine import tell
from bench.reports.picture import draw_speed
from bench.reports.tables import refresh_tables


def tables(options: argparse.Namespace) -> int:
    """Renew the tables of a document in place."""
    count = refresh_tables(options.document, options.only, tell)
    tell(f"{count} tables written")
    return 0


def picture(options: argparse.Namespace) -> int:
    """Draw the speeds of a table."""
    draw_speed(options.document, options.table, options.output)
    return 0
