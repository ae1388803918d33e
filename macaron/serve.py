"""`macaron serve`: the server of `bentoml serve`, started without what BentoML needs for services
of other kinds."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

import serving

_NEEDED = ("bentoml", "onnxruntime")
"""Checked before BentoML is started, which would end with a traceback."""
_PATHS = ("MACARON_BUNDLES", "MACARON_API_KEYS_FILE", "MACARON_DOCUMENTS", "MACARON_FILES")
_SQLITE = re.compile(r"(sqlite(?:\+\w+)?:///)(?!:memory:)(.+)")
"""Pattern of a store's address that names a file."""


def main(arguments: list[str], prog: str) -> NoReturn:
    """Be the server, or end with a one-line error.

    Raises ModuleNotFoundError if a package that serving needs is missing.
    """
    options = _parser(prog).parse_args(arguments)
    for name in _NEEDED:
        if find_spec(name) is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    folder = options.bundles
    if options.model:
        from macaron.stored import folder_of  # here, as it is slow to import
        from serving.errors import BundleError

        try:
            folder = folder_of(options.model)
        except BundleError as error:
            raise SystemExit(f"{prog}: error: --model {error}") from error
    environment = server_environment(os.environ, folder)
    bundles = environment["MACARON_BUNDLES"]
    if not Path(bundles).is_dir():
        raise SystemExit(
            f"{prog}: error: {bundles} is not a folder; name the one that holds the bundle folders "
            "with --bundles DIR or MACARON_BUNDLES"
        )
    from serving.server.http.settings import BENTOMLS_OWN  # here, as it is slow to import

    if any(map(environment.get, BENTOMLS_OWN)):
        command = server_command(options.host, options.port)
        os.execve(command[0], command, environment)
    _serve(options.host, options.port, environment, prog)


def _serve(host: str, port: int, environment: dict[str, str], prog: str) -> NoReturn:
    """Watch workers until a signal ends them, then end the process."""
    os.environ.update(environment)
    os.chdir(_place())
    # Settings are read from the environment as this is imported.
    from serving.server.supervisor import serve

    try:
        serve(host, port, str(_place()))
    except OSError as error:
        raise SystemExit(f"{prog}: error: {host}:{port}: {error.strerror or error}") from error
    raise SystemExit(0)


def server_environment(environment: Mapping[str, str], bundles: Path | None) -> dict[str, str]:
    """The environment of the server: paths are relative to the caller's folder, not to the
    server's."""
    made = {"BENTOML_DO_NOT_TRACK": "True", **environment}
    made["MACARON_BUNDLES"] = str(bundles or environment.get("MACARON_BUNDLES", "").strip())
    made["MACARON_BUNDLES"] = made["MACARON_BUNDLES"] or "models"
    for name in _PATHS:
        value = made.get(name, "").strip()
        if value and "://" not in value:  # files may be kept in a bucket
            made[name] = str(Path(value).expanduser().absolute())
    store = _SQLITE.fullmatch(made.get("MACARON_STORE", "").strip())
    if store:
        made["MACARON_STORE"] = f"{store[1]}{Path(store[2]).absolute()}"
    return made


def server_command(host: str, port: int) -> list[str]:
    """The command that starts BentoML in the folder of this package, where workers find it."""
    return [
        *(sys.executable, "-m", "bentoml", "serve"),
        *("--working-dir", str(_place()), "--host", host, "--port", str(port)),
        f"{serving.__name__}.service:MacaronService",
    ]


def _place() -> Path:
    """The folder of this package, where workers are imported from."""
    return Path(serving.__path__[0]).parents[serving.__name__.count(".")]


def _port(given: str) -> int:
    """A port, as an argument. Raises ArgumentTypeError for a number that is none."""
    port = int(given)
    if port not in range(65536):
        raise argparse.ArgumentTypeError(f"must be in [0, 65535], got {port}")
    return port


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=prog, description="Serve bundles; MACARON_ variables set everything else."
    )
    models = parser.add_mutually_exclusive_group()
    models.add_argument(
        "--bundles",
        type=Path,
        metavar="DIR",
        help="folder that holds the bundle folders (default: MACARON_BUNDLES, or models)",
    )
    models.add_argument(
        "--model",
        action="append",
        metavar="NAME",
        help="a bundle, a checkpoint of another project, or a model's name, such as OWNER/NAME of "
        "a hub; imported into a cache the first time (see `pull`); may be given several times",
    )
    parser.add_argument("--host", default="127.0.0.1", help="default 127.0.0.1")
    parser.add_argument("--port", type=_port, default=3000, help="default 3000")
    return parser
