"""Requests of the operations on the store, and readers of their answers; `calls` has the others."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from macaron.client.calls import RemoteCall
from macaron.client.store_records import (
    BatchFile,
    BatchWebhookAddress,
    RemoteAnswer,
    RemoteBatch,
    RemoteDictionary,
    RemoteFileRead,
    RemoteGlossary,
    RemoteMemory,
    RemoteSegment,
)

_PAGE = 1000
_BATCH_PAGE = 100
_DAY = "24h"
BATCH_FILE = "requests.jsonl"


def glossaries(after: str | None) -> RemoteCall[tuple[list[RemoteGlossary], str | None]]:
    """A page of glossaries, and what the next one begins after, if there is one."""
    return RemoteCall(
        "GET",
        "/glossaries",
        lambda found: ([_glossary(each) for each in found["glossaries"]], found.get("next")),
        query=_page(after),
    )


def glossary(id: str) -> RemoteCall[RemoteGlossary]:
    """Returns the description of a glossary."""
    return RemoteCall("GET", _glossary_path(id), _glossary)


def new_glossary(
    name: str, pair: tuple[str, str], entries: Mapping[str, str]
) -> RemoteCall[RemoteGlossary]:
    """Make a glossary of one language pair."""
    body = {"name": name, "dictionaries": [_dictionary(pair, entries)]}
    return RemoteCall("POST", "/glossaries", _glossary, body, repeatable=False)


def change_glossary(id: str, changes: Mapping[str, Any]) -> RemoteCall[RemoteGlossary]:
    """Rename a glossary, or add entries."""
    return RemoteCall("PATCH", _glossary_path(id), _glossary, changes)


def more_entries(pair: tuple[str, str], entries: Mapping[str, str]) -> dict[str, Any]:
    """The change of a glossary that adds entries."""
    return {"dictionaries": [_dictionary(pair, entries)]}


def entries(id: str, pair: tuple[str, str]) -> RemoteCall[dict[str, str]]:
    """The entries of a glossary for a language pair."""
    return RemoteCall(
        "GET",
        f"{_glossary_path(id)}/entries",
        lambda found: {each["source"]: each["target"] for each in found["entries"]},
        query=_pair(pair),
    )


def new_entries(
    id: str, pair: tuple[str, str], entries: Mapping[str, str]
) -> RemoteCall[RemoteDictionary]:
    """Put entries in the place of all that a glossary has for a language pair."""
    path = f"{_glossary_path(id)}/entries"
    return RemoteCall("PUT", path, _dictionary_info, _dictionary(pair, entries))


def no_entries(id: str, pair: tuple[str, str]) -> RemoteCall[None]:
    """Forget the entries of a glossary for a language pair."""
    return _deleted(f"{_glossary_path(id)}/entries", query=_pair(pair))


def no_glossary(id: str) -> RemoteCall[None]:
    """Forget a glossary."""
    return _deleted(_glossary_path(id))


def memories(after: str | None) -> RemoteCall[tuple[list[RemoteMemory], str | None]]:
    """A page of memories, and what the next one begins after, if there is one."""
    return RemoteCall(
        "GET",
        "/memories",
        lambda found: ([_memory(each) for each in found["memories"]], found.get("next")),
        query=_page(after),
    )


def memory(id: str) -> RemoteCall[RemoteMemory]:
    """Returns the description of a memory."""
    return RemoteCall("GET", _memory_path(id), _memory)


def new_memory(
    name: str, pair: tuple[str, str], segments: Mapping[str, str]
) -> RemoteCall[RemoteMemory]:
    """Make a memory."""
    body = {"name": name, **_pair(pair), "segments": _pairs(segments)}
    return RemoteCall("POST", "/memories", _memory, body, repeatable=False)


def segments(id: str, text: str, after: int) -> RemoteCall[tuple[list[RemoteSegment], int | None]]:
    """A page of segments, and what the next one begins after, if there is one."""

    def read(found: Any) -> tuple[list[RemoteSegment], int | None]:
        rows = [RemoteSegment(s["number"], s["source"], s["target"]) for s in found["segments"]]
        return rows, found.get("next")

    query = {"text": text, "after": str(after), "limit": str(_PAGE)}
    return RemoteCall("GET", f"{_memory_path(id)}/segments", read, query=query)


def more_segments(id: str, segments: Mapping[str, str]) -> RemoteCall[RemoteMemory]:
    """Add segments to a memory."""
    path, body = f"{_memory_path(id)}/segments", {"segments": _pairs(segments)}
    return RemoteCall("POST", path, _memory, body, repeatable=False)


def read_tmx(id: str, name: str, content: bytes) -> RemoteCall[RemoteFileRead]:
    """Add the segments of a TMX file to a memory."""

    def read(found: Any) -> RemoteFileRead:
        return RemoteFileRead(_memory(found["memory"]), found["added"], found["skipped"])

    path, file = f"{_memory_path(id)}/tmx", {"file": (name, content)}
    return RemoteCall("POST", path, read, files=file, repeatable=False)


def tmx(id: str) -> RemoteCall[bytes]:
    """A memory as a TMX file."""
    return RemoteCall("GET", f"{_memory_path(id)}/tmx", bytes, answer="bytes")


def no_memory(id: str) -> RemoteCall[None]:
    """Forget a memory."""
    return _deleted(_memory_path(id))


def suggest(text: str, better: str, pair: tuple[str, str]) -> RemoteCall[None]:
    """Keep a better translation of a text."""
    body = {"q": text, "s": better, **_pair(pair)}
    return RemoteCall("POST", "/suggest", lambda _: None, body)


def suggestions(pair: tuple[str, str]) -> RemoteCall[bytes]:
    """Returns the suggestions for a language pair, as a TMX file."""
    return RemoteCall("GET", "/suggestions", bytes, query=_pair(pair), answer="bytes")


def no_suggestions() -> RemoteCall[None]:
    """Forget what was suggested."""
    return _deleted("/suggestions")


def new_file(name: str, content: bytes) -> RemoteCall[BatchFile]:
    """Send a file of requests."""
    return RemoteCall(
        "POST",
        "/v1/files",
        _file,
        form={"purpose": "batch"},
        files={"file": (name, content)},
        repeatable=False,
    )


def files(after: str | None) -> RemoteCall[tuple[list[BatchFile], str | None]]:
    """A page of files, the newest first, and what the next one begins after, if there is one."""

    def read(found: Any) -> tuple[list[BatchFile], str | None]:
        following = found["last_id"] if found["has_more"] else None
        return list(map(_file, found["data"])), following

    return RemoteCall("GET", "/v1/files", read, query=_page(after))


def file(id: str) -> RemoteCall[BatchFile]:
    """Returns the description of a file."""
    return RemoteCall("GET", _file_path(id), _file)


def content(id: str) -> RemoteCall[bytes]:
    """The content of a file."""
    return RemoteCall("GET", f"{_file_path(id)}/content", bytes, answer="bytes")


def no_file(id: str) -> RemoteCall[None]:
    """Delete a file."""
    return RemoteCall("DELETE", _file_path(id), lambda _: None)


def new_batch(
    file_id: str,
    endpoint: str,
    metadata: Mapping[str, str] | None,
    webhook: BatchWebhookAddress | None,
) -> RemoteCall[RemoteBatch]:
    """Have the lines of a file answered."""
    body: dict[str, Any] = {
        "input_file_id": file_id,
        "endpoint": endpoint,
        "completion_window": _DAY,
    }
    if metadata:
        body["metadata"] = dict(metadata)
    if webhook:
        body["webhook"] = {"url": webhook.url, "secret": webhook.secret}
    return RemoteCall("POST", "/v1/batches", _batch, body, repeatable=False)


def batches(after: str | None) -> RemoteCall[tuple[list[RemoteBatch], str | None]]:
    """A page of batches, the newest first, and what the next one begins after, if there is one."""

    def read(found: Any) -> tuple[list[RemoteBatch], str | None]:
        following = found["last_id"] if found["has_more"] else None
        return list(map(_batch, found["data"])), following

    return RemoteCall("GET", "/v1/batches", read, query=_page(after, _BATCH_PAGE))


def batch(id: str) -> RemoteCall[RemoteBatch]:
    """Returns the progress of a batch."""
    return RemoteCall("GET", f"/v1/batches/{quote(id, safe='')}", _batch)


def cancel(id: str) -> RemoteCall[RemoteBatch]:
    """End a batch."""
    return RemoteCall("POST", f"/v1/batches/{quote(id, safe='')}/cancel", _batch)


def lines(endpoint: str, bodies: Iterable[Mapping[str, Any]]) -> bytes:
    """The file of a batch that asks an endpoint for each of these bodies, in their order."""
    return b"".join(
        json.dumps(
            {"custom_id": str(number), "method": "POST", "url": endpoint, "body": body},
            ensure_ascii=False,
        ).encode()
        + b"\n"
        for number, body in enumerate(bodies)
    )


def answers(count: int, contents: Sequence[bytes]) -> list[RemoteAnswer]:
    """The answers to the requests of `lines`, in their order, from the files of a batch."""
    found: dict[int, RemoteAnswer] = {}
    for content in contents:
        for line in content.splitlines():
            record = json.loads(line)
            response = record["response"]
            found[int(record["custom_id"])] = (
                RemoteAnswer(0, {"error": record["error"]})
                if response is None
                else RemoteAnswer(response["status_code"], response["body"])
            )
    missing = RemoteAnswer(0, {"error": {"code": "missing", "message": "there is no answer"}})
    return [found.get(number, missing) for number in range(count)]


def _deleted(path: str, query: Mapping[str, str] | None = None) -> RemoteCall[None]:
    return RemoteCall("DELETE", path, lambda _: None, query=query, answer="nothing")


def _glossary_path(id: str) -> str:
    return f"/glossaries/{quote(id, safe='')}"


def _memory_path(id: str) -> str:
    return f"/memories/{quote(id, safe='')}"


def _file_path(id: str) -> str:
    return f"/v1/files/{quote(id, safe='')}"


def _page(after: str | None, limit: int | None = None) -> dict[str, str]:
    return {"limit": str(limit or _PAGE)} | ({"after": after} if after else {})


def _pair(pair: tuple[str, str]) -> dict[str, str]:
    return {"source": pair[0], "target": pair[1]}


def _pairs(texts: Mapping[str, str]) -> list[dict[str, str]]:
    return [_pair(each) for each in texts.items()]


def _dictionary(pair: tuple[str, str], entries: Mapping[str, str]) -> dict[str, Any]:
    return {**_pair(pair), "entries": _pairs(entries)}


def _dictionary_info(found: Any) -> RemoteDictionary:
    return RemoteDictionary(found["source"], found["target"], found["entry_count"])


def _glossary(found: Any) -> RemoteGlossary:
    dictionaries = [_dictionary_info(each) for each in found["dictionaries"]]
    return RemoteGlossary(found["id"], found["name"], found["created"], dictionaries)


def _memory(found: Any) -> RemoteMemory:
    return RemoteMemory(
        id=found["id"],
        name=found["name"],
        source=found["source"],
        target=found["target"],
        created=found["created"],
        updated=found["updated"],
        segment_count=found["segment_count"],
    )


def _file(found: Any) -> BatchFile:
    return BatchFile(
        id=found["id"],
        name=found["filename"],
        purpose=found["purpose"],
        num_bytes=found["bytes"],
        created=found["created_at"],
        expires=found["expires_at"],
    )


def _batch(found: Any) -> RemoteBatch:
    counts, errors = found["request_counts"], found["errors"]
    return RemoteBatch(
        id=found["id"],
        endpoint=found["endpoint"],
        status=found["status"],
        input_file_id=found["input_file_id"],
        output_file_id=found["output_file_id"],
        error_file_id=found["error_file_id"],
        total=counts["total"],
        completed=counts["completed"],
        failed=counts["failed"],
        errors=[each["message"] for each in errors["data"]] if errors else [],
        metadata=found["metadata"] or {},
    )
