"""`macaron serve`: what the server is started with, and what is refused before."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import macaron.serve
from macaron.serve import main, server_command, server_environment
from serving.bundle.folder import find_bundles, read_manifest
from serving.errors import install_command
from serving.server.http.settings import BENTOMLS_OWN
from tests.toy.checkpoints import write_opus
from tests.toy.hub import import_here, toy_hub, use

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

    def serve(host: str, port: int, environment: dict[str, str], prog: str) -> None:
        found.update(host=host, port=port, environment=environment)
        raise BecameTheServer

    monkeypatch.setattr(os, "execve", execve)
    monkeypatch.setattr(macaron.serve, "_serve", serve)
    for name in ("MACARON_BUNDLES", *BENTOMLS_OWN):
        monkeypatch.delenv(name, raising=False)
    return found


def test_it_serves_what_it_is_given(started: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(BecameTheServer):
        main(["--bundles", str(tmp_path), "--host", "0.0.0.0", "--port", "8080"], "macaron serve")
    assert (started["host"], started["port"]) == ("0.0.0.0", 8080)
    assert started["environment"]["MACARON_BUNDLES"] == str(tmp_path)
    assert started["environment"]["PATH"] == os.environ["PATH"]
    assert "command" not in started


@pytest.mark.parametrize("name", BENTOMLS_OWN)
def test_with_settings_of_bentoml_it_becomes_bentoml(
    started: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "services.macaron.tracing.sample_rate=0.1")
    with pytest.raises(BecameTheServer):
        main(["--bundles", str(tmp_path), "--host", "0.0.0.0", "--port", "8080"], "macaron serve")
    assert started["program"] == sys.executable
    assert started["command"] == server_command("0.0.0.0", 8080)
    assert started["environment"]["MACARON_BUNDLES"] == str(tmp_path)


def test_host_and_port_are_those_of_make_serve(started: dict[str, Any], tmp_path: Path) -> None:
    makefile = (ROOT / "Makefile").read_text()
    with pytest.raises(BecameTheServer):
        main(["--bundles", str(tmp_path)], "macaron serve")
    assert f"HOST = {started['host']}\n" in makefile
    assert f"PORT = {started['port']}\n" in makefile


@pytest.mark.usefixtures("started")
@pytest.mark.parametrize("port", ["99999", "-1"])
def test_a_number_that_is_no_port_is_refused(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([f"--port={port}"], "macaron serve")
    assert f"argument --port: must be in [0, 65535], got {port}" in capsys.readouterr().err


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


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("MACARON_API_KEYS_FILE", "keys.txt", "{here}/keys.txt"),
        ("MACARON_DOCUMENTS", "documents", "{here}/documents"),
        ("MACARON_FILES", "files", "{here}/files"),
        ("MACARON_FILES", "s3://bucket/files", "s3://bucket/files"),
        ("MACARON_STORE", "sqlite:///store.db", "sqlite:///{here}/store.db"),
        ("MACARON_STORE", " sqlite:////srv/store.db ", "sqlite:////srv/store.db"),
        ("MACARON_STORE", "sqlite+pysqlite:///a.db", "sqlite+pysqlite:///{here}/a.db"),
        ("MACARON_STORE", "sqlite:///:memory:", "sqlite:///:memory:"),
        ("MACARON_STORE", "postgresql://db/macaron", "postgresql://db/macaron"),
    ],
)
def test_paths_begin_where_the_command_was_typed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, value: str, wanted: str
) -> None:
    monkeypatch.chdir(tmp_path)
    made = server_environment({name: value}, None)
    assert made[name] == wanted.format(here=tmp_path)
    assert name not in server_environment({}, None)


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


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MACARON_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_bundles_are_served_where_they_lie(
    started: dict[str, Any], cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    models = [ROOT / "models" / name for name in ("macaron-de-en", "lm-cascade")]
    for _ in range(2):
        with pytest.raises(BecameTheServer):
            main([word for model in models for word in ("--model", str(model))], "macaron serve")
        folder = Path(started["environment"]["MACARON_BUNDLES"])
        assert folder.parent == cache / "served"
        assert [bundle.resolve() for bundle in find_bundles(folder)] == models
    assert not (cache / "models").exists()
    assert capsys.readouterr().err == ""


def test_a_name_is_served_from_the_cache(
    started: dict[str, Any], cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with toy_hub() as hub:
        use(hub, tmp_path, monkeypatch)
        hub.add("toy/intents", ROOT / "models" / "intents")
        with pytest.raises(SystemExit, match="error: --model toy/gone: there is no such folder"):
            main(["--model", "toy/intents", "--model", "toy/gone"], "macaron serve")
        assert started == {}
        with pytest.raises(BecameTheServer):
            main(["--model", "toy/intents"], "macaron serve")
    (bundle,) = find_bundles(Path(started["environment"]["MACARON_BUNDLES"]))
    assert bundle.resolve().parents[2] == cache / "models"
    assert read_manifest(bundle).name == "intents"


@pytest.mark.slow
@pytest.mark.usefixtures("traced_once")
def test_a_checkpoint_is_imported_once(
    started: dict[str, Any],
    cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("serving.hub.pull.import_bundle", import_here)
    source = tmp_path / "opus-mt-de-en"
    write_opus(source)

    def serve() -> Path:
        with pytest.raises(BecameTheServer):
            main(["--model", str(source)], "macaron serve")
        (bundle,) = find_bundles(Path(started["environment"]["MACARON_BUNDLES"]))
        return bundle.resolve()

    first = serve()
    assert first.parents[2] == cache / "models"
    assert read_manifest(first).name == source.name
    assert "importing it once" in capsys.readouterr().err
    assert serve() == first
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model", "nowhere"], "there is no such file or folder"),
        (["--model", "nowhere"], "it is not a model name: OWNER/NAME of a hub"),
        (["--model", "firefox:german"], "must be firefox:FROM-TO"),
        (["--model", "a", "--bundles", "b"], "not allowed with argument --model"),
    ],
)
def test_what_is_no_model_is_reported(
    started: dict[str, Any],
    cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(words, "macaron serve")
    assert message in (capsys.readouterr().err if ended.value.code == 2 else str(ended.value.code))
    assert not started
    assert not list((cache / "models").glob("*"))


def test_an_import_says_what_it_needs(cache: Path, tmp_path: Path) -> None:
    write_opus(tmp_path / "opus")
    code = "import sys; sys.modules['torch'] = None; from macaron.__main__ import main; main()"
    command = [sys.executable, "-c", code, "serve", "--model", str(tmp_path / "opus")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "needs the Python package 'torch'" in line
    assert line.endswith(install_command("export"))
