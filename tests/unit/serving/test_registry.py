"""Which bundles are served and which one a request gets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from serving.errors import (
    BundleError,
    NotReadyError,
    SettingsError,
    UnknownLanguageError,
    UnknownModelError,
)
from serving.registry import Registry, load_bundles
from serving.settings import Settings
from tests.unit.serving.echo import EchoTranslator


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
    order = [model.name for model in registry.models]
    assert order == ["best-de-en", "a-de-en", "b-de-en", "en-de", "fr-en"]


def test_a_model_can_be_named(registry: Registry) -> None:
    assert registry.choose("de", "en", "b-de-en").name == "b-de-en"
    with pytest.raises(UnknownModelError, match=r"got 'b-de'; did you mean 'b-de-en'\?"):
        registry.choose("de", "en", "b-de")
    with pytest.raises(UnknownLanguageError, match=r"source must be one of \['fr'\], got 'de'"):
        registry.choose("de", "en", "fr-en")


def test_unknown_languages_are_told_what_there_is(registry: Registry) -> None:
    with pytest.raises(UnknownLanguageError, match=r"target must be one of \['de', 'en'\], got"):
        registry.choose("de", "xx")
    with pytest.raises(UnknownLanguageError, match=r"source .* \['en'\], got 'fr' for target 'de'"):
        registry.choose("fr", "de")


def test_languages_that_can_be_translated_into_a_target(registry: Registry) -> None:
    assert registry.sources("de") == ["en"]
    assert registry.sources("en") == ["de", "fr"]
    assert registry.sources("en", "fr-en") == ["fr"]
    with pytest.raises(UnknownLanguageError, match="target must be one of"):
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
    with pytest.raises(BundleError, match="has no bundle in it; set MACARON_BUNDLES"):
        load_bundles(Settings(bundles=tmp_path))
    with pytest.raises(BundleError, match="is no folder; set MACARON_BUNDLES"):
        load_bundles(Settings(bundles=tmp_path / "none"))


def test_a_damaged_bundle_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/manifest.json").write_text("{")
    with pytest.raises(BundleError, match="not valid JSON") as caught:
        load_bundles(Settings(bundles=tmp_path))
    assert "\n" not in str(caught.value)
