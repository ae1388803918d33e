"""What mkdocs adds to the pages, so that a fact of the code stands in the code alone.

A page asks by a line such as `<!-- made: routes -->`; `MADE` lists what there is. Links to files
outside of docs/ become their paths, for the site has no such files.
"""

from __future__ import annotations

import argparse
import ast
import html
import json
import os.path
import re
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
OUTSIDE = re.compile(r"(?<!!)\[([^\]]+)\]\(((?:\.\./)+[^)#]*)(#[^)]*)?\)")
SHIM = '<script src="https://unpkg.com/iframe-worker/shim"></script>'
"""What the plugin `offline` would load from elsewhere, for the search in pages opened as files."""
PRINTED = re.compile(r"<!-- run: .*?<!-- end -->", re.DOTALL)
MEASURED = re.compile(r"<!-- measured: ([\w-]+) -->\n.*?<!-- end -->", re.DOTALL)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Called by mkdocs for each page, before its Markdown becomes HTML."""
    if page.file.src_uri == "index.md":
        page.meta.update(title="Home", hide=["navigation"])
    for name, make in MADE.items():
        if f"<!-- made: {name} -->" in markdown:
            markdown = markdown.replace(f"<!-- made: {name} -->", make())
    return without_links_outside(with_measurements(markdown), page.file.src_uri)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Called by mkdocs for each page's HTML, before it is written."""
    here = "../" * page.url.count("/")
    return output.replace(SHIM, f'<script src="{here}search_worker.js"></script>')


def on_post_template(output_content: str, **_: Any) -> str:
    """Called by mkdocs for pages without a document, such as that of 404."""
    return output_content.replace(SHIM, "")


def with_measurements(markdown: str) -> str:
    """Put the measured tables into boxes of class `figures`, and below each of those in
    `docs/measurements/tables` how it was measured."""

    def said(block: re.Match[str]) -> str:
        path = ROOT / "docs/measurements/tables" / f"{block[1]}.json"
        found = json.loads(path.read_text(encoding="utf-8"))
        where = "; ".join(found["machine"])
        when = f"{found['date']}, at commit {found['commit']}"
        command = f"<code>{html.escape(found['command'])}</code>" if found["command"] else ""
        facts = (found["about"], where, found["versions"] or "", when, command)
        shown = "<br>".join(
            fact if fact == command else html.escape(fact) for fact in facts if fact
        )
        return (
            f'<div class="figures" markdown>\n\n{block[0]}\n\n</div>\n\n'
            '<details class="measured"><summary>How this was measured</summary>'
            f"<p>{shown}</p></details>\n"
        )

    markdown = PRINTED.sub(r'<div class="figures" markdown>\n\n\g<0>\n\n</div>', markdown)
    return MEASURED.sub(said, markdown)


def without_links_outside(markdown: str, source: str) -> str:
    """Write `text (path)` in place of links to files of the repository that are no pages."""

    def plain(link: re.Match[str]) -> str:
        folder = os.path.dirname(f"docs/{source}")
        path = os.path.normpath(os.path.join(folder, link[2]))
        if path.startswith("docs/") and path.endswith((".md", ".png", ".svg")):
            return link[0]
        text = link[1]
        return text if path in text else f"{text} (`{path}`)"

    return OUTSIDE.sub(plain, markdown)


def readme(heading: str) -> str:
    """A section of the README, with links as a page of docs/ has them."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return section.replace("](docs/", "](").replace("]: docs/", "]: ").strip()


def command_line() -> str:
    """One section for each package's verbs, one table for each verb's arguments."""
    sys.path.insert(0, str(ROOT))
    import bench.__main__
    import export.__main__
    import macaron.doctor
    import macaron.models
    import macaron.serve
    import serving.__main__
    import training.__main__

    serve = macaron.serve._parser("macaron serve")
    parts = ["## Serving", *verb("macaron serve", serve)]
    parts += verb("macaron pull", macaron.models.pull_parser("macaron pull"))
    cached = macaron.models.models_parser("macaron models")
    parts += [*verb("macaron models", cached), *group("macaron models", cached)]
    parts += verb("macaron doctor", macaron.doctor.doctor_parser("macaron doctor"))
    parts += group("macaron", serving.__main__._parser("macaron"))
    for title, parser in (
        ("Training", training.__main__._parser("macaron")),
        ("Export", export.__main__._parser("macaron export")),
        ("Benchmarks", bench.__main__._parser("macaron bench")),
    ):
        parts += [f"## {title}", *group(parser.prog, parser)]
    return "\n\n".join(parts)


def group(prog: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    """The verbs of a parser, each with its help in one line."""
    (verbs,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    helps = {choice.dest: choice.help or "" for choice in verbs._choices_actions}
    for name, sub in verbs.choices.items():
        yield from verb(f"{prog} {name}", sub, helps.get(name, ""))


def verb(title: str, parser: argparse.ArgumentParser, line: str = "") -> list[str]:
    """Heading, what it does, how it is called, and a table of its arguments."""
    parser.prog = title
    formatter = parser._get_formatter()
    rows = ["| argument | |", "|---|---|"]
    for action in parser._actions:
        if isinstance(action, argparse._HelpAction | argparse._SubParsersAction):
            continue
        names = ", ".join(action.option_strings) or str(action.metavar or action.dest)
        value = "" if not action.option_strings else _value(action)
        text = formatter._expand_help(action) if action.help else ""
        rows.append(f"| `{names}{value}` | {_cell(text)} |")
    said = parser.description or line
    parts = [f"### {title}", _sentence(said)]
    return [part for part in (*parts, "\n".join(rows) if len(rows) > 2 else "") if part]


def _value(action: argparse.Action) -> str:
    if action.nargs == 0:
        return ""
    if action.choices is not None:
        return " " + "|".join(map(str, action.choices))
    shown = action.metavar or action.dest.upper()
    return " " + (shown if isinstance(shown, str) else " ".join(shown))


def fields(path: str, name: str, prefix: str = "") -> str:
    """A table of a class' documented fields: name, default, docstring. The file is not run."""
    rows = ["| name | default | |", "|---|---|---|"]
    for field, default, meaning in _fields_of(path, name):
        if meaning:
            shown = prefix + (field.upper() if prefix else field)
            rows.append(f"| `{shown}` | {default} | {meaning} |")
    return "\n".join(rows)


def _fields_of(path: str, name: str) -> Iterator[tuple[str, str, str]]:
    """Name, default and docstring of each field of a class, as cells of a table."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    (body,) = (n.body for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name)
    for field, after in pairwise(body):
        if not (isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)):
            continue
        documented = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        meaning = _cell(str(after.value.value)) if documented else ""
        yield field.target.id, _initial(field.value), meaning


def recipe_keys() -> str:
    """A table of keys for each section of a recipe: key, default, what its docstring says."""
    sections = (
        ("`data` of a translation model", "sections", "DataConfig"),
        ("An entry of `data.train`, and `data.validation`", "sections", "ParallelFiles"),
        ("`data.noise`", "sections", "NoiseConfig"),
        ("`data` of a language model", "sections", "TextConfig"),
        ("`data` of an encoder's pretraining", "encoder_sections", "PretrainingConfig"),
        ("`data` of an encoder's fine-tuning", "encoder_sections", "LabelledConfig"),
        ("`tokenizer`", "sections", "TokenizerConfig"),
        ("`optim`", "sections", "OptimConfig"),
        ("`loop`", "sections", "LoopConfig"),
    )
    return "\n\n".join(
        f"## {title}\n\n{_keys(f'training/recipe/{module}.py', name)}"
        for title, module, name in sections
    )


def _keys(path: str, name: str) -> str:
    rows = ["| key | default | |", "|---|---|---|"]
    for key, default, meaning in _fields_of(path, name):
        rows.append(f"| `{key}` | {default or 'required'} | {meaning} |")
    return "\n".join(rows)


def _initial(value: ast.expr | None) -> str:
    """A field's default, of `Field(default, ge=1)` with its bounds, as the file has it."""
    if isinstance(value, ast.Call) and ast.unparse(value.func) == "field":
        return "its own keys"
    if not isinstance(value, ast.Call) or ast.unparse(value.func) != "Field":
        return "" if value is None else f"`{_cell(ast.unparse(value))}`"
    default = f"`{_cell(ast.unparse(value.args[0]))}`" if value.args else ""
    signs = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
    bounds = [
        f"{signs[word.arg]} {ast.unparse(word.value)}"
        for word in value.keywords
        if word.arg in signs
    ]
    return ", ".join([default, *bounds]).removeprefix(", ")


def routes() -> str:
    """A section for each path, with the fields of its body and the statuses of its answers."""
    document = json.loads((ROOT / "docs/openapi.json").read_text(encoding="utf-8"))
    parts: list[str] = []
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            parts.append(f"## {method.upper()} {path}")
            parts.append(_sentence(operation.get("summary", "")))
            parts += _parameters(operation)
            parts += _body(operation)
            statuses = [
                f"| {status} | {_cell(answer['description'])}{_shape(answer)} |"
                for status, answer in sorted(operation["responses"].items())
            ]
            parts.append("\n".join(["| status | |", "|---|---|", *statuses]))
    parts.append("## Shapes")
    for name, schema in sorted(document["components"]["schemas"].items()):
        shape = _fields(schema) or f"A {_type(schema)}."
        parts += [f"### {name}", _sentence(schema.get("description", "")), shape]
    return "\n\n".join(part for part in parts if part)


def _parameters(operation: dict[str, Any]) -> Iterator[str]:
    rows = [
        f"| `{parameter['name']}` | {parameter['in']} | {_cell(parameter.get('description', ''))} |"
        for parameter in operation.get("parameters", ())
    ]
    if rows:
        yield "\n".join(["| parameter | in | |", "|---|---|---|", *rows])


def _body(operation: dict[str, Any]) -> Iterator[str]:
    content = operation.get("requestBody", {}).get("content", {})
    if content:
        kinds = ", ".join(f"`{kind}`" for kind in content)
        schema = next(iter(content.values())).get("schema", {})
        yield f"Body: {_type(schema)} as {kinds}."


def _shape(answer: dict[str, Any]) -> str:
    for content in answer.get("content", {}).values():
        if "$ref" in content.get("schema", {}):
            return f": {_type(content['schema'])}"
    return ""


def _fields(schema: dict[str, Any]) -> str:
    required = set(schema.get("required", ()))
    rows = [
        f"| `{name}` | {_type(field)} | {_default(name, field, required)} "
        f"| {_cell(field.get('description', ''))} |"
        for name, field in schema.get("properties", {}).items()
    ]
    return "\n".join(["| field | type | default | |", "|---|---|---|---|", *rows]) if rows else ""


def _default(name: str, field: dict[str, Any], required: set[str]) -> str:
    if name in required:
        return "required"
    return "" if field.get("default") is None else f"`{_cell(json.dumps(field['default']))}`"


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        kinds = [_type(kind) for kind in schema["anyOf"] if kind.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    if "enum" in schema:
        return ", ".join(f"`{json.dumps(v)}`" for v in schema["enum"] if v is not None)
    kind = schema.get("type", "any")
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    kinds = [kind] if isinstance(kind, str) else [k for k in kind if k != "null"]
    return " or ".join(kinds)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def _sentence(text: str) -> str:
    text = " ".join(text.split()).replace("<", "&lt;")
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") or not text else ".")


MADE: dict[str, Callable[[], str]] = {
    "try it": lambda: readme("Try it"),
    "why it is fast": lambda: readme("Why it is fast"),
    "command line": command_line,
    "generation options": lambda: fields("serving/search/sampling_options.py", "GenerationOptions"),
    "recipe keys": recipe_keys,
    "routes": routes,
    "search options": lambda: fields("serving/search/options.py", "SearchOptions"),
    "settings": lambda: fields("serving/server/http/settings.py", "Settings", "MACARON_"),
}
"""What pages may ask for, by name."""
