"""A worker of the server: `python -m serving.worker --fd N`, N being the socket it listens on.

It is what BentoML's own worker would be for this service, without importing BentoML. What takes
long begins first: with `--decoder` the process that loads the models, before this one has imported
anything, then the loading of models, beside the import of what speaks HTTP.
"""

from __future__ import annotations

import argparse
import socket

from serving.translation.processes.loader import start_ahead, taken_ahead


def main() -> None:
    """Serve until a signal ends the process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--decoder", action="store_true")
    options = parser.parse_args()
    if options.decoder:
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
    )
    uvicorn.Server(config).run(sockets=[socket.socket(fileno=options.fd)])


if __name__ == "__main__":
    main()
