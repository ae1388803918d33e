"""What models must not touch, row by row: what they read, and what comes out."""

from __future__ import annotations

import pytest

from serving.text.document import Format
from serving.text.placing.placement import Translated
from tests.unit.serving.text.fakes import (
    TRANSLATORS,
    Translator,
    backwards,
    losing,
    read,
    same,
    translated,
    upper,
)


@pytest.mark.parametrize("format", ["text", "html", "markdown"])
@pytest.mark.parametrize(
    "text",
    ["7", "06:45", "+1 202 555 0100", "✓✓", "---", "3,50 €", "12.11.2024",
     "👩‍👩‍👧‍👦", "½", "…", "½ + 3²", "🇩🇪 🇬🇧", "1️⃣", "→",
     "(0)", "10 %", "Ⅳ", "{name}", "%d", "\u200b", "* * *", "5 - 3 = 2"],
)  # fmt: skip
def test_without_a_letter_no_model_is_asked(text: str, format: Format) -> None:
    document = read(text, format)
    assert document.sentences == []
    assert document.untranslated == text


@pytest.mark.parametrize(
    ("source", "format", "sentences"),
    [
        ("<table><tr><td>Hund</td><td>7</td></tr></table>", "html", ["Hund"]),
        ("Hund\t7\t3,50 €\n", "text", ["Hund"]),
        ("| Hund | 7 |", "text", ["Hund"]),
        ("Anfang 06:45.\n06:45\nEnde.", "text", ["Anfang 10.", "Ende."]),
        ("Das sind 5 km.", "text", ["Das sind 5 km."]),
        ("5 km", "text", []),
        ("<r><n>5</n><n>five</n></r>", "xml", ["five"]),
    ],
)
def test_parts_without_a_letter_stay(source: str, format: Format, sentences: list[str]) -> None:
    assert read(source, format).sentences == sentences


@pytest.mark.parametrize(
    ("source", "read_as", "backward"),
    [
        ("Bis bald 🙂", "Bis bald", "BALD BIS 🙂"),
        ("See you soon 👍🏽", "See you soon", "SOON YOU SEE 👍🏽"),
        ("⚠ Achtung nass", "Achtung nass", "⚠ NASS ACHTUNG"),
        ("Achtung ⚠ nass", "Achtung nass", "⚠ NASS ACHTUNG"),
        ("Mind ⚠️ the gap", "Mind the gap", "GAP ⚠️ THE MIND"),
        ("Wir 👩‍👩‍👧‍👦 sind 🇩🇪 da", "Wir sind da", "🇩🇪 DA 👩‍👩‍👧‍👦 SIND WIR"),
        ("Nimm 1️⃣ davon", "Nimm davon", "1️⃣ DAVON NIMM"),
        ("Not → open", "Not open", "→ OPEN NOT"),
        ("Gut ✅ / Schlecht ❌", "Gut / Schlecht", "SCHLECHT ✅ / GUT ❌"),
        ("Fertig ✓, danke", "Fertig, danke", "DANKE , FERTIG ✓"),
        ("│ Kopf │ Fuß │", "Kopf Fuß", "│ │ FUSS KOPF │"),
        ("Es sind 20° hier", "Es sind 20 hier", "HIER 20° SIND ES"),
        ("Das ist *sehr* gut", "Das ist sehr gut", "GUT *SEHR* IST DAS"),
        ("Macaron™ ist neu", "Macaron ist neu", "NEU IST MACARON™"),
    ],
)
def test_symbols_are_kept_and_words_are_read_without(
    source: str, read_as: str, backward: str
) -> None:
    assert read(source).sentences == [read_as]
    assert translated(source, upper) == source.upper()
    assert translated(source, backwards) == backward


CODES = [
    "\\n[1]", "\\v[12]", "\\c[4]", "\\fs[20]", "§a", "§l", "<sprite=3>", "<#C01|help>", "<@U123>",
    "<!here>", "<:smile:123>", "<a:wave:45>", "<t:1618953630:R>", "</help me:12>",
    "<https://x.org/a|here>", "*|FNAME|*", "*|IF:X|*", "*|END:IF|*", "\\cite{x}", "\\ref{fig:a}",
    "\\citep[see][]{a,b}", "\\label{a}", "\\LaTeX{}", "$x^2$", "$x$", "$x \\in A$", "$$y = 2$$",
    "\\(a + b\\)", "%Y-%m-%d", "%H:%M", "%d.%m.%Y", "%d %B %Y", "[gallery ids=\"1,2\" a='b']",
    "ASP.NET", "std::vector", "Foo::bar()", "std::", "5 µm", "µ", "3,5 µs", "r/haus", "u/max",
    ":-)", "&&",
]  # fmt: skip
PLACEHOLDERS = [
    "{name}", "{0}", "{}", "${x}", "#{name}", "%{name}", "{{name}}", "{{{name}}}", "@{name}",
    "%name%", ":name", "%1", "%1$s", "%(name)s", "%s", "%d", "%.2f", "%-5s", "%lu", "%@", "{ x }",
    "[[x]]", "<%= x %>", "<% if x %>", "__x__", "$name", "$t(key)", "&name;", "&#8217;", "%%",
    "%d%%", "{0,number}", "{d, date, short}", "{\\an8}", "\x1b[31m", "\\033[0m", "{% if x %}",
    "{{ user.name|upper }}", "{x!r}", "{price:.2f}", "{ $name }", "@name@", "%<n>d", "%L1", "\\n",
    ":smile:", "https://x.org/a?b=1&c=%20", "max@example.org", "@max@social.example", "@max",
    "#Thema", "snake_case_name", "AT&T", "H₂O", "[1]", "<Datei>", "<br>", "<!-- c -->", "C:\\x\\y",
    "/usr/bin/env", "x" * 120, "{a}/{b}", "%s:%d", "{a}-{b}", "${{ x }}", "{0}%", "{0} %", "{p} €",
    "€{p}", "$(HOME)", "`ls -l`", "##name##", "@@x@@", "\\1", "!user", "{{{{raw}}}}", "@:{'key'}",
    "CO₂", "20 m²", "%S", "%1$S", "*.txt", "src/**/*.py", "list-*@x.org", *CODES,
]  # fmt: skip


@pytest.mark.parametrize("language", ["de", "en"])
@pytest.mark.parametrize("placeholder", PLACEHOLDERS)
@pytest.mark.parametrize("translator", TRANSLATORS)
def test_a_placeholder_comes_out_once(
    placeholder: str, translator: Translator, language: str
) -> None:
    for text in (
        f"Vorher steht {placeholder} und danach.",
        f"{placeholder} am Anfang",
        f"Am Ende {placeholder}",
    ):
        document = read(text, language=language)
        assert all(placeholder not in sentence for sentence in document.sentences)
        result = document.render([translator(s) for s in document.sentences]).text
        assert result.count(placeholder) == 1, result
        rest = result.replace(placeholder, "")
        assert rest == rest.upper()
        assert not any(name in rest.title() for name in ("Tom", "Boston"))


@pytest.mark.parametrize(
    "text",
    ["100 % der Leute", "Er sagte: ja", "Schüler:innen", "um zwölf Uhr", "{siehe oben}", "5% sind",
     "und/oder", "(siehe unten)", "5% von 10%", "a - b", "Wer? Ich!", "O'Neill", "„Ja“"],
)  # fmt: skip
def test_ordinary_signs_are_read(text: str) -> None:
    assert read(text, language="de").sentences == [text] or "?" in text


def test_only_branches_of_messages_are_translated() -> None:
    text = (
        "Du hast {count, plural, =0 {keine Datei} one {# Datei} other {# <b>alte</b> Dateien in "
        "{folder}}} und {g, select, male {seinen {n, plural, one {Hund} other {# Hunde}}} "
        "other {{x}}} da."
    )
    assert read(text).sentences == [
        "Du hast Tom und Paris da.", "keine Datei", "Datei", "alte Dateien in Boston",
        "seinen London", "Hund", "Hunde",
    ]  # fmt: skip
    assert translated(text) == (
        "DU HAST {count, plural, =0 {KEINE DATEI} one {# DATEI} other {# <b>ALTE</b> DATEIEN IN "
        "{folder}}} UND {g, select, male {SEINEN {n, plural, one {HUND} other {# HUNDE}}} "
        "other {{x}}} DA."
    )


@pytest.mark.parametrize("format", ["text", "html", "markdown"])
@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("{ $n -> [one] Ein Hund *[other] Viele Hunde } da", ["Tom da", "Ein Hund", "Viele Hunde"]),
        ("{NUMBER($n) -> *[other] Hunde {x}}", ["Hunde Boston"]),
        (
            "(0)[kein Hund];(1)[ein Hund];(2-inf)[{{n}} Hunde];",
            ["kein Hund", "ein Hund", "27 Hunde"],
        ),
        ("{{#if a}}Du bist{{else}}Ich bin{{/if}} müde", ["Tom müde", "Du bist", "Ich bin"]),
        (
            "{{#if a}}{{#if b}}Hund{{else}}Katze{{/if}}{{else}}Maus{{/if}}",
            ["Hund", "Katze", "Maus"],
        ),
        (
            "{% if a %}Du bist{% elif b %}Er ist{% else %}Ich bin{% endif %} müde",
            ["Tom müde", "Du bist", "Er ist", "Ich bin"],
        ),
        ("Hallo {if $x}Du{else}Ich{/if} hier", ["Hallo Tom hier", "Du", "Ich"]),
        ("Ich bin {{#if a}}sehr {{/if}}müde", ["Ich bin sehr müde"]),
        ("{{#each x}}Hund {{this}}{{/each}} da", ["Hund Tom da"]),
        ("{foreach $a as $b}Hund{/foreach} da", ["Hund da"]),
        ("{{#if a}}Hund da", ["Hund da"]),
        ("{if $a}Hund", ["Hund"]),
        ("(1)[Wort] da", ["(1)[Wort] da"]),
    ],
)
def test_each_case_of_a_message_is_translated(
    text: str, sentences: list[str], format: Format
) -> None:
    if format != "markdown" or not text.startswith(("(", "{ $n", "{NUMBER")):  # links there
        assert read(text, format).sentences == sentences
    assert translated(text, same, format) == text
    for word in ("Hund", "müde", "bist"):
        assert translated(text, format=format).count(word.upper()) == text.count(word)


def test_tags_in_a_case_of_a_message_are_its_own() -> None:
    text = "<p>{n, plural, one {Ein <b>Hund</b>} other {<i>Viele</i> <b>Hunde</b>}} da</p>"
    assert read(text, "html").sentences == ["Tom da", "Ein Hund", "Viele Hunde"]


def test_a_message_that_is_not_whole_is_text() -> None:
    assert translated("Ein {n, plural, one {Hund") == "EIN {N, PLURAL, ONE {HUND"


AROUND = [
    ("<color=red>", "</color>"), ("<size=20>", "</size>"), ("\\emph{", "}"), ("\\textbf{", "}"),
    ('[button link="/kontakt"]', "[/button]"), ("[size a=1 b='2']", "[/size]"),
    ("|cffff0000", "|r"), ("§a", "§r"), ("\\c[4]", "\\c[0]"),
    ("*|IF:X|*", "*|END:IF|*"), ("\\footnote{", "}"),
]  # fmt: skip


@pytest.mark.parametrize("pair", AROUND)
@pytest.mark.parametrize("translator", TRANSLATORS)
def test_codes_around_words_are_kept(pair: tuple[str, str], translator: Translator) -> None:
    opening, closing = pair
    text = f"Ich sehe {opening}den Hund{closing} da"
    assert read(text).sentences == ["Ich sehe den Hund da"]
    result = translated(text, translator)
    assert result.count(opening) == 1
    assert result.count(closing) == 1
    assert result.index(opening) < result.index(closing) or translator is not upper
    assert translated(text) == f"ICH SEHE {opening}DEN HUND{closing} DA"


@pytest.mark.parametrize("format", ["html", "xml"])
@pytest.mark.parametrize(
    ("source", "read_as", "result"),
    [
        ("Siehe <ref/>, bitte.", "Siehe, bitte.", "SIEHE <ref/>, BITTE."),
        ("Siehe <ref/> bitte.", "Siehe bitte.", "SIEHE <ref/> BITTE."),
        ("See <ref></ref>; thanks", "See; thanks", "SEE <ref></ref>; THANKS"),
        ("<ref/> hier", "hier", "<ref/> HIER"),
        ("Ende <ref/>", "Ende", "ENDE <ref/>"),
        ("Wort<ref/> neu", "Wort neu", "WORT<ref/> NEU"),
        ("(<ref/>Wort)", "(Wort)", "(<ref/>WORT)"),
        ("Ja <ref/> !", "Ja !", "JA <ref/> !"),
    ],
)
def test_space_beside_an_element_is_as_it_was(
    source: str, read_as: str, result: str, format: Format
) -> None:
    assert read(source, format).sentences == [read_as]
    assert translated(source, format=format) == result


def test_an_element_is_never_glued_to_a_word_that_moved() -> None:
    assert translated("Siehe <ref/>, bitte", backwards, "xml") == "BITTE , SIEHE <ref/>"
    assert translated("Nimm <ref/> hier", backwards, "xml") == "<ref/> HIER NIMM"


@pytest.mark.parametrize(
    ("source", "read_as", "backward"),
    [
        ("Wasser<sub>2</sub> fließt", "Wasser fließt", "FLIESST WASSER<sub>2</sub>"),
        ("The H<sub>2</sub>O is wet", "The Tom is wet", "WET IS H<sub>2</sub>O THE"),
        ("Ein Satz.<sup>1</sup> Neu", None, ". SATZ EIN<sup>1</sup> NEU"),
        ("Wort<sup><a>[1]</a></sup> da", "Wort da", "DA WORT<sup><a>[1]</a></sup>"),
        ("Wasser² und CO₂ sind¹ da", "Wasser und Tom sind da", "DA SIND¹ CO₂ UND WASSER²"),
        ("Da <sub>sehr klein</sub> da", "Da sehr klein da", "DA <sub>KLEIN SEHR</sub> DA"),
    ],
)  # fmt: skip
def test_raised_and_lowered_signs_stay_beside_their_word(
    source: str, read_as: str | None, backward: str
) -> None:
    if read_as:
        assert read(source, "html").sentences == [read_as]
    assert translated(source, backwards, "html") == backward


@pytest.mark.parametrize("translator", TRANSLATORS)
@pytest.mark.parametrize(
    "kept",
    [
        "<a href='x'>@<span>max</span></a>",
        '<a href="https://x.org/abc"><span class="i">https://</span><span>x.org/a</span>'
        "<span>bc</span></a>",
        "<a>#<span>Thema</span></a>",
        "#<b>Thema</b>",
        "max<wbr>@example.org",
        "@max<b>@social.example</b>",
        "https://<b>x</b>.org/y",
    ],
)
def test_links_and_names_in_pieces_stay(kept: str, translator: Translator) -> None:
    result = translated(f"<p>Siehe {kept} heute</p>", translator, "html")
    for tag in ("<p>", "</p>"):
        assert result.count(tag) == 1
    assert kept in result


@pytest.mark.parametrize(
    ("source", "plain"),
    [
        ("Donau\u00addampf\u00adschiff", "Donaudampfschiff"),
        ("Ein\u200b Wort\u2060 da", "Ein Wort da"),
        ("Ein\ufeff Wort", "Ein Wort"),
        ("\ufeffEin Wort", "Ein Wort"),
        ("Ein \u200fWort\u200e da", "Ein Wort da"),
        ("Ein \u2068Wort\u2069 da", "Ein Wort da"),
        ("Ein \u202bWort\u202c da", "Ein Wort da"),
        ("Ein \u2068Wort da", "Ein Wort da"),
        ("co\u00adop\u00aderate now", "cooperate now"),
        ("Ein\x01 Wo\x7frt\x9f da", "Ein Wort da"),
        ("Ein \ufff9Wort\ufffa da\ufffb", "Ein Wort da"),
        ("Ein Wort\U000e0101 da", "Ein Wort da"),
    ],
)
def test_what_nobody_sees_changes_no_word(source: str, plain: str) -> None:
    assert read(source).sentences == [plain]
    assert read(source, "html").sentences == [plain]
    assert translated(source, same) == source


@pytest.mark.parametrize(
    "source",
    ["{a}\u202a{b}\u202a und da", "{n}\u2060. Da", "5² {a}²{b} da", "Zu %1$shier%2$s{n} da"],
)
def test_a_variable_beside_what_is_written_small_or_not_at_all_stays_once(source: str) -> None:
    for translator in TRANSLATORS:
        result = translated(source, translator)
        for name in ("{a}", "{b}", "{n}", "%1$s", "%2$s"):
            assert result.count(name) == source.count(name)


@pytest.mark.parametrize("format", ["html", "xml"])
@pytest.mark.parametrize(
    "source",
    ["Ja. 5 <b>\u200b7</b>", "Ja. 5 <b>7</b>\u200b 6", "<b>\u200b</b>\u202c 5. Ja"],
)
def test_what_nobody_sees_beside_a_tag_doubles_no_tag(source: str, format: Format) -> None:
    assert translated(source, format=format) == source.upper().replace("B>", "b>")


def test_pairs_of_directions_stay_balanced() -> None:
    source = "Ich \u2068sehe {name}\u2069 und \u202adas Haus\u202c da"
    assert translated(source, backwards) == (
        "DA \u202aHAUS DAS\u202c UND \u2068{name} SEHE\u2069 ICH"
    )
    for translator in TRANSLATORS:
        result = translated(source, translator)
        for sign in "\u2068\u2069\u202a\u202c":
            assert result.count(sign) == 1


def test_joiners_that_spell_words_are_read() -> None:
    for word in ("\u0645\u06cc\u200c\u062e\u0648", "क्\u200dष", "ภาษา\u200bไทย"):
        assert read(word).sentences == [word]


@pytest.mark.parametrize(
    ("source", "read_as", "result"),
    [
        ("BITTE NICHT RAUCHEN", "Bitte nicht rauchen", "BITTE NICHT RAUCHEN"),
        ("WE LIKE WHAT I SAY", "We like what I say", "WE LIKE WHAT I SAY"),
        ("DO NOT SMOKE, {name}! I SAID.", "Do not smoke, Tom!", "DO NOT SMOKE, {name}! I SAID."),
        ("ACHTUNG!", "Achtung!", "ACHTUNG!"),
        ("NATO", "NATO", "nato"),
        ("EU UND USA", "EU UND USA", "eu und usa"),
        ("Die NATO kommt", "Die NATO kommt", "die nato kommt"),
        ("WE LIVE IN THE USA", "We live in the USA", "WE LIVE IN THE USA"),
        (
            "TELL US WHAT IT IS, MR. FOX",
            "Tell us what it is, mr. fox",
            "TELL US WHAT IT IS, MR. FOX",
        ),
        ("THE PDF FILE", "The PDF file", "THE PDF FILE"),
        ("A", "A", "a"),
    ],
)
def test_capitals_are_read_in_ordinary_case(source: str, read_as: str, result: str) -> None:
    def lower(sentence: str) -> Translated:
        return Translated(sentence.lower(), same(sentence).links)

    assert read(source, language="en").sentences[0] == read_as
    assert translated(source, lower, language="en") == result


def test_acronyms_stay_in_capitals() -> None:
    assert read("BITTE DIE USA NICHT VERGESSEN").sentences == ["Bitte die USA nicht vergessen"]
    assert read("DER LKW UND DAS KFZ FAHREN").sentences == ["Der LKW und das KFZ fahren"]


def test_likely_nouns_of_german_get_a_capital() -> None:
    assert read("DER HUND WILL MIT DIR SPIELEN").sentences == ["Der Hund will mit dir spielen"]


@pytest.mark.parametrize(
    ("source", "read_as"),
    [
        ("KÖNNEN SIE MIR HELFEN?", "Können Sie mir helfen?"),
        ("WIR DANKEN IHNEN FÜR IHREN BESUCH", "Wir danken Ihnen für Ihren Besuch"),
        ("BITTE SIE UND IHRE KINDER", "Bitte Sie und Ihre Kinder"),
        ("WAS HAT SIE GESAGT?", "Was hat sie gesagt?"),  # a verb of another person
        ("WANN KOMMT SIE?", "Wann kommt sie?"),
        ("NIEMAND KANNTE SIE.", "Niemand kannte sie."),
        ("HEUTE SEID IHR HIER", "Heute seid ihr hier"),
        ("HAST DU SIE GESEHEN?", "Hast du sie gesehen?"),
        ("DORT SIND " + "WIR UND " * 9 + "SIE", "Dort sind " + "wir und " * 9 + "sie"),  # no sign
        ("GUTEN MORGEN, TOM", "Guten Morgen, Tom"),
        ("WIR SEHEN UNS MORGEN", "Wir sehen uns morgen"),
    ],
)
def test_signs_address_their_reader(source: str, read_as: str) -> None:
    assert read(source).sentences == [read_as]


def test_each_sentence_is_judged_by_itself() -> None:
    assert read("Halt. BITTE NICHT RAUCHEN! Danke.").sentences == [
        "Halt.", "Bitte nicht rauchen!", "Danke.",
    ]  # fmt: skip


def test_a_word_longer_than_the_model_reads_stays_and_is_named() -> None:
    for word in ("QmFz" * 100, "ы" * 300, "a" * 500):
        source = f"Hier ist {word} und das Haus."
        document = read(source)
        result = document.render([upper(sentence) for sentence in document.sentences]).text
        assert result == f"HIER IST {word} UND DAS HAUS."
        assert document.warnings == ["long_word"]
    document = read("ы" * 300)
    assert document.sentences == []
    assert document.warnings == ["long_word"]


def test_a_long_text_without_spaces_is_no_word() -> None:
    document = read("東京" * 150, language="ja")
    assert "".join(document.sentences) == "東京" * 150
    assert document.warnings == []


def test_a_lost_or_doubled_placeholder_is_named() -> None:
    for translator, warnings in ((upper, []), (losing, ["placeholder"])):
        document = read("Hallo {name}, wie geht es?")
        document.render([translator(sentence) for sentence in document.sentences])
        assert document.warnings == warnings
