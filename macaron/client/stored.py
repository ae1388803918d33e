"""The store of a server, for the blocking client."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import sleep as wait
from typing import Any, Protocol, TypeVar

from macaron.client import store_calls as calls
from macaron.client.calls import RemoteCall
from macaron.client.errors import LEFT, BatchFailedError
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

T = TypeVar("T")

_LOOK_S = 1.0
"""Seconds between requests for the state of a batch."""


class Sender(Protocol):
    """Sends a request, retries it if that makes sense, and parses the answer."""

    def __call__(self, call: RemoteCall[T]) -> T: ...


class RemoteGlossaries:
    """The stored glossaries of the client's key (`Client.glossaries`)."""

    def __init__(self, send: Sender) -> None:
        self._send = send

    def list(self) -> Iterator[RemoteGlossary]:
        """All glossaries, the oldest first, a thousand a request."""
        page, after = self._send(calls.glossaries(None))
        yield from page
        while after is not None:
            page, after = self._send(calls.glossaries(after))
            yield from page

    def create(
        self, name: str, source: str, target: str, entries: Mapping[str, str]
    ) -> RemoteGlossary:
        """Create a glossary of terms and their translations, for a language pair."""
        return self._send(calls.new_glossary(name, (source, target), entries))

    def get(self, id: str) -> RemoteGlossary:
        """The record of a glossary."""
        return self._send(calls.glossary(id))

    def rename(self, id: str, name: str) -> RemoteGlossary:
        """Rename a glossary."""
        return self._send(calls.change_glossary(id, {"name": name}))

    def entries(self, id: str, source: str, target: str) -> dict[str, str]:
        """The terms of a glossary for a language pair, with their translations."""
        return self._send(calls.entries(id, (source, target)))

    def add(self, id: str, source: str, target: str, entries: Mapping[str, str]) -> RemoteGlossary:
        """Add entries; an existing term gets the new translation."""
        changes = calls.more_entries((source, target), entries)
        return self._send(calls.change_glossary(id, changes))

    def replace(
        self, id: str, source: str, target: str, entries: Mapping[str, str]
    ) -> RemoteDictionary:
        """Replace all entries for a language pair; those for other pairs stay."""
        return self._send(calls.new_entries(id, (source, target), entries))

    def delete_entries(self, id: str, source: str, target: str) -> None:
        """Delete the entries for a language pair."""
        self._send(calls.no_entries(id, (source, target)))

    def delete(self, id: str) -> None:
        """Delete a glossary."""
        self._send(calls.no_glossary(id))


class RemoteMemories:
    """The translation memories of the client's key (`Client.memories`)."""

    def __init__(self, send: Sender) -> None:
        self._send = send

    def list(self) -> Iterator[RemoteMemory]:
        """All memories, the oldest first, a thousand a request."""
        page, after = self._send(calls.memories(None))
        yield from page
        while after is not None:
            page, after = self._send(calls.memories(after))
            yield from page

    def create(
        self, name: str, source: str, target: str, segments: Mapping[str, str] | None = None
    ) -> RemoteMemory:
        """Create a memory for a language pair, with sentences and their translations."""
        return self._send(calls.new_memory(name, (source, target), segments or {}))

    def get(self, id: str) -> RemoteMemory:
        """The record of a memory."""
        return self._send(calls.memory(id))

    def segments(self, id: str, text: str = "") -> Iterator[RemoteSegment]:
        """The segments in the order in which they were added, a thousand a request; with `text`
        only those that contain it in either language."""
        page, after = self._send(calls.segments(id, text, -1))
        yield from page
        while after is not None:
            page, after = self._send(calls.segments(id, text, after))
            yield from page

    def add(self, id: str, segments: Mapping[str, str]) -> RemoteMemory:
        """Add sentences and their translations; an existing sentence gets the new translation."""
        return self._send(calls.more_segments(id, segments))

    def read_tmx(self, id: str, path: str | Path) -> RemoteFileRead:
        """Add the segments of a TMX file; raises OSError if it cannot be read."""
        file = Path(path)
        return self._send(calls.read_tmx(id, file.name, file.read_bytes()))

    def write_tmx(self, id: str, path: str | Path) -> None:
        """Write a memory as a TMX file; raises OSError if that fails."""
        content = self._send(calls.tmx(id))
        Path(path).write_bytes(content)

    def delete(self, id: str) -> None:
        """Delete a memory."""
        self._send(calls.no_memory(id))


class RemoteSuggestions:
    """Better translations that the client's key has suggested (`Client.suggestions`)."""

    def __init__(self, send: Sender) -> None:
        self._send = send

    def add(self, text: str, better: str, source: str, target: str) -> None:
        """Suggest a better translation of a text; the same one counts once."""
        self._send(calls.suggest(text, better, (source, target)))

    def write_tmx(self, source: str, target: str, path: str | Path) -> None:
        """Write the suggestions for a language pair as a TMX file; raises OSError if that fails."""
        content = self._send(calls.suggestions((source, target)))
        Path(path).write_bytes(content)

    def clear(self) -> None:
        """Delete the suggestions for all languages."""
        self._send(calls.no_suggestions())


class RemoteBatches:
    """Files of requests that are answered in the background (`Client.batches`)."""

    def __init__(self, send: Sender) -> None:
        self._send = send

    def answer(
        self,
        endpoint: str,
        bodies: Sequence[Mapping[str, Any]],
        progress: Callable[[RemoteBatch], None] | None = None,
    ) -> Sequence[RemoteAnswer]:
        """Call an endpoint (`/translate`, `/v1/completions`, `/v1/chat/completions` or
        `/v1/embeddings`) with each of these bodies in one batch; waits, and returns the answers in
        order.

        `progress` is called about once a second. Raises BatchFailedError where the server takes
        none of it. A batch that has not ended is cancelled, and the files are deleted; where that
        fails, the server does it within a day.
        """
        file = self.upload(calls.BATCH_FILE, calls.lines(endpoint, bodies))
        batch: RemoteBatch | None = None
        try:
            batch = self.create(file.id, endpoint)
            while not batch.ended:
                wait(_LOOK_S)
                batch = self.get(batch.id)
                if progress is not None:
                    progress(batch)
            if batch.errors:
                raise BatchFailedError("; ".join(batch.errors))
            contents = [self.content(id) for id in batch.outputs]
            return calls.answers(len(bodies), contents)
        finally:
            self._clear(file.id, batch)

    def create(
        self,
        file_id: str,
        endpoint: str,
        *,
        metadata: Mapping[str, str] | None = None,
        webhook: BatchWebhookAddress | None = None,
    ) -> RemoteBatch:
        """Create a batch from a file with a request to the endpoint on each line; `webhook` is
        notified of the end."""
        return self._send(calls.new_batch(file_id, endpoint, metadata, webhook))

    def get(self, id: str) -> RemoteBatch:
        """The state of a batch."""
        return self._send(calls.batch(id))

    def list(self) -> Iterator[RemoteBatch]:
        """All batches, the newest first, a hundred a request."""
        page, after = self._send(calls.batches(None))
        yield from page
        while after is not None:
            page, after = self._send(calls.batches(after))
            yield from page

    def cancel(self, id: str) -> RemoteBatch:
        """Cancel a batch; existing answers stay."""
        return self._send(calls.cancel(id))

    def upload(self, name: str, content: bytes) -> BatchFile:
        """Upload a file of requests, one JSON object a line."""
        return self._send(calls.new_file(name, content))

    def files(self) -> Sequence[BatchFile]:
        """All files, the newest first."""
        found, after = self._send(calls.files(None))
        while after is not None:
            page, after = self._send(calls.files(after))
            found += page
        return found

    def file(self, id: str) -> BatchFile:
        """The record of a file."""
        return self._send(calls.file(id))

    def content(self, id: str) -> bytes:
        """The content of a file; answers are one JSON object a line."""
        return self._send(calls.content(id))

    def delete_file(self, id: str) -> None:
        """Delete a file; a batch that has not started to read it fails."""
        self._send(calls.no_file(id))

    def _clear(self, file_id: str, batch: RemoteBatch | None) -> None:
        """Leave nothing of a batch, as far as that goes: no error stands in the place of what came
        of it."""
        ids = [file_id]
        if batch is not None:
            if not batch.ended:
                with suppress(*LEFT):
                    self.cancel(batch.id)
                with suppress(*LEFT):  # where it has ended meanwhile there are answers
                    batch = self.get(batch.id)
            ids += batch.outputs
        for id in ids:
            with suppress(*LEFT):
                self.delete_file(id)
