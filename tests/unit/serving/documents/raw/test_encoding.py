"""What is written agrees with the encoding that a file names."""

from __future__ import annotations

import pytest

from serving.documents.raw.encoding import decoded, escaped
from serving.documents.unit import Translated, WrittenFile
from tests.unit.serving.documents.fakes import translated, written

FILES = {
    "a.html": '<html><head><meta charset="ISO-8859-1"></head><p>Wort</p></html>',
    "b.html": '<meta http-equiv="Content-Type" content="text/html; charset=ISO-8859-1"><p>Wort',
    "a.xhtml": '<?xml version="1.0" encoding="ISO-8859-1"?><html><p>Wort</p></html>',
    "a.resx": '<?xml version="1.0" encoding="ISO-8859-1"?>\n<root><data name="a"><value>Wort'
    "</value></data></root>",
    "strings.xml": "<?xml version='1.0' encoding='ISO-8859-1'?><resources><string name='a'>Wort"
    "</string></resources>",
    "a.po": 'msgid ""\nmsgstr ""\n"Language: en\\n"\n'
    '"Content-Type: text/plain; charset=ISO-8859-1\\n"\n\nmsgid "Wort"\nmsgstr ""\n',
    "b.po": 'msgid ""\nmsgstr "Language: en\\nContent-Type: text/plain; charset=ISO-8859-1\\n"\n\n'
    'msgid "Wort"\nmsgstr ""\n',
    "a.tex": "%\\usepackage[utf8]{inputenc}\n\\usepackage[T1]{fontenc}\\usepackage[latin1]"
    "{inputenc}\n\\begin{document}\nWort\n\\end{document}\n",
}
LACKING = {"a.po": "UTF-8", "b.po": "UTF-8", "a.tex": "utf8"}
"""Kinds without references, and the name that they have for UTF-8."""


def with_word(name: str, word: str, text: str | None = None) -> str:
    """A file's text with the translation of its word."""
    if name.endswith(".po"):
        return (
            (text or FILES[name])
            .replace('msgstr ""\n', f'msgstr "{word}"\n')
            .replace(f'msgid ""\nmsgstr "{word}"', 'msgid ""\nmsgstr ""')
        )
    return (text or FILES[name]).replace("Wort", word)


def filled(content: bytes, name: str, word: str) -> WrittenFile:
    """A file whose every sentence becomes this word."""
    return written(content, name, lambda _: Translated(word))


@pytest.mark.parametrize("name", FILES)
def test_ascii_becomes_what_it_declares(name: str) -> None:
    result = filled(FILES[name].encode(), name, "größer")
    assert result.content == with_word(name, "größer").encode("latin-1")
    assert not result.warnings


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("comment", ["", "ä"])
def test_what_the_encoding_lacks_is_a_reference_or_makes_utf_8_of_file_and_declaration(
    name: str, comment: str
) -> None:
    more = {"po": f"# {comment}\n", "tex": f"% {comment}\n"}.get(name.rpartition(".")[2])
    source = FILES[name] + (more or f"<!-- {comment} -->")
    result = filled(source.encode("latin-1"), name, "cœur é")
    if name in LACKING:
        expected = with_word(name, "cœur é", source)
        expected = expected.replace("ISO-8859-1", LACKING[name]).replace("latin1", LACKING[name])
        assert result.content == expected.encode()
        assert "iso8859-1 lacks; it is in UTF-8" in result.warnings[0]
    else:
        assert result.content == with_word(name, "c&#339;ur é", source).encode("latin-1")
        assert not result.warnings


def test_in_cdata_no_references_are_written() -> None:
    source = FILES["a.resx"].replace("Wort", "<![CDATA[Wort]]>")
    result = filled(source.encode(), "a.resx", "œ").content
    assert result == source.replace("Wort", "œ").replace("ISO-8859-1", "UTF-8").encode()
    source = source.replace("</root>", '<data name="b"><value>zwei</value></data></root>')
    words = {"Wort": "ö", "zwei": "œ"}
    result = translated(source.encode(), "a.resx", lambda text: Translated(words[text]))
    expected = source.replace("Wort", "ö").replace("zwei", "&#339;")
    assert result == expected.encode("latin-1")


@pytest.mark.parametrize(
    ("declared", "result"),
    [
        ("CHARSET", "UTF-8"),
        ("ASCII", "UTF-8"),
        ("utf-16-le", "UTF-8"),
        ("unicode_escape", "UTF-8"),
        ("utf8", "utf8"),
    ],
)
def test_a_declaration_that_cannot_be_kept_is_changed(declared: str, result: str) -> None:
    source = FILES["a.po"].replace("ISO-8859-1", declared)
    expected = with_word("a.po", "größer").replace("ISO-8859-1", result)
    assert filled(source.encode(), "a.po", "größer").content == expected.encode()
    expected = with_word("a.po", "Word").replace("ISO-8859-1", declared)
    assert filled(source.encode(), "a.po", "Word").content == expected.encode()


def test_utf_8_that_declares_another_encoding_says_so_once_it_is_translated() -> None:
    page = FILES["a.xhtml"].replace("<p>Wort", '<meta charset="latin1"><p>Größe')
    assert translated(page.encode(), "a.html", lambda text: Translated(text)) == page.encode()
    expected = page.replace("latin1", "UTF-8").replace("ISO-8859-1", "UTF-8")
    assert translated(page.encode(), "a.html").decode() == expected.replace("Größe", "GRÖSSE")


def test_ascii_that_stands_for_other_letters_is_read_as_such() -> None:
    page = '<meta charset="iso-2022-jp"><p>日本 und</p>'
    expected = page.replace("und", "UND")
    assert translated(page.encode("iso-2022-jp"), "a.html") == expected.encode("iso-2022-jp")


@pytest.mark.parametrize("option", ["utf8x", "utf8"])
def test_names_that_only_latex_has_are_known(option: str) -> None:
    source = FILES["a.tex"].replace("latin1", option).replace("Wort", "Größe")
    assert translated(source.encode(), "a.tex").decode() == source.replace("Größe", "GRÖSSE")
    source = FILES["a.tex"].replace("latin1", "ansinew")
    assert filled(source.encode(), "a.tex", "œ").content == (
        source.replace("Wort", "œ").encode("cp1252")
    )


def test_properties_escape_what_their_encoding_lacks() -> None:
    source = "a=Wort\n# ä\n"
    result = filled(source.encode("latin-1"), "a.properties", "cœur é 😀")
    assert result.content == "a=c\\u0153ur é \\ud83d\\ude00\n# ä\n".encode("latin-1")
    assert not result.warnings
    assert filled(source.encode(), "a.properties", "œ").content == "a=œ\n# ä\n".encode()


def test_characters_are_escaped_as_units_of_utf_16() -> None:
    assert escaped("aé😀", "ascii") == "a\\u00e9\\ud83d\\ude00"
    assert escaped("éœ", "latin-1") == "é\\u0153"


def test_a_text_without_a_declaration_is_utf_8() -> None:
    assert decoded(b"abc").encoding == "utf-8"
    assert decoded("é".encode(), otherwise="latin-1").encoding == "utf-8"
    assert decoded("é".encode("latin-1"), otherwise="latin-1").text == "é"
