"""What the endpoints of all dialects work with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from serving.errors import NoStoreError
from serving.server.http.gate import Gatekeeper
from serving.server.http.metrics import HttpMetrics
from serving.server.http.settings import Settings
from serving.server.models.registry import Registry
from serving.server.work.documents.desk import Documents

if TYPE_CHECKING:
    from serving.store.store import Store


@dataclass(frozen=True)
class Backend:
    """The models, the settings and the gate of one app, made once and handed to every dialect."""

    registry: Registry
    settings: Settings
    gatekeeper: Gatekeeper
    metrics: HttpMetrics
    documents: Documents
    document: Callable[[], str]
    """The OpenAPI document of this app."""
    store: Store | None = None
    """What is kept in a database, where the server has one."""

    def needed_store(self, purpose: str) -> Store:
        """The store, for a purpose (in the plural) that needs one; raises NoStoreError."""
        if self.store is None:
            raise NoStoreError(
                f"{purpose} are not kept on this server, which has no store; whoever runs it can "
                "set MACARON_STORE=sqlite:///store.db"
            )
        return self.store
