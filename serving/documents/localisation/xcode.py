"""Apple's string catalogues and plurals: `.xcstrings` and `.stringsdict`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from serving.documents.localisation.elements import Element, elements_of, inner_slot, text_of
from serving.documents.localisation.languages import language_to_fill
from serving.documents.raw.encoding import decoded
from serving.documents.texts.slots import file_with_slots
from serving.documents.unit import FileInUnits, Translated, Unit, WrittenFile, check_lengths
from serving.errors import DocumentError

_PLURALS = frozenset(("zero", "one", "two", "few", "many", "other"))
_DEVICES = frozenset(("applevision", "appletv", "applewatch", "ipad", "iphone", "ipod", "mac"))
_FORMAT = "NSStringLocalizedFormatKey"
_EMPTY = re.compile(r"^( *)(.*)\{\}(,?)$", re.MULTILINE)
_STATE = "needs_review"
"""The state of a translation that nobody has reviewed yet."""


def read_stringsdict(content: bytes) -> FileInUnits:
    """Read the forms for plurals, devices and widths, and the texts around them."""
    source = text_of(content)
    found = []
    for element in elements_of(source):
        if element.name == "dict":
            for key, value in zip(element.children, element.children[1:], strict=False):
                name = source.text[key.inner : key.inner_end].strip()
                if (
                    key.name == "key"
                    and value.name == "string"
                    and _is_form(source.text, name, value)
                ):
                    found.append(value)
    return file_with_slots(source, [inner_slot(source.text, element) for element in found])


def _is_form(text: str, name: str, value: Element) -> bool:
    if name == _FORMAT:
        rest = re.sub(r"%(?:\d+\$)?#@[^@]*@", "", text[value.inner : value.inner_end])
        return any(map(str.isalpha, rest))
    # A number is the width that a form is for.
    return name in _PLURALS or name in _DEVICES or name.isdecimal()


def read_xcstrings(content: bytes, target: str = "", retranslate: bool = False) -> FileInUnits:
    """Read the strings and forms without a translation into `target`, or with one in the state
    `new`, or all with `retranslate`; their translations get the state `needs_review`. Without
    `target`, the target is the only other language of the file. Raises DocumentError if there is
    none, or several, and for a file that is not a catalogue."""
    source = decoded(content)
    if not source.text.strip():
        return FileInUnits([], lambda _: WrittenFile(content))
    tree = _tree(source.text)
    main = tree.get("sourceLanguage", "en")
    languages = [
        language
        for entry in tree["strings"].values()
        for language in entry.get("localizations", {})
    ]
    into = language_to_fill(languages, main, target)
    units = [Unit(text) for text, _ in _missing(tree, main, into, retranslate)]
    check_lengths(units)

    def write(translations: Sequence[Translated]) -> WrittenFile:
        other = _tree(source.text)
        for (_, fill), given in zip(
            _missing(other, main, into, retranslate), translations, strict=True
        ):
            fill(given.text)
        shown = json.dumps(other, indent=2, separators=(",", " : "), ensure_ascii=False)
        shown = _EMPTY.sub(r"\1\2{\n\n\1}\3", shown)  # as Xcode writes it
        if "\r\n" in source.text:
            shown = shown.replace("\n", "\r\n")
        return source.encoded(shown + source.text[len(source.text.rstrip()) :])

    return FileInUnits(units, write)


def _tree(text: str) -> dict[str, Any]:
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DocumentError(f"the file is not JSON: {error}") from error
    strings = tree.get("strings") if isinstance(tree, dict) else None
    if not isinstance(strings, dict) or not all(isinstance(e, dict) for e in strings.values()):
        raise DocumentError("the file is not a string catalogue: it has no strings")
    return {**tree}


def _missing(
    tree: dict[str, Any], main: str, into: str, retranslate: bool
) -> list[tuple[str, Callable[[str], None]]]:
    """Pairs of a text without a translation, or of any text with `retranslate`, and the function
    that sets its translation."""
    found: list[tuple[str, Callable[[str], None]]] = []
    for key, entry in tree["strings"].items():
        if entry.get("shouldTranslate") is False:
            continue
        localizations = entry.get("localizations", {})
        own = localizations.get(main) or {"stringUnit": {"state": _STATE, "value": key}}
        filled = localizations.get(into)
        if retranslate or not any(_is_done(unit) for _, unit in _string_units(filled)):
            filled = json.loads(json.dumps(own))
            texts = [(unit, unit["value"]) for _, unit in _string_units(filled)]
        else:
            forms = [each for each in _string_units(filled) if not _is_done(each[1])]
            texts = [(unit, _source_of(own, path)) for path, unit in forms]
        worded = [(unit, text) for unit, text in texts if any(map(str.isalpha, text))]
        for unit, source in worded:

            def fill(
                text: str,
                unit: dict[str, Any] = unit,
                entry: dict[str, Any] = entry,
                filled: Any = filled,
            ) -> None:
                entry.setdefault("localizations", {})[into] = filled
                unit["state"], unit["value"] = _STATE, text

            found.append((source, fill))
    return found


def _is_done(unit: dict[str, Any]) -> bool:
    """Whether a text of a translation needs no new translation."""
    return bool(unit["value"]) and unit.get("state") != "new"


def _source_of(own: Any, path: tuple[str, ...]) -> str:
    """The text that a form translates: the same form in the source's language, or else that of
    other numbers or devices, or the only one. Empty if there is none."""
    for name in path:
        if not isinstance(own, dict):
            return ""
        if name == "variations" and name not in own:
            break
        own = own.get(name, own.get("other"))
    return next((unit["value"] for at, unit in _string_units(own) if not at), "")


def _string_units(
    tree: Any, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """The texts in a translation: one, or one for each form of a plural and each device, each with
    the names that lead to it."""
    if isinstance(tree, dict):
        for name, value in tree.items():
            if name == "stringUnit" and isinstance(value, dict):
                if isinstance(value.get("value"), str):
                    yield path, value
            else:
                yield from _string_units(value, (*path, name))
