"""Long texts in pieces: nothing is lost, and each piece is read as it is within the whole."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from serving.documents.texts.pieces import in_pieces
from serving.documents.unit import FileInUnits, Format, Translated, Unit, WrittenFile
from tests.unit.serving.documents.fakes import rendered
from tests.unit.serving.text.fakes import Translator, backwards, same, upper

SENTENCES = [f"Der {n}. Hund, den <b>Anna</b> sah, lief weg." for n in range(60)]
PLAIN = [f"Der {n}. Hund {{name}} lief, z. B. heute, weg." for n in range(60)]
LONG: dict[str, tuple[Format, str]] = {
    "text": ("text", "  " + " ".join(PLAIN) + "\n"),
    "without ends": ("text", "Der Hund lief, und die Katze sah ihn; " * 50),
    "without blanks": ("text", "彼は昨日東京へ行きました。今日は家にいます。" * 50),
    "html": ("html", " ".join(SENTENCES) + "<br>" + " ".join(SENTENCES)),
    "styles": ("html", " ".join(f'Ein <g id="s1">roter</g> Hund <x id="t{n}"/> lief. Und <g id="w'
                                f'{n}">siehe hier.</g>' for n in range(60))),
    "xml": ("xml", " ".join(SENTENCES) + " &amp; "),
    "markdown": ("markdown", " ".join(SENTENCES).replace("<b>", "**").replace("</b>", "**")),
    "list": ("markdown", "# T\n\n" + "".join(f"{n}. {s}\n   - tief\n" for n, s in
                                             enumerate(SENTENCES))),
    "table": ("markdown", "| a | b |\n|---|---|\n"
              + "".join(f"| {s} | `x` |\n" for s in SENTENCES)),
    "rules": ("markdown", f"{' '.join(PLAIN)}\n\n---\n\nDazwischen.\n\n---\n\nDanach.\n"),
}  # fmt: skip


def pieces_of(unit: Unit, translate: Translator) -> tuple[Sequence[Unit], list[Translated]]:
    """The pieces of a unit, and what is put together of their translations."""
    given: list[Translated] = []

    def write(translations: Sequence[Translated]) -> WrittenFile:
        given.extend(translations)
        return WrittenFile(b"")

    file = in_pieces(FileInUnits([Unit("Kurz"), unit, unit], write, write), "de", 500)
    file.write([rendered(piece, translate) for piece in file.units])
    assert given[0].text == rendered(Unit("Kurz"), translate).text
    assert given[1] == given[2]
    return file.units, given


@pytest.mark.parametrize("translate", [same, upper, backwards])
@pytest.mark.parametrize("name", LONG)
def test_pieces_are_translated_as_the_whole(name: str, translate: Translator) -> None:
    unit = Unit(LONG[name][1], LONG[name][0])
    pieces, given = pieces_of(unit, translate)
    assert len(pieces) > 5
    # Blocks go together until they have 1,000 characters; the last one may be as long as a piece.
    assert max(len(piece.text) for piece in pieces) <= (1500 if unit.format == "markdown" else 500)
    whole = rendered(unit, translate)
    if name == "without ends" and translate is backwards:  # one sentence is several then
        assert sorted(given[1].text) == sorted(whole.text)
    else:
        assert given[1].text == whole.text
    if translate is same:
        assert given[1].text == unit.text


def test_the_links_of_pieces_are_between_the_whole_texts() -> None:
    unit = Unit(" ".join(PLAIN), links=True)
    _, given = pieces_of(unit, upper)
    words = [(unit.text[slice(*link.source)], given[1].text[slice(*link.target)]) for link in
             given[1].links]  # fmt: skip
    assert len(words) > 400
    assert all(source.upper() == target.upper() for source, target in words)


@pytest.mark.parametrize(
    "unit",
    [
        Unit("x" * 2000),
        Unit(f"<p>{' '.join(PLAIN)}</p>", "xml"),
        Unit(f'<g id="w0">{" ".join(PLAIN)}</g>', "html"),
    ],
    ids=["a word", "an element of XML", "an element of HTML"],
)
def test_what_has_no_place_for_a_cut_stays_whole(unit: Unit) -> None:
    pieces, given = pieces_of(unit, upper)
    assert pieces == [Unit("Kurz"), unit, unit]
    assert given[1] == rendered(unit)
