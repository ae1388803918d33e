"""Words that stand after `Herr`, `Mrs` and the like as surnames do, and are an office, a profession
or a kinship, which is translated."""

from __future__ import annotations

import re

_OFFICE = re.compile(
    r"""
    .*(?:präsident|minister|kanzler|kommissar|direktor|sekretär|anwalt|anwält|berichterstatter)(?:in)?|
    .*(?:abgeordnete|vorsitzende)[nr]?|
    (?:doktor|professor|lehrer|nachbar|pfarrer|bürgermeister|inspektor|ingenieur|botschafter|
    stadtrat|stadträt|ärzt|arzt|kolleg|richter(?=in)|architekt|therapeut)(?:in|e)?|
    (?:haus|wacht|polizei)meister(?:in)?|
    bischof|pastor|oberst|hauptmann|leutnant|kapitän|gräfin|kollegen|jesus|christus|gott|vater|mutter|
    président|présidente|president|presidente|presidenta|speaker|chairman|chair|chancellor|minister|
    ministre|ministro|ministra|commissioner|rapporteure?|ambassador|universe|world|secretary|
    commissaire|comisari[oa]|directora?|direct(?:eur|rice)|docteure?|doctora?|profesora?|
    professeure?|juge|juez|ponente|dios|maire|alcaldes?a?
    """,
    re.VERBOSE | re.IGNORECASE,
)
_ALSO_NAMES = frozenset("baron general graf major ober rat richter wirt".split())  # noqa: SIM905


def is_office(word: str) -> bool:
    """Whether a word is an office, and hardly a surname."""
    return _OFFICE.fullmatch(word) is not None


def may_be_office(word: str) -> bool:
    """Whether a word is an office, and perhaps a surname: `Herr Richter`."""
    return is_office(word) or word.lower() in _ALSO_NAMES
