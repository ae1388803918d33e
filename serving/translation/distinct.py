"""Many texts with sentences in common: each distinct one is decoded once, and what is done outlives
an interruption."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from serving.documents.writing import write_whole
from serving.errors import ServingError
from serving.search.sentence import Sentence
from serving.text.alignment import Link
from serving.text.placing.placement import Translated
from serving.translation.reading import TextInSentences
from serving.translation.results import TextHypothesis, Translation

Key = tuple[str, bool]
"""A sentence, and whether its word links are wanted."""
Decode = Callable[[Mapping[Key, Sentence | None]], Iterator[tuple[Key, Translation | ServingError]]]


class KnownSentences:
    """Sentences that have been translated, also in a file as long as not all are."""

    def __init__(self, path: Path, made_by: str) -> None:
        """Goes on with the file where it was `made_by` the same model in the same way."""
        self._path, self._made_by = path, made_by
        self.found: dict[Key, Translation] = {}
        self._read()
        records = [_as_record(key, translation) for key, translation in self.found.items()]
        write_whole(path, "".join(map(_line, [{"made_by": made_by}, *records])).encode())
        self._file = path.open("a", encoding="utf-8")

    def _read(self) -> None:
        try:
            lines = self._path.read_text(encoding="utf-8").split("\n")
        except (FileNotFoundError, UnicodeDecodeError):
            return
        with contextlib.suppress(ValueError, KeyError, TypeError):  # a line that was cut off
            if json.loads(lines[0])["made_by"] != self._made_by:
                return
            for line in lines[1:]:
                key, translation = _from_record(json.loads(line))
                self.found[key] = translation

    def add(self, key: Key, translation: Translation) -> None:
        """Note a translation."""
        self.found[key] = translation
        self._file.write(_line(_as_record(key, translation)))
        self._file.flush()

    def close(self, *, remove: bool) -> None:
        """Close the file, and remove it where nothing is left to be done."""
        self._file.close()
        if remove:
            self._path.unlink(missing_ok=True)


def translate_units(
    texts: Sequence[TextInSentences],
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
        joined, failed = translate_distinct(texts, decode, known, progress or (lambda *_: None))
        done = True
    finally:
        known.close(remove=done)
    warnings = [f"{failed} sentences could not be translated."] if failed else []
    return [translation.linked for translation in joined], warnings


def translate_distinct(
    texts: Sequence[TextInSentences],
    decode: Decode,
    known: KnownSentences,
    progress: Callable[[int, int], None],
) -> tuple[list[Translation], int]:
    """The translation of each text, and how many sentences could not be translated and stay as they
    are. `progress` gets how many distinct sentences are done, and of how many."""
    sentences = {
        (text.document.sentences[n], text.with_links): sentence
        for text in texts
        for n, sentence in text.waiting.items()
    }
    waiting = {key: sentence for key, sentence in sentences.items() if key not in known.found}
    failed: dict[Key, Translation] = {}
    done = len(sentences) - len(waiting)
    progress(done, len(sentences))
    for key, result in decode(waiting):
        if isinstance(result, ServingError):
            failed[key] = Translation(key[0])
        else:
            known.add(key, result)
        done += 1
        progress(done, len(sentences))
    every = known.found | failed
    joined = [
        text.joined({n: every[text.document.sentences[n], text.with_links] for n in text.waiting})
        for text in texts
    ]
    return joined, len(failed)


def _line(record: dict[str, Any]) -> str:
    return json.dumps(record) + "\n"


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
