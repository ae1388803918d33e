"""Translates many texts that share sentences. Each distinct sentence is decoded once, and an
interrupted run can be resumed."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

from serving.documents.unit import Unit
from serving.errors import ServingError
from serving.search.beams.sentence import Sentence
from serving.text.alignment import Link
from serving.text.placing.placement import Translated
from serving.translation.reading import TextInSentences
from serving.translation.results import TextHypothesis, Translation

U = TypeVar("U")
Key = tuple[str, bool]
"""A sentence, or what stands for it, and whether its word links are needed."""
Decode = Callable[[Mapping[Key, Sentence | None]], Iterator[tuple[Key, Translation | ServingError]]]


_NAMED_CHARACTERS = 60
"""Number of characters of a unit's text that a warning about it shows."""
_WINDOW = 1000
"""Number of texts whose sentences are in memory at once."""


class KnownSentences:
    """Translated sentences in a file. There may be many, with their word links, and a later run can
    resume from the file."""

    def __init__(self, path: Path, made_by: str) -> None:
        """Continue the file if it was `made_by` the same model in the same way."""
        self._path = path
        self._places: dict[bytes, int] = {}
        self._end = self._read(made_by)
        self._file = path.open("r+b" if self._end else "w+b")
        self._file.truncate(self._end)
        if not self._end:
            self._append({"made_by": made_by})

    def __len__(self) -> int:
        return len(self._places)

    @property
    def digests(self) -> Collection[bytes]:
        """The keys of the translated sentences."""
        return self._places

    def __contains__(self, key: Key) -> bool:
        return _digest(key) in self._places

    def __getitem__(self, key: Key) -> Translation:
        self._file.seek(self._places[_digest(key)])
        return _from_record(json.loads(self._file.readline()))[1]

    def _read(self, made_by: str) -> int:
        """The end of the usable part of the file, which excludes a line that was cut off."""
        end = 0
        with (
            contextlib.suppress(FileNotFoundError, ValueError, KeyError, TypeError),
            self._path.open("rb") as file,
        ):
            line = file.readline()
            if json.loads(line)["made_by"] != made_by:
                return 0
            end = len(line)
            for line in file:
                key, _ = _from_record(json.loads(line))
                if not line.endswith(b"\n"):
                    break
                self._places[_digest(key)] = end
                end += len(line)
        return end

    def add(self, key: Key, translation: Translation) -> None:
        """Store a translation."""
        self._places[_digest(key)] = self._end
        self._append(_as_record(key, translation))

    def _append(self, record: dict[str, Any]) -> None:
        line = json.dumps(record).encode() + b"\n"
        self._file.seek(self._end)
        self._file.write(line)
        self._file.flush()
        self._end += len(line)

    def close(self, *, remove: bool) -> None:
        """Close the file, and remove it if nothing is left to do."""
        self._file.close()
        if remove:
            self._path.unlink(missing_ok=True)


def translate_units(
    units: Sequence[Unit],
    read: Callable[[Unit], TextInSentences],
    decode: Decode,
    out: Path,
    made_by: str,
    progress: Callable[[int, int], None] | None,
) -> tuple[list[Translated], list[str]]:
    """The translations of a file's units, and warnings. Until all are done, the finished ones are
    kept beside the file `out`; a later run `made_by` the same model in the same way continues
    there."""
    known = KnownSentences(out.with_name(f".{out.name}.partial"), made_by)
    done = False
    try:
        joined, failed, filled = translate_distinct(
            units, read, decode, known, progress or (lambda *_: None)
        )
        done = True
    finally:
        known.close(remove=done)
    warnings = [f"{failed} sentences could not be translated."] if failed else []
    named = dict.fromkeys(" ".join(units[number].text.split()) for number in filled)
    warnings += [
        f'"{text[:_NAMED_CHARACTERS]}": an element kept the words of the source, because the '
        "translation has none for it; check it."
        for text in named
    ]
    return joined, warnings


def translate_distinct(
    units: Sequence[U],
    read: Callable[[U], TextInSentences],
    decode: Decode,
    known: KnownSentences,
    progress: Callable[[int, int], None],
) -> tuple[list[Translated], int, list[int]]:
    """The translation of each unit, the number of sentences that could not be translated and stay
    as they are, and which units have an element with the words of the source (`untranslated`).
    `progress` is called with the number of finished distinct sentences and their total."""

    @functools.lru_cache(maxsize=1)  # input that fits into one window is read once
    def window(begin: int) -> list[TextInSentences]:
        return [read(unit) for unit in units[begin : begin + _WINDOW]]

    begins = range(0, len(units), _WINDOW)
    every = {_digest(key) for begin in begins for key in _sentences(window(begin))}
    done, total = sum(digest in known.digests for digest in every), len(every)
    progress(done, total)
    failed: dict[Key, Translation] = {}
    joined: list[Translated] = []
    filled: list[int] = []
    for begin in begins:
        texts = window(begin)
        sentences = _sentences(texts)
        found = {key: failed[key] for key in sentences if key in failed}
        waiting = {}
        for key, sentence in sentences.items():
            if key in known:
                found[key] = known[key]
            elif key not in failed:
                waiting[key] = sentence
        for key, result in decode(waiting):
            if isinstance(result, ServingError):
                found[key] = failed[key] = Translation(key[0])
            else:
                known.add(key, result)
                found[key] = result
            done += 1
            progress(done, total)
        for text in texts:
            translation = _joined(text, found)
            if "untranslated" in translation.warnings:
                filled.append(len(joined))
            joined.append(translation.linked)
    return joined, len(failed), filled


def _sentences(texts: Sequence[TextInSentences]) -> dict[Key, Sentence | None]:
    return {
        (text.document.sentences[n], text.with_links): sentence
        for text in texts
        for n, sentence in text.waiting.items()
    }


def _joined(text: TextInSentences, found: Mapping[Key, Translation]) -> Translation:
    return text.joined(
        {n: found[text.document.sentences[n], text.with_links] for n in text.waiting}
    )


def _digest(key: Key) -> bytes:
    sentence, with_links = key
    kind = b"links" if with_links else b""
    return blake2b(sentence.encode("utf-8", "surrogatepass"), digest_size=16, key=kind).digest()


def _as_record(key: Key, translation: Translation) -> dict[str, Any]:
    best = translation.hypotheses[0] if translation.hypotheses else None
    return {
        "sentence": key[0],
        "with_links": key[1],
        "text": translation.text,
        "links": best and best.alignment and [dataclasses.astuple(link) for link in best.alignment],
        "warnings": translation.warnings,
    }


def _from_record(record: dict[str, Any]) -> tuple[Key, Translation]:
    links = record["links"] and tuple(
        Link(tuple(source), tuple(target), probability)
        for source, target, probability in record["links"]
    )
    text = record["text"]
    best = TextHypothesis(text, 0.0, 0.0, (), (), finished=True, alignment=links)
    return (record["sentence"], record["with_links"]), Translation(
        text, (best,), tuple(record["warnings"])
    )
