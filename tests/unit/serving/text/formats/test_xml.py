"""XML as its own reader reads it."""

from __future__ import annotations

import random
import time
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.errors import InvalidTextError
from serving.text.alignment import Link, word_spans
from serving.text.document import Document, Format
from serving.text.placing.placement import Translated
from tests.unit.serving.text.fakes import TRANSLATORS, Translator, losing, read, same, translated


@pytest.mark.parametrize(
    ("source", "sentences"),
    [
        ("<r><title>Ein Titel</title><link>Ein Text</link></r>", ["Ein Titel", "Ein Text"]),
        ("<r><meta>Eins</meta><item>Zwei</item><Item>Drei</Item></r>", ["Eins", "Zwei", "Drei"]),
        ("<x:a xmlns:x='u'>The <x:B>red</x:B> dog</x:a>", ["The red dog"]),
        ("<r><script>Ein Wort</script><pre>Zwei Worte</pre></r>", ["Ein Wort", "Zwei Worte"]),
        ("<b>Ein</b> <i>Hund</i>", ["Ein Hund"]),
        ("A &lt; b &#228; &amp; c", ["A b ä c"]),
        ("<a><![CDATA[Ein <b>alter</b> Hund & Co]]></a>", ["Ein alter Hund Co"]),
        ("<a>Ein <![CDATA[alter <b>Hund</b>]]> ist &lt; da</a>", ["Ein alter Hund ist da"]),
        ("<a>Ein <b><![CDATA[alter]]> Hund</b></a>", ["Ein alter Hund"]),
        ("<a><b>Eins</b><![CDATA[ ]]></a>", ["Eins"]),
        ("<a><z>Eins</z> <![CDATA[]]> <z>Zwei</z></a>", ["Eins", "Zwei"]),
        ("<c t:translate='no' xmlns:t='u'>Wort</c><d>Da</d>", ["Da"]),
        ("<!-- Ein Satz --><?php Ein Satz?><a>Wort</a>", ["Wort"]),
        ("<!DOCTYPE a [<!ENTITY f 'Firma'>]><a>Die &f; ist da</a>", ["Die Tom ist da"]),
    ],
)
def test_what_is_read(source: str, sentences: list[str]) -> None:
    assert read(source, "xml").sentences == sentences
    assert translated(source, same, "xml") == source


def test_a_document_keeps_all_that_is_no_text() -> None:
    source = (
        "\ufeff<?xml version='1.0' encoding='iso-8859-1'?>\r\n<!DOCTYPE Doc [\n<!ELEMENT Doc ANY>"
        "<!-- ] > -->]>\n<?go x?><Doc a='1 &lt; 2'>\n <Item/>{}<!-- c --><![CDATA[{}]]></Doc>\n"
    )
    assert translated(source.format("größer &amp; neu", "neu > alt"), format="xml") == (
        source.format("GRÖSSER &amp; NEU", "NEU > ALT")
    )


def test_a_translation_cannot_end_a_section() -> None:
    document = read("<a><![CDATA[Ein Hund]]></a>", "xml")
    result = document.render([Translated("x]]>y")]).text
    assert ElementTree.fromstring(result).text == "x]]>y"


def test_a_section_within_a_sentence_is_written_as_one() -> None:
    source = "<a>A &amp; <![CDATA[B & <b>C</b>]]> D</a>"
    assert translated(source, format="xml") == source
    document = read("<a>Der <![CDATA[Hund]]> hier</a>", "xml")
    links = [Link((0, 3), (0, 2), 1.0), Link((4, 8), (3, 10), 1.0), Link((9, 13), (11, 12), 1.0)]
    result = document.render([Translated("D& x]]>y&z &", links)]).text
    tree = ElementTree.fromstring(result)
    assert tree.text == "D& x]]>y&z &"
    assert result.startswith("<a>D&amp; <![CDATA[x]]]]><![CDATA[>y&z]]> &amp;</a>")


def test_names_of_elements_that_are_not_translated() -> None:
    document = Document("<r><Code>Ein Wort</Code><p>Da</p></r>", "xml", ["code"])
    document.divide("de", lambda _: True)
    assert document.sentences == ["Da"]


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ("<a>x</b>", "line 1, column 7"),
        ("<a>\n<b>\nx</a>", "line 3, column 4"),
        ("a & b", "line 1, column 4"),
        ("a &nbsp; b", "line 1, column 3"),
        ("<a", "line 1"),
        ("</_><_>", "line 1, column 5"),
        ("<a b=c/>", "line 1, column 6"),
        ("<?xml version='1.0'?><a/><b/>", "line 1, column 26"),
    ],
)
def test_what_is_not_well_formed_is_refused(source: str, place: str) -> None:
    with pytest.raises(InvalidTextError, match=place):
        read(source, "xml")


def test_entities_do_not_multiply() -> None:
    entities = "".join(f"<!ENTITY e{n} '&e{n - 1};&e{n - 1};'>" for n in range(1, 40))
    with pytest.raises(InvalidTextError, match="must not hold others"):
        read(f"<!DOCTYPE a [<!ENTITY e0 'x'>{entities}]><a b='&e39;'/>", "xml")


def test_an_element_without_words_in_the_translation_keeps_its_own() -> None:
    document = read("<b>Der alte</b> <i>Hund</i> <u>hier</u>", "xml")
    result = document.render([losing(sentence) for sentence in document.sentences]).text
    assert document.warnings == ["untranslated"]
    root = ElementTree.fromstring(f"<r>{result}</r>")
    assert {element.tag for element in root} == {"b", "i", "u"}
    assert all(element.text for element in root)


NAMES = st.sampled_from(["a", "b", "Item", "title", "x-y", "link"])
LEAVES = st.sampled_from(
    ["Wort ", "zwei Worte", ". Ende", " {name} ", "&amp;", "7", "<br/>", "<!-- c -->", "⚠", "%d ",
     "<![CDATA[roh & so]]>", "\n ", "<ref id='1'/>", "&#228;h ", "<?go x?>"]
)  # fmt: skip
TREES = st.recursive(
    LEAVES,
    lambda inner: st.builds(
        lambda name, parts: f"<{name} k='v'>{''.join(parts)}</{name}>",
        NAMES,
        st.lists(inner, max_size=4),
    ),
    max_leaves=15,
)


def shape(root: ElementTree.Element) -> list[object]:
    """Names and attributes, with the elements in each; beside each other they may move."""
    return [root.tag, sorted(root.attrib.items()), sorted(map(shape, root), key=repr)]


def had_text(root: ElementTree.Element) -> list[str]:
    return sorted(
        f"{element.tag} {len(list(element))}"
        for element in root.iter()
        if "".join(element.itertext()).strip()
    )


@settings(max_examples=60, deadline=None)
@given(
    st.lists(TREES, max_size=4).map("".join),
    st.sampled_from([*TRANSLATORS, None]),
    st.randoms(use_true_random=False),
)
def test_the_same_elements_come_out_and_none_is_emptied(
    source: str, translator: Translator | None, chance: random.Random
) -> None:
    def rubbish(sentence: str) -> Translated:
        target = " ".join(chance.choices(["a", "Tom", "<b>", "&", "Boston", ",", sentence], k=2))
        sources, targets = word_spans(sentence), word_spans(target)
        links = [
            Link(chance.choice(sources), chance.choice(targets), chance.random()) for _ in range(3)
        ]
        return Translated(target, links)

    parser = "<r>{}</r>"
    before = ElementTree.fromstring(parser.format(source))
    after = ElementTree.fromstring(parser.format(translated(source, translator or rubbish, "xml")))
    assert shape(after) == shape(before)
    assert had_text(after) == had_text(before)


XLIFF = [
    (
        '<s>Der <ph id="1">&lt;br/&gt;</ph>Hund <bpt i="1">&lt;b&gt;</bpt>ist<ept i="1">&lt;/b&gt;'
        "</ept> da</s>",
        ["Der Hund ist da"],
        '<s>DER <ph id="1">&lt;br/&gt;</ph>HUND <bpt i="1">&lt;b&gt;</bpt>IST<ept i="1">&lt;/b&gt;'
        "</ept> DA</s>",
    ),
    (
        '<s>Hallo <ph id="0">{name}</ph>, <it pos="begin">&lt;i&gt;</it>ja</s>',
        ["Hallo Tom, ja"],
        '<s>HALLO <ph id="0">{name}</ph>, <it pos="begin">&lt;i&gt;</it>JA</s>',
    ),
    ("<s>Der <ph>rote Hund</ph> ist da</s>", ["Der rote Hund ist da"],
     "<s>DER <ph>ROTE HUND</ph> IST DA</s>"),
    (
        '<s>Der <bpt id="1">\\b </bpt>Hund ist da</s>',
        ["Der Hund ist da"],
        '<s>DER <bpt id="1">\\b </bpt>HUND IST DA</s>',
    ),
]  # fmt: skip


@pytest.mark.parametrize(("source", "sentences", "result"), XLIFF)
def test_code_of_another_format_stays(source: str, sentences: list[str], result: str) -> None:
    assert read(source, "xml").sentences == sentences
    assert translated(source, format="xml") == result


@pytest.mark.parametrize("translator", TRANSLATORS)
@pytest.mark.parametrize("format", ["html", "xml"])
def test_tags_that_are_written_out_are_tags(translator: Translator, format: Format) -> None:
    text = '<p>Ich &lt;b&gt;mag&lt;/b&gt; dich &lt;br/&gt;sehr, &lt;a href="x"&gt;ja&lt;/a&gt;</p>'
    assert read(text, format).sentences == ["Ich mag dich sehr, ja"]
    result = translated(text, translator, format)
    for tag in ("&lt;b&gt;", "&lt;/b&gt;", "&lt;br/&gt;", '&lt;a href="x"&gt;', "&lt;/a&gt;"):
        assert result.count(tag) == 1
    assert translated("<p>a &lt; b und c &gt; d</p>", format=format).count("&lt;") == 1


@pytest.mark.parametrize("end", ["<a>b</a>", "<!DOCTYPE a><a>b</a>", "x"])
def test_comments_at_the_beginning_are_read_in_one_way(end: str) -> None:
    began = time.process_time()
    Document("<!-- a -->\n" * 26 + end, "xml")  # as many again took 2^26 times as long
    assert time.process_time() - began < 2
