"""One model of several directions, from training over export to serving."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from starlette.testclient import TestClient

from export.__main__ import main as export
from serving.__main__ import main as serve
from serving.bulk.blocks import cut
from serving.bulk.worker import BulkTask, BulkWorker
from serving.errors import UnknownLanguageError
from serving.search.options import SearchOptions
from serving.server.app import create_app
from serving.server.http.settings import Settings
from serving.server.models.bundles import load_bundles
from serving.server.models.registry import Registry
from serving.translation.ticket import Request
from serving.translation.translator import Translator
from tests.conftest import single_thread
from tests.toy.languages import texts, translated, write_multilingual_recipe
from tests.toy.refusal import refusal
from training.__main__ import main as train
from training.derive.distillation import chosen_direction
from training.errors import ConfigError
from training.runs.log import read_metrics

pytestmark = pytest.mark.slow

DIRECTIONS = [("en", "de"), ("de", "en"), ("en", "es"), ("es", "en")]


@pytest.fixture(scope="module")
def folder(shared_folder: Path, traced_once: None) -> Path:
    """The recipe, its run in `run` and its int8 bundle in `bundles`."""
    folder = shared_folder / "multilingual"
    with FileLock(shared_folder / "multilingual.lock"):
        if not (folder / "bundles").exists():
            recipe = write_multilingual_recipe(folder)
            run = str(folder / "run")
            with single_thread():
                assert train(["train", str(recipe), "--run", run, "--threads", "1"]) == 0
            test = ["--test-direction", "en", "es", "toy", f"{folder}/es.en", f"{folder}/en.es"]
            bundle = folder / "bundles" / "many"
            assert export(["bundle", run, str(bundle), "--shortlist", *test]) == 0
    return folder


@pytest.fixture(scope="module")
def bundle(folder: Path) -> Path:
    return folder / "bundles" / "many"


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[TestClient]:
    settings = Settings(bundles=folder / "bundles", threads=1, decode_in="threads")
    registry = Registry(settings)
    registry.start(load_bundles(settings))
    with TestClient(create_app(registry, settings)) as client:
        yield client
    registry.close()


def right(found: list[str], sources: list[str], source: str, target: str) -> int:
    """How many of the translations are the right ones."""
    wanted = [translated(text, source, target) for text in sources]
    return sum(a == b for a, b in zip(found, wanted, strict=True))


def test_the_tag_chooses_the_language(bundle: Path) -> None:
    translator = Translator(bundle, threads=1)
    for source, target in DIRECTIONS:
        sources = texts(source, 40, seed=9)
        found = [
            result.text
            for result in translator.translate_sentences(sources, source=source, target=target)
        ]
        assert right(found, sources, source, target) > 30
    # The same text, and nothing but the tag tells the two apart.
    for target in ("de", "es"):
        assert translator.translate("dog horse", source="en", target=target)[0].text == translated(
            "dog horse", "en", target
        )


def test_a_shortlist_has_the_pieces_of_the_language(bundle: Path) -> None:
    translator = Translator(bundle, threads=1)
    options = SearchOptions(shortlist=True)
    for source, target in DIRECTIONS:
        sources = texts(source, 20, seed=9)
        asked = {"source": source, "target": target}
        plain = translator.translate_sentences(sources, **asked)
        listed = translator.translate_sentences(sources, options, **asked)
        same = [a.text == b.text for a, b in zip(plain, listed, strict=True)]
        assert sum(same) > 15


def test_a_tag_in_the_text_does_not(bundle: Path) -> None:
    translator = Translator(bundle, threads=1)
    tags = translator.manifest.languages.tags
    assert tags == {"de": "<2de>", "en": "<2en>", "es": "<2es>"}
    for text in ("<2es> dog horse", "<2es>dog horse"):
        sentence = translator.texts.prepare(
            Request(text=text, options=translator.default_options, target="de")
        )
        assert sentence is not None
        ids = [translator.texts.target.control_id(tag) for tag in tags.values()]
        assert [id_ for id_ in sentence.source if id_ in ids] == [ids[0]]
        assert sentence.source[0] == ids[0]


def test_a_request_of_both_is_to_the_bit_what_each_is_alone(
    client: TestClient, bundle: Path
) -> None:
    translator = Translator(bundle, threads=1)
    options = translator.default_options
    asked = [
        (text, source, target) for source, target in DIRECTIONS for text in texts(source, 5, seed=3)
    ]
    read = [translator.read(text, options, source=s, target=t) for text, s, t in asked]
    together = dict(translator.translate_read(read))
    for index, (text, source, target) in enumerate(asked):
        (alone,) = translator.translate(text, source=source, target=target)
        assert together[index] == alone
        body = {"q": text, "source": source, "target": target}
        (served,) = client.post("/translate", json=body).json()["translations"]
        assert served["text"] == alone.text
        best = alone.hypotheses[0]
        assert served["hypotheses"][0]["token_scores"] == list(best.token_scores)


def test_a_pair_that_was_not_trained_goes_through_english(client: TestClient) -> None:
    sources = texts("de", 20, seed=5)
    answer = client.post("/translate", json={"q": sources, "source": "de", "target": "es"}).json()
    assert right(answer["translatedText"], sources, "de", "es") > 12
    assert {tuple(each["warnings"]) for each in answer["translations"]} == {("pivot",)}
    found = {each["code"]: each["targets"] for each in client.get("/languages").json()}
    assert found == {"de": ["en", "es"], "en": ["de", "es"], "es": ["de", "en"]}


def test_in_python_it_is_refused_unless_allowed(bundle: Path) -> None:
    with pytest.raises(UnknownLanguageError, match=r"trained on en to de, .*, not from de to es"):
        Translator(bundle, threads=1).translate("hund", source="de", target="es")
    allowed = Translator(bundle, threads=1, zero_shot=True)
    assert allowed.translate("hund", source="de", target="es")[0].hypotheses


def run_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, text: str, *words: str
) -> tuple[int, str, str]:
    """Run a verb of serving on a text; returns status, output and the last line of stderr."""

    class Stdin:
        buffer = io.BytesIO(text.encode())

    monkeypatch.setattr(sys, "stdin", Stdin)
    capsys.readouterr()
    status = serve(list(words))
    captured = capsys.readouterr()
    return status, captured.out, captured.err.strip().rpartition("\n")[2]


def test_the_command_line_names_a_direction(
    bundle: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def command(text: str, *words: str) -> tuple[int, str, str]:
        return run_command(capsys, monkeypatch, text, words[0], str(bundle), *words[1:])

    found = command("dog horse\n", "translate", "--from", "en", "--to", "es")
    assert found[:2] == (0, "godo esroho\n")
    assert command("dog horse\n", "translate", "--to", "de")[1] == "hund pferd\n"
    status, out, error = command("dog\n", "translate")
    assert (status, out) == (1, "")
    assert error == (
        "error: source and target must be one of en to de, de to en, en to es, es to en, got any "
        "language to any language"
    )
    status, _, error = command("hund\n", "translate", "--from", "de", "--to", "es")
    assert status == 1
    assert error.endswith("(on the command line --zero-shot) allows it anyway")
    assert command("hund\n", "translate", "--from", "de", "--to", "es", "--zero-shot")[0] == 0
    scores = [
        float(command("dog horse\thund pferd\n", "score", "--from", "en", "--to", target)[1])
        for target in ("de", "es")
    ]
    assert scores[0] > scores[1] + 2
    assert command("dog\thund\n", "score")[0] == 1


def test_whole_files_name_a_direction(bundle: Path, tmp_path: Path) -> None:
    file = tmp_path / "in.txt"
    file.write_text("dog horse\n")
    worker = BulkWorker(
        BulkTask(bundle=bundle, file=file, columns=("text",), into="x", target="es")
    )
    worker.check()
    content, failures = worker.decode(cut(file, 10)[0])
    assert (content.decode(), failures) == ("godo esroho\n", [])
    with pytest.raises(UnknownLanguageError, match="must be one of en to de"):
        BulkWorker(BulkTask(bundle=bundle, file=file, columns=("text",), into="x")).check()
    assert chosen_direction(bundle, (None, "es")) == ("en", "es")
    with pytest.raises(ConfigError, match=r"must be one of .*; name them with --from and --to"):
        chosen_direction(bundle, (None, None))


def test_evaluation_names_a_direction(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["evaluate", f"{folder}/run", f"{folder}/es.en", f"{folder}/en.es", "--beam-size", "1"]
    error = refusal(capsys, *words)
    assert "its model translates en to de, de to en, en to es, es to en" in error
    capsys.readouterr()
    assert train([*words, "--from", "en", "--to", "es"]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert scores["bleu"] > 70
    (last,) = [r for r in read_metrics(folder / "run") if r["kind"] == "validation"][-1:]
    for source, target in DIRECTIONS:
        name = f"{source}_{target}"
        assert last[f"loss_{name}"] < 1
        assert {f"bleu_{name}", f"chrf_{name}"} <= last.keys()


def test_export_measures_each_direction_on_its_own(
    folder: Path, bundle: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    manifest: dict[str, Any] = json.loads((bundle / "manifest.json").read_text())
    assert [q["data"] for q in manifest["quality"]] == ["toy", "toy"]
    assert manifest["quality"][0]["value"] > 70
    assert manifest["parity"]["sentences"] == 80
    card = (bundle / "README.md").read_text()
    assert "Translates en to de, de to en, en to es, es to en." in card
    assert "macaron translate many --from en --to de <" in card
    for text in (["--dev"], ["--test", "toy"]):
        files = [f"{folder}/es.en", f"{folder}/en.es"]
        words = ["bundle", f"{folder}/run", str(tmp_path / "out"), *text, *files]
        assert export(words) == 1
        assert "which of these the text is must be given" in capsys.readouterr().err
