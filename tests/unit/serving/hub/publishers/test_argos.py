"""Packages by Argos' index."""

from __future__ import annotations

import hashlib
import io
import zipfile

import pytest

from serving.errors import ModelNameError
from serving.hub.names import ArgosName
from serving.hub.publishers.argos import look
from serving.hub.publishers.published import fetched
from tests.toy.hub import ToyHub, publish_packages

NAME = ArgosName("de-en")


def package(version: str) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("translate-de_en/metadata.json", f'"{version}"')
        archive.writestr("translate-de_en/model/model.bin", b"0")
    return content.getvalue()


@pytest.fixture
def listed(hub: ToyHub) -> ToyHub:
    """Two versions of one pair, and another pair."""
    pairs = [("de", "en", version, package(version)) for version in ("1.9", "1.10")]
    publish_packages(hub, *pairs, ("en", "fr", "1.0", package("1.0")))
    return hub


def test_the_newest_package_of_a_pair_is_unpacked(listed: ToyHub) -> None:
    published = look(NAME)
    assert published.revision.startswith("1.10-")
    assert published.size == len(package("1.10"))
    assert "the index has no hash" in published.remark
    with fetched(published) as folder:
        assert (folder / "metadata.json").read_text() == '"1.10"'
        assert (folder / "model" / "model.bin").is_file()
    assert not folder.exists()


def test_a_hash_behind_the_name_holds(listed: ToyHub) -> None:
    right = hashlib.sha256(package("1.10")).hexdigest()
    with fetched(look(ArgosName("de-en", right))) as folder:
        assert folder.is_dir()
    with (
        pytest.raises(ModelNameError, match=r"the sha256 of .* must be 000000000000"),
        fetched(look(ArgosName("de-en", "0" * 64))),
    ):
        pass


def test_a_package_that_arrives_damaged_is_downloaded_anew(listed: ToyHub) -> None:
    path = "/argos/translate-de_en-1.10.argosmodel"
    whole, listed.plain[path] = listed.plain[path], listed.plain[path][:-30] + bytes(30)
    with (
        pytest.raises(ModelNameError, match="the same command downloads it again"),
        fetched(look(NAME)),
    ):
        pass
    listed.plain[path] = whole
    with fetched(look(NAME)) as folder:
        assert folder.is_dir()


@pytest.mark.parametrize(
    ("pair", "said"),
    [
        ("de-fr", "index.json has no such pair; pairs with one of its languages: de-en, en-fr"),
        ("xx-yy", "index.json has no such pair; it has, for example: de-en, en-fr"),
    ],
)
def test_a_pair_that_is_not_there_is_reported_with_what_is(
    listed: ToyHub, pair: str, said: str
) -> None:
    with pytest.raises(ModelNameError) as error:
        look(ArgosName(pair))
    assert str(error.value).endswith(said)
