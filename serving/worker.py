"""A worker of the server: `python -m serving.worker --fd N`, where N is the socket it listens on.

It does for this service what BentoML's own worker would do, without importing BentoML, and takes
the same options. What takes long begins first: the process that loads the models, before this one
has imported anything, then the loading of models, during the import of the HTTP modules.
"""

from __future__ import annotations

import argparse
import os
import socket
from typing import Any

from serving.processes.loader import AHEAD, start_ahead, taken_ahead


def main() -> None:
    """Serve until a signal ends the process."""
    listening, options = _options()
    if AHEAD in os.environ:
        start_ahead()
    from serving.server.lifetime import Lifetime
    from serving.server.worker import SETTINGS, app, registry

    registry()
    if (unused := taken_ahead()) is not None:
        unused.part()
    lifetime = Lifetime()
    lifetime.load()
    import uvicorn

    from serving.server.hosting import TIMEOUT_MARGIN_S, Hosted
    from serving.server.http.slow_clients import time_connections

    time_connections(SETTINGS.client_timeout_s)
    config = uvicorn.Config(
        Hosted(app(), lifetime, SETTINGS.max_timeout_s + TIMEOUT_MARGIN_S),
        log_config=None,
        log_level="warning",
        server_header=False,
        access_log=False,
        **options,
    )
    uvicorn.Server(config).run(sockets=[listening])


def _options() -> tuple[socket.socket, dict[str, Any]]:
    """The socket from the command line, and the options for uvicorn. BentoML passes further options
    to its workers, which are for other services."""
    parser = argparse.ArgumentParser(allow_abbrev=False, argument_default=argparse.SUPPRESS)
    parser.add_argument("--fd", type=int, required=True)
    for name in ("backlog", "timeout-keep-alive", "timeout-graceful-shutdown"):
        parser.add_argument(f"--{name}", type=int)
    for name in ("ssl-version", "ssl-cert-reqs"):
        parser.add_argument(f"--{name}", type=int)
    for name in ("ssl-certfile", "ssl-keyfile", "ssl-keyfile-password", "ssl-ca-certs"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--ssl-ciphers")
    options = vars(parser.parse_known_args()[0])
    return socket.socket(fileno=options.pop("fd")), options


if __name__ == "__main__":
    main()
