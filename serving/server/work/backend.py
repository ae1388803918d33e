"""The objects that the endpoints of all dialects use."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from serving.errors import ServingError
from serving.server.access.gate import Gatekeeper
from serving.server.http.metrics import HttpMetrics
from serving.server.http.settings import Settings
from serving.server.models.registry import Registry
from serving.server.work.batches.desk import Batches
from serving.server.work.documents.desk import Documents
from serving.server.work.imports import Imports
from serving.server.work.stored.store import needed_store

if TYPE_CHECKING:
    from serving.store.store import Store

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Backend:
    """The models, the settings and the gate of one app; created once and shared by all dialects."""

    registry: Registry
    settings: Settings
    gatekeeper: Gatekeeper
    metrics: HttpMetrics
    documents: Documents
    batches: Batches
    imports: Imports
    document: Callable[[], str]
    """The OpenAPI document of this app."""
    store: Store | None = None
    """The database, if the server has one."""

    def needed_store(self, purpose: str) -> Store:
        """The store; raises NoStoreError, which names the `purpose` (in the plural), if there is
        none."""
        return needed_store(self.store, purpose)

    def close(self) -> None:
        """Stop an import, send pending counts to the store and close it; an error of that is
        logged. No request is admitted afterwards."""
        self.imports.close()
        if self.store is None:
            return
        try:
            self.gatekeeper.close()
        except ServingError as error:
            logger.error("the usage of the last seconds is lost: %s", error)
        self.store.close()
