"""`macaron pull` and `macaron models` against a small hub."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from macaron.__main__ import main
from tests.toy.hub import ToyHub, toy_hub, use

ROOT = Path(__file__).resolve().parents[3]
NAME = "toy/intents"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ToyHub]:
    """With a bundle on it."""
    with toy_hub() as server:
        use(server, tmp_path, monkeypatch)
        server.add(NAME, ROOT / "models" / "intents")
        yield server


def test_a_model_is_pulled_listed_and_removed(
    hub: ToyHub, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pull", NAME]) == 0
    bundle = Path(capsys.readouterr().out.strip())
    assert (bundle / "manifest.json").is_file()

    assert main(["models"]) == 0
    heads, row = capsys.readouterr().out.splitlines()
    assert heads.split() == ["NAME", "REVISION", "KIND", "PRECISION", "SIZE", "LICENCE", "PULLED"]
    commit = hub.repositories[NAME].commit
    for said in (NAME, commit[:12], "classify, bert", "6.0 MB", "cc-by-4.0"):
        assert said in row

    assert main(["models", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["revision"], told["bundle"]) == (commit, str(bundle))
    assert told["bytes"] == sum(file.stat().st_size for file in bundle.iterdir())

    assert main(["models", "rm", NAME]) == 0
    assert capsys.readouterr().out.strip() == str(bundle)
    assert not bundle.parents[1].exists()
    assert main(["models"]) == 0
    assert "no models in" in capsys.readouterr().err


def test_a_bundle_that_was_damaged_is_listed_as_such(
    hub: ToyHub, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pull", NAME]) == 0
    bundle = Path(capsys.readouterr().out.strip())
    (bundle / "manifest.json").write_text("{}")
    assert main(["models"]) == 0
    assert "damaged" in capsys.readouterr().out


def test_what_is_asked_for_wrongly_is_refused_before_the_hub_is_asked(
    hub: ToyHub, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["pull", "--precision", "int7", NAME])
    assert ended.value.code == 2
    assert "invalid choice: 'int7'" in capsys.readouterr().err
    assert main(["pull", NAME, "intents"]) == 1
    assert "error: intents: is not a model name" in capsys.readouterr().err
    assert hub.asked == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["pull", "intents"], "error: intents: is not a model name; it must be OWNER/NAME"),
        (["pull", "firefox:x"], "error: firefox:x: must be firefox:FROM-TO"),
        (["pull", "--precision", "int8", NAME], "is a finished bundle, whose precision is fixed"),
        (["models", "rm", NAME], f"error: {NAME}: is not in the cache; `macaron models` lists"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    hub: ToyHub, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert main(words) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err.splitlines()[-1]


def test_a_misspelt_name_is_answered_with_a_cached_one_of_a_similar_name(
    hub: ToyHub, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pull", NAME]) == 0
    said = f"; did you mean {NAME!r}?"
    for words in (["models", "rm", "toy/intent"], ["pull", "toy/intent"]):
        assert main(words) == 1
        assert said in capsys.readouterr().err
    for name in ("toy/intent", "intents"):
        assert main(["classify", name]) == 1
        assert said in capsys.readouterr().err
    assert main(["models", "rm", "other"]) == 1
    assert "did you mean" not in capsys.readouterr().err
    assert main(["models", "rm", NAME]) == 0
