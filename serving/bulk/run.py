"""Decodes a whole file with Ray Data workers, on a local Ray or on a cluster."""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from serving.bulk.blocks import RowBlock, check_columns, cut, kind_of
from serving.bulk.parts import BulkError, Parts
from serving.bulk.worker import BulkTask, BulkWorker, Failure
from serving.bundle.folder import MANIFEST, file_hash
from serving.progress import ProgressLine
from serving.threads import default_threads

BLOCK_ROWS = 1000
"""Number of rows in a block: few enough to lose when a worker dies, and enough to batch rows of
similar length."""
_TRIES = 3
"""Number of attempts at a block whose worker dies each time."""


def run(
    task: BulkTask,
    out: Path,
    *,
    workers: int | None = None,
    address: str | None = None,
    force: bool = False,
) -> int:
    """Decode every row of `task.file` into `out`; returns the number of rows without a result.
    `failed_rows(out)` lists them with the reasons.

    Each of the `workers` (default: one for each processor of this machine or of the cluster at
    `address`) loads the bundle. An interrupted run is resumed by the same call: finished blocks are
    not decoded again. Progress goes to stderr.

    Raises BulkError if the run is not possible, also if `out` exists and `force` is not set. Raises
    what `Translator` raises for the bundle and the options.
    """
    _check(task, out, workers, force=force)
    BulkWorker(task).check()  # errors that concern every row are reported before Ray is started
    check_columns(task.file, task.columns, task.into)
    blocks = cut(task.file, BLOCK_ROWS)
    parts = Parts(out, _plan(task))
    numbers = range(len(blocks))
    rows = sum(block.rows for block in blocks)
    left = sum(blocks[number].rows for number in parts.missing(numbers))
    progress = ProgressLine(rows, "rows", done=rows - left)
    while lost := parts.missing(numbers):
        missing = [blocks[number] for number in lost]
        for number, content, failures in _decode(task, missing, workers, address):
            parts.add(number, content, failures)
            progress.add(blocks[number].rows)
        # A worker that one block ends may have taken others with it: those are tried again, unless
        # nothing comes of it. One that is left alone has ended its workers itself.
        if len(parts.missing(numbers)) in (1, len(lost)):
            break
    progress.finish()
    lost = parts.missing(numbers)
    if lost:
        block = blocks[lost[0]]
        raise BulkError(
            f"{len(lost)} of {len(blocks)} blocks could not be decoded, because their worker ended "
            f"or failed {_TRIES} times; the first of them has rows {block.first + 1} to "
            f"{block.first + block.rows}. All other blocks are finished, and the same command "
            "tries these again; fewer --workers leave more memory for each"
        )
    return parts.finish(kind_of(task.file), numbers, failed_rows(out))


def _check(task: BulkTask, out: Path, workers: int | None, *, force: bool) -> None:
    """Raise BulkError for unusable files or numbers."""
    if not task.file.is_file():
        raise BulkError(f"{task.file}: there is no such file")
    if kind_of(task.file) != kind_of(out):
        raise BulkError(
            f"{out} would be {kind_of(out)}, but {task.file} is {kind_of(task.file)}; the end of a "
            "name says the kind (.jsonl, .csv, .tsv, .parquet, all else is text; .gz may follow): "
            "give both the same"
        )
    if out.exists() and out.samefile(task.file):
        raise BulkError(f"{out} is the input, which is read to the end; write to another file")
    if task.n_best and kind_of(out) not in ("jsonl", "parquet"):
        raise BulkError(f"--n-best needs a .jsonl or .parquet file, got {out}")
    if out.is_dir():
        raise BulkError(f"{out} is a folder; name the file to write")
    if out.exists() and not force:
        raise BulkError(f"{out} exists already; give --force to replace it")
    if not out.parent.is_dir():
        raise BulkError(f"{out.parent}: there is no such folder to write into")
    for name, value, least in (
        ("--workers", workers, 1),
        ("--threads-per-worker", task.threads, 1),
        ("--n-best", task.n_best, 0),
    ):
        if value is not None and value < least:
            raise BulkError(f"{name} must be >= {least}, got {value}")


def failed_rows(out: Path) -> Path:
    """The file of the rows without a result: one JSON object per line; `row` counts from 1."""
    return out.with_name(f"{out.name}.failed.jsonl")


def _plan(task: BulkTask) -> dict[str, Any]:
    """The settings that a resumed run must share with the first one."""
    asked = dataclasses.asdict(task) | {"columns": list(task.columns)}
    for name in ("bundle", "file", "threads", "zero_shot"):
        del asked[name]
    with task.file.open("rb") as file:
        content = hashlib.file_digest(file, "sha256").hexdigest()
    bundle = file_hash(task.bundle / MANIFEST)
    return {"input": content, "bundle": bundle, "block rows": BLOCK_ROWS} | asked


def _decode(
    task: BulkTask, blocks: list[RowBlock], workers: int | None, address: str | None
) -> Iterator[tuple[int, bytes, list[Failure]]]:
    """Yield the number, content and failures of each finished block. A block whose worker dies at
    every attempt is left out."""
    if not blocks:
        return
    ray = _start_ray(workers, task.threads, address)
    try:
        _check_nodes(ray, task.threads)
        processors = int(ray.cluster_resources().get("CPU", 1))
        count = min(workers or max(1, processors // task.threads), len(blocks))
        items = [block._asdict() for block in blocks]
        with warnings.catch_warnings():
            # There is no other way yet to limit the attempts; without this, Ray tries forever.
            warnings.simplefilter("ignore", DeprecationWarning)
            rows = ray.data.from_items(items, override_num_blocks=len(items)).map(
                BulkWorker,
                fn_constructor_args=(task,),
                # That would count as an attempt at blocks that wait behind one that ends a worker.
                compute=ray.data.ActorPoolStrategy(size=count, max_tasks_in_flight_per_actor=1),
                num_cpus=task.threads,
                max_task_retries=_TRIES - 1,
            )
        for row in rows.iter_rows():
            failures = map(Failure, row["failed_rows"], row["reasons"])
            yield int(row["number"]), row["content"], list(failures)
    finally:
        ray.shutdown()


def _check_nodes(ray: Any, threads: int) -> None:
    """Raise BulkError if no node has enough processors for one worker: Ray would wait forever."""
    most = max(node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"])
    if threads > most:
        raise BulkError(
            f"--threads-per-worker must be at most {int(most)}, the processors of the cluster's "
            f"largest node, got {threads}"
        )


def _start_ray(workers: int | None, threads: int, address: str | None) -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    import ray
    import ray.data

    logging.getLogger("ray.data").setLevel(logging.ERROR)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.max_errored_blocks = -1  # blocks that are left out are reported at the end
    try:
        if address is None:
            ray.init(
                num_cpus=max((workers or 1) * threads, default_threads()),
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
        else:
            ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError) as error:
        raise BulkError(
            f"no Ray cluster at {address!r}: {str(error).splitlines()[0]}; leave --address out to "
            "use this machine alone"
        ) from error
    return ray
