"""Language codes as other projects write them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from export.errors import ExportError
from export.importing.model import LanguageChoice
from serving.bundle.languages import Languages

_TWO_LETTERS = {
    "afr": "af", "ara": "ar", "aze": "az", "bel": "be", "ben": "bn", "bos": "bs", "bul": "bg",
    "cat": "ca", "ces": "cs", "cmn": "zh", "cym": "cy", "dan": "da", "deu": "de", "ell": "el",
    "eng": "en", "epo": "eo", "est": "et", "eus": "eu", "fas": "fa", "fin": "fi", "fra": "fr",
    "gle": "ga", "glg": "gl", "guj": "gu", "hbs": "sh", "heb": "he", "hin": "hi", "hrv": "hr",
    "hun": "hu", "hye": "hy", "ind": "id", "isl": "is", "ita": "it", "jpn": "ja", "kan": "kn",
    "kat": "ka", "kaz": "kk", "khm": "km", "kor": "ko", "lav": "lv", "lit": "lt", "mal": "ml",
    "mar": "mr", "mkd": "mk", "mlt": "mt", "mon": "mn", "msa": "ms", "mya": "my", "nep": "ne",
    "nld": "nl", "nob": "nb", "nno": "nn", "nor": "no", "pan": "pa", "pes": "fa", "pol": "pl",
    "por": "pt", "ron": "ro", "rus": "ru", "sin": "si", "slk": "sk", "slv": "sl", "som": "so",
    "spa": "es", "sqi": "sq", "srp": "sr", "swa": "sw", "swe": "sv", "tam": "ta", "tel": "te",
    "tgl": "tl", "tha": "th", "tur": "tr", "ukr": "uk", "urd": "ur", "uzb": "uz", "vie": "vi",
    "xho": "xh", "yor": "yo", "zho": "zh", "zsm": "ms", "zul": "zu",
}  # fmt: skip
"""ISO 639-3 to ISO 639-1, for languages with a two-letter code."""


def short_code(code: str) -> str | None:
    """The ISO 639-1 code of a language with its suffix (`pt_br` is pt-br); None if the code is not
    of one language, as names of language families are."""
    language, separator, rest = code.strip().replace("_", "-").partition("-")
    if len(language) != 2:
        known = _TWO_LETTERS.get(language.lower())
        if known is None:
            return None
        language = known
    return f"{language.lower()}{separator}{rest}"


def split_codes(option: str, given: str | None) -> tuple[str, ...]:
    """The codes in a command's option, separated by commas; raises ExportError for a part that is
    not a code."""
    codes = tuple(dict.fromkeys(code.strip() for code in (given or "").split(",") if code.strip()))
    for code in codes:
        if not re.fullmatch(r"[A-Za-z]{2,3}(-[A-Za-z0-9]+)*", code):
            raise ExportError(f"{option} must be codes of languages such as en,de, got {code!r}")
    return codes


def is_tag(piece: str) -> bool:
    """Whether a piece names a target language in the form of Marian: >>fra<<."""
    return piece.startswith(">>") and piece.endswith("<<")


def language_tags(written: Iterable[str]) -> dict[str, str]:
    """The tags among the pieces of a vocabulary by the code of their language; of several for one
    language the first."""
    tags: dict[str, str] = {}
    for piece in filter(is_tag, written):
        tags.setdefault(short_code(piece[2:-2]) or piece[2:-2].replace("_", "-"), piece)
    return tags


@dataclass(frozen=True)
class CheckpointLanguage:
    """A language that a checkpoint names."""

    code: tuple[str, ...]
    """One code of a language, or none."""
    missing: str
    """The message for a checkpoint without a code."""


def marian_languages(
    choice: LanguageChoice,
    source_written: Iterable[str],
    source: CheckpointLanguage,
    target: CheckpointLanguage,
) -> Languages:
    """The languages of a model of Marian: the chosen ones, else those that its checkpoint names,
    else all target languages with a tag in the source's vocabulary. Raises ExportError if no
    language is known."""
    read = choice.source or source.code
    tags = language_tags(source_written)
    if not read:
        written = "" if tags or target.code else ", and which it writes with --to CODE"
        raise ExportError(
            f"{source.missing}; say which the model reads with --from CODE,...{written}"
        )
    if tags:
        check_known("--to", choice.target, tags)
        kept = {code: tags[code] for code in choice.target or tags}
        pairs = tuple((a, b) for a in read for b in kept if a != b)
        return Languages(source=read, target=tuple(kept), pairs=pairs, tags=kept)
    target_codes = choice.target or target.code
    if len(target_codes) != 1:
        raise ExportError(
            f"{target.missing}, and the model has no tags of several; say which one it writes with "
            "--to CODE"
        )
    return Languages(source=read, target=target_codes)


def check_known(option: str, codes: Iterable[str], tags: Mapping[str, str]) -> None:
    """Raise ExportError for a code of the option that has no tag."""
    for code in codes:
        if code not in tags:
            raise ExportError(
                f"{option} must be of the languages of the model, {','.join(sorted(tags))}; got "
                f"{code!r}"
            )
