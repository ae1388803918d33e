"""A client of a Macaron server, over HTTP: `Client`, and `AsyncClient` for asyncio.

Needs httpx alone, and nothing of the other packages. What an operation sends and how its answer is
read stands once, in `calls`; the two clients differ in how they wait.
"""

from __future__ import annotations

from macaron.client.asynchronous import AsyncClient
from macaron.client.errors import ApiError, ConnectionLostError, DocumentFailedError
from macaron.client.records import (
    Label,
    ModelInfo,
    Ranked,
    RemoteDocument,
    RemoteHypothesis,
    RemotePartial,
    RemoteTranslation,
    RemoteVectors,
    TranslationOptions,
)
from macaron.client.synchronous import Client

__all__ = [
    "ApiError",
    "AsyncClient",
    "Client",
    "ConnectionLostError",
    "DocumentFailedError",
    "Label",
    "ModelInfo",
    "Ranked",
    "RemoteDocument",
    "RemoteHypothesis",
    "RemotePartial",
    "RemoteTranslation",
    "RemoteVectors",
    "TranslationOptions",
]
