from __future__ import annotations

import pytest

from serving.text.document import Document, Format
from serving.text.kept.counts import counts, reads_as_number


def counted(before: str, placeholder: str, behind: str) -> bool:
    return counts(before + placeholder + behind, (len(before), len(before) + len(placeholder)))


@pytest.mark.parametrize(
    "placeholder",
    [
        "%d", "%1$d", "%lld", "%i", "%(count)d", "{n}", "{{ count }}", "{itemCount}", "{{{n}}}",
        "%{total_items}", "\\(numberOfFiles)", ":count", "$count", "%count%", "<%= count %>",
        "{{ list.length }}", "{{ count | number }}", "{anzahl}",
    ],
)  # fmt: skip
def test_a_number_before_a_word_counts(placeholder: str) -> None:
    assert counted("Delete ", placeholder, " files")
    assert not counted("Error ", placeholder, "")
    assert not counted("Error ", placeholder, ": no file")


@pytest.mark.parametrize(
    "placeholder", ["%s", "%@", "{0}", "{}", "{name}", "{account}", "{country}", "count", "%.2f"]
)
def test_what_may_stand_for_anything_does_not_count(placeholder: str) -> None:
    assert not counted("", placeholder, " files")


@pytest.mark.parametrize(
    ("before", "behind", "expected"),
    [
        ("", " of 3 files", True),
        ("Page ", " of 3", False),
        ("Seite ", " von 3", False),
        ("<b>", "</b> files", True),
        ("**", "** files", True),
        ("", "\u00a0Dateien", True),
        ("", "% of the files", False),
    ],
)
def test_what_stands_beside_it_tells(before: str, behind: str, expected: bool) -> None:
    assert counted(before, "%d", behind) is expected


@pytest.mark.parametrize(
    "text",
    [
        "| item was found",
        "| user account isn't there",
        "Well. | files have been moved",
        "Error: | file could not be read",
        '"| page has been printed"',
    ],
)
@pytest.mark.parametrize("placeholder", ["{name}", "%s", "{0}", "%1$@", "$app", "{{ user.name }}"])
def test_any_placeholder_with_which_a_subject_begins_is_read_as_a_number(
    text: str, placeholder: str
) -> None:
    before, behind = text.split("|")
    span = (len(before), len(before + placeholder))
    assert reads_as_number(before + placeholder + behind, span)


@pytest.mark.parametrize(
    "text",
    [
        "| is online",
        "| and Anna are online",
        "| who was here left",
        "| joined the group",
        "| settings",
        "The | field is required",
        "|-file was found",
        "| Datei wurde gefunden",
    ],
)
def test_a_placeholder_that_may_be_the_subject_itself_is_read_as_a_name(text: str) -> None:
    before, behind = text.split("|")
    placeholder = "{name}"
    span = (len(before), len(before + placeholder))
    assert not reads_as_number(before + placeholder + behind, span)


@pytest.mark.parametrize("kept", ["https://a.org/x", "a@b.org", "AT&T", "report.pdf"])
def test_what_is_no_placeholder_is_no_number(kept: str) -> None:
    assert not reads_as_number(f"{kept} page was printed", (0, len(kept)))


@pytest.mark.parametrize(
    ("text", "format"),
    [
        ("{name} has %d files and 27 folders", "text"),
        ("{name} has <b>%d</b> files and 27 folders", "html"),
        ("{name} has **%d** files and 27 folders", "markdown"),
    ],
)
def test_models_read_a_count_as_a_number_that_the_text_does_not_have(
    text: str, format: Format
) -> None:
    document = Document(text, format)
    document.divide("en", lambda _: True)
    assert document.sentences == ["Tom has 38 files and 27 folders"]
