"""A client of a Macaron server, over HTTP: `Client`, and `AsyncClient` for asyncio.

Needs httpx only, and no other package of this project. `calls` and `store_calls` define once what
an operation sends and how its answer is parsed; the two clients differ in how they wait.
"""

from __future__ import annotations

from macaron.client.asynchronous import AsyncClient
from macaron.client.errors import (
    ApiError,
    BatchFailedError,
    ConnectionLostError,
    DocumentFailedError,
)
from macaron.client.records import (
    DocumentOptions,
    Label,
    ModelInfo,
    Ranked,
    RemoteDocument,
    RemoteHypothesis,
    RemoteOrigin,
    RemotePartial,
    RemoteTranslation,
    RemoteVectors,
    TranslationOptions,
)
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
from macaron.client.synchronous import Client

__all__ = [
    "ApiError",
    "AsyncClient",
    "BatchFailedError",
    "BatchFile",
    "BatchWebhookAddress",
    "Client",
    "ConnectionLostError",
    "DocumentFailedError",
    "DocumentOptions",
    "Label",
    "ModelInfo",
    "Ranked",
    "RemoteAnswer",
    "RemoteBatch",
    "RemoteDictionary",
    "RemoteDocument",
    "RemoteFileRead",
    "RemoteGlossary",
    "RemoteHypothesis",
    "RemoteMemory",
    "RemoteOrigin",
    "RemotePartial",
    "RemoteSegment",
    "RemoteTranslation",
    "RemoteVectors",
    "TranslationOptions",
]
