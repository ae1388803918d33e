"""Students by Mozilla's list."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from serving.errors import ModelNameError
from serving.hub.names import FirefoxName
from serving.hub.publishers.firefox import look
from serving.hub.publishers.published import fetched
from tests.toy.hub import ToyHub, publish_students

NAME = FirefoxName("de-en")
OTHERS = (("de", "uk"), ("en", "zh-Hans"))


def student(folder: Path, content: str) -> Path:
    folder.mkdir()
    for name in ("model.deen.bin", "lex.50.50.deen.s2t.bin", "vocab.deen.spm", "quality.deen.bin"):
        (folder / name).write_text(f"{content} {name}")
    return folder


@pytest.fixture
def listed(hub: ToyHub, tmp_path: Path) -> ToyHub:
    """Three versions of one pair, and others."""
    made = {version: student(tmp_path / version, version) for version in ("1.9", "1.10", "2.0a1")}
    pairs = [("de", "en", version, folder) for version, folder in made.items()]
    publish_students(hub, *pairs, *((*pair, "1.9", made["1.9"]) for pair in OTHERS))
    return hub


def test_the_newest_release_of_a_pair_is_taken(listed: ToyHub) -> None:
    published = look(NAME)
    assert published.revision.startswith("1.10-")
    with fetched(published) as folder:
        files = {file.name: file.read_text() for file in folder.iterdir()}
    names = ("model.deen.bin", "lex.50.50.deen.s2t.bin", "vocab.deen.spm")
    assert files == {name: f"1.10 {name}" for name in names}
    assert published.size == published.missing == sum(map(len, files.values()))
    assert not folder.exists()


def test_a_code_may_have_a_script(listed: ToyHub) -> None:
    assert look(FirefoxName("en-zh-Hans")).revision.startswith("1.9-")


def test_a_pair_that_is_not_there_is_reported_with_what_is(listed: ToyHub) -> None:
    with pytest.raises(ModelNameError) as error:
        look(FirefoxName("de-fr"))
    assert str(error.value) == (
        "firefox:de-fr: Mozilla's list has no such pair; "
        "pairs with one of its languages: de-en, de-uk"
    )


def test_a_file_that_is_not_what_the_list_says_is_refused(listed: ToyHub) -> None:
    published = look(NAME)
    listed.plain["/cdn/models/1.10/model.deen.bin"] = b"1.10 model.deen.bi!"
    with pytest.raises(ModelNameError, match="file was changed or damaged"), fetched(published):
        pass


def test_a_list_in_another_form_is_reported(listed: ToyHub) -> None:
    listed.plain["/v1/"] = json.dumps({"capabilities": {}}).encode()
    with pytest.raises(ModelNameError, match="'attachments' in an unknown form"):
        look(NAME)
