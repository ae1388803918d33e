"""Which bundles are served and which one a request gets."""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from serving.bundle.manifest import Manifest
from serving.errors import (
    BundleError,
    NotReadyError,
    SettingsError,
    UnknownLanguageError,
    UnknownModelError,
)
from serving.processes.presets import DecodingProcesses
from serving.server.http.settings import Settings
from serving.server.models.bundles import load_bundles
from serving.server.models.registry import Registry
from serving.server.models.served import ServedTranslator
from serving.translation.ticket import Request
from tests.unit.serving.echo import EchoTranslator, wait_until


@pytest.fixture
def registry() -> Iterator[Registry]:
    registry = Registry(Settings())
    registry.start(
        [
            EchoTranslator("b-de-en"),
            EchoTranslator("a-de-en"),
            EchoTranslator("best-de-en", priority=3),
            EchoTranslator("fr-en", "fr"),
            EchoTranslator("en-de", "en", "de"),
        ]
    )
    yield registry
    registry.close()


def test_priority_then_name_decides(registry: Registry) -> None:
    assert registry.choose("de", "en").name == "best-de-en"
    order = [model.name for model in registry.translators]
    assert order == ["best-de-en", "a-de-en", "b-de-en", "en-de", "fr-en"]


def test_a_model_can_be_named(registry: Registry) -> None:
    assert registry.choose("de", "en", "b-de-en").name == "b-de-en"
    with pytest.raises(UnknownModelError, match=r"got 'b-de'; did you mean 'b-de-en'\?"):
        registry.choose("de", "en", "b-de")
    with pytest.raises(UnknownLanguageError, match="de is not supported") as refused:
        registry.choose("de", "en", "fr-en")
    assert refused.value.hint == "source must be one of ['fr'], got 'de' for target 'en'"


@pytest.mark.parametrize(
    ("pair", "message", "hint"),
    [
        (("de", "xx"), "xx is not supported", "target must be one of ['de', 'en'], got 'xx'"),
        (
            ("xx", "de"),
            "xx is not supported",
            "source must be one of ['en'], got 'xx' for target 'de'",
        ),
        (
            ("fr", "de"),
            "German (de) is not available as a target language from French (fr)",
            "source must be one of ['en'], got 'fr' for target 'de'",
        ),
    ],
)
def test_an_error_for_an_unknown_language_lists_the_known_ones(
    registry: Registry, pair: tuple[str, str], message: str, hint: str
) -> None:
    with pytest.raises(UnknownLanguageError) as refused:
        registry.choose(*pair)
    assert (str(refused.value), refused.value.hint) == (message, hint)


def test_languages_that_can_be_translated_into_a_target(registry: Registry) -> None:
    assert registry.sources("de") == ["en"]
    assert registry.sources("en") == ["de", "fr"]
    assert registry.sources("en", "fr-en") == ["fr"]
    with pytest.raises(UnknownLanguageError, match="xx is not supported"):
        registry.sources("xx")


def test_ready_only_between_start_and_drain() -> None:
    registry = Registry(Settings())
    assert not registry.ready
    with pytest.raises(NotReadyError):
        registry.choose("de", "en")
    registry.start([EchoTranslator()])
    assert registry.ready
    registry.drain()
    assert not registry.ready
    assert registry.choose("de", "en").name == "echo-de-en"  # what still arrives is served
    registry.close()


def test_a_bundle_whose_own_options_are_over_a_limit_is_refused() -> None:
    registry = Registry(Settings(max_beam_size=3))
    with pytest.raises(SettingsError, match=r"MACARON_MAX_BEAM_SIZE must be at least 4, .*got 3"):
        registry.start([EchoTranslator()])


def test_folder_without_bundles(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="contains no bundle; set MACARON_BUNDLES"):
        load_bundles(Settings(bundles=tmp_path))
    with pytest.raises(BundleError, match="is not a folder; set MACARON_BUNDLES"):
        load_bundles(Settings(bundles=tmp_path / "none"))


def test_a_damaged_bundle_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/manifest.json").write_text("{")
    with pytest.raises(BundleError, match="not valid JSON") as caught:
        load_bundles(Settings(bundles=tmp_path))
    assert "\n" not in str(caught.value)


class Shelf:
    """Stands in for the folder of bundles."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *translators: EchoTranslator) -> None:
        self.bundles = list(translators)
        self.error: Exception | None = None
        self.loaded: list[str] = []
        monkeypatch.setattr("serving.server.models.registry.read_manifests", self._manifests)
        monkeypatch.setattr("serving.server.models.registry.load_bundles", self._load)
        monkeypatch.setattr("serving.server.models.registry.load_bundle", self._load_one)

    def _manifests(self, _: Settings) -> dict[Path, Manifest]:
        return {Path(bundle.manifest.name): bundle.manifest for bundle in self.bundles}

    def _load(
        self, _: Settings, served: list[Manifest], __: DecodingProcesses
    ) -> list[EchoTranslator]:
        if self.error:
            raise self.error
        new = [bundle for bundle in self.bundles if bundle.manifest not in served]
        self.loaded += [bundle.manifest.name for bundle in new]
        return new

    def _load_one(
        self, folder: Path, manifest: Manifest, _: Settings, __: DecodingProcesses
    ) -> EchoTranslator:
        del folder
        (found,) = self._load(_, [b.manifest for b in self.bundles if b.manifest != manifest], __)
        return found


def test_reload_exchanges_what_has_changed_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shelf = Shelf(monkeypatch, EchoTranslator("stays"), EchoTranslator("goes"))
    registry = Registry(Settings())
    registry.start(shelf.bundles)
    stays = registry.choose("de", "en", "stays")
    shelf.bundles = [EchoTranslator("stays"), EchoTranslator("comes", priority=5)]
    registry.reload()
    assert shelf.loaded == ["comes"]
    assert [model.name for model in registry.translators] == ["comes", "stays"]
    assert registry.choose("de", "en", "stays") is stays
    with pytest.raises(UnknownModelError):
        registry.choose("de", "en", "goes")
    changed = EchoTranslator("stays", priority=9)
    shelf.bundles[0] = changed
    registry.reload()
    assert registry.choose("de", "en").manifest.priority == 9
    assert b'macaron_reloads_total{result="done"} 2.0' in registry.metrics.text()
    registry.close()


def test_a_model_that_was_replaced_serves_those_who_have_chosen_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shelf = Shelf(monkeypatch, EchoTranslator())
    registry = Registry(Settings())
    registry.start(shelf.bundles)
    model = registry.choose("de", "en")
    gate = shelf.bundles[0].stepper.gate
    gate.clear()
    running = model.scheduler.submit(Request(text="running"))
    shelf.bundles = [EchoTranslator(priority=1)]
    registry.reload()
    late = model.scheduler.submit(Request(text="late"))
    gate.set()
    assert running.result(20).translation.text == "running"
    assert late.result(20).translation.text == "late"
    scheduler = weakref.ref(model.scheduler)
    assert registry.choose("de", "en") is not model
    del model, gate, running, late
    wait_until(lambda: gc.collect() >= 0 and scheduler() is None)  # threads and memory are free
    registry.close()


@pytest.mark.parametrize(
    "error", [BundleError("step.onnx: sha256 is wrong"), RuntimeError("bad\nalloc")]
)
def test_a_reload_that_fails_changes_nothing_and_is_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    shelf = Shelf(monkeypatch, EchoTranslator())
    registry = Registry(Settings())
    registry.start(shelf.bundles)
    before = registry.translators
    shelf.bundles, shelf.error = [EchoTranslator("new")], error
    registry.reload()
    assert registry.translators == before
    (line,) = [record.message for record in caplog.records if record.levelname == "ERROR"]
    assert line.startswith("reload refused; the bundles are served as before: ")
    assert "\n" not in line
    assert before[0].scheduler.submit(Request(text="a")).result(20).translation.text == "a"
    assert b'macaron_reloads_total{result="refused"} 1.0' in registry.metrics.text()
    registry.close()


def test_abandoned_requests_fail_at_once() -> None:
    translator = EchoTranslator()
    registry = Registry(Settings())
    registry.start([translator])
    translator.stepper.gate.clear()
    (model,) = registry.translators
    ticket = model.scheduler.submit(Request(text="abc"))
    registry.abandon()
    with pytest.raises(NotReadyError, match="shutting down"):
        ticket.result(20)
    with pytest.raises(NotReadyError, match="shutting down"):
        model.scheduler.submit(Request(text="abc"))
    translator.stepper.gate.set()
    registry.close()


class Folders(Shelf):
    """A shelf whose bundles have folders with a file of 100 bytes each."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, root: Path, *translators: EchoTranslator
    ) -> None:
        super().__init__(monkeypatch, *translators)
        self.root = root

    def _manifests(self, _: Settings) -> dict[Path, Manifest]:
        found = {self.root / bundle.manifest.name: bundle.manifest for bundle in self.bundles}
        for folder in found:
            folder.mkdir(exist_ok=True)
            (folder / "weights").write_bytes(bytes(100))
        return found


def loaded(registry: Registry) -> set[str]:
    return {model.name for model in registry.translators if isinstance(model, ServedTranslator)}


def translated(model: ServedTranslator) -> str:
    return model.scheduler.submit(Request(text="abc")).result(20).translation.text


@pytest.fixture
def three(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Folders:
    return Folders(monkeypatch, tmp_path, *map(EchoTranslator, "abc"))


def test_a_model_is_loaded_by_the_first_request_for_it(three: Folders) -> None:
    registry = Registry(Settings(load="use", decode_in="threads"))
    registry.load()
    assert registry.ready
    assert registry.loads("de", "en") is registry.loads("de", "en", "b") is True
    assert (three.loaded, loaded(registry)) == ([], set())
    assert registry.sources("en") == ["de"]
    assert three.loaded == []
    with ThreadPoolExecutor(4) as pool:
        chosen = list(pool.map(lambda _: registry.choose("de", "en", "b"), range(4)))
    assert three.loaded == ["b"]
    assert {id(model) for model in chosen} == {id(chosen[0])}
    assert translated(chosen[0]) == "abc"
    text = registry.metrics.text()
    assert b'macaron_model_loaded{model="b"} 1.0' in text
    assert b'macaron_model_loaded{model="a"} 0.0' in text
    assert registry.loads("de", "en", "b") is False
    assert registry.loads("de", "en") is True  # that is the first of them
    assert registry.loads("auto", "en") is None
    for name in "ac":
        registry.choose("de", "en", name)
    assert registry.loads("de", "en") is registry.loads("auto", "en") is False
    registry.close()


def test_the_least_recently_used_leaves_but_never_one_with_work(three: Folders) -> None:
    registry = Registry(Settings(load="use", max_model_bytes=200, decode_in="threads"))
    registry.load()
    first = registry.choose("de", "en", "a")
    registry.choose("de", "en", "b")
    gate = three.bundles[0].stepper.gate
    gate.clear()
    running = first.scheduler.submit(Request(text="running"))
    registry.choose("de", "en", "c")
    assert loaded(registry) == {"a", "c"}  # b was used after a
    registry.choose("de", "en", "b")
    assert loaded(registry) == {"a", "b"}
    gate.set()
    assert running.result(20).translation.text == "running"
    wait_until(lambda: first.idle)
    registry.choose("de", "en", "c")
    assert loaded(registry) == {"b", "c"}
    assert translated(first) == "abc"  # for whoever had chosen it before
    assert translated(registry.choose("de", "en", "a")) == "abc"
    registry.close()


def test_at_the_start_the_preferred_are_loaded_as_far_as_there_is_room(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bundles = [EchoTranslator(name, priority=number) for number, name in enumerate("abc")]
    Folders(monkeypatch, tmp_path, *bundles)
    registry = Registry(Settings(max_model_bytes=250, decode_in="threads"))
    registry.load()
    assert loaded(registry) == {"b", "c"}
    assert registry.choose("de", "en", "a").name == "a"
    assert loaded(registry) == {"a", "c"}
    registry.close()


def test_a_model_that_cannot_be_loaded_is_to_be_tried_again(
    three: Folders, caplog: pytest.LogCaptureFixture
) -> None:
    registry = Registry(Settings(load="use", decode_in="threads"))
    registry.load()
    three.error = BundleError("step.onnx: sha256 is wrong")
    with pytest.raises(NotReadyError, match=r"'a' cannot be loaded now; try again later"):
        registry.choose("de", "en", "a")
    assert "the model a cannot be loaded: step.onnx: sha256 is wrong" in caplog.text
    three.error = None
    assert translated(registry.choose("de", "en", "a")) == "abc"
    registry.close()


def test_a_reload_keeps_what_is_loaded_and_what_is_not(three: Folders) -> None:
    registry = Registry(Settings(load="use", decode_in="threads"))
    registry.load()
    kept = registry.choose("de", "en", "a")
    three.bundles = [three.bundles[0], EchoTranslator("b", priority=2), EchoTranslator("d")]
    registry.reload()
    assert [model.name for model in registry.translators] == ["b", "a", "d"]
    assert registry.choose("de", "en", "a") is kept
    assert three.loaded == ["a"]
    assert registry.choose("de", "en").manifest.priority == 2
    assert three.loaded == ["a", "b"]
    registry.close()


def test_a_model_that_nobody_asks_for_leaves(three: Folders) -> None:
    registry = Registry(Settings(idle_unload_s=0.5, decode_in="threads"))
    registry.load()
    assert loaded(registry) == {"a", "b", "c"}
    gate = three.bundles[1].stepper.gate
    gate.clear()
    running = registry.choose("de", "en", "b").scheduler.submit(Request(text="running"))
    end = time.monotonic() + 1.2
    while time.monotonic() < end:
        kept = registry.choose("de", "en", "a")  # asked for again and again
        time.sleep(0.05)
    assert loaded(registry) == {"a", "b"}  # b has work
    gate.set()
    assert running.result(20).translation.text == "running"
    del running
    wait_until(lambda: loaded(registry) == set())
    assert translated(kept) == "abc"  # for whoever had chosen it before
    assert translated(registry.choose("de", "en", "c")) == "abc"
    registry.close()


def test_models_leave_and_come_back_when_they_are_told_to(three: Folders) -> None:
    registry = Registry(Settings(decode_in="threads"))
    registry.load()
    chosen = registry.choose("de", "en", "a")
    for _ in range(2):
        registry.unload_named("a")
        assert loaded(registry) == {"b", "c"}
    assert translated(chosen) == "abc"
    registry.load_named("a")
    registry.load_named("a")
    assert loaded(registry) == {"a", "b", "c"}
    assert three.loaded == ["a", "b", "c", "a"]
    with pytest.raises(UnknownModelError):
        registry.load_named("nobody")
    registry.close()
