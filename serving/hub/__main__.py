"""Pulls one model in a process of its own, for a server.

The bundle's folder is printed to stdout. Messages go to stderr, and so does a failure, in one line
that begins with `error: `.
"""

from __future__ import annotations

import sys

from serving.errors import BundleError
from serving.hub.names import named
from serving.hub.pull import pull


def main(given: str) -> int:
    """Pull the model of that name; returns the exit status."""
    try:
        print(pull(named(given)).bundle, flush=True)
    except BundleError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
