"""The model card of a bundle: `README.md`, generated only from the manifest."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePath
from typing import Any

from serving.bundle.engines import ANY_GPU
from serving.bundle.folder import write_manifest
from serving.bundle.manifest import CARD, Manifest
from serving.runtime.device import runs_on_cpu
from serving.runtime.device_switch import SWITCH


def finish(folder: Path, manifest: Manifest) -> None:
    """Write the manifest, which lists all files except the card, and the card, which states their
    total size."""
    write_manifest(folder, manifest)
    size = sum(path.stat().st_size for path in folder.iterdir() if path.name != CARD)
    (folder / CARD).write_text(render_card(manifest, size), encoding="utf-8")


_PIPELINES = {
    "translate": "translation",
    "generate": "text-generation",
    "encode": "sentence-similarity",
    "classify": "text-classification",
}
_READ = ("encode", "classify")
_WIDTH = 120
"""Columns of a line of prose."""


def render_card(manifest: Manifest, size: int) -> str:
    """The card as Markdown; `size` is that of the bundle's files in bytes."""
    sections = {
        "How to use it": _usage(manifest),
        "What it was trained on": _data(manifest),
        "Scores": _scores(manifest),
        "Limits": _limits(manifest),
    }
    head = [*_front_matter(manifest), f"# {manifest.name}", "", *_facts(manifest, size)]
    body = [line for title, lines in sections.items() for line in ("", f"## {title}", "", *lines)]
    return "\n".join(_wrapped([*head, *body])) + "\n"


def _wrapped(lines: Iterable[str]) -> Iterator[str]:
    """Prose in lines that fit a window. Rows of tables and code are one line each."""
    prose = True
    for line in lines:
        if line.startswith("```"):
            prose = not prose
        if not prose or len(line) <= _WIDTH or line.startswith(("|", "- `")):
            yield line
        else:
            indent = "  " if line.startswith("- ") else ""
            yield from textwrap.wrap(
                line,
                _WIDTH,
                subsequent_indent=indent,
                break_long_words=False,
                break_on_hyphens=False,
            )


def _front_matter(manifest: Manifest) -> list[str]:
    """Metadata for sites that show cards: the task and the languages."""
    task = _PIPELINES[manifest.task]
    languages = dict.fromkeys((*manifest.languages.source, *manifest.languages.target))
    # Quoted, because Norwegian's code is YAML's word for false.
    codes = [f"- {json.dumps(language)}" for language in languages]
    listed = ["language:", *codes] if codes else []
    licence = manifest.recipe.get("imported", {}).get("licence")
    licences = [f"license: {json.dumps(licence)}"] if licence else []
    return ["---", f"pipeline_tag: {task}", *licences, *listed, "---", ""]


def _facts(manifest: Manifest, size: int) -> Iterator[str]:
    sizes = manifest.sizes
    if manifest.task == "translate":
        yield f"Translates {manifest.languages.listing}."
    elif manifest.reading is None:
        yield "Continues text."
    elif manifest.task == "classify":
        yield f"Classifies texts: {', '.join(manifest.reading.labels)}."
    else:
        pooled = {"cls": "its first token's", "mean": "the mean of all tokens'"}
        yield f"Gives a vector for each text: {pooled[manifest.reading.pooling]} state."
    layers = f"{sizes.num_decoder_layers} decoder layers"
    if manifest.task in _READ:
        layers = f"{manifest.block}, {sizes.num_encoder_layers} layers"
    elif sizes.num_encoder_layers:
        layers = f"{sizes.num_encoder_layers} encoder and {layers}"
    precision: str = manifest.precision
    if precision == "int8" and manifest.activations == "row16":
        precision += " weights, activations of 16 bits"
    elif precision == "int8":
        precision += f" weights and activations ({manifest.activations} scales)"
    if precision == "w8a16":
        precision += " (weights in blocks of int8, activations in fp16)"
    files = manifest.tokenizer
    kind: str = files.kind
    if kind == "pieces":
        kind = "sentencepiece"  # with vocabulary ids, which readers need not know
    if kind == "moses":
        kind = "BPE of Moses' tokens"
    own = f"{manifest.source_pieces:,} of the source, " if files.source_vocabulary_file else ""
    yield ""
    yield from _table(
        ("", ""),
        [
            ("architecture", f"{manifest.family}, {layers} of width {sizes.model_dim}"),
            ("parameters", f"{sizes.num_parameters / 1e6:.2f} million"),
            ("vocabulary", f"{own}{sizes.vocab_size:,} pieces ({kind})"),
            ("precision", precision),
            ("runs on", manifest.target),
            ("size", f"{size / 1e6:.1f} MB"),
            *_engines(manifest),
        ],
    )


def _engines(manifest: Manifest) -> Iterator[tuple[str, str]]:
    """The builders and the GPU of the engines."""
    if manifest.engines:
        first = manifest.engines[0]
        gpu = "any GPU" if first.gpu == ANY_GPU else first.gpu
        built = f"{len(manifest.engines)} for {gpu}, by {first.library} {first.version}"
        yield "engines", f"{built}; where they do not fit, its graphs run"


def _usage(manifest: Manifest) -> list[str]:
    target, precision = manifest.target, manifest.precision
    if not runs_on_cpu(precision):
        return [
            f"The CPU has no {precision}: the bundle needs an NVIDIA GPU and the package's extra "
            f"`serve-{target}`. One for the CPU comes of the checkpoint by `--target cpu`."
        ]
    on_cpu = f"{SWITCH}=cpu " if target != "cpu" else ""
    if manifest.task == "translate":
        named, keywords = "", ""
        if manifest.languages.is_multilingual:
            first, second = manifest.languages.trained[0]
            named = f" --from {first} --to {second}"
            keywords = f', source="{first}", target="{second}"'
        command = f"{on_cpu}macaron translate {manifest.name}{named} < source.txt > target.txt"
        program = [
            "from macaron import Translator",
            "",
            f'translator = Translator("{manifest.name}")',
            f'print(translator.translate(["..."]{keywords})[0].text)',
        ]
    elif manifest.task in _READ:
        verb = "embed" if manifest.task == "encode" else "classify"
        name = "Embedder" if manifest.task == "encode" else "Classifier"
        command = f"macaron {verb} {manifest.name} < texts.txt"
        program = [
            f"from macaron import {name}",
            "",
            f'model = {name}("{manifest.name}")',
            f'print(model.{verb}(["..."]))',
        ]
    else:
        command = f'echo "..." | {on_cpu}macaron generate {manifest.name}'
        program = [
            "from macaron import Generator",
            "",
            f'generator = Generator("{manifest.name}")',
            'print(generator.generate(["..."])[0][0].text)',
        ]
    serve = f"{on_cpu}macaron serve --bundles .    # the folder that holds this one, over HTTP"
    note: list[str] = []
    if on_cpu:
        program = ["import os", "", *program[:2], f'os.environ["{SWITCH}"] = "cpu"', *program[2:]]
        note = [
            f"With `{SWITCH}=cpu` its graphs run on the CPU, more slowly than those of a bundle "
            "that was exported with `--target cpu`. Leave it out where there is an NVIDIA GPU and "
            f"the package's extra `serve-{target}`.",
            "",
        ]
    return [*note, "```sh", command, serve, "```", "", "```python", *program, "```"]


def _data(manifest: Manifest) -> Iterator[str]:
    data: dict[str, Any] = manifest.recipe.get("data", {})
    yield manifest.attribution or "Origin and licence of the text are not recorded."
    rows = []
    train = data.get("train", ())
    for files in [train] if isinstance(train, str) else train:
        if isinstance(files, str):
            rows.append((_short(files), "1"))
        else:
            named = [files[key] for key in ("file", "source", "target") if files.get(key)]
            rows.append((", ".join(map(_short, named)), f"{files.get('weight', 1):g}"))
    if rows:
        yield ""
        yield from _table(("corpus", "weight"), rows)
    if data.get("temperature") is not None:
        yield ""
        yield f"Sampled with temperature {data['temperature']:g} in place of these weights."


def _short(file: str) -> str:
    """A file with its folder, which names the corpus, without the rest of its path."""
    return "/".join(PurePath(file).parts[-2:])


def _scores(manifest: Manifest) -> Iterator[str]:
    if manifest.quality:
        figures = [(q.data, q.metric, f"{q.value:g}", q.note) for q in manifest.quality]
        yield from _table(("data", "metric", "score", ""), figures)
        yield ""
        for signature in dict.fromkeys(q.signature for q in manifest.quality if q.signature):
            yield f"- `{signature}`"
    else:
        yield "Not measured on a test text (`export bundle --test`)."
    if manifest.calibration:
        found = manifest.calibration
        yield ""
        yield (
            f"Answers have the probability that a translation is good ({found.event}), fitted on "
            f"{found.pairs:,} pairs of {found.data}; on others it is off by "
            f"{found.expected_error:.3f} on average."
        )


def _limits(manifest: Manifest) -> Iterator[str]:
    if manifest.demonstration:
        yield f"- {manifest.demonstration}"
    if manifest.task == "translate":
        yield "- It knows the kinds of text it was trained on; scores tell how it fares on others."
        yield "- It reads one sentence at a time: what follows from those around it is lost."
        if manifest.languages.pairs:
            yield "- Of its languages it refuses other pairs, on which it was not trained."
        if manifest.sizes.max_source:
            taken = 1 + manifest.languages.most_before  # eos takes one
            yield f"- A sentence may have {manifest.sizes.max_source - taken} pieces."
        if manifest.sizes.usual_source:
            whole = manifest.sizes.usual_source - 1 - manifest.languages.most_before
            yield (
                f"- It translates sentences of at most {whole} pieces whole; longer ones are "
                "divided into clauses."
            )
    elif manifest.task in _READ:
        yield "- It knows the kinds of text it was trained on; scores tell how it fares on others."
        yield f"- A text may have {manifest.sizes.max_source} pieces, special ones included."
        return
    else:
        yield "- It continues text as its training text would go on: what it says need not be true."
    if manifest.sizes.max_positions:
        yield f"- An output may have {manifest.sizes.max_positions} pieces."
    yield "- Names, numbers and rare words may come out wrong: have a person read what matters."


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    for row in (head, ("---",) * len(head), *rows):
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"
