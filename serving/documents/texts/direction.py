"""Languages that are written from right to left, and changes of a text's direction."""

from __future__ import annotations

import re

_LANGUAGES = frozenset("ar arc arz ckb dv fa he iw ji ps sd syr ug ur yi".split())  # noqa: SIM905
_SCRIPTS = frozenset(("arab", "hebr", "syrc", "thaa", "nkoo"))
RIGHT = "\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc"
"""Letters of scripts that run from right to left, as a set in a regular expression."""
_RIGHT = re.compile(f"[{RIGHT}]")


def is_right_to_left(language: str) -> bool:
    """Whether a language, or the script that its code names, runs from right to left."""
    base, *more = language.lower().replace("_", "-").split("-")
    scripts = [part for part in more if len(part) == 4]
    return scripts[0] in _SCRIPTS if scripts else base in _LANGUAGES


def turn(text: str, target: str) -> bool | None:
    """Whether the translation of a text into the language `target` runs from right to left, if it
    runs the other way than most letters of the text. None if the direction stays, or if there is no
    target."""
    if not target:
        return None
    into = is_right_to_left(target)
    right = len(_RIGHT.findall(text))
    if not into and not right:
        return None
    mostly_right = 2 * right > sum(map(str.isalpha, text))
    return None if mostly_right == into else into
