"""This project's server beside LibreTranslate's, as users run both, on the same weights.

LibreTranslate has the weights as a package of Argos in int8. It runs as it comes, and tuned: with
64 threads for requests and as many translators of one thread as there are cores. Clients send one
text a request, and the next one as soon as the last is answered.
"""

from __future__ import annotations

import math
import os
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.errors import BenchError
from bench.machine.load import Load, full_load
from bench.reports.report import Machine, head_lines, table_head, table_line
from bench.runs.rivals.turns import left_out_lines, ratios
from bench.subjects.argos import write_argos_package
from bench.systems.processes.http_server import HttpServer, free_port, running_server
from bench.systems.processes.repetitions import Progress
from bench.systems.processes.rivals import Rival, started
from bench.systems.rivals import servers as launcher
from serving.bundle.folder import read_manifest
from training.runs.folder import Trained, load_trained

LIBRE = "libretranslate"
PRODUCTS = (LIBRE,)
OURS = "Macaron, beam 4"
"""The system that the others are compared with."""
OUR_DEFAULTS = "Macaron, its defaults"
AS_IT_COMES, TUNED = "LibreTranslate, as it comes", "LibreTranslate, tuned"
OPTIONS = {"beam_size": 4, "length_penalty": 0.2}
"""How Argos Translate searches, as options of a request."""
COMPARED = 60
"""Number of texts whose translations are compared."""
_THREADS = 64
"""Threads with which the tuned LibreTranslate takes requests."""
_WARM_UP = 5
"""A warm-up is as many times shorter than a repetition."""
_ROOT = Path(__file__).resolve().parents[__name__.count(".")]
"""The folder from which this package is imported: the repository, or site-packages."""


@dataclass(frozen=True)
class ServerRivalsPlan:
    """The parameters of a comparison of servers."""

    bundle: Path
    run: Path
    """A run of the bundle's weights, of which the rival's package is made."""
    texts: Sequence[str]
    """Texts of one sentence each, all different."""
    clients: Sequence[int]
    """Numbers of clients that send requests at the same time; each has its own rows."""
    seconds: int
    """Duration of a repetition."""
    pythons: Mapping[str, Path]
    """The Python of each rival's environment, by product."""
    repetitions: int
    cores: int


@dataclass
class ServerTurns:
    """Repetitions of one system with one number of clients."""

    clients: int
    system: str
    loads: list[Load] = field(default_factory=list)

    @property
    def rates(self) -> list[float]:
        """Answered requests per second, in each repetition."""
        return [load.rate for load in self.loads]

    def percentiles(self, percent: float) -> list[float]:
        """A percentile of the latency in milliseconds, in each repetition; infinite if so many
        requests failed."""
        return [load.percentile(percent) for load in self.loads]


@dataclass(frozen=True)
class ServerSystem:
    """The figures of a system that do not depend on the number of clients."""

    system: str
    equal: int
    """Number of translations that equal ours, of the compared texts."""
    memory: int
    """Bytes of all its processes after the load."""


@dataclass
class ServerRivals:
    """The results of a comparison of servers."""

    turns: list[ServerTurns] = field(default_factory=list)
    systems: list[ServerSystem] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    version: str = ""
    """The rival's version; empty if it could not be loaded."""


@dataclass(frozen=True)
class _Asked:
    """A system that answers: its server, and the requests that it gets."""

    server: HttpServer
    bodies: Sequence[dict[str, Any]]


def compare_servers(plan: ServerRivalsPlan, folder: Path, progress: Progress) -> ServerRivals:
    """Load all servers in turns, with each number of clients. All their files are in `folder`.

    Raises BenchError if the texts are too few, if the run is not of the bundle's languages, and if
    this project's server fails.
    """
    most = max(plan.clients)
    if len(plan.texts) < 2 * most:
        raise BenchError(
            f"--texts must have at least {2 * most} different lines for {most} clients, got "
            f"{len(plan.texts)}; this server translates equal texts once if they come at the same "
            "time; give more texts or fewer --clients"
        )
    trained = _trained(plan)
    found = ServerRivals()
    with ExitStack() as stack:
        asked = _all_started(plan, trained, folder, stack, progress, found)
        progress("comparing the translations")
        outputs = {name: _outputs(each) for name, each in asked.items()}
        found.turns = take_server_turns(
            {name: (each.server.url, each.bodies) for name, each in asked.items()},
            plan,
            progress,
            found.left_out,
        )
        for name, each in asked.items():
            equal = sum(map(str.__eq__, outputs[name], outputs[OURS]))
            found.systems.append(ServerSystem(name, equal, each.server.memory))
    return found


def _trained(plan: ServerRivalsPlan) -> Trained:
    """The model of the run; raises BenchError if the bundle is for other languages."""
    trained = load_trained(plan.run)
    data, manifest = trained.recipe.data, read_manifest(plan.bundle)
    pair = data.source_language, data.target_language
    if manifest.task != "translate" or pair not in manifest.languages.trained:
        raise BenchError(
            f"--bundle must translate from {pair[0]} to {pair[1]} as the run {plan.run} does, "
            f"{plan.bundle} does not; give the run that `macaron export checkpoint` makes of it"
        )
    return trained


def _all_started(
    plan: ServerRivalsPlan,
    trained: Trained,
    folder: Path,
    stack: ExitStack,
    progress: Progress,
    found: ServerRivals,
) -> dict[str, _Asked]:
    """All systems that answer, by name; their servers end with `stack`.

    A rival that is not there or does not start is left out with its reason.
    """
    data = trained.recipe.data
    pair = {"source": data.source_language, "target": data.target_language, "format": "text"}
    plain = [{"q": text, **pair} for text in plan.texts]
    progress("starting Macaron")
    ours = stack.enter_context(_our_server(plan.bundle, folder))
    ours.wait_until_ready(plain[0])
    asked = {
        OURS: _Asked(ours, [{**body, "options": OPTIONS} for body in plain]),
        OUR_DEFAULTS: _Asked(ours, plain),
    }
    python = plan.pythons.get(LIBRE)
    try:
        with started(Rival("LibreTranslate", LIBRE, "servers", "LibreTranslate"), python, 1) as it:
            found.version = it.version
    except BenchError as error:
        found.left_out["LibreTranslate"] = str(error).removeprefix("LibreTranslate: ")
        return asked
    progress("making the package of Argos")
    write_argos_package(trained, folder / "argos" / "package")
    for name in (AS_IT_COMES, TUNED):
        progress(f"starting {name}")
        with ExitStack() as starting:
            try:
                server = starting.enter_context(
                    _libretranslate(name, python, folder, plan.cores if name == TUNED else 0)
                )
                server.wait_until_ready(plain[0])
            except BenchError as error:
                found.left_out[name] = str(error).removeprefix(f"{name}: ")
                continue
            stack.enter_context(starting.pop_all())
        asked[name] = _Asked(server, plain)
    return asked


def _our_server(bundle: Path, folder: Path) -> AbstractContextManager[HttpServer]:
    """`macaron serve` with one bundle, as a context."""
    bundles = folder / "bundles"
    bundles.mkdir(parents=True)
    (bundles / bundle.resolve().name).symlink_to(bundle.resolve())
    port = free_port()
    command = [sys.executable, "-m", "macaron", "serve", "--bundles", str(bundles.resolve())]
    path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
    return running_server(
        "Macaron",
        [*command, "--host", "127.0.0.1", "--port", str(port)],
        port,
        folder / "macaron",
        {"PYTHONPATH": path},
    )


def _libretranslate(
    name: str, python: Path | None, folder: Path, cores: int
) -> AbstractContextManager[HttpServer]:
    """LibreTranslate's server as a context: as it comes, or tuned for a number of cores."""
    port = free_port()
    command = [str((python or Path(sys.executable)).absolute()), str(launcher.__file__)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--disable-web-ui"]
    environment = {"ARGOS_PACKAGES_DIR": str((folder / "argos").resolve())}
    if cores:
        command += ["--threads", str(_THREADS)]
        environment |= {"ARGOS_INTER_THREADS": str(cores), "ARGOS_INTRA_THREADS": "1"}
    home = "libretranslate-tuned" if cores else "libretranslate"
    return running_server(name, command, port, folder / home, environment)


def _outputs(asked: _Asked) -> list[str]:
    return [asked.server.translate(body).strip() for body in asked.bodies[:COMPARED]]


def take_server_turns(
    asked: Mapping[str, tuple[str, Sequence[dict[str, Any]]]],
    plan: ServerRivalsPlan,
    progress: Progress,
    left_out: dict[str, str],
) -> list[ServerTurns]:
    """Load each system, given by its address and its requests, system after system within each
    repetition, after a short warm-up.

    Each repetition begins at another text, the same for all systems. A rival that answers nothing
    in its warm-up is left out of this number of clients. Raises BenchError if one answers nothing
    later, and if this project's server does.
    """
    found: list[ServerTurns] = []
    for clients in plan.clients:
        turns = {name: ServerTurns(clients, name) for name in asked}
        for repetition in range(plan.repetitions + 1):
            turn = f"repetition {repetition}" if repetition else "warming up"
            progress(f"{clients} clients: {turn}")
            seconds = plan.seconds if repetition else plan.seconds / _WARM_UP
            for name in list(turns):
                url, bodies = asked[name]
                first = repetition * len(bodies) // (plan.repetitions + 1)
                load = full_load(url, [*bodies[first:], *bodies[:first]], clients, seconds)
                if repetition and load.latencies_ms:
                    turns[name].loads.append(load)
                elif not load.latencies_ms:
                    reason = f"none of {load.failed} requests of {clients} clients was answered"
                    if repetition or name == OURS:
                        raise BenchError(f"{name}: {reason}")
                    left_out[f"{name}, {clients} clients"] = reason
                    del turns[name]
        found += turns.values()
    return found


def server_rivals_markdown(
    command: str, machine: Machine, plan: ServerRivalsPlan, found: ServerRivals
) -> str:
    """Format two tables: speeds by number of clients, and translations and memory."""
    search = ", ".join(f"{name} {value:g}" for name, value in OPTIONS.items())
    subject = (
        f"{plan.bundle.name} over HTTP, one of {len(plan.texts)} sentences a request; {OURS} and "
        f"LibreTranslate: {search}; LibreTranslate tuned: {_THREADS} threads, CTranslate2 "
        f"{plan.cores} x 1; {plan.seconds} s; median of {plan.repetitions}, in turns."
    )
    rival = "No rival could be loaded."
    if found.version:  # the head has the library with which other benches let it multiply
        rival = f"Rivals: {found.version}; its CTranslate2 chooses by itself how to multiply int8."
    lines = [*head_lines(command, machine, subject), "", rival, ""]
    lines += [*_turns_lines(found.turns), "", *_systems_lines(plan, found.systems)]
    return "\n".join([*lines, *left_out_lines(found.left_out)])


def _turns_lines(found: Sequence[ServerTurns]) -> Iterator[str]:
    """The rows of all numbers of clients, with ratios to ours within each repetition."""
    columns = ["clients", "system", "requests/s (min-max)", "p50, ms", "p95, ms (min-max)"]
    columns += ["failed", "our requests / its", "its p95 / ours"]
    yield from table_head(columns, texts=2)
    own = {turns.clients: turns for turns in found if turns.system == OURS}
    for turns in found:
        base = own[turns.clients]
        p95 = turns.percentiles(95)
        cells = [
            str(turns.clients),
            turns.system,
            _span(turns.rates, 1),
            f"{statistics.median(turns.percentiles(50)):,.0f}",
            _span(p95, 0),
            str(sum(load.failed for load in turns.loads)),
        ]
        own_p95 = base.percentiles(95)
        if turns is base:
            cells += ["1", "1"]
        else:
            known = all(map(math.isfinite, (*own_p95, *p95)))
            cells += [ratios(turns.rates, base.rates), ratios(own_p95, p95) if known else ""]
        yield table_line(cells)


def _span(values: Sequence[float], digits: int) -> str:
    """The median of some values with the lowest and the highest."""
    middle, low, high = statistics.median(values), min(values), max(values)
    return f"{middle:,.{digits}f} ({low:,.{digits}f}-{high:,.{digits}f})"


def _systems_lines(plan: ServerRivalsPlan, systems: Sequence[ServerSystem]) -> Iterator[str]:
    yield from table_head(["system", f"translations equal to {OURS}", "memory after load, MiB"])
    compared = min(COMPARED, len(plan.texts))
    for each in systems:
        equal, memory = f"{each.equal} of {compared}", f"{each.memory / 2**20:,.0f}"
        yield table_line([each.system, equal, memory])
