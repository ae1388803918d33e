"""The request of each operation and the parser of its answer: values and pure functions, no I/O."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from macaron.client.errors import ApiError, ConnectionLostError
from macaron.client.records import (
    DocumentOptions,
    Label,
    ModelInfo,
    Ranked,
    RemoteDocument,
    RemoteHypothesis,
    RemoteOrigin,
    RemotePartial,
    RemoteTranslation,
    RemoteVectors,
    TranslationOptions,
)

T = TypeVar("T")

DEFAULTS = TranslationOptions()
DOCUMENT_DEFAULTS = DocumentOptions()

_PLAIN = ("format", "model", "split_sentences", "alternatives", "alignments", "timeout_s")
_STORED = ("glossary_id", "memory_id", "memory_threshold", "memory_fuzzy")
"""Options that are sent unchanged; documents accept the second group as well."""
_OF_A_STREAM = 200
"""Status of an answer that an error interrupted."""


@dataclass(frozen=True)
class RemoteCall(Generic[T]):
    """One request, and how to parse its answer."""

    method: str
    path: str
    read: Callable[[Any], T]
    """Parses the answer."""
    body: Mapping[str, Any] | None = None
    """Body, sent as JSON."""
    query: Mapping[str, str] | None = None
    form: Mapping[str, str] | None = None
    """Fields of a multipart form; `files` has the name and the content of each file."""
    files: Mapping[str, tuple[str, bytes]] | None = None
    answer: Literal["json", "bytes", "nothing"] = "json"
    """Input of `read`: the JSON of the answer, its bytes, or None."""
    repeatable: bool = True
    """Whether it may be sent again if its outcome is unknown; otherwise a second object could be
    created."""


def translate(
    texts: Sequence[str], source: str, target: str, options: TranslationOptions
) -> RemoteCall[list[RemoteTranslation]]:
    """Translate texts, each by itself."""
    return RemoteCall(
        "POST", "/translate", _translated, translation_body(texts, source, target, options)
    )


def translation_body(
    texts: Sequence[str], source: str, target: str, options: TranslationOptions
) -> dict[str, Any]:
    """The body of a translation request; default values are left out."""
    body: dict[str, Any] = {"q": _listed("texts", texts), "source": source, "target": target}
    for name in (*_PLAIN, *_STORED):
        if (value := getattr(options, name)) != getattr(DEFAULTS, name):
            body[name] = value
    if options.glossary:
        body["glossary"] = [{"source": s, "target": t} for s, t in options.glossary.items()]
    for name in ("required", "forbidden"):
        if value := getattr(options, name):
            body[name] = _listed(name, value)
    if options.decoding:
        body["options"] = dict(options.decoding)
    return body


def embed(texts: Sequence[str], model: str | None) -> RemoteCall[RemoteVectors]:
    """The vectors of texts."""
    body = _with_model({"input": _listed("texts", texts)}, model)

    def read(answer: Any) -> RemoteVectors:
        rows = sorted(answer["data"], key=lambda row: row["index"])
        return RemoteVectors([row["embedding"] for row in rows], answer["model"])

    return RemoteCall("POST", "/v1/embeddings", read, body)


def rerank(query: str, texts: Sequence[str], model: str | None) -> RemoteCall[list[Ranked]]:
    """Rank texts by how well they answer a query, best first."""
    body = _with_model({"query": query, "texts": _listed("texts", texts)}, model)
    return RemoteCall(
        "POST", "/rerank", lambda found: [Ranked(e["index"], e["score"]) for e in found], body
    )


def classify(
    texts: Sequence[str], pairs: Sequence[str] | None, model: str | None
) -> RemoteCall[list[Label]]:
    """The classes of texts, or of pairs of texts."""
    body = _with_model({"q": _listed("texts", texts)}, model)
    if pairs is not None:
        body["pair"] = _listed("pairs", pairs)

    def read(answer: Any) -> list[Label]:
        return [
            Label(
                each["label"],
                each["probability"],
                {one["label"]: one["probability"] for one in each["labels"]},
            )
            for each in answer["classifications"]
        ]

    return RemoteCall("POST", "/classify", read, body)


def submit(name: str, content: bytes, fields: Mapping[str, str]) -> RemoteCall[RemoteDocument]:
    """Upload a document with its options."""
    file = {"file": (name, content)}
    return RemoteCall("POST", "/documents", _document, form=fields, files=file, repeatable=False)


def document_fields(
    source: str, target: str, options: TranslationOptions, document_options: DocumentOptions
) -> dict[str, str]:
    """Form fields for a document's options."""
    fields = {"source": source, "target": target}
    for name in ("model", *_STORED):
        if (value := getattr(options, name)) != getattr(DEFAULTS, name):
            fields[name] = str(value)
    for name in ("bilingual", "retranslate"):
        if getattr(document_options, name):
            fields[name] = "true"
    if document_options.columns:
        row = io.StringIO()
        columns = _listed("columns", document_options.columns)
        csv.writer(row, lineterminator="").writerow(columns)
        fields["columns"] = row.getvalue()
    return fields


def output_fields(source_path: Path, target_path: Path) -> dict[str, str]:
    """Form fields for what a document becomes: of a PDF what the name of the output ends with."""
    if source_path.suffix.lower() != ".pdf":
        return {}
    return {"output_format": target_path.suffix.lower().lstrip(".")}


def translated_file(id: str) -> RemoteCall[bytes]:
    """Download a translated document."""
    return RemoteCall("GET", f"/documents/{id}/result", bytes, answer="bytes")


def document(id: str) -> RemoteCall[RemoteDocument]:
    """The state of a document."""
    return RemoteCall("GET", f"/documents/{id}", _document)


def forget(id: str) -> RemoteCall[RemoteDocument]:
    """Delete a document, its result too."""
    return RemoteCall("DELETE", f"/documents/{id}", _document)


def models() -> RemoteCall[list[ModelInfo]]:
    """The models of the server."""

    def read(answer: Any) -> list[ModelInfo]:
        return [
            ModelInfo(
                name=card["name"],
                task=card["task"],
                pairs=[(source, target) for source, target in card["pairs"]],
                loaded=card["loaded"],
                card=card,
            )
            for card in answer["models"]
        ]

    return RemoteCall("GET", "/models", read)


def languages() -> RemoteCall[dict[str, list[str]]]:
    """The source languages, each with its target languages."""
    return RemoteCall("GET", "/languages", lambda found: {e["code"]: e["targets"] for e in found})


def ready() -> RemoteCall[bool]:
    """Whether the server is ready."""
    return RemoteCall("GET", "/readyz", lambda _: True)


class EventReader:
    """Parses a server-sent stream of a translation."""

    def __init__(self) -> None:
        self._begun = self._event = ""
        self._ended = False

    def read(self, chunk: str) -> Iterator[RemotePartial | list[RemoteTranslation]]:
        """Parse the next characters of the stream: yields partial texts, and the translations of
        all texts. Raises ApiError for an event `error`."""
        # Only a line feed ends a line: httpx's own lines also end at signs that texts contain.
        *lines, self._begun = (self._begun + chunk).split("\n")
        for line in lines:
            yield from self._line(line.removesuffix("\r"))

    def _line(self, line: str) -> Iterator[RemotePartial | list[RemoteTranslation]]:
        if line.startswith("event: "):
            self._event = line.removeprefix("event: ")
        elif line.startswith("data: "):
            data = json.loads(line.removeprefix("data: "))
            if self._event == "partial":
                yield RemotePartial(data["index"], data["text"])
            elif self._event == "done":
                self._ended = True
                yield _translated(data)
            elif self._event == "error":
                hint = f"; {data['hint']}" if data.get("hint") else ""
                raise ApiError(data["error"] + hint, status=_OF_A_STREAM, code=data["code"])

    def check_end(self) -> None:
        """Raise ConnectionLostError if the stream ended before its last event."""
        if not self._ended:
            raise ConnectionLostError("the stream broke off before its end; send the text again")


def _translated(answer: Any) -> list[RemoteTranslation]:
    return [_translation(each) for each in answer["translations"]]


def _translation(each: Mapping[str, Any]) -> RemoteTranslation:
    detected = each.get("detected")
    return RemoteTranslation(
        text=each["text"],
        hypotheses=[
            RemoteHypothesis(
                text=found["text"],
                score=found["score"],
                finished=found["finished"],
                probability=found.get("probability"),
                alignment=found.get("alignment") or (),
            )
            for found in each["hypotheses"]
        ],
        warnings=each["warnings"],
        model=each["model"],
        source=each["source"],
        confidence=detected["confidence"] if detected else None,
        quality=each.get("quality"),
        origins=[
            RemoteOrigin(
                sentence=origin["sentence"],
                origin=origin["origin"],
                score=origin.get("score"),
                segment=origin.get("segment"),
                prefix=origin.get("prefix"),
            )
            for origin in each.get("origins") or ()
        ],
    )


def _document(answer: Any) -> RemoteDocument:
    names = (field.name for field in fields(RemoteDocument))
    return RemoteDocument(**{name: answer[name] for name in names})


def _listed(name: str, texts: Iterable[str]) -> list[str]:
    """Several texts as a list. Raises TypeError for one text, whose letters would be taken for
    texts."""
    if isinstance(texts, str):
        raise TypeError(f"{name} must be a list of texts, got one text; write [{texts[:40]!r}]")
    return list(texts)


def _with_model(body: dict[str, Any], model: str | None) -> dict[str, Any]:
    return body if model is None else {**body, "model": model}
