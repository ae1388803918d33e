"""What is a name of a model, and what is a path."""

from __future__ import annotations

import re
from pathlib import Path, PureWindowsPath

import pytest

from serving.errors import ModelNameError
from serving.hub.cache import bundle_place, downloads_folder
from serving.hub.names import (
    ArgosName,
    FirefoxName,
    HubName,
    Name,
    UrlName,
    name_here,
    named,
    parse_name,
    slug,
)

HASH = "ab" * 32


@pytest.mark.parametrize(
    ("given", "name", "title"),
    [
        ("Helsinki-NLP/opus-mt-de-en", HubName("Helsinki-NLP/opus-mt-de-en"), "opus-mt-de-en"),
        ("a/b@v1.0", HubName("a/b", "v1.0"), "b"),
        ("a/b@refs/pr/4", HubName("a/b", "refs/pr/4"), "b"),
        ("a/b:q4.gguf", HubName("a/b", None, "q4.gguf"), "q4"),
        ("a/b@main:x/q4.gguf", HubName("a/b", "main", "x/q4.gguf"), "q4"),
        ("https://huggingface.co/a/b", HubName("a/b"), "b"),
        ("firefox:de-en", FirefoxName("de-en"), "firefox-de-en"),
        ("firefox:en-zh-Hans", FirefoxName("en-zh-Hans"), "firefox-en-zh-Hans"),
        ("argos:de-en", ArgosName("de-en"), "argos-de-en"),
        (f"argos:de-en#sha256={HASH}", ArgosName("de-en", HASH), "argos-de-en"),
        (
            f"https://a.org/b/student.tar.gz#sha256={HASH.upper()}",
            UrlName("https://a.org/b/student.tar.gz", HASH),
            "student",
        ),
    ],
)
def test_a_name_says_who_publishes_what(given: str, name: Name, title: str) -> None:
    assert parse_name(given) == name
    assert name.title == title
    assert parse_name(str(name)) == name


@pytest.mark.parametrize(
    "given", ["model", "./a/b", "../a/b", "/a/b", "a/b/c", "C:\\x", "a/.b", ""]
)
def test_other_texts_are_paths(given: str) -> None:
    assert parse_name(given) is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("firefox:german", "must be firefox:FROM-TO, for example firefox:de-en"),
        ("argos:de", "must be argos:FROM-TO"),
        ("argos:de-en#md5=1", "#sha256=HASH may follow"),
        (f"firefox:de-en#sha256={HASH}", "must be firefox:FROM-TO"),
        ("https://a.org/model.zip", "must end with #sha256= and the 64 digits"),
        ("https://a.org/model.zip#sha256=12", "must end with #sha256= and the 64 digits"),
        (f"https://a.org/models/#sha256={HASH}", "must name a file"),
    ],
)
def test_a_name_that_is_none_is_one_line_that_says_what_it_must_be(given: str, said: str) -> None:
    with pytest.raises(ModelNameError) as error:
        parse_name(given)
    assert str(error.value).startswith(given)
    assert said in str(error.value)


def test_a_path_that_is_there_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert name_here("models/de-en") == HubName("models/de-en")
    Path("models").mkdir()
    with pytest.raises(ModelNameError) as error:  # a slip in a path is not looked up on a hub
        name_here("models/de-en")
    assert "no such file or folder, but the folder models exists; for a model" in str(error.value)
    assert name_here("https://huggingface.co/models/de-en") == HubName("models/de-en")
    Path("models/de-en").mkdir()
    assert name_here("models/de-en") is None


@pytest.mark.parametrize(
    "given",
    [
        "a/con",
        "nul/aux@main",
        "a/b@refs/pr/4",
        "a/b:x/PRN.gguf",
        "firefox:de-en",
        f"argos:de-en#sha256={HASH}",
        f"https://a.org:8443/x/a:b*c.tar.gz#sha256={HASH}",
        f"https://a.org/com1.gguf#sha256={HASH}",
        f"https://a.org/wie%3F%22so|.zip#sha256={HASH}",
    ],
)
def test_what_is_kept_under_a_name_has_names_that_windows_takes(given: str) -> None:
    name = named(given)
    place = bundle_place(str(name), f"v1:{HASH}", "auto", name.title)
    made = [*place.parts[-3:], downloads_folder(str(name)).name]
    if isinstance(name, UrlName):
        made.append(name.file)
        assert name.file.endswith((".gguf", ".tar.gz", ".zip"))
    for part in made:
        assert not re.search(r'[<>:"/\\|?*]', part), part
        assert not PureWindowsPath(part).is_reserved(), part
        assert not part.endswith((".", " ")), part


def test_a_folder_is_called_as_the_name_as_far_as_a_file_system_allows() -> None:
    assert slug("Helsinki-NLP/opus-mt-de-en@main") == "Helsinki-NLP--opus-mt-de-en--main"
    assert slug("../..") == ""
    long = [slug(f"https://a.org/{'x' * 300}/{end}") for end in "ab"]
    assert len(set(long)) == 2
    assert max(map(len, long)) <= 100
