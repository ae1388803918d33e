"""Languages that are written from right to left, and texts that become such or cease to be."""

from __future__ import annotations

import re

_LANGUAGES = frozenset("ar arc arz ckb dv fa he iw ji ps sd syr ug ur yi".split())  # noqa: SIM905
_SCRIPTS = frozenset(("arab", "hebr", "syrc", "thaa", "nkoo"))
RIGHT = "\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc"
"""Letters of scripts that run from the right, in a set of a regular expression."""
_RIGHT = re.compile(f"[{RIGHT}]")


def is_right_to_left(language: str) -> bool:
    """Whether a language, or the script that its code names, runs from right to left."""
    base, *more = language.lower().replace("_", "-").split("-")
    scripts = [part for part in more if len(part) == 4]
    return scripts[0] in _SCRIPTS if scripts else base in _LANGUAGES


def turn(text: str, target: str) -> bool | None:
    """Whether a source text's translation into the language `target` runs from right to left, where
    most letters of the text run the other way; None where nothing is to be turned, as where no
    target is named."""
    if not target:
        return None
    into = is_right_to_left(target)
    right = len(_RIGHT.findall(text))
    if not into and not right:
        return None
    mostly_right = 2 * right > sum(map(str.isalpha, text))
    return None if mostly_right == into else into
