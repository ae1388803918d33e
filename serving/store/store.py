"""All stored data of one database in a single object."""

from __future__ import annotations

from pathlib import Path

from serving.store.audit import AuditLog
from serving.store.database import Database
from serving.store.evaluations import StoredEvaluations
from serving.store.files import StoredFiles
from serving.store.glossaries import Glossaries
from serving.store.jobs import JobQueue
from serving.store.keys import StoredKeys
from serving.store.memories import Memories
from serving.store.memory_jobs import MemoryJobs
from serving.store.rates import StoredRates
from serving.store.suggestions import Suggestions
from serving.store.usage import StoredUsage


class Store:
    """The data in one database; safe to use from several threads, and from several servers."""

    def __init__(self, url: str, folder: Path) -> None:
        """Open the database of a URL. Raises what `Database` does."""
        self.database = Database(url, folder)
        self.glossaries = Glossaries(self.database)
        self.keys = StoredKeys(self.database)
        self.memories = Memories(self.database)
        self.memory_jobs = MemoryJobs(self.database)
        self.usage = StoredUsage(self.database)
        self.rates = StoredRates(self.database)
        self.audit = AuditLog(self.database)
        self.suggestions = Suggestions(self.database)
        self.evaluations = StoredEvaluations(self.database)
        self.jobs = JobQueue(self.database)
        self.files = StoredFiles(self.database)

    def close(self) -> None:
        """Close the database."""
        self.database.close()
