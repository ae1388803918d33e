"""A worker of the server: `python -m serving.worker --fd N`, N being the socket it listens on.

It is what BentoML's own worker would be for this service, without importing BentoML.
"""

from __future__ import annotations

import argparse
import socket

from serving.server.lifetime import Lifetime
from serving.server.worker import SETTINGS, app, registry


def main() -> None:
    """Serve until a signal ends the process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--fd", type=int, required=True)
    options = parser.parse_args()
    registry()
    lifetime = Lifetime()
    lifetime.load()  # while the web framework is imported
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
