"""The folder in which documents wait, are translated and are fetched.

Each document has a folder of its own, with the uploaded file, its record, the translations so far,
and the result. A worker that translates it holds a lock, which the system releases when that
process ends for any reason; another worker then continues. The folder may therefore be shared by
several workers, and outlives a restart.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

from filelock import FileLock, Timeout

from serving.documents.raw.writing import write_whole
from serving.errors import RequestError, StoreUnavailableError

State = Literal["queued", "translating", "done", "failed"]
Picture = Literal["before", "after"]

_ID = re.compile(r"[0-9a-f]{32}")
_RECORD, _SOURCE, _RESULT = "record.json", "source", "result"
_PROGRESS, _SENTENCES = "progress.jsonl", "sentences.jsonl"
_NAME_LENGTH = 200


class UnknownDocumentError(RequestError):
    """The document does not exist, or belongs to another owner."""

    status = 404
    code = "unknown_document"


@dataclass(frozen=True, kw_only=True)
class DocumentRecord:
    """The record of a document; times are seconds since 1970."""

    id: str
    owner: str
    """Short name of the API key that finds it; empty if everyone who knows its id may have it."""
    client: str
    """Client name to which its characters per minute are charged."""
    key: str = ""
    """Short name of the API key that uploaded it, to whose usage they are added."""
    characters_a_month: int | None = None
    """Character limit per month of that key, if it has one of its own."""
    name: str
    """Name of the uploaded file, without folders."""
    source: str
    """Language code, or `auto` until it has been detected."""
    target: str
    model: str | None = None
    bilingual: bool = False
    """Whether the source stays beside its translation."""
    retranslate: bool = False
    """Whether texts that already have a translation are translated again."""
    columns: tuple[str, ...] = ()
    """Columns of a table to translate, by name or by number from 1."""
    glossaries: tuple[str, ...] = ()
    """Ids of stored glossaries whose terms are put in."""
    memory: str = ""
    """Id of a translation memory whose sentences are used; empty for none."""
    memory_threshold: float | None = None
    """Smallest similarity in percent of a segment that is used; None is the default."""
    memory_as_prefix: bool = False
    """Whether a similar segment gives the beginning of a translation, rather than the whole."""
    secret: str = ""
    """SHA-256 of a further secret that is needed for the document; empty if there is none."""
    created: float
    started: float | None = None
    ended: float | None = None
    state: State = "queued"
    format: str = ""
    """Kind of file; empty until it has been read."""
    output_suffix: str = ""
    """Suffix of the result, if it is another kind of file."""
    done: int = 0
    """Number of units (paragraphs, cells, messages) that are translated."""
    total: int = 0
    characters: int = 0
    """Number of characters of the translated units."""
    warnings: tuple[str, ...] = ()
    error: str = ""
    """The reason why it failed."""

    @property
    def ready(self) -> bool:
        """Whether its translation has ended."""
        return self.state in ("done", "failed")


def new_id() -> str:
    """A random name that cannot be guessed."""
    return secrets.token_hex(16)


def clean_name(name: str) -> str:
    """The name of a file without folders, and without characters that a header or a disk cannot
    contain."""
    last = re.split(r"[/\\]", name)[-1]
    kept = "".join(char for char in last if char.isprintable()).strip(". ")
    return kept[-_NAME_LENGTH:] or "document"


class Shelf:
    """The documents in one folder."""

    def __init__(self, folder: Path) -> None:
        """Open a folder; it is created if it does not exist."""
        self._folder, self._waiting = folder, folder / "waiting"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        # A file for each document that waits, so that nobody reads the records of all others.
        self._waiting.mkdir(exist_ok=True)

    def add(self, record: DocumentRecord, content: IO[bytes]) -> None:
        """Add a document, completely or not at all. Raises StoreUnavailableError if the disk is
        full."""
        made = self._folder / f".{record.id}"
        try:
            made.mkdir(mode=0o700)
            with (made / _SOURCE).open("wb") as file:
                shutil.copyfileobj(content, file, 2**20)
            write_whole(made / _RECORD, _written(record))
            self._mark(record).touch()
            made.rename(self._folder / record.id)
        except OSError as error:
            shutil.rmtree(made, ignore_errors=True)
            self._mark(record).unlink(missing_ok=True)
            raise StoreUnavailableError(
                f"the server cannot keep the document ({error.strerror}); try again later"
            ) from error

    def get(self, id: str, owner: str) -> DocumentRecord:
        """A document of an owner. Raises UnknownDocumentError."""
        found = self._read(id) if _ID.fullmatch(id) else None
        if found is None or found.owner != owner:
            raise unknown_document()
        return found

    def save(self, record: DocumentRecord) -> None:
        """Write a changed record. Does nothing if the document was deleted meanwhile."""
        with contextlib.suppress(FileNotFoundError):
            write_whole(self._folder / record.id / _RECORD, _written(record))
            if record.ready:
                self._mark(record).unlink(missing_ok=True)

    def source(self, record: DocumentRecord) -> bytes:
        """The content of the uploaded file."""
        return self.file(record).read_bytes()

    def result(self, record: DocumentRecord) -> Path:
        """Path of the translated file, whether or not it exists yet."""
        return self._folder / record.id / _RESULT

    def progress(self, record: DocumentRecord) -> Path:
        """Path of the file with the translations so far, one line per unit."""
        return self._folder / record.id / _PROGRESS

    def sentences(self, record: DocumentRecord) -> Path:
        """Path of the file with the sentences decoded so far, of finished units and others."""
        return self._folder / record.id / _SENTENCES

    def file(self, record: DocumentRecord) -> Path:
        """Path of the uploaded file."""
        return self._folder / record.id / _SOURCE

    def picture(self, record: DocumentRecord, which: Picture) -> Path:
        """Path of the picture of its first page, before or after the translation, whether or not it
        exists yet."""
        return self._folder / record.id / f"{which}.png"

    def is_there(self, record: DocumentRecord) -> bool:
        """Whether the document has not been deleted."""
        return (self._folder / record.id).is_dir()

    def remove(self, record: DocumentRecord) -> None:
        """Delete a document. A worker that translates it stops."""
        # Off the shelf first, so that a worker which still writes leaves nothing behind.
        with contextlib.suppress(UnknownDocumentError):
            shutil.rmtree(self.take(record), ignore_errors=True)

    def take(self, record: DocumentRecord) -> Path:
        """Remove a document from the shelf, so that nobody else finds it. Returns its folder, which
        the caller deletes. Raises UnknownDocumentError if another request was faster."""
        taken = self._folder / f".{record.id}"
        try:
            (self._folder / record.id).rename(taken)
        except OSError as error:
            raise unknown_document() from error
        self._mark(record).unlink(missing_ok=True)
        return taken

    def sweep(self, before: float) -> None:
        """Delete documents that ended before a time, and the remains of processes that were killed
        while they added or took one."""
        for record in self.all():
            if record.ready and (record.ended or record.created) < before:
                self.remove(record)
        for folder in self._folder.glob(".*"):
            with contextlib.suppress(OSError):
                if folder.stat().st_mtime < before:
                    shutil.rmtree(folder)

    def all(self) -> list[DocumentRecord]:
        """Yield every document."""
        ids = [path.name for path in self._folder.iterdir() if _ID.fullmatch(path.name)]
        return [record for id in ids if (record := self._read(id)) is not None]

    @property
    def num_waiting(self) -> int:
        """Number of documents that are not finished."""
        return sum(1 for _ in self._waiting.iterdir())

    @contextlib.contextmanager
    def claimed(self) -> Iterator[DocumentRecord | None]:
        """The oldest waiting document that nobody translates, reserved for the caller within the
        context; None if there is none."""
        for mark in sorted(self._waiting.iterdir()):
            id = mark.name.partition("-")[2]
            if not (self._folder / id).is_dir():  # it is just being added, or was deleted
                continue
            lock = FileLock(self._folder / id / "lock", blocking=False, thread_local=False)
            try:
                lock.acquire()
            except (Timeout, OSError):  # another worker has it, or it has been deleted
                continue
            try:
                # It may have been finished between the two looks.
                record = self._read(id)
                if record is not None and not record.ready:
                    yield record
                    return
                mark.unlink(missing_ok=True)
            finally:
                lock.release()
        yield None

    def _mark(self, record: DocumentRecord) -> Path:
        """The marker file that exists while the document waits; by name, the oldest comes first."""
        return self._waiting / f"{record.created:017.6f}-{record.id}"

    def _read(self, id: str) -> DocumentRecord | None:
        try:
            fields = json.loads((self._folder / id / _RECORD).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return DocumentRecord(
            **{
                **fields,
                "warnings": tuple(fields["warnings"]),
                "glossaries": tuple(fields["glossaries"]),
                # Records that an earlier version wrote have none.
                "columns": tuple(fields.get("columns", ())),
            }
        )


def unknown_document() -> UnknownDocumentError:
    """The error for an unknown document, in the same words whatever the reason."""
    return UnknownDocumentError(
        "there is no such document; it never existed, was deleted, or has expired"
    )


def _written(record: DocumentRecord) -> bytes:
    return json.dumps(dataclasses.asdict(record), ensure_ascii=False).encode()
