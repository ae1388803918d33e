"""Full stops before a capital that do not end a sentence: abbreviations, initials, ordinals.

Covers German, English, French and Spanish, for which the sentence library knows too few; see
`serving.text.splitting.sentences`.
"""

from __future__ import annotations

import re

_ABBREVIATIONS = {
    "de": frozenset(
        """
        abb abf abk abl abs abschn abt abzgl adr ahd allg amtl anh anl anm apl aufl ausg ausschl
        bd bde bearb begr beigef bes betr bez bezgl bf bhf bibl bgld brd bspw bsp bsplw btl btr
        bzgl bzw ca chr co dez dgl dipl dir doz dr dres dt dtzd ebd ed ehem eidg eigtl einschl
        empf entspr erg ersch etc etw ev evtl exkl exz fa fam feb febr ff fig forts fr frdl frl
        frz führ gebr geb gef geg gegr gem ges gesch geschl gest gez ggf ggfs ggü gzj hbf hbr hd
        hg hl hptst hr hrn hrsg ing inh inkl insb insbes inst inzw itl jan jg jh jhdt jhd jr jun
        juni kap kath kfm kgl komp konj kurf lat lfd lic liz lt luth masch max mdl mhd mia min
        mind mio mrd mtl math med möbl mod mwst möglw nachf nam nchf nhd nördl nov nr nrn obb obj
        okt oä op orch orig österr östl päd part phil pl pkt poln port pos präs prot prof prov
        qual rd reg rer resp rev röm schw schweiz sekt sen sept sep skr sog sogen soz spez spr st
        std str stdn stv stellv südl tb techn teilw tel terr tgl theol tit tr ua übers übl udgl
        überw urspr usf ugs ungebr unv urkdl usw uvm vgl verf verh verl veröff versch verst vert
        verw vol vorm vors vorw vs wg wtl westl wiss wö wöchentl xerogr zb zt ztr ztschr zz zzgl
        zus zusf zw zzt
        """.split()  # noqa: SIM905
    ),
    "en": frozenset(
        """
        abbr acad addr adj adm admin adv apr approx apt arr assoc asst aug ave bd bldg blvd brig
        bros ca calc capt cf ch chap cmdr co col comdr comm conc cont corp cpl ctr dec dept dev
        diag diff dist div doc dr ed eds eds eg eng eq eqn eqs esp esq est etym exec ext feb ff
        fig figs fn fr freq ft fwd gen gov govt hon hq hrs hwy ibid ie illus inc incl ind inst int
        intl jan jr jul jun lat lb lbs lieut lt ltd maj mar max mdse mech med mfg mfr mgr min misc
        mlle mme mo mr mrs ms msgr mss mt mtg natl no nos nov obs oct op opp orig oz para pat pct
        pfc ph pl pp ppl pref pres prev prob prof prop pt pts pvt qty quot rd ref refs reg rel rep
        repr resp ret rev sec sect sen sep sept seq ser sgt sp sq sr st sta std subj suppl supt
        tech tel tr trans treas univ var vers vet viz vol vols vs wt yd yds yr yrs
        """.split()  # noqa: SIM905
    ),
    "fr": frozenset(
        """
        adj adv all angl ap appt apr arr art av bd bibl boul bull ca cf ch chap coll dép dir div dr
        drs éd env etc etc ex fasc févr fig hab ibid id inf janv jr juil lat lib m max me méd mgr
        min ml mlle mlles mm mme mmes ms mss no nos oct op oct p par part ph pl pp pr prof réf rem
        rép rev s sect sept sq sr st ste stes sts suiv sup suppl t tél trad univ v var vol
        """.split()  # noqa: SIM905
    ),
    "es": frozenset(
        """
        admón adj adv aprox art arts avda bco blvr c cap caps cf cía cía comp coord cta ctra d dcha
        dep depto dir dña dpto dr dra dras dres ed edo ej esc esq etc exc excma excmo fasc fdo fig
        figs fr gob gral hno hnos ibid íd ilma ilmo ing izq izqda izqdo lic ltda máx mín mons ms
        mtro mtra nro núm núms op pág págs párr pdte pl pp prof profa profs prov pza ref rev rte s
        sr sra sras sres srta srtas st sta sto suc tel teléf tít trad ud uds univ v vda vid vol vols
        """.split()  # noqa: SIM905
    ),
}
"""Abbreviations in small letters, without the full stop, that hardly ever end a sentence."""
_ENDING = {
    "de": frozenset(
        (
            "etc",
            "usw",
            "usf",
            "uvm",
            "ff",
            "jr",
            "jh",
            "jhdt",
            "std",
            "stdn",
            "mio",
            "mrd",
            "mia",
            "str",
            "min",
            "max",
            "co",
        )
    ),
    "en": frozenset(
        (
            "etc",
            "inc",
            "ltd",
            "corp",
            "jr",
            "sr",
            "co",
            "st",
            "ave",
            "rd",
            "blvd",
            "yrs",
            "hrs",
            "ft",
            "lbs",
            "mt",
            "ff",
            "esq",
            "min",
            "sec",
        )
    ),
    "fr": frozenset(("etc", "hab", "jr", "max", "min", "s", "sq", "suiv", "t", "v")),
    "es": frozenset(("c", "cía", "etc", "ltda", "máx", "mín", "s", "ud", "uds", "v")),
}
"""Abbreviations that often end a sentence: before a capitalised ordinary word they do."""
_BEFORE_NUMBERS = frozenset(("no", "nos"))
"""Abbreviations that are ordinary words unless a number follows."""
_LETTERED = {
    "de": re.compile(
        r"(?:^|[\s(])(?:(?:[zduoisavmwn]\.\s?)+[a-zäöüA-ZÄÖÜ]|(?:[zduoisavmwn]\.)+[A-ZÄÖÜa-z][a-z]{1,3})"
        r"\.$"
    ),
    "en": re.compile(
        r"(?:^|[\s(])(?:e\.\s?g|i\.\s?e|c\.\s?f|a\.\s?k\.\s?a|n\.\s?b|viz)\.$", re.IGNORECASE
    ),
    "fr": re.compile(r"(?:^|[\s(])(?:p\.\s?ex|c\.-à-d|i\.\s?e|n\.\s?b)\.$", re.IGNORECASE),
    "es": re.compile(r"(?:^|[\s(])(?:p\.\s?ej|i\.\s?e|n\.\s?b)\.$", re.IGNORECASE),
}
"""Abbreviations of single letters: z. B., e.g."""
_ERA = re.compile(r"(?:\bJ\.-C|\b[ad]\.\s?(?:de\s)?C|\bEE\.\s?UU|\b[ap]\.\s?m)\.$")
"""French and Spanish abbreviations that may end a sentence unless a small letter follows."""
_GLUED = re.compile(r"-[^\W\d]|[ªº]|[A-Z]{2,}\b")
"""Text that continues right after a full stop: av. J.-C., la 3.ª vez, ASP.NET."""
_HOUR = re.compile(r"\d\s?[ap]\.\s?m\.$", re.IGNORECASE)
_AFTER_HOURS = frozenset(
    """
    monday tuesday wednesday thursday friday saturday sunday january february march april may june
    july august september october november december eastern central mountain pacific
    est edt cst cdt mst mdt pst pdt et ct mt pt gmt utc bst cet cest
    """.split()  # noqa: SIM905
)
_LAST = re.compile(r"(?:^|[\s(\[„“\"'/-])([^\W\d_]+)\.\s*$")
_INITIAL = re.compile(r"(?:^|[\s(.])[A-ZÄÖÜ]\.\s*$")
_NAMED = re.compile(r"(?:[A-ZÄÖÜ][^\W\d_]+|\b[A-ZÄÖÜ]\.)\s*[A-ZÄÖÜ]\.\s*$|^\W*[A-ZÄÖÜ]\.\s*$")
_NUMERAL = re.compile(r"(?:^|[\s(\[„“\"'/–-])(\d{1,2}\.\s?\d{1,2}|\d{1,3}|[IVXLC]{2,6})\.\s*$")
_LIST = re.compile(r"^\W*\d{1,3}\.\s*$")
_BEFORE_ORDINAL = re.compile(
    r"\b(?:a[mn]|im?|in|vom|von|zu[mr]?|beim?|ans|ins|bis|ab|seit|und|oder|u\.|od\.|bzw\.|ca\.|etwa|der|die|das|den|dem|"
    r"des|ein|eine[mnrs]?|jede[mnrs]?|diese[mnrs]?|unser\w*|mein\w*|dein\w*|sein\w*|ihr\w*|"
    r"euer|eure\w*|zum|\d{1,3}\.)\s+$",
    re.IGNORECASE,
)
_NO_NOUN = frozenset(
    """
    ich du er sie es wir ihr man wer was wie wo wann warum dann danach da das der die den dem ein
    eine einer eines doch aber und oder denn jetzt heute gestern morgen hier dort so nun nicht
    kein keine mein meine dein sein ihre unser im in am an auf bei mit nach von vor zu für aus
    über unter um wenn als ob weil dass diese dieser dieses auch noch nur schon sehr ja nein bitte
    danke
    """.split()  # noqa: SIM905
)
_SENTENCE_WORDS = {
    "de": _NO_NOUN,
    "en": frozenset(
        """
    i you he she it we they this that these those the a an there then but and or so now here what
    who how why when where if in on at for with after before my your his her our their please yes
    no not
    """.split()  # noqa: SIM905
    ),
    "fr": frozenset(
        """
        je tu il elle on nous vous ils elles ce cet cette ces le la les un une des et mais ou donc
        car puis alors ici là que qui quoi où quand comment pourquoi si dans en à au aux pour avec
        après avant mon ma mes ton ta tes son sa ses notre votre leur leurs oui non ne pas c j l d
        qu n s
        """.split()  # noqa: SIM905
    ),
    "es": frozenset(
        """
        yo tú él ella nosotros vosotros ustedes ellos ellas usted este esta estos estas ese esa eso
        esto el la los las un una y pero o así ahora aquí allí qué quién cómo cuándo dónde por si en
        a al con para después antes mi mis tu tus su sus nuestro nuestra sí no entonces luego hay es
        está se lo le me te que
        """.split()  # noqa: SIM905
    ),
}
_WORD = re.compile(r"\W*([^\W\d_]+)?")


def is_abbreviation(word: str, language: str) -> bool:
    """Whether a word in small letters, without its full stop, is an abbreviation."""
    return word in _ABBREVIATIONS.get(language, ())


def begins_sentence(word: str, language: str) -> bool:
    """Whether a word with a capital is one that often begins a sentence and is no name."""
    return word.lower() in _SENTENCE_WORDS.get(language, ())


def goes_on(sentence: str, following: str, language: str) -> bool:
    """Whether a boundary is wrong, so that both parts form one sentence."""
    if not sentence.rstrip().endswith(".") or language not in _ABBREVIATIONS:
        return False
    found = _WORD.match(following)
    word = found[1] if found and found[1] else ""
    starts = word[:1].isupper() and word.lower() in _SENTENCE_WORDS[language]
    if not sentence[-1].isspace() and _GLUED.match(following):
        return True
    if _LIST.match(sentence):
        return False  # the number of a list item is not part of its sentence
    if _LETTERED[language].search(sentence.rstrip()):
        return True
    if language in ("fr", "es") and _ERA.search(sentence.rstrip()):
        return bool(word[:1].islower())
    if language == "en" and _HOUR.search(sentence.rstrip()):
        return word.lower() in _AFTER_HOURS
    last = _LAST.search(sentence)
    if last and last[1].lower() in _BEFORE_NUMBERS:
        return following.lstrip()[:1].isdigit()
    if last and last[1].lower() in _ABBREVIATIONS[language]:
        ends = last[1].lower() in _ENDING[language] and word[:1].isupper()
        return not ends or (language == "de" and not starts)
    if _INITIAL.search(sentence):
        return bool(word[:1].isupper()) and not starts and bool(_NAMED.search(sentence))
    if language == "de" and _NUMERAL.search(sentence):
        return _is_ordinal(sentence, word, starts=starts)
    return False


def _is_ordinal(sentence: str, word: str, *, starts: bool) -> bool:
    """Whether a number at the end is an ordinal: a typical word precedes it and a noun follows."""
    if not word:
        return False
    if word[0].islower():
        return True
    number = _NUMERAL.search(sentence)
    before = sentence[: number.start(1)] if number else ""
    return not starts and (_BEFORE_ORDINAL.search(before) is not None or not before.strip())
