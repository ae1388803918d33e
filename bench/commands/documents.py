"""The verb that writes documents."""

from __future__ import annotations

import argparse

from bench.commands.machine import tell
from bench.reports.tables import refresh_tables


def tables(options: argparse.Namespace) -> int:
    """Make the tables of a document anew, in place."""
    count = refresh_tables(options.document, options.only, tell)
    tell(f"{count} tables written")
    return 0
