"""The sentences that the jobs of one document share; each of them is decoded once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from serving.errors import RequestError, ServingError
from serving.translation.distinct import Key, KnownSentences
from serving.translation.results import Translation
from serving.translation.ticket import Completed, Request, TranslationTicket


class DocumentSentences:
    """Submits the sentences of a document's jobs, except those that another job of it has
    submitted.

    Results are in memory until `save` writes them to a file, from which a later process can
    continue. Thread-safe.
    """

    def __init__(self, path: Path, document: str) -> None:
        """Continue the file of the document with this id, or begin it. Raises OSError."""
        self._done = KnownSentences(path, document)
        self._tickets: dict[Key, TranslationTicket] = {}
        """Tickets of sentences that are not in the file, whether decoded or not."""
        self._lock = threading.Lock()

    def submit_all(
        self,
        requests: Sequence[Request],
        made_by: str,
        submit: Callable[[Sequence[Request]], list[TranslationTicket]],
    ) -> list[TranslationTicket]:
        """A ticket for each request. `submit` gets the new ones, all or none of them, and raises
        what the scheduler raises; `made_by` names the model. Equal requests share a ticket, also
        with another job, which may then cancel it."""
        keys = [_key(made_by, request) for request in requests]
        with self._lock:  # otherwise two simultaneous jobs could both find a sentence new
            new: dict[Key, int] = {}
            for number, key in enumerate(keys):
                if key not in new and not self._has(key):
                    new[key] = number
            try:
                submitted = submit([requests[number] for number in new.values()])
            except RequestError as error:
                if error.index is not None:
                    error.index = list(new.values())[error.index]
                raise
            self._tickets.update(zip(new, submitted, strict=True))
            return [self._ticket(key) for key in keys]

    def save(self) -> None:
        """Write the results so far to the file, and drop failed tickets."""
        with self._lock:
            ended = [(key, ticket) for key, ticket in self._tickets.items() if ticket.done]
            for key, ticket in ended:
                translation = _translation(ticket)
                if translation is not None:
                    self._done.add(key, translation)
                del self._tickets[key]

    def close(self) -> None:
        """Close the file; its content stays."""
        with self._lock:
            self._done.close(remove=False)

    def _has(self, key: Key) -> bool:
        ticket = self._tickets.get(key)
        if ticket is None:
            return key in self._done
        return not ticket.done or _translation(ticket) is not None

    def _ticket(self, key: Key) -> TranslationTicket:
        ticket = self._tickets.get(key)
        if ticket is None:
            ticket = TranslationTicket()
            timing = ticket.timing(ticket.submitted, 0.0, 0)
            ticket.complete(Completed(self._done[key], timing))
        return ticket


def _key(made_by: str, request: Request) -> Key:
    """A hash of everything that determines a translation: the model, and the request without its
    time limit. The sentence alone would not suffice, because models and drafts of a memory
    differ."""
    asked = replace(request, timeout_s=None, stream=False)
    digest = sha256(f"{made_by} {asked!r}".encode("utf-8", "surrogatepass"))
    return digest.hexdigest(), request.alignments


def _translation(ticket: TranslationTicket) -> Translation | None:
    """The result of a ticket that has ended; None if it has failed."""
    try:
        return ticket.result().translation
    except ServingError:
        return None
