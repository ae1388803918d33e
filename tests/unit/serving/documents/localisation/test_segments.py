"""TMX as pairs of sentences: read a unit at a time, from whoever sends it."""

from __future__ import annotations

import io
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.documents.localisation.segments import tmx_languages, tmx_pairs, written_tmx
from serving.errors import DocumentError

WORDS = st.text(st.characters(exclude_categories=("C", "Z"), include_characters=" <&>\"']")).map(
    lambda text: " ".join(text.split())
)
UNIT = "<tu><tuv xml:lang='de'><seg>%s</seg></tuv><tuv xml:lang='en'><seg>b</seg></tuv></tu>"
FILE = "<tmx version='1.4'><header srclang='de'/><body>%s</body></tmx>"


def pairs(text: str) -> list[tuple[str, str] | None]:
    return list(tmx_pairs(io.BytesIO(text.encode()), "de", "en"))


@given(st.lists(st.tuples(WORDS, WORDS), max_size=20))
def test_what_is_written_is_read_again(given_pairs: list[tuple[str, str]]) -> None:
    content = b"".join(written_tmx(given_pairs, "de", "en"))
    found = list(tmx_pairs(io.BytesIO(content), "de-AT", "EN"))
    assert found == [pair if all(pair) else None for pair in given_pairs]


def test_the_codes_of_other_programs_are_left_out() -> None:
    marked = "Ein <bpt i='1'>&lt;b></bpt>rotes<ept i='1'>x</ept> <hi>Haus</hi><ph>p</ph>."
    assert pairs(FILE % (UNIT % marked)) == [("Ein rotes Haus.", "b")]


def test_the_languages_of_a_file_are_those_of_its_header_and_texts() -> None:
    unit = (UNIT % "a").replace("</tu>", "<tuv lang='fr-CA'><seg>c</seg></tuv></tu>")
    found = tmx_languages(io.BytesIO((FILE % unit).encode()))
    assert found == ("de", ("en", "fr-CA"))
    every = (FILE % unit).replace("srclang='de'", "srclang='*all*'")
    assert tmx_languages(io.BytesIO(every.encode())).source == "de"


def entities(count: int) -> str:
    names = "abcdefghij"[: count + 1]
    return '<!ENTITY a "lol">' + "".join(
        f'<!ENTITY {name} "{f"&{before};" * 10}">' for before, name in pairwise(names)
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        *((f"<!DOCTYPE tmx [{entities(n)}]>{FILE % (UNIT % '&a;')}", "entities") for n in (0, 9)),
        ('<!DOCTYPE tmx [<!ENTITY a SYSTEM "file:///etc/passwd">]>' + FILE % "", "entities"),
        ('<!DOCTYPE tmx [<!ENTITY a SYSTEM "http://127.0.0.1:9/">]>' + FILE % "", "entities"),
        ('<!DOCTYPE tmx [<!ENTITY % a "b"> %a;]>' + FILE % "", "entities|well-formed"),
        ("<html/>", "must be TMX"),
        ("", "well-formed"),
        ("<tmx><body><tu>", "well-formed"),
        ("<tmx>" + "<a>" * 1000, "well-formed"),
        (FILE % ("<tu>" + "<note/>" * 20_000 + "</tu>"), "at most 10000 elements"),
        (FILE % ("<note/>" * 20_000), "at most 10000 elements"),
    ],
)
def test_what_is_not_to_be_trusted_is_refused(text: str, said: str) -> None:
    for read in (lambda: tmx_languages(io.BytesIO(text.encode())), lambda: pairs(text)):
        with pytest.raises(DocumentError, match=said):
            read()


def test_a_type_of_document_that_is_elsewhere_is_not_fetched() -> None:
    declared = '<!DOCTYPE tmx SYSTEM "http://127.0.0.1:9/tmx14.dtd">' + FILE % (UNIT % "a")
    assert pairs(declared) == [("a", "b")]


def test_units_come_while_the_file_is_being_read() -> None:
    file = io.BytesIO((FILE % ((UNIT % "a") * 100_000)).encode())
    found = tmx_pairs(file, "de", "en")
    assert next(found) == ("a", "b")
    assert file.tell() < 200_000
    assert sum(1 for _ in found) == 99_999


@pytest.mark.parametrize(
    ("target", "text"),
    [("pt-pt", "autocarro"), ("pt-BR", "ônibus"), ("pt_PT", "autocarro"), ("pt", "ônibus")],
)
def test_the_region_that_is_asked_for_goes_before_others(target: str, text: str) -> None:
    variants = (("de", "Bus"), ("pt-BR", "ônibus"), ("pt-PT", "autocarro"))
    unit = "".join(f'<tuv xml:lang="{c}"><seg>{t}</seg></tuv>' for c, t in variants)
    file = io.BytesIO(f"<tmx><header/><body><tu>{unit}</tu></body></tmx>".encode())
    assert list(tmx_pairs(file, "de", target)) == [("Bus", text)]
