"""Texts to sentences and back, with translators whose word links are known."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.text.alignment import Link, word_spans
from serving.text.document import Document, Format
from serving.text.formats.tags import html_pieces
from serving.text.placing.placement import Translated

Translator = Callable[[str], Translated]


def upper(sentence: str) -> Translated:
    """The same words in capitals."""
    links = tuple(Link(span, span, 1.0) for span in word_spans(sentence))
    return Translated(sentence.upper(), links)


def backwards(sentence: str) -> Translated:
    """The words in the other order, in capitals."""
    text, links = "", []
    for begin, end in reversed(word_spans(sentence)):
        text += " " if text else ""
        links.append(Link((begin, end), (len(text), len(text) + end - begin), 1.0))
        text += sentence[begin:end].upper()
    return Translated(text, tuple(links))


def unlinked(sentence: str) -> Translated:
    """Capitals without links."""
    return Translated(sentence.upper())


def translated(
    source: str, translator: Translator = upper, format: Format = "text", **options: bool
) -> str:
    document = Document(source, format)
    document.divide("de", lambda sentence: len(sentence) < 100, **options)
    return document.render([translator(sentence) for sentence in document.sentences]).text


def html(source: str, translator: Translator = upper) -> str:
    return translated(source, translator, "html")


def test_one_sentence_is_given_to_the_model_as_it_is() -> None:
    for text in ("Guten Morgen!", "a  b", "Ein Satz ohne Punkt", "Wie viel? 5 + 6, 50 Mal!"):
        document = Document(text, "text")
        document.divide("de", lambda _: True)
        assert document.sentences == [text]
        assert (
            document.render([Translated("Ein <Ergebnis> & mehr")]).text == "Ein <Ergebnis> & mehr"
        )


@pytest.mark.parametrize(
    "text", ["Guten Morgen", "Wie geht's, Anna?", "Ja", "Um halb acht.", "a" * 200]
)
def test_words_alone_are_read_as_they_are_in_markup(text: str) -> None:
    plain, marked = Document(text, "text"), Document(text, "html")
    for document in (plain, marked):
        document.divide("de", lambda _: True, target="en")
    assert plain.sentences == marked.sentences
    assert plain.visible == marked.visible
    assert list(plain.cuts()) == list(marked.cuts())
    assert plain.gaps() == marked.gaps()
    answers = [
        Translated(sentence[::-1], [Link((0, 1), (0, 1), 1.0)]) for sentence in plain.sentences
    ]
    assert plain.render(answers) == marked.render(answers)


def test_white_space_and_rules_between_sentences_stay() -> None:
    text = "\ufeff Eins.  Zwei!\r\n\r\n\t---\n  Drei?\u2028 \n"
    assert translated(text) == text.upper()
    assert translated(text, backwards) == ("\ufeff . EINS  ! ZWEI\r\n\r\n\t---\n  ? DREI\u2028 \n")


def test_without_splitting_a_text_is_one_sentence() -> None:
    document = Document(" Eins. Zwei.\nDrei. ", "text")
    document.divide("de", lambda _: False, split=False)
    assert document.sentences == ["Eins. Zwei.\nDrei."]
    assert document.render([Translated("x")]).text == " x "


@pytest.mark.parametrize("text", ["", "  \n", "---", "{name}", "https://x.org/ 🠖 {a}"])
def test_text_without_words_is_not_translated(text: str) -> None:
    document = Document(text, "text")
    document.divide("de", lambda _: True)
    assert document.sentences == [] if "🠖" not in text else True
    assert document.untranslated == text if not document.sentences else True


@pytest.mark.parametrize("translator", [upper, unlinked])
@pytest.mark.parametrize(
    "text",
    [
        "Hallo {name}, du hast %d Nachrichten auf https://x.org/a?b=1.",
        "{a} {b} {c} {d} {e} {f} {g} sind da.",
        "Klick <0>hier <1>und</1></0> jetzt <2/>!",
        "Tom sagt {name} etwas. Tom auch.",
        "Es sind {n}px {a}{b}. Nur x{n}.",
    ],
)
def test_placeholders_stay_where_they_were(translator: Translator, text: str) -> None:
    keep = re.compile(r"x?\{\w\w*\}(?:px)?|%d|https:\S+\d|</?\d/?>")
    shouted = "".join(
        part if keep.fullmatch(part) else part.upper()
        for part in re.split(f"({keep.pattern})", text)
    )
    assert translated(text, translator) == shouted


def test_placeholders_move_with_their_words() -> None:
    assert translated("Ich sehe {name} und <0>dich</0>", backwards) == (
        "<0>DICH</0> UND {name} SEHE ICH"
    )


@pytest.mark.parametrize(
    "answer",
    [
        "", "Nothing of it", "Tom", "Tom Tom Boston, Tom Boston Boston!", "Boston's Toms",
        "Tom. Boston", "(Tom)", "Paris and London",
    ],
)  # fmt: skip
@pytest.mark.parametrize("seed", range(3))
def test_each_placeholder_occurs_once_whatever_the_model_says(answer: str, seed: int) -> None:
    chance = random.Random(seed)

    def translator(sentence: str) -> Translated:
        return Translated(answer, rubbish(chance, sentence, answer))

    text = "Frag {name} und {count} oder <0>lies {x}</0> morgen."
    result = translated(text, translator)
    for placeholder in ("{name}", "{count}", "<0>", "{x}", "</0>"):
        assert result.count(placeholder) == 1, result
    assert "Boston" not in result
    assert result.index("<0>") < result.index("{x}") < result.index("</0>")


def rubbish(chance: random.Random, source: str, target: str) -> tuple[Link, ...]:
    """Links that say nothing."""
    sources, targets = word_spans(source), word_spans(target)
    if not (sources and targets):
        return ()
    count = chance.randrange(len(targets) + 3)
    return tuple(
        Link(chance.choice(sources), chance.choice(targets), chance.random()) for _ in range(count)
    )


def test_tags_follow_their_words() -> None:
    source = '<p>Ich <b>mag</b> das <a href="/x">rote <i>kleine</i> Haus</a>.</p>'
    assert html(source) == ('<p>ICH <b>MAG</b> DAS <a href="/x">ROTE <i>KLEINE</i> HAUS</a>.</p>')
    assert html(source, unlinked) == html(source)
    assert html(source, backwards) == (
        '<p>. <a href="/x">HAUS <i>KLEINE</i> ROTE</a> DAS <b>MAG</b> ICH</p>'
    )


def test_an_element_may_hold_several_sentences() -> None:
    source = "<div>Eins <b>hier. Zwei.</b> Drei.</div>"
    assert html(source) == source.upper().replace("DIV", "div").replace("B>", "b>")
    assert html("<b>Eins. Zwei.</b>", backwards) == "<b>. EINS . ZWEI</b>"


def test_words_apart_do_not_drag_others_into_an_element() -> None:
    def translator(_: str) -> Translated:
        pairs = (((0, 3), (0, 2)), ((4, 7), (3, 6)), ((8, 11), (7, 10)), ((0, 3), (11, 13)))
        return Translated("AA xxx yyy aa", tuple(Link(s, t, 1.0) for s, t in pairs))

    assert html("<b>abc</b> def ghi", translator) == "<b>AA</b> xxx yyy aa"


def test_punctuation_stays_outside_whatever_it_is_linked_to() -> None:
    def translator(_: str) -> Translated:
        pairs = (((0, 2), (0, 5)), ((7, 11), (6, 10)), ((7, 11), (10, 11)))
        return Translated("where book.", tuple(Link(s, t, 1.0) for s, t in pairs))

    assert html("Wo ist <b>Buch</b>?", translator) == "where <b>book</b>."


@pytest.mark.parametrize(
    "kept",
    [
        "<script>if (a<b) x = 'Satz. Zwei.'</script>",
        "<style>p > a { color: red }</style>",
        "<!-- ein Kommentar. -->",
        "<pre>  ein\n  Text. </pre>",
        "<code>x < 1</code>",
        '<span translate="no">Macaron <b>GmbH</b></span>',
        '<span class="a notranslate b">Macaron</span>',
        '<div translate="no"><p>Ein Satz.</p></div>',
        '<img alt="ein Bild" src=a.png>',
        "<textarea>ein Text</textarea>",
    ],
)
@pytest.mark.parametrize("translator", [upper, backwards, unlinked])
def test_what_is_not_translated_stays(kept: str, translator: Translator) -> None:
    result = html(f"<p>Davor steht {kept} etwas.</p>", translator)
    assert result.count(kept) == 1
    rest = result.replace(kept, "")
    assert rest == rest.upper().replace("P>", "p>")


def test_references_are_read_and_text_is_escaped() -> None:
    document = Document("<p>a&nbsp;c &eacute;t&#233; &quot;x&quot; &xyzzy;</p>", "html")
    document.divide("fr", lambda _: True)
    assert document.sentences == ['a\xa0c été "x" &xyzzy;']
    assert document.render([Translated("<x> & y")]).text == "<p>&lt;x&gt; &amp; y</p>"


def test_blocks_and_line_breaks_divide_and_white_space_stays() -> None:
    source = "<ul>\n <li>eins\n  zwei<br>drei<li> vier </ul>&nbsp;\n<h1>fünf</h1>"
    document = Document(source, "html")
    document.divide("de", lambda _: True)
    assert document.sentences == ["eins   zwei", "drei", "vier", "fünf"]
    assert document.render([Translated("X")] * 4).text == (
        "<ul>\n <li>X<br>X<li> X </ul>&nbsp;\n<h1>X</h1>"
    )


@pytest.mark.parametrize(
    "source",
    [
        "<b><i>eins</b> zwei</i> drei",
        "<p>eins <b>zwei</p><p>drei</b> vier",
        "eins</i> zwei <b>drei",
        "<a href=x><div>eins</div></a> zwei",
        "<b>" * 100 + "eins" + "</b>" * 100,
        "eins <",
        "eins <b",
        "eins <b class='",
        "<p>eins<!-- zwei",
        "&#xD800; &#0; eins",
    ],
)
def test_broken_markup_keeps_its_order(source: str) -> None:
    tags = [source[slice(*p.span)] for p in html_pieces(source) if p.kind != "data"]
    result = html(source, backwards)
    assert [result[slice(*p.span)] for p in html_pieces(result) if p.kind != "data"] == tags


ELEMENTS = st.sampled_from(["b", "i", "a href='x>y'", 'span class="k"', "p", "div", "x-y", "li"])
LEAVES = st.sampled_from(
    ["Wort ", "zwei Worte ", ". ", "Ende. Anfang ", "{name}", "&amp;", "<br>", "<img src=a>",
     "<code>x</code>", "<!-- c -->", "%d ", "a< b ", " ", "\n"]
)  # fmt: skip


def element(name: str, children: list[str]) -> str:
    return f"<{name}>{''.join(children)}</{name.split()[0]}>"


TREES = st.recursive(
    LEAVES, lambda inner: st.builds(element, ELEMENTS, st.lists(inner, max_size=4)), max_leaves=25
)


PIECES = st.one_of(
    LEAVES,
    st.sampled_from(
        ["<b>", "</b>", "</p>", " <0>", "</0> ", " <1/> ", "<pre>", "</pre>", "<script>",
         "<a b='", "<!",
         "{{", "}}", "%s", "a@b.de", "http://x.y/(z)", "x", "1.", "- ", "\u2028", "\ufeff", "Tom "]
    ),
    st.text(max_size=5),
)  # fmt: skip
ANYTHING = st.lists(PIECES, max_size=12).map("".join)


def same(sentence: str) -> Translated:
    return Translated(sentence, tuple(Link(span, span, 1.0) for span in word_spans(sentence)))


@given(ANYTHING)
def test_any_text_whose_sentences_stay_stays(source: str) -> None:
    def bare(text: str) -> str:  # around tags a space more or less may be seen
        return re.sub(r"\s*(</?\d/?>)\s*", r"\1", text)

    assert bare(translated(source, same)) == bare(source)


def test_a_thing_between_spaces_stays_between_spaces() -> None:
    def one_space(sentence: str) -> Translated:
        return upper(" ".join(sentence.split()))

    assert html("<p>neu <img src=a> Bild</p>", one_space) == "<p>NEU <img src=a> BILD</p>"
    assert html("<p>neu <img src=a>Bild</p>", one_space) == "<p>NEU <img src=a>BILD</p>"


@pytest.mark.parametrize(
    ("first", "written"),
    [
        ("a", ">&lt;a"),
        ("/", ">&lt;/"),
        ("!", ">&lt;!"),
        ("é", "><é"),
        ("1", "><1"),
        ("<", "><&lt;"),
    ],
)
def test_a_kept_bracket_makes_no_tag_of_what_comes_to_stand_behind_it(
    first: str, written: str
) -> None:
    def moved(sentence: str) -> Translated:
        assert sentence == "Wort 0"
        return Translated(f"{first} Wort", (Link((5, 6), (0, 1), 1.0),))

    assert html("Wort ><0", moved) == f"{written} Wort"
    assert html("Wort ><0") == "WORT ><0"


def test_a_kept_bracket_makes_no_tag_of_the_word_that_moves_up_to_it() -> None:
    assert html("A><0", lambda _: Translated("<b> Tom a")) == "&lt;b&gt;>&lt;Tom a"


@given(ANYTHING, st.randoms(use_true_random=False))
def test_any_html_can_be_translated_and_keeps_its_markup(
    source: str, chance: random.Random
) -> None:
    def translator(sentence: str) -> Translated:
        target = " ".join(chance.choices(["a", "Tom", "<b>", ",", sentence], k=3))
        return Translated(target, rubbish(chance, sentence, target))

    assert markup(html(source, translator)) == markup(source)


def markup(source: str) -> Counter[str]:
    return Counter(source[slice(*p.span)] for p in html_pieces(source) if p.kind != "data")


def properly_nested(source: str) -> bool:
    stack: list[str] = []
    for piece in html_pieces(source):
        if piece.kind == "start" and piece.name not in ("br", "img"):
            stack.append(piece.name)
        elif piece.kind == "end" and (not stack or stack.pop() != piece.name):
            return False
    return not stack


@given(st.lists(TREES, max_size=5).map("".join), st.randoms(use_true_random=False))
def test_markup_is_kept_and_nested_whatever_model_and_links_say(
    source: str, chance: random.Random
) -> None:
    def translator(sentence: str) -> Translated:
        words = ["a", "b", "Tom", "Boston", "Paris", "&", "<b>", "</p>", ",", ".", sentence]
        target = " ".join(chance.choices(words, k=chance.randrange(8)))
        return Translated(target, rubbish(chance, sentence, target))

    assert properly_nested(source)
    result = html(source, translator)
    assert markup(result) == markup(source)
    assert properly_nested(result)
    for placeholder in ("{name}", "%d"):
        assert result.count(placeholder) == source.count(placeholder)


@given(st.lists(TREES, max_size=5).map("".join))
def test_the_same_words_make_the_same_text(source: str) -> None:
    def bare(text: str) -> str:
        return re.sub(r"\s+", "", text.replace("a< b", "a&lt; b"))

    assert bare(html(source, same)) == bare(source)


@pytest.mark.parametrize("translator", [upper, backwards])
def test_links_lie_in_the_texts_as_they_are_written(translator: Translator) -> None:
    source = "<p>Eins &auml;h <b>zwei</b>.</p> <p>Drei {x}!</p>"
    document = Document(source, "html")
    document.divide("de", lambda _: True)
    result = document.render([translator(sentence) for sentence in document.sentences])
    pairs = [(source[slice(*x.source)], result.text[slice(*x.target)]) for x in result.links]
    wanted = {"Eins": "EINS", "&auml;h": "ÄH", "zwei": "ZWEI", "Drei": "DREI", "{x}": "{x}"}
    assert {(a, b) for a, b in pairs if a not in ".!"} == set(wanted.items())


def test_what_is_said_of_a_sentence_names_the_things_of_the_text() -> None:
    document = Document("Der Bogue Nr. 411675 von %s. Er ist neu: {name}, 5 Tage.", "text")
    document.divide("de", lambda _: True)
    (first, second) = document.sentences
    things = ["%s", "{name}"]
    for number, sentence in enumerate((first, second)):
        assert things[number] not in sentence  # a word stands for it
        assert things[number] in document.as_in_text(number, sentence)
    assert document.as_in_text(1, "5") == "5"
    assert document.as_in_text(0, "something else") == "something else"


@pytest.mark.parametrize(
    ("text", "format"),
    [
        ("Hallo {name}, das kostet 1.234,50 €.", "text"),
        ("Siehe {a}, {b}, {c}, {d}, {e}, {f} und {g}.", "text"),
        ("<p>Ein <b>rotes</b> Haus &amp; <img src='x'> {hof}.</p>", "html"),
        ("WARNUNG VOR DEM {tier}!", "text"),
    ],
)
def test_a_sentence_that_somebody_else_gives_back_stands_as_it_was(
    text: str, format: Format
) -> None:
    document = Document(text, format)
    document.divide("de", lambda _: True, target="de")
    given = [document.as_given(number) for number in range(len(document.sentences))]
    taken = [document.take(number, sentence) for number, sentence in enumerate(given)]
    assert None not in taken
    assert document.render([Translated(each or "") for each in taken]).text == text
    assert document.warnings == []


def test_a_sentence_of_somebody_else_without_its_placeholder_is_not_taken() -> None:
    document = Document("Hallo {name}, das kostet 1.234,50 €.", "text")
    document.divide("de", lambda _: True, target="en")
    assert document.take(0, "Hello, it costs €1,234.50.") is None
    assert document.take(0, "{name} {name}") is None
    taken = document.take(0, "Hello {name}, it costs €1,234.50.")
    assert taken is not None
    assert document.render([Translated(taken)]).text == "Hello {name}, it costs €1,234.50."
