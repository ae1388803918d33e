"""What the endpoints of all dialects work with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from serving.server.http.gate import Gatekeeper
from serving.server.http.metrics import HttpMetrics
from serving.server.http.settings import Settings
from serving.server.models.registry import Registry


@dataclass(frozen=True)
class Backend:
    """The models, the settings and the gate of one app, made once and handed to every dialect."""

    registry: Registry
    settings: Settings
    gatekeeper: Gatekeeper
    metrics: HttpMetrics
    document: Callable[[], str]
    """The OpenAPI document of this app."""
