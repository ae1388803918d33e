"""Which subject a run is, and what is refused of its kind of model before any work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from export.bundles import run
from export.bundles.run import export_run
from export.bundles.subject import Form
from export.errors import ExportError
from export.texts.texts import NO_TEXTS, DocumentsFile, TextPair, Texts
from tests.toy.encoder_recipe import write_encoder_recipe
from tests.toy.recipe import write_toy_recipe
from tests.toy.text import write_toy_text
from training.recipe.config import Recipe, load_recipe

PAIR = TextPair("news", Path("news.de"), Path("news.en"))
DOCUMENTS = DocumentsFile("wiki", Path("wiki.txt"))
ASKED, CHOSEN = Form("int8", priority=2), Form("int8", activations="static", priority=2)


@pytest.fixture(scope="module")
def recipes(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Recipe]:
    folder = tmp_path_factory.mktemp("recipes")
    written = {
        "translation": write_toy_recipe(folder, pairs=4),
        "language": write_toy_text(folder / "text"),
        "encoder": write_encoder_recipe(folder / "encoder"),
    }
    return {kind: load_recipe(str(path), []) for kind, path in written.items()}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What subjects were read of, and what `write_bundle` was called with."""
    asked: list[tuple[Any, ...]] = []

    def read(kind: str) -> Callable[..., str]:
        def subject(*given: Any, **told: Any) -> str:
            asked.append((kind, *given, told))
            return kind

        return subject

    def write(
        prepare: Callable[[Form], str], out: Path, form: Form, texts: Texts, *, force: bool
    ) -> SimpleNamespace:
        assert (form, force) == (ASKED, True)
        return SimpleNamespace(subject=prepare(CHOSEN), out=out, texts=texts)

    for kind, name in (
        ("translation", "trained_translation"),
        ("language", "trained_language_model"),
        ("encoder", "trained_encoder"),
    ):
        monkeypatch.setattr(run, name, read(kind))
    monkeypatch.setattr(run, "write_bundle", write)
    monkeypatch.setattr(run, "find_checkpoint", lambda path: path / "last")
    return asked


def has(monkeypatch: pytest.MonkeyPatch, recipe: Recipe) -> None:
    monkeypatch.setattr(run, "read_run_recipe", lambda _: recipe)


@pytest.mark.parametrize("kind", ["translation", "language", "encoder"])
def test_a_run_is_read_as_what_its_recipe_trains(
    kind: str,
    recipes: Mapping[str, Recipe],
    asked: list[tuple[Any, ...]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    has(monkeypatch, recipes[kind])
    made: Any = export_run(Path("a_run"), tmp_path / "out", ASKED, force=True)
    assert (made.subject, made.out, made.texts) == (kind, tmp_path / "out", NO_TEXTS)
    wanted: dict[str, tuple[Any, ...]] = {
        "translation": (Path("a_run"), CHOSEN, NO_TEXTS, {"shortlist": False}),
        "language": (Path("a_run"), CHOSEN, NO_TEXTS, {}),
        "encoder": (Path("a_run"), NO_TEXTS, {}),
    }
    assert asked == [(kind, *wanted[kind])]


@pytest.mark.parametrize(
    ("kind", "form", "texts", "shortlist", "message"),
    [
        ("language", ASKED, NO_TEXTS, True, "--shortlist belongs to translation"),
        ("language", ASKED, Texts(dev=PAIR), False, "use --text and --test-text"),
        ("language", ASKED, Texts(tests=(PAIR,)), False, "use --text and --test-text"),
        ("translation", ASKED, Texts(text=Path("a")), False, "use --dev and --test"),
        ("translation", ASKED, Texts(test_texts=(DOCUMENTS,)), False, "use --dev and --test"),
        ("encoder", ASKED, NO_TEXTS, True, "--shortlist is not for an encoder"),
        ("encoder", ASKED, Texts(dev=PAIR), False, "--dev is not for an encoder"),
        ("encoder", ASKED, Texts(tests=(PAIR,)), False, "--test is not for an encoder"),
        ("encoder", ASKED, Texts(test_texts=(DOCUMENTS,)), False, "--test-text is not for"),
    ],
)
def test_what_its_kind_has_no_use_for_is_refused(
    kind: str,
    form: Form,
    texts: Texts,
    shortlist: bool,
    message: str,
    recipes: Mapping[str, Recipe],
    asked: list[tuple[Any, ...]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    has(monkeypatch, recipes[kind])
    with pytest.raises(ExportError, match=message):
        export_run(Path("a_run"), tmp_path / "out", form, texts, shortlist=shortlist)
    assert asked == []


@pytest.mark.parametrize(
    ("kind", "texts", "shortlist"),
    [
        ("translation", Texts(dev=PAIR, tests=(PAIR,)), True),
        ("language", Texts(text=Path("a"), test_texts=(DOCUMENTS,)), False),
        ("encoder", Texts(text=Path("a")), False),
    ],
)
def test_what_is_of_use_to_it_is_handed_on(
    kind: str,
    texts: Texts,
    shortlist: bool,
    recipes: Mapping[str, Recipe],
    asked: list[tuple[Any, ...]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    has(monkeypatch, recipes[kind])
    out = tmp_path / "out"
    export_run(Path("a_run"), out, ASKED, texts, shortlist=shortlist, force=True)
    ((_, *given),) = asked
    assert texts in given
    assert given[-1].get("shortlist", False) is shortlist


def test_the_run_itself_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with pytest.raises(ExportError, match=r"is .*, which is read, and would be deleted"):
        export_run(tmp_path / "run", tmp_path / "run", ASKED, force=True)
    text = tmp_path / "bundle" / "text.txt"
    text.parent.mkdir()
    text.touch()
    with pytest.raises(ExportError, match=r"holds .*, which is read"):
        export_run(tmp_path / "run", text.parent, ASKED, Texts(text=text), force=True)
