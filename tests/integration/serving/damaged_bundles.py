"""Damages copies of bundles, and notes what `python -m serving` makes of each.

`python -m tests.integration.serving.damaged_bundles FILE SHARE` writes one JSON object a line into
a file, for one of so many damages in turn. Each copy is used in a process of its own, forked from
one that has loaded all libraries.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import numpy_helper

import serving.__main__
import serving.commands
import serving.encoding.reader
import serving.generation.generator
import serving.runtime.ort
from serving.bundle.folder import MANIFEST, file_hash
from serving.bundle.manifest import Manifest

MODELS = Path(__file__).resolve().parents[3] / "models"
TIMEOUT_S = 60
USES = {
    "macaron-de-en": (
        ["translate", "--json", "--threads=1", "--option=num_hypotheses=2"],
        "Das Haus ist sehr alt.\nIch habe heute keine Zeit.\n",
    ),
    "lm-cascade": (
        ["generate", "--threads=1", "--seed=1", "--option=max_length=12"],
        "The film was\nIn the morning\n",
    ),
    "intents": (["classify", "--threads=1"], "Wake me at seven.\nHow are you?\n"),
}
"""By bundle: the verb with its options, and the lines that are put in."""
OTHERS = {"macaron-de-en": "macaron-en-de", "lm-cascade": "joint-fast-de-en", "intents": "embedder"}
"""Bundles whose files are put in the place of a bundle's own."""

Tree = dict[str, Any]


class Damage(NamedTuple):
    """One way to damage a bundle."""

    label: str
    bundle: str
    spoil: Callable[[Path], object]
    """Is given the folder of a copy."""
    noticed: bool
    """Whether it must be refused; what cannot be known from the files may also work."""


def edit_manifest(change: Callable[[Tree], object], folder: Path) -> None:
    """Change a manifest, whose tree the function is given."""
    tree = json.loads((folder / MANIFEST).read_text())
    change(tree)
    replace(folder / MANIFEST, json.dumps(tree).encode())


def replace(path: Path, content: bytes) -> None:
    """Write a file anew; the copies share theirs with the original."""
    path.unlink()
    path.write_bytes(content)


def hash_anew(folder: Path) -> None:
    """Have the manifest list the files as they are."""

    def change(tree: Tree) -> None:
        tree["files"] = {name: file_hash(folder / name) for name in tree["files"]}

    edit_manifest(change, folder)


def flip(name: str, seed: int, folder: Path) -> None:
    """Change some bytes of a file: of two thirds of the seeds near its beginning or its end."""
    drawn = random.Random(seed)
    content = bytearray((folder / name).read_bytes())
    first = (0, 0, max(0, len(content) - 2000))[seed % 3]
    last = (len(content), min(len(content), 2000), len(content))[seed % 3]
    for _ in range(1 + seed % 4):
        content[drawn.randrange(first, last)] ^= 1 << drawn.randrange(8)
    replace(folder / name, bytes(content))


def cut(name: str, share: float, folder: Path) -> None:
    """Keep only the first part of a file."""
    content = (folder / name).read_bytes()
    replace(folder / name, content[: int(share * len(content))])


def swap(name: str, other: Path, folder: Path) -> None:
    """Put another file in the place of one."""
    replace(folder / name, other.read_bytes())


def remove(name: str, folder: Path) -> None:
    """Leave a file out."""
    (folder / name).unlink()


def anew(spoil: Callable[[Path], object], folder: Path) -> None:
    """Damage a bundle, and hash its files anew."""
    spoil(folder)
    hash_anew(folder)


def edit_graph(name: str, change: Callable[[onnx.GraphProto], object], folder: Path) -> None:
    """Change a graph, and hash the file anew."""
    model = onnx.load(folder / name, load_external_data=False)
    change(model.graph)
    replace(folder / name, model.SerializeToString())
    hash_anew(folder)


def of_files(bundle: str, names: list[str]) -> Iterator[Damage]:
    """Files that are damaged, with the hashes of the whole ones and with their own."""
    for name in names:
        for seed in range(12 if name == MANIFEST else 6):
            flipped = partial(flip, name, seed)
            yield Damage(f"{name} flipped {seed}", bundle, flipped, name != MANIFEST)
            if name != MANIFEST:
                yield Damage(
                    f"{name} flipped {seed}, hashed", bundle, partial(anew, flipped), False
                )
        other = MODELS / OTHERS[bundle] / name
        spoils: dict[str, Callable[[Path], object]] = {
            "empty": partial(cut, name, 0.0),
            "cut": partial(cut, name, 0.6),
            "cut at once": partial(cut, name, 0.001),
        }
        if other.is_file() and file_hash(other) != file_hash(MODELS / bundle / name):
            spoils["swapped"] = partial(swap, name, other)
        for label, spoil in spoils.items():
            yield Damage(f"{name} {label}", bundle, spoil, True)
            if name != MANIFEST:
                # What is left of a vocabulary may be one, and another bundle's tables may fit.
                fits = label == "swapped" or not name.endswith((".onnx", ".bin"))
                spoil = partial(anew, spoil)
                yield Damage(f"{name} {label}, hashed", bundle, spoil, not fits)
        yield Damage(f"{name} missing", bundle, partial(remove, name), True)


def with_initializer(number: int, make: Callable[[Any], Any], graph: onnx.GraphProto) -> None:
    """Change one of a graph's larger initializers."""
    whole = [each for each in graph.initializer if len(each.dims) and len(each.raw_data) > 1000]
    found = whole[number % len(whole)]
    made = np.ascontiguousarray(make(numpy_helper.to_array(found)))
    found.CopyFrom(numpy_helper.from_array(made, found.name))


SHAPES: dict[str, Callable[[Any], Any]] = {
    "a row less": lambda array: array[:-1],
    "turned": lambda array: array.T if array.ndim > 1 else array[None],
    "an axis more": lambda array: array[None],
    "no rows": lambda array: array[:0],
    "a column": lambda array: array[..., :1],
    "float64": lambda array: array.astype(np.float64),
    "uint8": lambda array: array.astype(np.uint8),
    "int64": lambda array: array.astype(np.int64),
}


def of_graphs(bundle: str, names: list[str]) -> Iterator[Damage]:
    """Valid ONNX files that are not those of the manifest."""
    for name in names:
        for number in (0, 7, 13, 20):
            for words, make in SHAPES.items():
                changed = partial(with_initializer, number, make)
                label = f"{name}: initializer {number}: {words}"
                yield Damage(label, bundle, partial(edit_graph, name, changed), False)
        for label, change in GRAPHS.items():
            spoil = partial(edit_graph, name, change)
            yield Damage(f"{name}: {label}", bundle, spoil, True)


def rename(graph: onnx.GraphProto) -> None:
    new, old = "another", graph.input[0].name
    graph.input[0].name = new
    for node in graph.node:
        node.input[:] = [new if name == old else name for name in node.input]


def retype(graph: onnx.GraphProto) -> None:
    graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT


def lose_output(graph: onnx.GraphProto) -> None:
    del graph.output[0]


def lose_node(graph: onnx.GraphProto) -> None:
    del graph.node[len(graph.node) // 2]


def unknown_operator(graph: onnx.GraphProto) -> None:
    graph.node[len(graph.node) // 2].op_type = "NoOperator"


GRAPHS: dict[str, Callable[[onnx.GraphProto], object]] = {
    "an input renamed": rename,
    "an input of another type": retype,
    "an output less": lose_output,
    "a node less": lose_node,
    "an unknown operator": unknown_operator,
}


def put(path: tuple[str | int, ...], value: Any, tree: Any) -> None:
    """Set what is at a path of a tree."""
    for part in path[:-1]:
        tree = tree[part]
    tree[path[-1]] = value


def drop(path: tuple[str | int, ...], tree: Any) -> None:
    """Leave out what is at a path of a tree."""
    for part in path[:-1]:
        tree = tree[part]
    del tree[path[-1]]


def of_manifest(bundle: str, graph: str) -> Iterator[Damage]:
    """Manifests that do not fit the graphs, or say something that cannot be."""
    tree = json.loads((MODELS / bundle / MANIFEST).read_text())
    for name in Manifest.model_fields:
        given: tuple[Any, ...]
        given = (None, -1, 2**70, "x", [], {}, [["x"]], {"x": {}}, True, 1e308)
        for value in given:
            label = f"manifest: {name} is {value!r}"
            yield Damage(label, bundle, partial(edit_manifest, partial(put, (name,), value)), False)
    for name, known in tree["sizes"].items():
        values: list[Any] = [0, -1, 2**40, "x", None]
        values += [known - 1, known + 1, 2 * known] if type(known) is int else []
        for value in values:
            noticed = name == "vocab_size"
            change = partial(put, ("sizes", name), value)
            label = f"manifest: sizes.{name} is {value!r}"
            yield Damage(label, bundle, partial(edit_manifest, change), noticed)
    for name in tree["special_ids"] or ():
        for value in (-1, 0, tree["sizes"]["vocab_size"], 2**70, 5):
            change = partial(put, ("special_ids", name), value)
            label = f"manifest: special_ids.{name} is {value}"
            yield Damage(label, bundle, partial(edit_manifest, change), False)
    yield from of_tensors(bundle, graph, tree)


def of_tensors(bundle: str, graph: str, tree: Tree) -> Iterator[Damage]:
    """Inputs and outputs that are not the graph's."""
    for kind in ("inputs", "outputs"):
        first = {tensor["role"]: number for number, tensor in enumerate(tree[graph][kind])}
        for number in first.values():
            tensor, path = tree[graph][kind][number], (graph, kind, number)
            changes: dict[str, Callable[[Tree], object]] = {
                "missing": partial(drop, path),
                "of another name": partial(put, (*path, "name"), "another"),
                "of another type": partial(
                    put, (*path, "dtype"), "int32" if tensor["dtype"] != "int32" else "int64"
                ),
                "with an axis less": partial(drop, (*path, "axes", 0)),
                "with an axis of 3": partial(put, (*path, "axes", -1), 3),
                "with an axis of 0": partial(put, (*path, "axes", -1), 0),
                "with an axis of -5": partial(put, (*path, "axes", -1), -5),
                "with an unknown axis": partial(put, (*path, "axes", 0), "Z"),
                "of another role": partial(
                    put, (*path, "role"), "position" if tensor["role"] != "position" else "label"
                ),
            }
            for words, change in changes.items():
                label = f"manifest: {graph} {kind} {number} {words}"
                yield Damage(label, bundle, partial(edit_manifest, change), True)


def damages() -> Iterator[Damage]:
    """All of them."""
    for bundle in USES:
        names = [MANIFEST, *json.loads((MODELS / bundle / MANIFEST).read_text())["files"]]
        graphs = [name for name in names if name in ("step.onnx", "encoder.onnx")]
        yield from of_files(bundle, names)
        yield from of_graphs(bundle, graphs)
        yield from of_manifest(bundle, "step" if "step.onnx" in names else "encoder")
        if bundle == "macaron-de-en":
            tree = json.loads((MODELS / bundle / MANIFEST).read_text())
            yield from of_tensors(bundle, "encoder", tree)


WHOLE = [Damage("whole", bundle, Path.exists, False) for bundle in USES]
"""Bundles as they are."""


def use(damage: Damage, folder: Path) -> Tree:
    """Damage a copy, and run the bundle's verb on it in this process."""
    damage.spoil(folder)
    (verb, *options), text = USES[damage.bundle]
    out, err = io.StringIO(), io.StringIO()
    given = io.TextIOWrapper(io.BytesIO(text.encode()))
    status: int | None = None
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        sys.stdin = given
        try:
            status = serving.__main__.main([verb, *options, str(folder)])
        except BaseException:
            traceback.print_exc()
    return {"status": status, "out": out.getvalue(), "err": err.getvalue()}


def forked(damage: Damage, whole: Path) -> Tree:
    """What `use` gives in a process of its own; `signal` and `timeout` where it has ended
    otherwise."""
    with tempfile.TemporaryDirectory(dir=whole) as place:
        folder, found = Path(place) / damage.bundle, Path(place) / "found"
        shutil.copytree(whole / damage.bundle, folder, copy_function=os.link)
        child = os.fork()
        if not child:
            signal.alarm(TIMEOUT_S)
            try:
                found.write_text(json.dumps(use(damage, folder)))
            finally:
                os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            return {"signal": signal.Signals(os.WTERMSIG(status)).name}
        result: Tree = json.loads(found.read_text())
        return result


def main(result: Path, share: int) -> None:
    """Try one of so many in turn, and write what has become of each."""
    with tempfile.TemporaryDirectory() as place, result.open("w") as file:
        for bundle in USES:
            shutil.copytree(MODELS / bundle, Path(place) / bundle)
        for damage in [*WHOLE, *list(damages())[::share]]:
            facts = {"bundle": damage.bundle, "label": damage.label, "noticed": damage.noticed}
            file.write(json.dumps(facts | forked(damage, Path(place))) + "\n")
            file.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
