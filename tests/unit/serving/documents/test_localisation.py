from __future__ import annotations

import json

import pytest
import yaml

from serving.documents.recognition import recognised
from serving.documents.unit import Translated
from serving.errors import DocumentError
from tests.unit.serving.documents.fakes import translated

PO = r"""# Kommentar
msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\n"

#: a.c:1
#, c-format
msgctxt "menu"
msgid "Open \"%s\"\n"
"now"
msgstr ""

msgid "Done"
msgstr "Fertig"

msgid "%d file"
msgid_plural "%d files"
msgstr[0] ""
msgstr[1] ""

#~ msgid "old"
#~ msgstr ""
"""


def test_messages_of_gettext_without_a_translation_get_one_and_all_else_stays() -> None:
    expected = PO.replace('"now"\nmsgstr ""', '"now"\nmsgstr ""\n"OPEN \\"%s\\"\\n"\n"NOW"')
    expected = expected.replace('msgstr[0] ""', 'msgstr[0] "%d FILE"')
    expected = expected.replace('msgstr[1] ""', 'msgstr[1] "%d FILES"')
    assert translated(PO.encode(), "a.po").decode() == expected
    assert translated(PO.encode(), "a.pot").decode() == expected


def xliff(units: str) -> str:
    return f'<?xml version="1.0"?>\n<xliff version="1.2"><file><body>{units}</body></file></xliff>'


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        (
            '\n <trans-unit id="1">\n  <source>Hello <g id="1">big</g> wörld</source>\n'
            " </trans-unit>",
            '\n <trans-unit id="1">\n  <source>Hello <g id="1">big</g> wörld</source>\n'
            '  <target>HELLO <g id="1">BIG</g> WÖRLD</target>\n </trans-unit>',
        ),
        (
            '<trans-unit id="1"><source>a &amp; b</source><target state="new"/></trans-unit>',
            '<trans-unit id="1"><source>a &amp; b</source><target state="new">A &amp; B</target>'
            "</trans-unit>",
        ),
        (
            "<segment state='initial'><source>one</source><target>x</target></segment>",
            "<segment state='initial'><source>one</source><target>ONE</target></segment>",
        ),
        (
            "<x:trans-unit><x:source>one</x:source></x:trans-unit>",
            "<x:trans-unit><x:source>one</x:source><x:target>ONE</x:target></x:trans-unit>",
        ),
        (
            "<trans-unit><source>one</source><note>n</note><alt-trans><source>two</source>"
            "<target></target></alt-trans></trans-unit>",
            "<trans-unit><source>one</source><target>ONE</target><note>n</note><alt-trans>"
            "<source>two</source><target></target></alt-trans></trans-unit>",
        ),
        (
            "<unit translate='no'><segment><source>one</source></segment></unit><trans-unit>"
            "<source>one</source><seg-source><mrk mtype='seg'>one</mrk></seg-source></trans-unit>",
            "<unit translate='no'><segment><source>one</source></segment></unit><trans-unit>"
            "<source>one</source><seg-source><mrk mtype='seg'>one</mrk></seg-source>"
            "<target><mrk mtype='seg'>ONE</mrk></target></trans-unit>",
        ),
        (
            "<trans-unit><source>one</source><target>\n  </target></trans-unit>",
            "<trans-unit><source>one</source><target>ONE</target></trans-unit>",
        ),
        (
            "<trans-unit><source>One. 2! Two.</source><seg-source><g id='1'><mrk mtype='seg' "
            "mid='1'>One <mrk mtype='protected'>a</mrk>.</mrk></g> <mrk mtype='seg' mid='2'>2!"
            "</mrk> <mrk mtype='seg' mid='3'>Two.</mrk></seg-source>\n<target><mrk mtype='seg' "
            "mid='1'/> <mrk mtype=\"seg\" mid='2'></mrk> <mrk mtype='seg' mid='3'/></target>"
            "</trans-unit>",
            "<trans-unit><source>One. 2! Two.</source><seg-source><g id='1'><mrk mtype='seg' "
            "mid='1'>One <mrk mtype='protected'>a</mrk>.</mrk></g> <mrk mtype='seg' mid='2'>2!"
            "</mrk> <mrk mtype='seg' mid='3'>Two.</mrk></seg-source>\n<target><g id='1'><mrk "
            "mtype='seg' mid='1'>ONE <mrk mtype='protected'>a</mrk>.</mrk></g> <mrk mtype='seg' "
            "mid='2'>2!</mrk> <mrk mtype='seg' mid='3'>TWO.</mrk></target></trans-unit>",
        ),
        (
            "<trans-unit><source>one</source><target><mrk mtype='seg'/></target></trans-unit>",
            "<trans-unit><source>one</source><target>ONE</target></trans-unit>",
        ),
    ],
    ids=[
        *("missing", "of one tag", "by its state", "with a prefix", "beside others", "divided"),
        *("blank", "empty segments", "an empty segment of an undivided source"),
    ],
)
def test_targets_of_xliff_are_filled(unit: str, expected: str) -> None:
    wrap = xliff(unit).replace("<xliff", '<xliff xmlns:x="urn:x"')
    result = translated(wrap.encode(), "a.xlf").decode()
    assert result == xliff(expected).replace("<xliff", '<xliff xmlns:x="urn:x"')


@pytest.mark.parametrize(
    "unit",
    [
        "<trans-unit><source>one</source><target>eins</target></trans-unit>",
        "<trans-unit><source>one two</source><target><mrk mtype='seg' mid='1'>eins</mrk> "
        "<mrk mtype='seg' mid='2'/></target></trans-unit>",
        "<trans-unit translate='no'><source>one</source></trans-unit>",
        "<trans-unit><source>42</source></trans-unit>",
    ],
)
def test_what_is_translated_or_not_to_be_stays(unit: str) -> None:
    assert translated(xliff(unit).encode(), "a.xlf").decode() == xliff(unit)


def test_strings_of_android_keep_markup_escapes_and_what_is_not_translatable() -> None:
    source = (
        '<?xml version="1.0" encoding="utf-8"?>\n<!-- c -->\n<resources>\n'
        '    <string name="a">Don\\\'t <b>do</b> it, %1$s\\nnow &amp; then</string>\n'
        '    <string name="b" translatable="false">keep</string>\n'
        '    <string-array name="c"><item>one</item></string-array>\n'
        '    <plurals name="d"><item quantity="one">%d car</item></plurals>\n</resources>\n'
    )
    expected = (
        source.replace("Don\\'t", "DON\\'T")
        .replace("<b>do</b> it", "<b>DO</b> IT")
        .replace("\\nnow", "\\nNOW")
        .replace(" then", " THEN")
        .replace(">one<", ">ONE<")
        .replace("%d car", "%d CAR")
    )
    assert translated(source.encode(), "strings.xml").decode() == expected


def test_text_of_dotnet_resources_is_translated_and_nothing_else() -> None:
    source = (
        '<root><data name="a"><value>Hallo</value><comment>so</comment></data>'
        '<data name="b" type="x"><value>nein</value></data>'
        '<data name="&gt;&gt;c"><value>nein</value></data></root>'
    )
    assert translated(source.encode(), "a.resx").decode() == source.replace("Hallo", "HALLO")


def test_properties_keep_keys_comments_and_escapes() -> None:
    source = (
        "# ein Kommentar\na.b = Hallo \\u00fcber\\\n    all\n!auch einer\nc: eins\\ttab\n"
        "schl\\:ssel wert hier\nleer=\n"
    )
    expected = (
        "# ein Kommentar\na.b = HALLO \\u00dcBERALL\n!auch einer\nc: EINS\\tTAB\n"
        "schl\\:ssel WERT HIER\nleer=\n"
    )
    assert translated(source.encode(), "a.properties").decode() == expected
    assert translated("a=größer\n".encode("latin-1"), "a.properties").decode("latin-1") == (
        "a=GRÖSSER\n"
    )


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_strings_of_apple_keep_keys_comments_and_escapes(encoding: str) -> None:
    source = '/* "a" = "b"; */\n// "c" = "d";\n"k" = "Sag \\"ja\\"\\n %@";\nkey = "wert";\n'
    expected = source.replace("Sag", "SAG").replace("ja", "JA").replace("wert", "WERT")
    assert translated(source.encode(encoding), "a.strings").decode(encoding) == expected


def test_values_of_json_are_translated_at_their_places() -> None:
    source = (
        '{\n  "a": {"b_one": "Hallo {{name}}", "liste": ["eins", 2, "drei"]},\n'
        '  "c" : true, "d": "sag \\"ja\\"", "e": "42"\n}\n'
    )
    expected = (
        source.replace("Hallo", "HALLO")
        .replace('"eins"', '"EINS"')
        .replace("drei", "DREI")
        .replace("sag", "SAG")
        .replace("ja", "JA")
    )
    assert translated(source.encode(), "a.json").decode() == expected


def test_json_that_escapes_other_letters_goes_on_to() -> None:
    result = translated(b'{"a": "\\u00fcber"}', "a.json")
    assert result == b'{"a": "\\u00dcBER"}'


def test_descriptions_of_arb_stay() -> None:
    source = '{"@@locale": "de", "a": "Hallo", "@a": {"description": "ein Gruß"}}'
    assert translated(source.encode(), "a.arb").decode() == source.replace("Hallo", "HALLO")


YAML = """# Kommentar
de:
  gruss: Hallo %{name}   # dahinter
  'fest': 'Das ist''s'
  "auch": "Zeile\\nzwei"
  zahl: 5
  ja: "42"
  anker: &a ein Haus
  alias: *a
  liste: [eins, {k: zwei}]
  block: |
    Erste Zeile
    zweite: Zeile

  gefaltet: >-
    Ein langer
    Satz
  ende: !ruby/symbol bleibt
  letztes: ja doch
"""


def test_values_of_yaml_are_translated_in_their_styles() -> None:
    expected = (
        YAML.replace("Hallo", "HALLO")
        .replace("Das ist''s", "DAS IST''S")
        .replace("Zeile\\nzwei", "ZEILE\\nZWEI")
        .replace("ein Haus", "EIN HAUS")
        .replace("[eins, {k: zwei}]", "[EINS, {k: ZWEI}]")
        .replace("Erste Zeile", "ERSTE ZEILE")
        .replace("zweite: Zeile", "ZWEITE: ZEILE")
        .replace("Ein langer\n    Satz", "EIN LANGER SATZ")
        .replace("ja doch", "JA DOCH")
    )
    assert translated(YAML.encode(), "a.yml").decode() == expected


@pytest.mark.parametrize(
    "translation", ["a: b", "- a", "yes", "a, b", "# a", "'a", "a\nb", "[", ""]
)
def test_what_yaml_would_read_otherwise_is_put_between_quotes(translation: str) -> None:
    sources = ("wort", "[wort]", "\n- wort", "'wort'", "|-\n  wort", ">-\n wort")
    for source in (f"k: {source}\n" for source in sources):
        file = recognised(source.encode(), "a.yml").read(source.encode())
        found = yaml.safe_load(file.write([Translated(translation)]).content)["k"]
        assert (found[0] if isinstance(found, list) else found) == translation


def test_lone_strings_are_json() -> None:
    assert json.loads(translated(b'"hallo"', "a.json")) == "HALLO"


@pytest.mark.parametrize(
    "name", ["a.po", "a.xlf", "a.resx", "a.strings", "a.properties", "a.json", "a.arb", "a.yml"]
)
def test_an_empty_file_stays_empty(name: str) -> None:
    assert translated(b"", name) == b""


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("a.json", b'{"a": ', "not JSON"),
        ("a.json", b"[" * 100_000, "not JSON"),
        ("a.yml", b"a: [", "not YAML"),
        ("a.yml", b"[" * 10_000, "not YAML"),
        ("a.resx", b"<root><data>", "not well-formed XML"),
        ("a.resx", b"<a>" * 100_000 + b"</a>" * 100_000, "nest at most 256 deep"),
        ("a.xlf", b'<!DOCTYPE x [<!ENTITY a "b">]><xliff>&a;</xliff>', "declares entities"),
    ],
)
def test_what_is_broken_is_refused(name: str, content: bytes, match: str) -> None:
    with pytest.raises(DocumentError, match=match):
        recognised(content, name).read(content)


def test_catalogues_with_crlf_keep_it() -> None:
    source = 'msgid "eins\\n"\r\n"zwei"\r\nmsgstr ""\r\n\r\nmsgid   "drei"\r\n  msgstr  ""\r\n'
    assert translated(source.encode(), "a.po").decode() == (
        'msgid "eins\\n"\r\n"zwei"\r\nmsgstr ""\r\n"EINS\\n"\r\n"ZWEI"\r\n\r\n'
        'msgid   "drei"\r\n  msgstr  "DREI"\r\n'
    )
    source = "de:\n  a: |+\n    Eins\n    Zwei\n\n  b: >-\n    Drei\n"
    result = translated(source.replace("\n", "\r\n").encode(), "a.yml").decode()
    assert result == (
        source.replace("Eins", "EINS").replace("Zwei", "ZWEI").replace("Drei", "DREI")
    ).replace("\n", "\r\n")


@pytest.mark.parametrize(
    ("source", "translation", "expected"),
    [
        ("Nicht", "Don't", "Don\\'t"),
        ("Nicht", "Don\\'t", "Don\\'t"),
        ("Nicht", 'say "no"', 'say \\"no\\"'),
        ("Nicht", "@no", "\\@no"),
        ("@Anna da", "@Anna there", "@Anna there"),
        ('" Nicht "', " Don't ", '" Don\'t "'),
        ('Nicht " da "', 'No " it\'s "', 'No " it\\\'s "'),
        ('<a href="x">Nicht</a>', '<a href="x">it\'s</a>', '<a href="x">it\\\'s</a>'),
        ("<![CDATA[Nicht]]>", "<![CDATA[it's]]>", "<![CDATA[it\\'s]]>"),
    ],
)
def test_signs_of_android_are_escaped(source: str, translation: str, expected: str) -> None:
    content = f'<resources><string name="a">{source}</string></resources>'.encode()
    file = recognised(content, "strings.xml").read(content)
    written = file.write([Translated(translation)]).content.decode()
    assert written == f'<resources><string name="a">{expected}</string></resources>'


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("Schriftgr\\u00f6\\u00dfe \\u00e4ndern", "SCHRIFTGR\\u00d6SSE \\u00c4NDERN"),
        ("Bitte w\\u00e4hlen \\u2026", "BITTE W\\u00c4HLEN \\u2026"),
        ("\\u201eja\\u201c, ü", "„JA“, Ü"),
        ("Größe \\u00e4ndern", "GRÖSSE ÄNDERN"),
        ("a\\u00a0b\\n\\u0022ja\\u0022 \\\\u00e4", "A\\u00a0B\\n\\u0022JA\\u0022 \\\\U00E4"),
        ('<a href="\\u00e4">\\u00e4</a> ä', '<a href="\\u00e4">Ä</a> Ä'),
        ("\\u0041b 42", "AB 42"),
    ],
)
def test_letters_that_android_has_as_escapes_are_read(source: str, expected: str) -> None:
    text = '<resources><string name="a">{}</string></resources>'
    assert translated(text.format(source).encode(), "strings.xml").decode() == text.format(expected)


def test_references_of_android_stay() -> None:
    source = (
        '<resources><string name="a">@string/wort</string><string-array name="b">'
        "<item> @android:string/ok </item><item>?attr/wort</item></string-array></resources>"
    )
    assert translated(source.encode(), "strings.xml").decode() == source


def test_lines_of_dotnet_resources_stay_apart() -> None:
    source = '<root><data name="a"><value>Eins &amp;\r\n\r\n  Zwei</value></data></root>'
    assert translated(source.encode(), "a.resx").decode() == source.replace("Eins", "EINS").replace(
        "Zwei", "ZWEI"
    )


@pytest.mark.parametrize(
    ("value", "translation", "expected"),
    [
        ("Nicht {0}", "Don't {0}", "Don''t {0}"),
        ("Nicht {0}", "the users' {0}", "the users'' {0}"),
        ("Nicht", "Don't", "Don't"),
        ("Nicht {0} '{1}'", "Don't {0} '{1}'", "Don''t {0} '{1}'"),
        ("It''s {0}", "C''est {0}", "C''est {0}"),
        ("It's {0}", "C'est {0}", "C'est {0}"),  # as whoever wrote the source has it
    ],
)
def test_apostrophes_of_messages_with_arguments_are_doubled(
    value: str, translation: str, expected: str
) -> None:
    content = f"a={value}\n".encode()
    file = recognised(content, "a.properties").read(content)
    assert file.write([Translated(translation)]).content.decode() == f"a={expected}\n"


def test_what_a_message_quotes_itself_stays_quoted() -> None:
    source = b"a=it''s {0} and '{1}' here\n"
    assert translated(source, "a.properties") == b"a=IT''S {0} AND '{1}' HERE\n"


def test_protected_words_of_xliff_stay() -> None:
    unit = '<trans-unit><source>one <mrk mtype="protected">name</mrk></source></trans-unit>'
    result = translated(xliff(unit).encode(), "a.xlf").decode()
    assert '<target>ONE <mrk mtype="protected">name</mrk></target>' in result
