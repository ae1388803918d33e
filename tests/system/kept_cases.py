"""What models must not touch: one table of texts, and what is true of their translations.

The words of a translation are the model's; what is told here is what no model decides: what stays,
in which order, and that the words are those of the same text without it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree as ET

from serving.text.document import Format


@dataclass(frozen=True)
class Case:
    """A text, what is true of its translation, and what that is compared with."""

    row: str
    source: str
    """Its language."""
    text: str
    check: Callable[[Case, str, str], bool]
    """Of the case, the answer, and the answer for `plain`."""
    kept: tuple[str, ...] = ()
    """Each occurs in the answer as often as in the text."""
    plain: str = ""
    """What has the same words."""
    format: Format = "text"

    target: str = ""
    """Its translation's language; German and English are translated into each other."""

    @property
    def direction(self) -> str:
        """Both languages."""
        return f"{self.source}-{self.target or ('de' if self.source == 'en' else 'en')}"


def unchanged(case: Case, answer: str, _: str) -> bool:
    return answer == case.text


def kept(case: Case, answer: str, _: str) -> bool:
    """Whole, as often as before, and something is translated beside it."""
    rest, source = answer, case.text
    for part in sorted(case.kept, key=len, reverse=True):
        if rest.count(part) != source.count(part):
            return False
        rest, source = rest.replace(part, ""), source.replace(part, "")
    sigils = Counter(re.findall(r"[{}<>%#@$\[\]_`\\]", rest))
    return rest != source and sigils == Counter(re.findall(r"[{}<>%#@$\[\]_`\\]", source))


def figure(case: Case, answer: str, _: str) -> bool:
    """What is kept as the target's language writes it, once, and no other figure."""
    rest = answer
    for part in case.kept:
        if rest.count(part) != 1:
            return False
        rest = rest.replace(part, "")
    return re.search(r"[\d$€£]", rest) is None and answer != case.text


def same_words(case: Case, answer: str, plain: str) -> bool:
    """Those of the plain text's translation, in whatever case both are."""
    if not kept(case, answer, plain):
        return False
    for part in sorted(case.kept, key=len, reverse=True):
        answer = answer.replace(part, " ")
    return words(answer) == words(plain)


def around(case: Case, answer: str, plain: str) -> bool:
    """The words are those of the plain text's translation, with the parts in order around some."""
    opening, closing = map(re.escape, case.kept)
    return bool(same_words(case, answer, plain) and re.search(rf"{opening}\S.*\S{closing}", answer))


def words(text: str) -> list[str]:
    """Without tags."""
    return re.findall(r"[^\W_]+", re.sub(r"<[^>]*>", " ", text).casefold())


def same_letters(case: Case, answer: str, plain: str) -> bool:
    """Nothing differs from the plain text's translation but what nobody sees, which balances."""
    unseen = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")
    for opening, closing in (
        ("\u2066\u2067\u2068", "\u2069"),
        ("\u202a\u202b\u202d\u202e", "\u202c"),
    ):
        if sum(map(answer.count, opening)) != answer.count(closing):
            return False
    return unseen.sub("", answer) == plain


def apart(case: Case, answer: str, plain: str) -> bool:
    """No element touches a word that it did not touch, and none stands apart from its sign."""
    tag = re.escape(case.kept[0])
    return (
        kept(case, answer, plain)
        and not re.search(rf"\w{tag}|{tag}\w", answer)
        and not re.search(rf"{tag} [,.;!?]", answer)
        and words(answer) == words(plain)
    )


def attached(case: Case, answer: str, plain: str) -> bool:
    """White space neither before what is kept, nor lost behind it."""
    return all(
        answer.count(part) == 1 and re.search(rf"[\w.,!?)]{re.escape(part)}", answer)
        for part in case.kept
    ) and (not plain or same_words(case, answer, plain))


def in_one(case: Case, answer: str, plain: str) -> bool:
    """As the text is translated that is not split; see `plain_key`."""
    return answer == plain


def in_capitals(case: Case, answer: str, plain: str) -> bool:
    shouted = answer
    for part in case.kept:
        shouted = shouted.replace(part, "")
    return kept(case, answer, plain) and shouted.isupper() and words(answer) == words(plain)


def same_elements(case: Case, answer: str, plain: str) -> bool:
    """Well-formed, with the same elements and attributes, none emptied that had text."""
    before, after = elements(case.text), elements(answer)
    parts = all(answer.count(part) == case.text.count(part) for part in case.kept)
    return before == after and parts and answer != case.text


def elements(text: str) -> list[tuple[str, dict[str, str], bool]]:
    document = text.startswith(("<?", "<!DOCTYPE"))
    tree = ET.fromstring(text if document else f"<_>{text}</_>")
    return [(e.tag, e.attrib, bool("".join(e.itertext()).strip())) for e in tree.iter()]


def cases(
    row: str,
    check: Callable[[Case, str, str], bool],
    format: Format = "text",
    **texts: Sequence[str | tuple[str, ...]],
) -> list[Case]:
    """Cases of a row, by language: texts, or texts with what is kept in them."""
    found = []
    for source, examples in texts.items():
        for example in examples:
            text, *parts = (example,) if isinstance(example, str) else example
            found.append(Case(row, source, text, check, tuple(parts), format=format))
    return found


def everywhere(
    row: str,
    check: Callable[[Case, str, str], bool],
    **texts: Sequence[tuple[str, ...]],
) -> list[Case]:
    """Cases of a row, by both languages, as in `en_fr`: texts, and what their translations hold."""
    return [
        Case(row, direction[:2], text, check, tuple(parts), target=direction[3:])
        for direction, examples in texts.items()
        for text, *parts in examples
    ]


def likened(
    row: str,
    check: Callable[[Case, str, str], bool],
    format: Format = "text",
    **texts: Sequence[tuple[str, ...]],
) -> list[Case]:
    """Cases of a row, by language: texts, texts with the same words, and what is kept."""
    return [
        Case(row, source, text, check, tuple(parts), plain, format)
        for source, examples in texts.items()
        for text, plain, *parts in examples
    ]


NUMBERS = (
    "42",
    "18:30",
    "+49 30 901820",
    "★★★☆☆",
    "***",
    "2.500,00 €",
    "~ ~ ~",
    "½",
    "🇦🇹 🇨🇭",
    "½ + ¼",
)
PLACEHOLDERS = (
    "#{user}", "%{count}", "{{{title}}}", "@{city}", "%city%", ":id", "%2", "{ n }", "[[link]]",
    "<%= user.name %>", "__NAME__", "%1$d", "%(user)s", "%-10s", "%d%%", "{1,date}", "{user.name}",
    "{{ page.title | upper }}", "${total}", "$USER", "{\\i1}", "{% url 'home' %}", "{0:N2}",
    "{a}/{b}", "%s:%d", "{a}-{b}", "${{ x }}", "{0}%", "{0} %", "$(HOME)", "`ls -l`", "##name##",
    "@@x@@", "\\1", "!user", "{{{{raw}}}}", "@:{'key'}", "€{price}", "{:.2f}",
    "$t(common.save)", "{ $name }", "{ -brand }", "%lld", "%@", "{x, number, percent}", "%n",
    "%1$tY", "%tB", "\\(user.name)", "{0:dd MMM yyyy}", "{0,10:N2}", "{d:%d. %B}", "%%NAME%%",
    "{0,date,long}", "{0,number,#,##0.00 €}", "{t,time,HH:mm 'h'}", "%dMB", "{n}px", "%.1fkm",
    "{n}x", "[code]x = y[/code]", "[img]https://x.org/a.png[/img]",
)  # fmt: skip
WORDS = {
    "de": ("Ich habe {} gestern im Park gesehen.", "Gib mir bitte {}!"),
    "en": ("I saw {} in the park yesterday.", "Please give me {}!"),
}
LINKS = (
    '<a href="/x">@<span>anna_b</span></a>',
    '<a href="https://y.example/a"><i>https://</i><b>y.example</b>/a</a>',
    "<a>#<span>Berlin</span></a>",
    "@anna@chaos.example",
    "anna.b+x@mail.example",
    "https://y.example/<wbr>a",
)
HOSTS = ("y.example.com", "www.beispiel.de", "müller.de", "example.co.uk", "bericht_2.pdf")
PAIRS = (
    ("%1$s", "%2$s"),
    ("%{a}", "%{b}"),
    ("{0}", "{1}"),
    ("{{start}}", "{{end}}"),
    ("%s", "%s"),
    ("{link}", "{/link}"),
    ("<%= a %>", "<%= b %>"),
    ("%1", "%2"),
    ("%(a)s", "%(b)s"),
    ("{b}{i}", "{/i}{/b}"),
    ("[b]", "[/b]"),
    ("[url=https://x.org/a]", "[/url]"),
    ("[COLOR=red]", "[/COLOR]"),
)
AROUND = {
    "de": ("Ich sehe {}dein rotes Haus{}.", "Er sitzt {}hier{} im Garten."),
    "en": ("I see {}your red house{}.", "He is sitting {}here{} in the garden."),
}
CODES = (
    "\\n[1]", "<#C01|help>", "<@U123>", "*|FNAME|*", "\\cite{x}", "$x^2$", "%Y-%m-%d", "§a",
    '[gallery ids="1,2"]', "std::vector", "5 µm", "r/haus", "ASP.NET",
)  # fmt: skip
CODE_PAIRS = (
    ("<color=red>", "</color>"),
    ("\\c[4]", "\\c[0]"),
    ("\\emph{", "}"),
    ('[button link="/kontakt"]', "[/button]"),
    ("|cffff0000", "|r"),
)
LONG = ("UXVpY2s" * 40 + "==", "ab" * 250, "w" * 600)

CASES = [
    *cases("without a letter", unchanged, de=NUMBERS, en=NUMBERS),
    *cases(
        "without a letter",
        kept,
        "html",
        de=[("<tr><td>Mein Hund</td><td>7</td><td>3,5</td></tr>", "<td>7</td><td>3,5</td>")],
        en=[("<tr><td>My dog</td><td>7</td><td>3.5</td></tr>", "<td>7</td><td>3.5</td>")],
    ),
    *cases("without a letter", unchanged, "markdown", de=["12 | 13"], en=["# 7", "- 8"]),
    *likened(
        "symbols",
        same_words,
        de=[
            ("Guten Abend 🌙", "Guten Abend", "🌙"),
            ("Das Essen war gut 😋 und billig.", "Das Essen war gut und billig.", "😋"),
            ("☎ Ruf mich an", "Ruf mich an", "☎"),
            ("Ich liebe dich ❤️ so sehr", "Ich liebe dich so sehr", "❤️"),
            ("Mein Vater 👨‍🌾 ist alt", "Mein Vater ist alt", "👨‍🌾"),
            ("Ich wohne in 🇩🇪 Berlin.", "Ich wohne in Berlin.", "🇩🇪"),
            ("Wir haben gewonnen 🎉🎉!", "Wir haben gewonnen!", "🎉🎉"),
            ("1️⃣ Mach die Tür zu.", "Mach die Tür zu.", "1️⃣"),
        ],
        en=[
            ("Good night 🌙", "Good night", "🌙"),
            ("The food was good 😋 and cheap.", "The food was good and cheap.", "😋"),
            ("☎ Call me", "Call me", "☎"),
            ("I love you ❤️ so much", "I love you so much", "❤️"),
            ("My father 👨🏽‍🌾 is old", "My father is old", "👨🏽‍🌾"),
            ("I live in 🏴󠁧󠁢󠁥󠁮󠁧󠁿 London.", "I live in London.", "🏴󠁧󠁢󠁥󠁮󠁧󠁿"),
            ("We have won 🎉🎉!", "We have won!", "🎉🎉"),
            ("1️⃣ Close the door.", "Close the door.", "1️⃣"),
        ],
    ),
    *(
        Case("placeholders", source, text.format(part), kept, (part,))
        for source, texts in WORDS.items()
        for part in PLACEHOLDERS
        for text in texts
    ),
    *(
        Case(
            "placeholders around words",
            source,
            text.format(*pair),
            around,
            pair,
            text.format("", ""),
        )
        for source, texts in AROUND.items()
        for pair in PAIRS
        for text in texts
    ),
    *cases(
        "messages",
        kept,
        de=[
            (
                "Du hast {n, plural, one {# Freund} other {# Freunde}}.",
                "{n, plural, one {# ",
                "} other {# ",
            ),
            (
                "{g, select, male {Er ist müde} other {Sie ist müde}}",
                "{g, select, male {",
                "} other {",
            ),
            (
                "Da sind {0,choice,0#keine Hunde|1#ein Hund|1<{0} Hunde}.",
                "{0,choice,0#",
                "|1#",
                "|1<{0} ",
            ),
            (
                "{n, plural, =0 {Kein Hund} other {{g, select, a {Ein Hund} other {Viele Hunde}}}}",
                "{n, plural, =0 {",
                "} other {{g, select, a {",
                "}}}}",
            ),
        ],
        en=[
            (
                "You have {n, plural, one {# friend} other {# friends}}.",
                "{n, plural, one {# ",
                "} other {# ",
            ),
            (
                "{g, select, male {He is tired} other {She is tired}}",
                "{g, select, male {",
                "} other {",
            ),
            (
                "There are {0,choice,0#no dogs|1#one dog|1<{0} dogs}.",
                "{0,choice,0#",
                "|1#",
                "|1<{0} ",
            ),
            (
                "{n, plural, =0 {No dog} other {{g, select, a {One dog} other {Many dogs}}}}",
                "{n, plural, =0 {",
                "} other {{g, select, a {",
                "}}}}",
            ),
        ],
    ),
    *cases(
        "markdown",
        kept,
        "markdown",
        de=[
            ("Das **rote Haus** ist `sehr_alt`.", "**", "`sehr_alt`"),
            ("Lies [mein Buch](/b?x=1 \"T\") heute.", "](/b?x=1 \"T\")"),
            ("## Das ist *mein* Haus", "## ", "*"),
            ("Lies [mein Buch][b1] heute.", "[", "][b1]"),
            ("Das ist [mein rotes Haus].", "[", "]"),
            ("Ich mag [Haus][] sehr.", "[Haus][]"),
        ],
        en=[
            ("The **red house** is `very_old`.", "**", "`very_old`"),
            ("Read [my book](/b?x=1 \"T\") today.", "](/b?x=1 \"T\")"),
            ("## This is *my* house", "## ", "*"),
            ("Read [my book][b1] today.", "[", "][b1]"),
            ("This is [my red house].", "[", "]"),
            ("I like [house][] a lot.", "[house][]"),
        ],
    ),
    *(
        case
        for format in ("html", "xml")
        for case in likened(
            "space before an element",
            apart,
            format,
            de=[
                ("Komm nach Hause <n/>, mein Freund.", "Komm nach Hause, mein Freund.", "<n/>"),
                ("Ich bin müde <n/>.", "Ich bin müde.", "<n/>"),
                ("Das ist <n/> mein Hund.", "Das ist mein Hund.", "<n/>"),
            ],
            en=[
                ("Come home <n/>, my friend.", "Come home, my friend.", "<n/>"),
                ("I am tired <n/>.", "I am tired.", "<n/>"),
                ("This is <n/> my dog.", "This is my dog.", "<n/>"),
            ],
        )
    ),
    *likened(
        "sub- and superscripts",
        attached,
        "html",
        de=[
            ("Das Wasser<sub>2</sub> ist kalt.", "Das Wasser ist kalt.", "<sub>2</sub>"),
            ("Mein Hund<sup>1</sup> ist alt.", "Mein Hund ist alt.", "<sup>1</sup>"),
            ("Ich bin müde.<sup>[3]</sup>", "Ich bin müde.", "<sup>[3]</sup>"),
        ],
        en=[
            ("The water<sub>2</sub> is cold.", "The water is cold.", "<sub>2</sub>"),
            ("My dog<sup>1</sup> is old.", "My dog is old.", "<sup>1</sup>"),
            ("I am tired.<sup>[3]</sup>", "I am tired.", "<sup>[3]</sup>"),
        ],
    ),
    *cases(
        "sub- and superscripts",
        kept,
        "html",
        de=[
            ("Ich trinke H<sub>2</sub>O.", "H<sub>2</sub>O"),
            ("Das ist CO₂ auf 20 m².", "CO₂", "20 m²"),
        ],
        en=[
            ("I drink H<sub>2</sub>O.", "H<sub>2</sub>O"),
            ("This is CO₂ on 20 m².", "CO₂", "20 m²"),
        ],
    ),
    *(
        Case("links and names", source, text.format(part), kept, (part,), format="html")
        for source, texts in WORDS.items()
        for part in LINKS
        for text in texts
    ),
    *(
        Case("links and names", source, text.format(part), kept, (part,))
        for source, texts in WORDS.items()
        for part in HOSTS
        for text in texts
    ),
    *likened(
        "invisible characters",
        same_letters,
        de=[
            ("Das ist mein Gar\u00adten.", "Das ist mein Garten."),
            ("Ich\u2060 bin \u200bmüde.", "Ich bin müde."),
            ("Das \u2068rote\u2069 Haus ist alt.", "Das rote Haus ist alt."),
            ("\ufeffGuten\ufeff Morgen!", "Guten Morgen!"),
            ("Mein \u202bHund\u202c ist \u200falt\u200e.", "Mein Hund ist alt."),
            ("Das\x02 ist \ufff9mein\ufffa Hu\x7fnd\ufffb.", "Das ist mein Hund."),
        ],
        en=[
            ("This is my gar\u00adden.", "This is my garden."),
            ("I\u2060 am \u200btired.", "I am tired."),
            ("The \u2068red\u2069 house is old.", "The red house is old."),
            ("\ufeffGood\ufeff morning!", "Good morning!"),
            ("My \u202bdog\u202c is \u200fold\u200e.", "My dog is old."),
            ("This\x02 is \ufff9my\ufffa do\x7fg\ufffb.", "This is my dog."),
        ],
    ),
    *cases(
        "one sentence",
        in_one,
        de=[
            "Wir kommen am 3. Mai nach Hause.", "Er wohnt im 2. Stock.", "Ich komme evtl. Montag.",
            "Das ist z. B. Wasser.", "Ich kenne Dr. Schmidt.", "Sie traf J. R. Müller im Park.",
            "Das war im 19. Jahrhundert.", "Er kommt am 12. 5. nach Berlin.",
            "Ich sah u. a. Maria.", "Der Zug kommt ca. Mittag an.", "Er war z.B. Montag hier.",
            "Ich kenne u.a. Hamburg.", "Gib es z.Hd. Frau Müller.",
        ],
        en=[
            "I know Dr. Smith.", "He likes fruit, e.g. Apples.", "She met J. R. Smith in the park.",
            "I live in St. John.", "Mr. Brown has a dog.", "It is on p. 5 of the book.",
            "He came on Jan. 5 by train.", "This is No. 5 of ten.", "It is 5 a.m. in Berlin.",
            "The U.S. President is tired.", "He came at 5 p.m. Tuesday.", "The U.N. Council met.",
        ],
    ),
    *cases(
        "xml",
        same_elements,
        "xml",
        de=[
            ("<!DOCTYPE a><a><!-- x --><title>Guten Morgen</title></a>", "<!-- x -->"),
            ("<t><![CDATA[Ich bin <b>müde</b> & alt.]]></t>", "<![CDATA[", "]]>"),
            ('<x:p xmlns:x="urn:a" x:y="ä">Mein <x:Em>Hund</x:Em> ist alt.</x:p>', 'x:y="ä"'),
            ("<item><link>Das Haus</link><meta>Der Hund</meta><title>Ja</title></item>",),
            ("Mein <b>Hund <![CDATA[ist & war]]> alt</b>.", "<![CDATA[", "]]>"),
            ("Ich <g>mag</g> <g>das</g> <g>rote</g> <g>Haus</g> &amp; dich.", "&amp;"),
        ],
        en=[
            ("<!DOCTYPE a><a><!-- x --><title>Good morning</title></a>", "<!-- x -->"),
            ("<t><![CDATA[I am <b>tired</b> & old.]]></t>", "<![CDATA[", "]]>"),
            ('<x:p xmlns:x="urn:a" x:y="ä">My <x:Em>dog</x:Em> is old.</x:p>', 'x:y="ä"'),
            ("<item><link>The house</link><meta>The dog</meta><title>Yes</title></item>",),
            ("My <b>dog <![CDATA[is & was]]> old</b>.", "<![CDATA[", "]]>"),
            ("I <g>like</g> <g>the</g> <g>red</g> <g>house</g> &amp; you.", "&amp;"),
        ],
    ),
    *cases("long words", unchanged, de=LONG, en=LONG),
    *(
        Case("long words", source, text.format(part), kept, (part,))
        for source, texts in WORDS.items()
        for part in LONG
        for text in texts
    ),
    *likened(
        "all capitals",
        in_capitals,
        de=[
            ("ICH BIN SEHR MÜDE.", "Ich bin sehr müde."),
            ("BITTE ÖFFNE DIE TÜR!", "Bitte öffne die Tür!"),
            ("DAS IST MEIN HUND, {name}.", "Das ist mein Hund, {name}.", "{name}"),
            ("DAS HAUS IST SEHR ALT.", "Das Haus ist sehr alt."),
            ("WIR WOLLEN IN DIE USA.", "Wir wollen in die USA."),
        ],
        en=[
            ("I AM VERY TIRED.", "I am very tired."),
            ("PLEASE OPEN THE DOOR!", "Please open the door!"),
            ("THIS IS MY DOG, {name}.", "This is my dog, {name}.", "{name}"),
            ("WE DO NOT HAVE TIME.", "We do not have time."),
            ("MY FATHER LIVES IN THE USA.", "My father lives in the USA."),
        ],
    ),
    *everywhere(
        "figures",
        figure,
        de_en=[
            ("Rabatt: 50 €", "50 €"),
            ("Preis: 100 $", "100 $"),
            ("Das Haus kostet 1.299,00 €.", "1,299.00 €"),
            ("Ruf bitte 555-123-4567 an.", "555-123-4567"),
            ("Der Zug fährt um 19:15 Uhr.", "19:15"),
            ("Wir treffen uns um halb acht.", "7:30"),
            ("Es sind 10.000 Leute da.", "10,000"),
            ("Meine Nummer ist DE123456789.", "DE123456789"),
            ("Die Karte 4111 1111 1111 1111 ist alt.", "4111 1111 1111 1111"),
        ],
        en_de=[
            ("Price: $100", "$100"),
            ("He comes at 7:15 am.", "7:15 Uhr"),
            ("It is 7:15 pm.", "19:15 Uhr"),
            ("10,000 people are here.", "10.000"),
            ("The house costs $1,299.50.", "$1.299,50"),
            ("The train leaves at 10:30.", "10:30"),
            ("The train leaves at half past seven.", "7:30 Uhr"),
            ("My number is GB 123 4567 89.", "GB 123 4567 89"),
        ],
        fr_en=[
            ("Il y a 2 200 112 personnes.", "2,200,112"),
            ("J'habite au 2e étage.", "2nd"),
            ("Le train part à sept heures et demie.", "7:30"),
            ("La maison coûte 50 €.", "50 €"),
            ("Appelez le 01 23 45 67 89.", "01 23 45 67 89"),
        ],
        es_en=[
            ("La casa cuesta 1.299,00 €.", "1,299.00 €"),
            ("El tren sale a las 7:15 p. m. y llega.", "7:15 p.m."),
            ("La 3.ª vez fue mejor.", "3rd"),
            ("Nos vemos a las siete y media.", "7:30"),
        ],
        en_fr=[
            ("At 10:30.", "10:30"),
            ("The ratio is 3:1.", "3:1"),
            ("10,000 people are here.", "10\u202f000"),
        ],
        en_es=[
            ("The house costs 50 €.", "50 €"),
            ("10,000 people are here.", "10.000"),
        ],
    ),
    *everywhere(
        "letters known as bytes alone",
        kept,
        de_en=[("Ich bin Łukasz.", "Łukasz"), ("Wir fahren nach 東京 und zurück.", "東京"),
               ("\u2039Ja\u203a", "\u2039", "\u203a"), ("Herr Dvořák wohnt in Łódź.", "Łódź")],
        en_de=[("I am Łukasz.", "Łukasz"), ("The word Москва is long.", "Москва"),
               ("\u2039Yes\u203a", "\u2039", "\u203a")],
        fr_en=[("Je suis Łukasz.", "Łukasz")],
        es_en=[("El niño Şükrü vive aquí.", "Şükrü")],
        en_fr=[("I am Łukasz.", "Łukasz")],
        en_es=[("The word 東京 is short.", "東京")],
    ),
    *(
        Case("codes", source, text.format(part), kept, (part,))
        for source, texts in WORDS.items()
        for part in CODES
        for text in texts
    ),
    *(
        Case("codes around words", source, text.format(*pair), around, pair, text.format("", ""))
        for source, texts in AROUND.items()
        for pair in CODE_PAIRS
        for text in texts
    ),
    *everywhere(
        "one sentence, French and Spanish",
        in_one,
        fr_en=[("Mme. Petit est là.",), ("Le Dr. Martin est là.",), ("Voir p. 5 et fig. 3.",)],
        es_en=[("El Sr. López llegó.",), ("Vive en la Avda. Mayor.",), ("D. Juan llegó.",)],
    ),
    *cases(
        "messages",
        kept,
        de=[
            ("{ $n -> [one] Ein Hund *[other] Viele Hunde }", "{ $n -> [one] ", " *[other] "),
            ("(0)[kein Hund];(1)[ein Hund];(2-inf)[{{n}} Hunde];", "(0)[", "];(1)[", "];(2-inf)["),
            ("{{#if a}}Du bist{{else}}Ich bin{{/if}} müde", "{{#if a}}", "{{else}}", "{{/if}}"),
        ],
        en=[
            ("{ $n -> [one] One dog *[other] Many dogs }", "{ $n -> [one] ", " *[other] "),
            ("(0)[no dog];(1)[one dog];(2-inf)[{{n}} dogs];", "(0)[", "];(1)[", "];(2-inf)["),
            ("{if $a}You are{else}I am{/if} tired", "{if $a}", "{else}", "{/if}"),
        ],
    ),
    *cases(
        "markdown",
        kept,
        "markdown",
        de=[
            ("::: tip Hinweis\nDas ist gut.\n:::", "::: tip ", "\n:::"),
            ('!!! note "Titel"\n    Das ist gut.', '!!! note "', '"\n    '),
            ("Sei $x \\in A$ und gut.", "$x \\in A$"),
            ("Siehe [[wiki|Mein Haus]] hier.", "[[wiki|", "]]"),
        ],
        en=[
            ("::: tip Hint\nThis is good.\n:::", "::: tip ", "\n:::"),
            ("import X from './x'\n\nThis is good.", "import X from './x'"),
            ("{{% notice %}}\nThis is good.\n{{% /notice %}}", "{{% notice %}}\n"),
        ],
    ),
    *(
        case
        for format in ("html", "xml")
        for case in cases(
            "tags written out",
            kept,
            format,
            de=[("<p>&lt;b&gt;Guten Morgen!&lt;/b&gt;</p>", "&lt;b&gt;", "&lt;/b&gt;")],
            en=[("<p>Good &lt;br/&gt; morning!</p>", "&lt;br/&gt;")],
        )
    ),
    *cases(
        "neighbours",
        kept,
        "html",
        de=[("<a>Hund</a><a>Katze</a>", "</a><a>")],
        en=[("<button>Save</button><button>Stop</button>", "</button><button>")],
    ),
]  # fmt: skip
