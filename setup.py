"""Builds the package: the folders of the repository become packages inside `macaron`.

Names such as `serving` and `export` are too general for anybody's site-packages. In the repository
the folders stand side by side and import each other by these names; while they are copied into a
wheel, each import of one of them is renamed. Nothing is left for run time to do.

The native kernels are compiled into the wheel where that is possible: on Linux, with a C++ compiler
for x86-64 or for ARM of 64 bits, unless `MACARON_NATIVE_KERNELS` is off. The wheel is then for the
machine that the compiler builds for, which may be another one than this (`CXX` names a
cross-compiler). Elsewhere the wheel is a pure one, for any machine.
"""

from __future__ import annotations

import ast
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py
from setuptools.errors import SetupError

PACKAGE = "macaron"
FOLDERS = ("serving", "training", "export", "bench")
ROOT = Path(__file__).resolve().parent
KERNELS = Path(PACKAGE, "serving", "native", "built")
"""Where `serving.runtime.kernels` looks for a library that was compiled beforehand."""

_ANY = "|".join(FOLDERS)
_DOTTED = re.compile(rf"(?:{_ANY})(?:\.\w*)+(?::\w+)?")
_COMMAND = re.compile(rf"-m (?:{_ANY})\b")
_TAKES_A_NAME = ("import_module", "__import__", "find_spec", "getLogger", "run_module")


def rename_imports(source: str, file: str) -> str:
    """The code of a module with every import of a folder's packages renamed; the rest stays as it
    is, to the byte.

    Raises SetupError for an import that cannot be renamed in place, and for a text that names such
    a package where it would be used to find it: that must be made from `__name__`, `__package__`
    or the package's own `__name__`.
    """
    tree = ast.parse(source, file)
    lines = source.splitlines(keepends=True)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom | ast.Import) and (names := _our_names(node)):
            before, after = _renamed(node, names, file)
            line = lines[node.lineno - 1].encode()
            head, rest = line[: node.col_offset].decode(), line[node.col_offset :].decode()
            if not re.match(re.escape(before) + r"(?!\w)", rest):
                raise _error(file, node, f"write this import as {before!r}, on one line")
            lines[node.lineno - 1] = head + after + rest.removeprefix(before)
    for text in _names_in_texts(tree):
        raise _error(
            file, text, f"{ast.unparse(text)} names a package; make it from __name__ or __package__"
        )
    return "".join(lines)


def _our_names(node: ast.ImportFrom | ast.Import) -> list[str]:
    """The modules of the folders that a statement imports from."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    else:
        names = [node.module or ""] if node.level == 0 else []
    return [name for name in names if name.partition(".")[0] in FOLDERS]


def _renamed(node: ast.ImportFrom | ast.Import, names: list[str], file: str) -> tuple[str, str]:
    """How a statement begins, and how it is to begin."""
    name = names[0]
    if isinstance(node, ast.ImportFrom):
        return f"from {name}", f"from {PACKAGE}.{name}"
    if len(node.names) > 1:
        raise _error(file, node, "import one module a line")
    if "." not in name:
        return f"import {name}", f"from {PACKAGE} import {name}"
    if node.names[0].asname is None:
        parent, _, last = name.rpartition(".")
        raise _error(file, node, f"write `from {parent} import {last}`")
    return f"import {name}", f"import {PACKAGE}.{name}"


def _names_in_texts(tree: ast.Module) -> Iterator[ast.expr]:
    """Texts by which a package would be looked for under its name in the repository. Docstrings
    are for people, who know where they read."""
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in prose:
            text = _text(node)
            if _DOTTED.fullmatch(text) or _COMMAND.search(text):
                yield node
        elif isinstance(node, ast.List | ast.Tuple):
            for before, name in zip(node.elts, node.elts[1:], strict=False):
                if _text(before) == "-m" and _text(name) in FOLDERS:
                    yield name
        elif isinstance(node, ast.Call) and node.args and _text(node.args[0]) in FOLDERS:
            called = node.func
            function = called.attr if isinstance(called, ast.Attribute) else ast.unparse(called)
            if function in _TAKES_A_NAME:
                yield node.args[0]


def _text(node: ast.expr) -> str:
    """What a node of a text says; of any other node nothing."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _error(file: str, node: ast.stmt | ast.expr, problem: str) -> SetupError:
    return SetupError(f"{file}:{node.lineno}: {problem}")


def packages() -> dict[str, str]:
    """The packages of a wheel, with their folders in the repository."""
    own = [f"{PACKAGE}.{name}" for name in find_packages(PACKAGE)]
    found = {PACKAGE: PACKAGE} | {name: name.replace(".", "/") for name in own}
    for folder in FOLDERS:
        inside = [f"{folder}.{name}" for name in find_packages(folder)]
        found |= {f"{PACKAGE}.{name}": name.replace(".", "/") for name in (folder, *inside)}
    return found


class BuildPackage(build_py):
    """Copies the modules with their imports renamed, and compiles the native kernels."""

    def run(self) -> None:
        """Build from nothing: what an earlier build has left would be packed again."""
        if self.editable_mode:
            raise SetupError(
                "an editable installation cannot rename imports: at the root of the repository "
                "`python -m macaron` runs without one; install the requirements alone "
                "(requirements/*.txt)"
            )
        shutil.rmtree(Path(self.build_lib, PACKAGE), ignore_errors=True)
        super().run()
        folder = Path(self.build_lib, KERNELS).absolute()
        command = [sys.executable, "-m", "serving.runtime.kernels", str(folder)]
        if subprocess.run(command, cwd=ROOT).returncode:
            self.warn("the native kernels are not in this build; see above")

    def build_module(self, module: str, module_file: str, package: str) -> tuple[str, bool]:
        """Copy one module."""
        built, copied = super().build_module(module, module_file, package)
        path = Path(built)
        renamed = rename_imports(path.read_text(encoding="utf-8"), module_file)
        path.write_text(renamed, encoding="utf-8")
        return built, copied


class BuildWheel(bdist_wheel):
    """Names the wheel for what is in it: with native kernels it is for one kind of machine."""

    def get_tag(self) -> tuple[str, str, str]:
        """Python, ABI and platform. The kernels do not depend on Python; they decide the machine.

        setuptools calls this when all files lie in their places, and before it writes down whether
        the wheel is pure.
        """
        built = Path(self.get_finalized_command("build_py").build_lib, KERNELS)
        machines = {file.name.split("-")[1] for file in built.glob("kernels-*.so")}
        self.root_is_pure = not machines
        tag = super().get_tag()[2]
        for machine in machines - {platform.machine()}:
            tag = tag.replace(platform.machine(), machine)
        return "py3", "none", tag


if __name__ == "__main__":
    setup(
        packages=list(packages()),
        package_dir=packages(),
        cmdclass={"build_py": BuildPackage, "bdist_wheel": BuildWheel},
    )
