"""What the endpoints of all dialects work with."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from serving.errors import ServingError
from serving.server.http.gate import Gatekeeper
from serving.server.http.metrics import HttpMetrics
from serving.server.http.settings import Settings
from serving.server.models.registry import Registry
from serving.server.work.batches.desk import Batches
from serving.server.work.documents.desk import Documents
from serving.server.work.stored.store import needed_store

if TYPE_CHECKING:
    from serving.store.store import Store

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Backend:
    """The models, the settings and the gate of one app, made once and handed to every dialect."""

    registry: Registry
    settings: Settings
    gatekeeper: Gatekeeper
    metrics: HttpMetrics
    documents: Documents
    batches: Batches
    document: Callable[[], str]
    """The OpenAPI document of this app."""
    store: Store | None = None
    """What is kept in a database, where the server has one."""

    def needed_store(self, purpose: str) -> Store:
        """The store, for a purpose (in the plural) that needs one; raises NoStoreError."""
        return needed_store(self.store, purpose)

    def close(self) -> None:
        """Bring to the store what it has to have, and close it; what it cannot take is told in the
        log. Nothing is let in any more."""
        if self.store is None:
            return
        try:
            self.gatekeeper.close()
        except ServingError as error:
            logger.error("the usage of the last seconds is lost: %s", error)
        self.store.close()
