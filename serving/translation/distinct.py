"""Many texts with sentences in common: each distinct one is decoded once, and what is done outlives
an interruption."""

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
"""A sentence, and whether its word links are wanted."""
Decode = Callable[[Mapping[Key, Sentence | None]], Iterator[tuple[Key, Translation | ServingError]]]


_WINDOW = 1000
"""How many texts are in memory in sentences at once."""


class KnownSentences:
    """Sentences that have been translated: they lie in a file, for there may be very many with
    their word links, and for who goes on after an interruption."""

    def __init__(self, path: Path, made_by: str) -> None:
        """Goes on with the file where it was `made_by` the same model in the same way."""
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
        """Of the sentences that are known."""
        return self._places

    def __contains__(self, key: Key) -> bool:
        return _digest(key) in self._places

    def __getitem__(self, key: Key) -> Translation:
        self._file.seek(self._places[_digest(key)])
        return _from_record(json.loads(self._file.readline()))[1]

    def _read(self, made_by: str) -> int:
        """Where what can be gone on with ends: before a line that was cut off."""
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
        """Note a translation."""
        self._places[_digest(key)] = self._end
        self._append(_as_record(key, translation))

    def _append(self, record: dict[str, Any]) -> None:
        line = json.dumps(record).encode() + b"\n"
        self._file.seek(self._end)
        self._file.write(line)
        self._file.flush()
        self._end += len(line)

    def close(self, *, remove: bool) -> None:
        """Close the file, and remove it where nothing is left to be done."""
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
    """The translations of the units of a file, and warnings. What is done lies beside the file
    `out` as long as not all is, for who goes on `made_by` the same model in the same way."""
    known = KnownSentences(out.with_name(f".{out.name}.partial"), made_by)
    done = False
    try:
        joined, failed = translate_distinct(
            units, read, decode, known, progress or (lambda *_: None)
        )
        done = True
    finally:
        known.close(remove=done)
    warnings = [f"{failed} sentences could not be translated."] if failed else []
    return joined, warnings


def translate_distinct(
    units: Sequence[U],
    read: Callable[[U], TextInSentences],
    decode: Decode,
    known: KnownSentences,
    progress: Callable[[int, int], None],
) -> tuple[list[Translated], int]:
    """The translation of each unit, and how many sentences could not be translated and stay as they
    are. `progress` gets how many distinct sentences are done, and of how many."""

    @functools.lru_cache(maxsize=1)  # what has one window is read once
    def window(begin: int) -> list[TextInSentences]:
        return [read(unit) for unit in units[begin : begin + _WINDOW]]

    begins = range(0, len(units), _WINDOW)
    every = {_digest(key) for begin in begins for key in _sentences(window(begin))}
    done, total = sum(digest in known.digests for digest in every), len(every)
    progress(done, total)
    failed: dict[Key, Translation] = {}
    joined: list[Translated] = []
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
        joined += [_joined(text, found).linked for text in texts]
    return joined, len(failed)


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
