"""What the README and docs/ say can be typed: commands parse, make targets and links exist."""

from __future__ import annotations

import importlib.util
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from macaron import doctor, models, serve
from macaron.__main__ import GROUPS
from serving.server.http.settings import Settings, variable

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
CARDS = sorted((ROOT / "models").glob("*/README.md"))


def shell_lines(document: Path) -> Iterator[str]:
    text = document.read_text(encoding="utf-8")
    for block in re.findall(r"```(?:sh|console)\n(.*?)```", text, re.DOTALL):
        joined = block.replace("\\\n", " ")
        for line in joined.splitlines():
            yield line.removeprefix("$ ")


COMMAND = re.compile(r"python -m (training|export|serving|bench) ([^|<>#\n]*)")


def commands() -> list[tuple[str, list[str]]]:
    return [
        (match[1], shlex.split(match[2]))
        for document in DOCUMENTS
        for line in shell_lines(document)
        for match in COMMAND.finditer(line)
    ]


@pytest.mark.parametrize(("package", "arguments"), commands(), ids=str)
def test_commands_parse(package: str, arguments: list[str]) -> None:
    main = importlib.import_module(f"{package}.__main__")
    parse = getattr(main, "_parse", None) or main._parser().parse_args
    assert parse(arguments)


def test_there_are_commands_to_check() -> None:
    assert {package for package, _ in commands()} == {"training", "export", "serving", "bench"}


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = {
        match
        for document in DOCUMENTS
        for line in shell_lines(document)
        for match in re.findall(r"^make (\w+)", line)
    }
    assert {"serve", "test"} <= named
    for target in named:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_links_lead_somewhere() -> None:
    for document in DOCUMENTS:
        for target in re.findall(r"\]\(([^)#]+)", document.read_text(encoding="utf-8")):
            if not target.startswith("http"):
                assert (document.parent / target).exists(), f"{document.name}: {target}"


MACARON = re.compile(r"(?:^|[|;] *)(?:python -m )?macaron (?!:)([^|<>#\n]+)")


def macaron_commands() -> list[list[str]]:
    return [
        shlex.split(match[1])
        for document in DOCUMENTS
        for line in shell_lines(document)
        for match in MACARON.finditer(line)
    ]


@pytest.mark.parametrize("words", macaron_commands(), ids=str)
def test_commands_of_the_installed_package_parse(words: list[str]) -> None:
    verb, *rest = words
    own = {
        "serve": serve._parser,
        "pull": models.pull_parser,
        "models": models.models_parser,
        "doctor": doctor.doctor_parser,
    }
    if verb in own:
        assert own[verb](f"macaron {verb}").parse_args(rest)
        return
    (group,) = (group for group in GROUPS if verb in group.verbs)
    folder = {
        "serve": "serving",
        "serve,documents": "serving",
        "bulk": "serving",
        "train": "training",
        "train,bulk": "training",
    }.get(group.extra, group.extra)
    arguments = words if folder in ("serving", "training") else rest
    test_commands_parse(folder, arguments)


def test_each_kind_of_verb_is_documented() -> None:
    documented = {words[0] for words in macaron_commands()}
    assert documented >= {"serve", "pull", "models", "translate", "generate"}
    assert documented >= {"train", "evaluate", "export", "bench"}


@pytest.mark.parametrize("package", ["macaron", "serving"])
def test_documented_names_exist(package: str) -> None:
    module = importlib.import_module(package)
    for name in module.__all__:
        assert getattr(module, name).__doc__


def test_every_variable_that_the_code_reads_is_in_the_page_of_settings() -> None:
    read = {
        name
        for folder in ("serving", "training", "export", "macaron")
        for file in (ROOT / folder).rglob("*.py")
        for name in re.findall(
            r"""["']((?:MACARON|ARGOS)_[A-Z_]+)["']""", file.read_text(encoding="utf-8")
        )
    }
    page = (ROOT / "docs/reference/settings.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    assert len(read) > 5  # names have been found
    assert read - listed - set(map(variable, Settings.model_fields)) == set()


# docs/background/architecture.md


def hops(text: str) -> list[list[str]]:
    """The numbered hops of each section."""
    sections = text.split("\n## ")[1:]
    return [re.findall(r"^(\d+)\. ", section, re.MULTILINE) for section in sections]


def test_the_plot_names_modules_that_exist_in_fifteen_hops_a_way() -> None:
    text = (ROOT / "docs/background/architecture.md").read_text(encoding="utf-8")
    names = set(re.findall(r"`((?:serving|training|export|bench)\.[a-z0-9_.]+)`", text))
    names |= set(re.findall(r"\[((?:serving|training|export|bench)\.[a-z0-9_.]+)\]", text))
    assert len(names) > 50
    missing = [name for name in sorted(names) if importlib.util.find_spec(name) is None]
    assert missing == []
    ways = [numbers for numbers in hops(text) if numbers]
    assert len(ways) == 4
    for numbers in ways:
        assert numbers == [str(number) for number in range(1, len(numbers) + 1)]
        assert len(numbers) <= 15


# Prose that is easy to read and to compare


LONGEST_LINE = 120


def prose(document: Path) -> Iterator[tuple[int, str]]:
    """Lines with their numbers, without those of tables, code and printed output."""
    kept = True
    for number, line in enumerate(document.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith(("```", "<!-- end")):
            kept = not kept
        elif line.startswith(("<!-- run:", "<!-- measured:")):
            kept = False
        elif kept and not line.startswith(("|", "[", "<!--")):
            yield number, line


@pytest.mark.parametrize(
    "document",
    [*DOCUMENTS, ROOT / "CHANGELOG.md", *CARDS],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_no_line_of_prose_is_wider_than_a_window(document: Path) -> None:
    # A command between backquotes stays in one line, to be copied.
    wide = [
        number
        for number, line in prose(document)
        if len(line) > LONGEST_LINE and not re.fullmatch(r"`[^`]+`,?", line)
    ]
    assert wide == []
