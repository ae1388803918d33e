"""Sentences in capitals, which models have rarely seen: they are translated in ordinary case,
except for acronyms, and the translation is put into capitals.

The case of nouns is lost, and for German whether SS was ß. German words that look like nouns are
capitalised: a wrong capital harms less than a missing one (docs/background/decisions.md).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection

from serving.text.alignment import Span
from serving.text.placing.placement import Translated
from serving.text.splitting.abbreviations import begins_sentence, is_abbreviation

_WORD = re.compile(r"[^\W\d_]+")
_LETTERS = 4
"""Smallest length of the longest word of a sentence; shorter words may be names."""
_LETTERS_ALONE = 5
"""Smallest length of a single word, so that it is unlikely to be an acronym."""
_OTHER_WORDS = frozenset(
    """
    ich du er sie es wir ihr der die das den dem des ein eine einen einem einer eines und oder
    aber nicht kein keine keinen ist sind war hat haben bin bist habe hast hatte mit von zu auf
    für in im am an aus bei nach vor über unter um wenn als ob weil dass was wer wie wo wann
    warum sein seine seinen seinem seiner ihre ihren ihrem ihrer mein meine meinen meinem meiner
    dein deine unser unsere euer eure mir dir ihm ihn mich dich sich uns euch man kann will muss
    soll darf mag wird werde wäre hätte würde könnte möchte noch schon nur auch sehr so da hier
    dort jetzt heute morgen gestern immer nie zum zur beim vom doch dann mal also denn sondern
    während etwas nichts alles alle viel viele mehr gern gerne wieder diese dieser dieses diesem
    jede jeder jedes welche welcher ohne gegen durch zwischen hinter neben seid willst sollst
    bitte danke nein ja einfach gerade vielleicht zusammen jemand niemand nun bis seit ab
    """.split()  # noqa: SIM905
)
"""German words that are not nouns."""
_POLITE = re.compile("sie|ihnen|ihre?[mnrs]?")
"""Words that address the reader of a sign, unless a verb of another person stands beside them:
`SCHLIESSEN SIE DIE TÜR`, but `HAT SIE ANGERUFEN?` and `WO SEID IHR?`"""
_SIGN = 12
"""Largest number of words of a sign. Longer sentences rather tell of others."""
_FAMILIAR = frozenset("du dich dir dein deine deinen deinem deiner".split())  # noqa: SIM905
_OF_OTHERS = re.compile(
    "ist|war|hatte?|wird|wurde|würde|wäre|hätte|könnte|kann|konnte|will|wollte|muss|musste|müsste|"
    "soll|sollte|darf|durfte|mag|mochte|möchte|seid|habt|werdet|könnt|wollt|müsst|sollt|dürft"
)
_VERB_BEFORE = re.compile("(?!(?:bitte|erst|fast|heute|jetzt|mit|nicht|seit|sonst|statt)$).+te?")
"""Words that are mostly verbs of another person before `sie`."""
_BEFORE_MORGEN = frozenset("am diesem diesen gestern guten heute jeden vom".split())  # noqa: SIM905
"""Words after which `Morgen` is a noun, and not tomorrow."""
_NO_NOUN = re.compile(r"\w{1,2}|\w*(?:en|te|t|ig|lich|isch)")
"""Endings of German words that are mostly not nouns, and of short ones."""
_ACRONYMS = frozenset(
    """
    ADAC AFD AG AIDS ARD BBC BKA BND BRD CD CDU CEO CIA CNN CPU CSU DAX DDR DJ DVD DVDS EKG EU EZB
    FBI FDP FIFA GPS GPU HIV IBAN IBM ID IQ ISO KFZ KGB KI KZ LKW MRT NASA NATO NGO NGOS NSA OECD OK
    OPEC ORF PC PCS PKW QR RAF RTL SMS SOS SPD SUV TÜV TV UEFA UFO UFOS UK UN UNESCO UNICEF UNO URL
    USA USB VIP VIPS VPN VW WC WDR WG WLAN WM XML YMCA ZDF
    """.split()  # noqa: SIM905
)
"""Common acronyms, without those that are also words, such as IT and US."""
_CONSONANTS = re.compile(r"[b-df-hj-np-tv-xz]{2,}")
"""Letter sequences that no German or English word has, but acronyms do."""
_PRONOUN = re.compile(r"(?<![\w'’])i(?![\w-])")
_DOTLESS = str.maketrans("I\u0130", "\u0131i")


def in_capitals(text: str) -> bool:
    """Whether a text in capitals (`str.isupper`) is a sentence rather than an acronym or two."""
    lengths = [len(word) for word in _WORD.findall(text)]
    return max(lengths) >= (_LETTERS if len(lengths) > 1 else _LETTERS_ALONE)


def in_ordinary_case(text: str, language: str, kept: Collection[Span] = ()) -> str:
    """The text in ordinary case, with the same length: a capital first, and in German capitals for
    likely nouns. Kept spans stay unchanged."""
    plain = text.translate(_DOTLESS) if language in ("tr", "az") else text
    lower = [small if len(small := c.lower()) == 1 else c for c in plain]
    first = next((i for i, c in enumerate(text) if c.isalpha()), 0)
    lower[first] = text[first]
    words = list(_WORD.finditer("".join(lower).lower()))
    sign = len(words) <= _SIGN and _FAMILIAR.isdisjoint(word[0] for word in words)
    for number, match in enumerate(words):
        begin, end = match.span()
        before = words[number - 1][0] if number else ""
        after = words[number + 1][0] if number + 1 < len(words) else ""
        if is_acronym(text[begin:end], language):
            lower[begin:end] = text[begin:end]
        elif language == "de" and _has_capital(before, match[0], after, sign=sign):
            lower[begin] = text[begin]
    if language == "en":
        for match in _PRONOUN.finditer("".join(lower)):
            lower[match.start()] = "I"
    for begin, end in kept:
        lower[begin:end] = text[begin:end]
    return "".join(lower)


def _has_capital(before: str, word: str, after: str, *, sign: bool) -> bool:
    """Whether a German word between two others, in small letters, likely begins with a capital.
    `sign`: the sentence may address its reader."""
    if sign and _POLITE.fullmatch(word):
        verbs = (_VERB_BEFORE.fullmatch(before), *map(_OF_OTHERS.fullmatch, (before, after)))
        return not any(verbs)
    if word == "morgen":
        return before in _BEFORE_MORGEN
    return not (word in _OTHER_WORDS or _POLITE.fullmatch(word) or _NO_NOUN.fullmatch(word))


def is_small_word(word: str) -> bool:
    """Whether a German word is known to be no noun."""
    return word in _OTHER_WORDS


def is_acronym(word: str, language: str) -> bool:
    """Whether a word in capitals is a well-known acronym of German or English, or has no vowel."""
    small = word.lower()
    if language not in ("de", "en") or is_abbreviation(small, language):
        return False
    return word in _ACRONYMS or _CONSONANTS.fullmatch(small) is not None


def raised(translated: Translated, spans: Collection[Span] | None = None) -> Translated:
    """A translation with these spans, or all of it, in capitals; links are moved where a letter
    becomes several."""
    letters = list(translated.text)
    for begin, end in [(0, len(letters))] if spans is None else spans:
        letters[begin:end] = map(str.upper, letters[begin:end])
    text = "".join(letters)
    if len(text) == len(letters):
        return Translated(text, translated.links)
    ends = [0]
    for letter in letters:
        ends.append(ends[-1] + len(letter))
    links = [
        dataclasses.replace(link, target=(ends[link.target[0]], ends[link.target[1]]))
        for link in translated.links
    ]
    return Translated(text, links)


_ADDRESSING = frozenset(("sie", "ihr", "ihre", "ihnen", "ihrem", "ihren", "ihrer"))
"""German words with a capital that are no others."""
_AFTER_GREETINGS = frozenset(
    """
    thank thanks many please unfortunately enclosed hereby herewith could can would will may do does
    did let have has had are is was were am as
    vielen danke bitte leider anbei hiermit könnten können würden haben hätten sind wäre wollen
    merci veuillez malheureusement pourriez pouvez avez êtes comme suite
    gracias muchas lamentablemente podría puede podrían pueden como
    """.split()  # noqa: SIM905
)
"""Other words in small letters with which a letter often goes on after its greeting."""
_SPOKEN = re.compile("I(?=[ '’])")


def goes_on_small(source: str, text: str, target: str) -> bool:
    """Whether the translation of a clause within a sentence begins with a capital that only stands
    at the beginning of sentences: the clause has none, and the word is no noun and no name."""
    word = _WORD.match(text)
    if word is None or not word[0][0].isupper() or word[0] == "I":
        return False
    if not (source[:1].islower() or _SPOKEN.match(source)):
        return False
    small = word[0].lower()
    return small not in _ADDRESSING and (
        begins_sentence(small, target) or small in _AFTER_GREETINGS
    )
