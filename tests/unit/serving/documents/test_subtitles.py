from __future__ import annotations

import pytest

from serving.documents.subtitles.division import divided, visible, wrapped
from serving.documents.unit import Link, Translated
from tests.unit.serving.documents.fakes import translated, written
from tests.unit.serving.text.fakes import backwards, upper

SRT = """1
00:00:01,000 --> 00:00:03,000
Ich glaube, dass wir heute
nicht mehr nach Hause

2
00:00:03,100 --> 00:00:05,000 X1:10
kommen werden.

3
00:00:06,000 --> 00:00:07,000
- Wirklich?
- <i>Ja.</i>

4
00:00:08,000 --> 00:00:09,000
♪ ♪
"""


def test_srt_keeps_times_tags_and_dashes() -> None:
    expected = SRT.replace("Ich glaube, dass wir heute\nnicht mehr nach Hause", "{}").upper()
    long = "ICH GLAUBE, DASS WIR HEUTE\nNICHT MEHR NACH HAUSE"
    expected = expected.format(long).replace("<I>", "<i>").replace("</I>", "</i>")
    assert translated(SRT.encode(), "a.srt").decode() == expected


def test_crlf_and_a_byte_order_mark_stay() -> None:
    source = SRT.replace("\n", "\r\n").encode("utf-8-sig")
    result = translated(source, "a.srt")
    assert result.startswith(b"\xef\xbb\xbf1\r\n")
    assert result.count(b"\r\n") == source.count(b"\r\n") == result.count(b"\n")


def test_a_sentence_over_two_cues_is_translated_whole_and_divided_by_its_links() -> None:
    seen: list[str] = []

    def translate(sentence: str) -> Translated:
        seen.append(sentence)
        return backwards(sentence)

    source = (
        "1\n00:00:01,000 --> 00:00:03,000\nDer alte Hund\n\n"
        "2\n00:00:03,000 --> 00:00:05,000\nschläft im Garten\n"
    )
    translated(source.encode(), "a.srt", translate)
    assert seen == ["Der alte Hund schläft im Garten"]


def test_a_cut_is_made_where_no_link_crosses_it() -> None:
    links = [
        Link((0, 3), (0, 1), 1.0),
        Link((4, 9), (2, 6), 1.0),
        Link((10, 14), (7, 11), 1.0),
        Link((15, 20), (12, 30), 1.0),
    ]
    text = "A long fine incomprehensibilities"
    assert divided(Translated(text, links), ["Ein edles Wort", "alles"], [1.0, 1.0]) == [
        "A long fine",
        "incomprehensibilities",
    ]


def test_tags_over_a_cut_are_closed_and_opened_again() -> None:
    source = ["<i>eins zwei", "drei vier</i>"]
    parts = divided(Translated("<i>one two three four</i>"), source, [1.0, 1.0])
    assert parts == ["<i>one two</i>", "<i>three four</i>"]


def test_lines_have_at_most_42_characters_and_two_of_them_like_lengths() -> None:
    words = "these are some words that do not fit on one single line"
    lines = wrapped(words)
    assert len(lines) == 2
    assert " ".join(lines) == words
    assert max(map(len, lines)) <= 42
    assert wrapped("short enough") == ["short enough"]


def test_more_than_two_lines_come_only_of_too_much_text() -> None:
    words = "word " * 30 + "end"
    lines = wrapped(words)
    assert " ".join(lines) == words
    assert max(map(len, lines)) <= 42
    assert len(lines) == 4


def test_tags_take_no_room_and_are_never_cut() -> None:
    words = '<font color="#ff0000" size="12">' + "word " * 7 + "end</font>"
    assert wrapped(words) == [words]
    assert visible(words) == "word " * 7 + "end"


def test_vtt_keeps_notes_styles_settings_speakers_and_identifiers() -> None:
    source = (
        "WEBVTT - Titel\n\nSTYLE\n::cue { color: red }\n\nNOTE Anmerkung\nhier\n\n"
        "intro\n00:01.000 --> 00:02.000 align:start position:10%\n<v Anna>Hallo &amp; Welt.\n\n"
        "00:00:03.000 --> 00:00:04.000\nNoch <c.rot>eins</c>.\n"
    )
    expected = (
        source.replace("Hallo", "HALLO").replace("Welt", "WELT").replace("Noch", "NOCH")
    ).replace("eins", "EINS")
    assert translated(source.encode(), "a.vtt").decode() == expected


def test_ass_keeps_everything_but_the_words_of_dialogues() -> None:
    source = (
        "[Script Info]\nTitle: Film\n\n[V4+ Styles]\nFormat: Name, Fontname\nStyle: Default,Arial\n"
        "\n[Events]\n"
        "Format: Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, Text\n"
        "Dialogue: 0,0:00:01.00,0:00:02.00,Default,Anna,0,0,0,,{\\i1}Hallo, du{\\i0}, Welt!\n"
        "Comment: 0,0:00:01.00,0:00:02.00,Default,,0,0,0,,Nicht\n"
        "Dialogue: 0,0:00:02.00,0:00:03.00,Default,,0,0,0,,{\\p1}m 0 0 l 1 1{\\p0}\n"
    )
    expected = source.replace("Hallo, du", "HALLO, DU").replace("Welt", "WELT")
    assert translated(source.encode(), "a.ass").decode() == expected


def test_sbv_keeps_its_times() -> None:
    source = "0:00:01.000,0:00:02.000\nHallo.\n\n0:00:03.000,0:00:04.000\nDu.\n"
    assert translated(source.encode(), "a.sbv").decode() == source.replace(
        "Hallo", "HALLO"
    ).replace("Du", "DU")


def test_a_bilingual_cue_has_the_source_above() -> None:
    source = "1\n00:00:01,000 --> 00:00:03,000\nHallo.\n- Du.\n"
    result = written(source.encode(), "a.srt", bilingual=True).content.decode()
    assert result == "1\n00:00:01,000 --> 00:00:03,000\nHallo.\nHALLO.\n- Du.\n- DU.\n"


@pytest.mark.parametrize("broken", ["1\n00:00 --> x\nHallo\n", "-->", "1\n\n\n", "Hallo\n"])
def test_what_is_no_cue_stays(broken: str) -> None:
    assert translated(broken.encode(), "a.srt") == broken.encode()


def test_two_thousand_cues_are_read_and_divided_in_seconds() -> None:
    cues = "".join(
        f"{n}\n00:{n // 60:02d}:{n % 60:02d},000 --> 00:{n // 60:02d}:{n % 60:02d},900\n"
        f"das ist ein Satz über zwei Zeilen{'.' if n % 2 else ' und'}\n\n"
        for n in range(2000)
    )
    assert translated(cues.encode(), "a.srt").decode().count("SATZ") == 2000


def cues(*texts: str) -> bytes:
    """Cues that follow each other."""
    return "\n".join(
        f"{n}\n00:00:{n:02d},000 --> 00:00:{n:02d},900\n{text}\n" for n, text in enumerate(texts, 1)
    ).encode()


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (("[Tür knallt]", "(lacht)"), ["[TÜR KNALLT]", "(LACHT)"]),
        (("er sagt", "[Tür knallt]", "nichts"), ["ER SAGT", "[TÜR KNALLT]", "NICHTS"]),
        (("MANN: Hilfe!\nFRAU: Ruf sie an!",), ["MANN: HILFE!\nFRAU: RUF SIE AN!"]),
        (("ich weiß", "ANNA: was denn"), ["ICH WEISS", "ANNA: WAS DENN"]),
        (("{\\an8}Berlin am Abend", "Nein..."), ["{\\an8}BERLIN AM ABEND", "NEIN..."]),
    ],
    ids=["sounds", "between", "speakers", "a speaker", "a sign above"],
)
def test_sounds_speakers_and_signs_are_texts_of_their_own(
    texts: tuple[str, ...], expected: list[str]
) -> None:
    seen: list[str] = []

    def translate(sentence: str) -> Translated:
        seen.append(sentence)
        return Translated(sentence.upper())

    assert translated(cues(*texts), "a.srt", translate) == cues(*expected)
    assert len(seen) >= len(texts)


@pytest.mark.parametrize(
    ("text", "sentences", "expected"),
    [
        (
            "ANNA: gute Nacht.\n[Tür fällt zu]",
            ["gute Nacht.", "Tür fällt zu"],
            "ANNA: GUTE NACHT.\n[TÜR FÄLLT ZU]",
        ),
        ("[Musik]\nich mag\ndich", ["Musik", "ich mag dich"], "[MUSIK]\nICH MAG DICH"),
        (
            "er sagt\n  <i>(leise)</i>\nnichts",
            ["er sagt", "leise", "nichts"],
            "ER SAGT\n  <i>(LEISE)</i>\nNICHTS",
        ),
        ("[alle\nlachen]", ["alle lachen"], "[ALLE LACHEN]"),
        ("wir [zwei] gehen\nheim", ["wir [zwei] gehen heim"], "WIR [ZWEI] GEHEN HEIM"),
    ],
)
def test_a_sound_on_a_line_of_its_own_is_a_text_and_keeps_its_line(
    text: str, sentences: list[str], expected: str
) -> None:
    seen: list[str] = []

    def translate(sentence: str) -> Translated:
        seen.append(sentence)
        return upper(sentence)

    assert translated(cues(text), "a.srt", translate) == cues(expected)
    assert seen == sentences


def test_a_line_in_brackets_with_a_tag_that_goes_on_is_no_line_of_its_own() -> None:
    seen: list[str] = []

    def translate(sentence: str) -> Translated:
        seen.append(sentence)
        return upper(sentence)

    translated(cues("<i>[Tür]\nHallo</i>"), "a.srt", translate)
    assert seen == ["[Tür] Hallo"]


def test_classes_and_times_within_cues_of_vtt_are_tags() -> None:
    seen: list[str] = []

    def translate(sentence: str) -> Translated:
        seen.append(sentence)
        return upper(sentence)

    source = (
        "WEBVTT\n\n00:01.000 --> 00:02.000\nNoch <c.rot.fett>ein Wort</c>, <b>ja</b>.\n\n"
        "00:03.000 --> 00:04.000\n<00:03.100>Das <01:00:03.500>Lied.\n"
    )
    result = translated(source.encode(), "a.vtt", translate).decode()
    assert seen == ["Noch ein Wort, ja.", "Das Lied."]
    assert result == (
        "WEBVTT\n\n00:01.000 --> 00:02.000\nNOCH <c.rot.fett>EIN WORT</c>, <b>JA</b>.\n\n"
        "00:03.000 --> 00:04.000\n<00:03.100>DAS <01:00:03.500>LIED.\n"
    )


def test_lines_may_end_as_on_old_computers() -> None:
    result = translated(SRT.replace("\n", "\r").encode(), "a.srt")
    assert result == translated(SRT.encode(), "a.srt").replace(b"\n", b"\r")


def test_a_time_within_a_cue_does_not_go_to_another_one() -> None:
    source = (
        "WEBVTT\n\n00:01.000 --> 00:02.000\nEin <00:01.500>Haus\n\n"
        "00:02.000 --> 00:04.000\nam <00:03.000>Meer\n"
    )
    result = translated(source.encode(), "a.vtt", backwards).decode()
    assert "HAUS" in result.partition("00:02.000 -->")[2]
    assert "<00:01.500>" not in result.partition("00:02.000 -->")[2]
    assert "<00:03.000>" not in result.partition("00:02.000 -->")[0]


def test_times_of_single_digits_are_read() -> None:
    source = "WEBVTT\n\n0:0:0.0 --> 0:0:3.540\nGuten Morgen.\n\n0:1:5.2 --> 1:2:7.950\nDanke.\n"
    expected = source.replace("Guten Morgen", "GUTEN MORGEN").replace("Danke", "DANKE")
    assert translated(source.encode(), "a.vtt").decode() == expected


def in_two_cues(begin: str, end: str, behind: str) -> str:
    """A file of WebVTT with a sentence in two cues. A tag stands around the first word."""
    return (
        f"WEBVTT\n\n00:01.000 --> 00:02.000\n{begin}Wir{end} gehen\n\n"
        f"00:02.000 --> 00:03.000\nheute mit dem {behind}Hund\n"
    )


@pytest.mark.parametrize("behind", ["", "<00:02.500>"])
@pytest.mark.parametrize(
    ("begin", "end"),
    [
        ("<i>", "</i>"),
        ("<c.yellow.bg_blue.long_class_name_here>", "</c>"),
        ("<00:01.100>", "<00:01.200>"),
    ],
    ids=["a tag", "classes", "times"],
)
def test_a_cue_keeps_its_words_whatever_tags_it_has(begin: str, end: str, behind: str) -> None:
    source = in_two_cues(begin, end, behind)
    expected = in_two_cues(begin, end, behind)
    for word in ("Wir", "gehen", "heute", "mit", "dem", "Hund"):
        expected = expected.replace(word, word.upper())
    assert translated(source.encode(), "a.vtt").decode() == expected


TWO_CUES = "00:00:01.000 --> 00:00:02.000{}\n\n00:00:03.000 --> 00:00:04.000\nja\n"


@pytest.mark.parametrize("name", ["a.vtt", "a.srt"])
@pytest.mark.parametrize(
    "words",
    [
        " align:start\n \nhallo",
        "\nhallo\n \t",
        "\nhallo\n \nihr da",
        "\n \n- hallo\n  - ja",
    ],
    ids=["before", "behind", "between", "speakers"],
)
def test_a_line_of_blanks_ends_no_cue_and_keeps_its_place(name: str, words: str) -> None:
    expected = TWO_CUES.format(words).replace("hallo", "HALLO").replace("ihr da", "IHR DA")
    expected = expected.replace("ja", "JA")
    source = TWO_CUES.format(words)
    if name == "a.vtt":
        source, expected = "WEBVTT\n\n" + source, "WEBVTT\n\n" + expected
    assert translated(source.encode(), name).decode() == expected


def test_an_automatic_caption_of_youtube_is_translated() -> None:
    source = (
        "WEBVTT\nKind: captions\nLanguage: de\n\n00:00:00.000 --> 00:00:02.000 align:start\n \n"
        "hallo<00:00:00.640><c> und</c><00:00:01.000><c> danke</c>\n"
    )
    result = translated(source.encode(), "a.vtt").decode()
    begin = source.index("hallo")
    assert result[:begin] == source[:begin]
    assert visible(result[begin:]) == "HALLO UND DANKE\n"


def test_behind_a_cue_of_webvtt_without_words_stands_what_is_no_cue() -> None:
    source = "WEBVTT\n\n00:01.000 --> 00:02.000\n\nNOTE hier\n\n"
    assert translated(source.encode(), "a.vtt") == source.encode()


@pytest.mark.parametrize("blank", ["", " ", " \t"])
def test_cues_of_srt_may_begin_with_blank_lines_and_be_divided_by_them(blank: str) -> None:
    cue = f"{{0}}\n00:00:0{{0}},000 --> 00:00:0{{0}},900\n{blank}\n{blank}\n{{1}}\n{blank}\n"
    source = [cue.format(n, words) for n, words in enumerate(["", "ja.", "hallo", "wir"], 1)]
    expected = [cue.format(n, words) for n, words in enumerate(["", "JA.", "HALLO", "WIR"], 1)]
    assert translated("".join(source).encode(), "a.srt").decode() == "".join(expected)
