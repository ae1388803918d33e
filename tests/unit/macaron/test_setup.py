"""setup.py: imports renamed in what is packed, and nothing else changed."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import CodeType, ModuleType

import pytest
from setuptools.errors import SetupError

ROOT = Path(__file__).resolve().parents[3]


def load_setup() -> ModuleType:
    spec = importlib.util.spec_from_file_location("macaron_setup", ROOT / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


setup = load_setup()
MODULES = sorted(
    path.relative_to(ROOT)
    for folder in ("macaron", *setup.FOLDERS)
    for path in (ROOT / folder).rglob("*.py")
)


@pytest.mark.parametrize(
    ("words", "built"),
    [
        (["--archs", "x86_64"], "cp311-manylinux_x86_64"),
        (["--archs", "aarch64"], "cp311-manylinux_aarch64"),
    ],
)
def test_cibuildwheel_understands_its_settings(words: list[str], built: str) -> None:
    program = Path(sys.executable).with_name("cibuildwheel")
    done = subprocess.run(
        [program, "--print-build-identifiers", "--platform", "linux", *words, ROOT],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout.split()) == (0, [built]), done.stderr


def rename(source: str) -> str:
    renamed: str = setup.rename_imports(source, "module.py")
    return renamed


def ours(name: str) -> bool:
    return name.partition(".")[0] in setup.FOLDERS


def test_there_are_modules_to_check() -> None:
    assert len(MODULES) > 150


class Undone(ast.NodeTransformer):
    """Imports from `macaron` back to what they were; all that are ours are from there."""

    def visit_Import(self, node: ast.Import) -> ast.stmt:
        assert not any(ours(alias.name) for alias in node.names)
        return node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.stmt:
        assert node.level or not ours(node.module or "")
        if node.module == "macaron":
            (alias,) = node.names
            assert ours(alias.name)
            assert alias.asname is None
            return ast.copy_location(ast.Import([alias]), node)
        inside = (node.module or "").removeprefix("macaron.")
        node.module = inside if ours(inside) else node.module
        return node


def without_lines(code: CodeType) -> CodeType:
    """Code that does not know where in the file it stands."""
    parts = (without_lines(part) if isinstance(part, CodeType) else part for part in code.co_consts)
    return code.replace(co_consts=tuple(parts), co_firstlineno=1, co_linetable=b"")


def test_a_module_is_the_same_but_for_what_it_imports() -> None:
    changed = []
    for path in MODULES:
        source = (ROOT / path).read_text(encoding="utf-8")
        after = ast.parse(rename(source), str(path))
        # Undone on the tree, the renaming gives the code of before.
        found = compile(Undone().visit(after), "module.py", "exec")
        if without_lines(found) != without_lines(compile(source, "module.py", "exec")):
            changed.append(str(path))
    assert changed == []


def test_another_module_is_not_the_same() -> None:
    code = [
        without_lines(compile(source, "module.py", "exec"))
        for source in ("def f():\n    return 1", "\n\ndef f(): return 1", "def f(): return 2")
    ]
    assert code[0] == code[1]
    assert code[0] != code[2]


def test_every_package_and_module_is_packed() -> None:
    packages = setup.packages()
    for path in MODULES:
        inside = ".".join(path.parent.parts)
        name = inside if inside.startswith("macaron") else f"macaron.{inside}"
        assert packages[name] == str(path.parent)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("from serving.lines import x", "from macaron.serving.lines import x"),
        ("from serving import commands", "from macaron.serving import commands"),
        ("import serving", "from macaron import serving"),
        ("import serving as engine", "from macaron import serving as engine"),
        ("import export.graphs as graphs", "import macaron.export.graphs as graphs"),
        ("if x: from bench import y", "if x: from macaron.bench import y"),
        ("ä = 'ä'; from bench import y", "ä = 'ä'; from macaron.bench import y"),
        ("from macaron.serve import main", "from macaron.serve import main"),
        ("from servings import x", "from servings import x"),
        ("import torch.export", "import torch.export"),
        ("from torch.export import x", "from torch.export import x"),
        ("from .serving import x", "from .serving import x"),
        ("from . import serving", "from . import serving"),
        ("x = 'from serving.lines import y'", "x = 'from serving.lines import y'"),
        ("# from serving.lines import y\n", "# from serving.lines import y\n"),
        ('"""from serving.lines import y"""', '"""from serving.lines import y"""'),
        (
            'def f():\n    """\n    import serving\n    """',
            'def f():\n    """\n    import serving\n    """',
        ),
        ("x = serving.lines", "x = serving.lines"),
        ("x = {'export': 1, 'bench': 2}", "x = {'export': 1, 'bench': 2}"),
        ("x = 'how serving.lines are read'", "x = 'how serving.lines are read'"),
    ],
)
def test_imports_are_renamed_and_nothing_else(before: str, after: str) -> None:
    assert rename(before) == after


def test_several_lines_of_names_stay_as_they_are() -> None:
    source = "from serving.errors import (\n    A,  # why\n    B,\n)\r\nx = 1\r\n"
    assert rename(source) == source.replace("from serving", "from macaron.serving")


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("import serving.commands", "write `from serving import commands`"),
        ("import os, serving", "import one module a line"),
        ("import serving, export", "import one module a line"),
        ("from \\\n serving.lines import x", "on one line"),
        ("from serving . lines import x", "on one line"),
        ("import  serving", "on one line"),
        ("x = 'serving.processes.decoder'", "__package__"),
        ("x = 'serving.service:MacaronService'", "__package__"),
        ("x = f'serving.{name}'", "__package__"),
        ("x = 'call `python -m export bundle`'", "__package__"),
        ("x = ['python', '-m', 'bench', verb]", "'bench' names a package"),
        ("x = ('-m', 'serving')", "'serving' names a package"),
        ("logging.getLogger('export')", "'export' names a package"),
        ("importlib.import_module('serving')", "'serving' names a package"),
        ("__import__('training')", "'training' names a package"),
        ("def f(x: 'serving.lines.X') -> None: ...", "__package__"),
    ],
)
def test_what_cannot_be_renamed_stops_the_build_with_its_place(source: str, problem: str) -> None:
    with pytest.raises(SetupError) as raised:
        rename(f"\n{source}\n")
    message = str(raised.value)
    assert message.startswith("module.py:2: ")
    assert problem in message
