"""`macaron VERB`: which package a verb belongs to, and what is said where something is missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import macaron
from macaron.__main__ import GROUPS, main

ROOT = Path(__file__).resolve().parents[3]
VERBS = [verb for group in GROUPS for verb in group.verbs]
# In a fresh interpreter, where no earlier test has imported the package.
WITHOUT = """
import sys
for name in {missing!r}.split():
    sys.modules[name] = None
from macaron.__main__ import main
sys.exit(main())
"""


def run_without(missing: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    code = WITHOUT.format(missing=missing)
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=ROOT, capture_output=True, text=True
    )


def test_the_verbs_are_those_of_the_packages() -> None:
    assert set(VERBS) >= {"serve", "translate", "generate", "score", "train", "export", "bench"}
    assert len(VERBS) == len(set(VERBS))


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_has_help_that_says_how_it_was_called(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([verb, "--help"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: macaron {verb} ")


@pytest.mark.parametrize("word", ["--help", "-h"])
def test_help_names_each_verb_and_the_extra_it_needs(
    word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([word], "python -m macaron") == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.startswith("usage: python -m macaron VERB")
    for group in GROUPS:
        assert f"macaron[{group.extra}]" in out
        for verb in group.verbs:
            assert f"\n  {verb} " in out


def test_no_verb_is_an_error_that_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("usage: macaron VERB")


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [("tranlsate", "translate"), ("Train", "train"), ("server", "serve"), ("genarate", "generate")],
)
def test_an_unknown_verb_names_the_nearest(
    wrong: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([wrong]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"no verb {wrong!r}; did you mean {meant}?" in line


def test_a_verb_like_no_other_gets_the_whole_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["xyzzy"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert all(verb in line for verb in VERBS)


@pytest.mark.parametrize(
    ("missing", "arguments", "extra"),
    [
        ("onnxruntime", ["translate", "tests"], "serve"),
        ("onnxruntime", ["generate", "tests"], "serve"),
        ("onnxruntime", ["serve"], "serve"),
        ("bentoml", ["serve"], "serve"),
        ("torch", ["train", "lm-cascade"], "train"),
        ("torch", ["average", "nowhere"], "train"),
        ("torch", ["export", "verify", "nowhere"], "export"),
        ("torch", ["bench", "engine"], "bench"),
    ],
)
def test_a_missing_extra_is_one_line_with_the_command_that_installs_it(
    missing: str, arguments: list[str], extra: str
) -> None:
    done = run_without(missing, *arguments)
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"macaron {arguments[0]}: error: ")
    assert repr(missing) in line
    assert line.endswith(f"pip install '{ROOT}[{extra}]'")


def test_a_missing_module_of_the_project_itself_is_no_missing_extra() -> None:
    done = run_without("serving.commands", "translate", "nowhere")
    assert "ModuleNotFoundError" in done.stderr
    assert "pip install" not in done.stderr


def test_the_interface_in_python_says_what_installs_it() -> None:
    code = "import sys; sys.modules['onnxruntime'] = None; from macaron import Translator"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert f"pip install '{ROOT}[serve]'" in done.stderr.splitlines()[-1]


def test_the_documented_names_are_those_of_serving() -> None:
    import serving

    clients = {"AsyncClient", "Client"}
    assert set(macaron.__all__) == {*serving.__all__, *clients}
    assert macaron.Translator is serving.Translator
    assert macaron.Generator is serving.Generator
    asked = {"GenerationOptions", "SearchOptions", "TermIndex", "Terms", "Wishes"}
    assert asked <= set(macaron.__all__)  # an installed package has no other name for them
    with pytest.raises(AttributeError, match="'macaron' has no attribute 'Other'"):
        _ = macaron.Other


def test_options_and_overrides_reach_the_verb(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "no-such-recipe", "loop.seed=2", "--run", str(tmp_path)]) == 1
    assert "no recipe 'no-such-recipe'" in capsys.readouterr().err
    assert main(["export", "verify", str(tmp_path)]) == 1
    assert "no readable manifest.json" in capsys.readouterr().err
