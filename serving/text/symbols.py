"""Characters that stand between words: symbols, and invisible characters.

Unicode's classes define them rather than a bundle's vocabulary, because a text is parsed before its
model is known (its language may have to be detected), and in the same way for every model. Apart
from letters, characters that a vocabulary has as bytes only belong to these classes. A model that
knows a symbol loses little if the symbol is put back at its place.
"""

from __future__ import annotations

BLANKS = " \u00a0\u2002-\u200a\u202f\u205f\u3000"
"""White space that separates no text, as the inside of a character class."""
CLOSING_SIGNS = frozenset(",.;:!?)]}>»”’…%،؛؟。，、！？；：」』）")  # noqa: RUF001
"""Signs that belong to the word before them."""
_SYMBOL = (
    "\u00a2-\u00a9\u00ac\u00ae-\u00b1\u00b6\u00b8\u00bc-\u00be\u00d7\u00f7"
    "\u2020-\u2023\u2030\u2031\u2039-\u203b\u2043\u2044\u2052"
    "\u20a0-\u20ab\u20ad-\u20c0\u20d0-\u20ff"
    "\u2100\u2101\u2103-\u2106\u2108\u2109\u2114\u2116\u2117\u211e-\u2123\u2125\u2127\u2129\u212e"
    "\u213a\u213b\u214a\u214c\u214d\u214f-\u215f"
    "\u2190-\u2bff\u2e80-\u2fdf\u3004\u3012\u3013\u3020\u3030\u3036\u3037\u303d-\u303f"
    "\u4dc0-\u4dff\ufffc\ufffd\ue000-\uf8ff"
    "\U0001d000-\U0001d3ff\U0001f000-\U0001fbff\U000f0000-\U0010ffff"
)
"""The inside of a character class: other, mathematical and currency signs (but `$`, `€` and `+`,
which sentences are written with), fractions, dingbats, frames, pictures, private use."""
_JOINED = "[\ufe0e\ufe0f\u20e0\u20e3\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]"
SYMBOLS = (
    r"(?:[0-9#*]\ufe0f?\u20e3"  # keycaps
    r"|[^\w\s'\"\u2018-\u201f.,;:!?-]\ufe0f|\u2139\ufe0f?"
    rf"|[{_SYMBOL}]{_JOINED}*+(?:\u200d[{_SYMBOL}]{_JOINED}*+)*+)++"
)
"""Pattern of successive symbols; an emoji with the characters joined to it is one."""
SCRIPTS = "\u00aa\u00b2\u00b3\u00b9\u00ba\u2070\u2074-\u208e"
"""Superscript and subscript signs, as the inside of a character class."""

_JOINING = "\u0600-\u08ff\u0900-\u0dff\u0e00-\u109f\u1780-\u18af\ufb50-\ufdff\ufe70-\ufefc"
"""Scripts that are spelt with joiners, or separate words by zero-width spaces."""
_CONTROLS = "\x01-\x08\x0e-\x1a\x7f-\x84\x86-\x9f\ufff0-\ufffb\U000e0000-\U000e0fff"
"""Controls of devices, of annotations and of languages, as the inside of a character class."""
INVISIBLE = (
    f"(?:[{_CONTROLS}"
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200e\u200f\u2060-\u2064\u206a-\u206f"
    f"\ufe00-\ufe0f\ufeff]|(?<![{_JOINING}])[\u200b-\u200d])"
)
"""Pattern of an invisible character that no word is spelt with."""
OPENING_BIDI = {"\u202c": "\u202a\u202b\u202d\u202e", "\u2069": "\u2066\u2067\u2068"}
"""Start of each stretch with a text direction of its own, by the control that ends it."""
BIDI = "[\u202a-\u202e\u2066-\u2069]"
UNSEEN_ENDS = "\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff"
"""Characters that are not part of a sentence at its ends, as the inside of a character class."""
SPECIAL = (
    rf"[{_SYMBOL}{SCRIPTS}{UNSEEN_ENDS}{_CONTROLS}\u115f\u1160\u17b4\u17b5\ufe00-\ufe0f"
    r"\u20e3\u2139\x1b{}\[%$@#&<>_*=~^`\\]"
)
"""Pattern of characters without which a text has few kinds of placeholders and no symbols."""
