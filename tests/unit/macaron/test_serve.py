"""`macaron serve`: what BentoML's command is started with, and what is refused before."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from macaron.serve import main, server_command, server_environment

ROOT = Path(__file__).resolve().parents[3]


class BecameTheServer(BaseException):
    """In the place of a process that has become the server."""


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the server was started with."""
    found: dict[str, Any] = {}

    def execve(program: str, command: list[str], environment: dict[str, str]) -> None:
        found.update(program=program, command=command, environment=environment)
        raise BecameTheServer

    monkeypatch.setattr(os, "execve", execve)
    monkeypatch.delenv("MACARON_BUNDLES", raising=False)
    return found


def test_it_becomes_bentoml_with_the_service_of_this_package(
    started: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(BecameTheServer):
        main(["--bundles", str(tmp_path), "--host", "0.0.0.0", "--port", "8080"], "macaron serve")
    assert started["program"] == sys.executable
    assert started["command"] == server_command("0.0.0.0", 8080)
    assert started["environment"]["MACARON_BUNDLES"] == str(tmp_path)
    assert started["environment"]["PATH"] == os.environ["PATH"]


def test_host_and_port_are_those_of_make_serve(started: dict[str, Any], tmp_path: Path) -> None:
    makefile = (ROOT / "Makefile").read_text()
    with pytest.raises(BecameTheServer):
        main(["--bundles", str(tmp_path)], "macaron serve")
    command = started["command"]
    assert f"HOST = {command[command.index('--host') + 1]}\n" in makefile
    assert f"PORT = {command[command.index('--port') + 1]}\n" in makefile


def test_the_service_is_looked_for_where_the_package_lies() -> None:
    command = server_command("127.0.0.1", 3000)
    assert command[command.index("--working-dir") + 1] == str(ROOT)
    assert command[-1] == "serving.service:MacaronService"


def test_the_folder_is_the_options_else_the_variables_else_models_here(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)

    def bundles(variable: str | None, option: str | None) -> str:
        before = {} if variable is None else {"MACARON_BUNDLES": variable}
        made = server_environment(before, Path(option) if option else None)
        return made["MACARON_BUNDLES"]

    assert bundles("there", "mine") == str(tmp_path / "mine")
    assert bundles("there", None) == str(tmp_path / "there")
    assert bundles("/there", None) == "/there"
    assert bundles(" ", None) == str(tmp_path / "models")
    assert bundles(None, None) == str(tmp_path / "models")
    assert bundles(None, "~/mine") == str(Path.home() / "mine")


def test_a_file_of_keys_is_looked_for_where_the_command_was_typed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    made = server_environment({"MACARON_API_KEYS_FILE": "keys.txt"}, None)
    assert made["MACARON_API_KEYS_FILE"] == str(tmp_path / "keys.txt")
    assert "MACARON_API_KEYS_FILE" not in server_environment({}, None)


def test_bentoml_does_not_report_unless_it_is_told_to() -> None:
    assert server_environment({}, None)["BENTOML_DO_NOT_TRACK"] == "True"
    told = server_environment({"BENTOML_DO_NOT_TRACK": "False"}, None)
    assert told["BENTOML_DO_NOT_TRACK"] == "False"


def test_a_missing_folder_is_one_line_that_says_what_to_give(
    started: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--bundles", str(tmp_path / "nowhere")], "macaron serve")
    assert isinstance(ended.value.code, str)  # printed on stderr, and the status is 1
    assert ended.value.code.count("\n") == 0
    assert ended.value.code.startswith("macaron serve: error: ")
    for said in (str(tmp_path / "nowhere"), "--bundles DIR", "MACARON_BUNDLES"):
        assert said in ended.value.code
    assert started == {}
