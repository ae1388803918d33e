"""What is noted of an HTTP request on its way, for its log line and for the metrics."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass

from serving.queue.ticket import RequestTiming


@dataclass
class RequestRecord:
    """One request; texts themselves are never noted."""

    request_id: str
    client: str = ""
    """Short name of the key that was presented, or empty."""
    model: str = ""
    texts: int = 0
    tokens: int = 0
    """Generated for the best outputs."""
    queue_s: float = 0.0
    decode_s: float = 0.0
    error: str = ""
    """Code of the error that ended it."""


CURRENT: ContextVar[RequestRecord | None] = ContextVar("request", default=None)


def note_model(model: str, texts: int) -> None:
    """The model that was chosen and how many texts or prompts it gets."""
    if record := CURRENT.get():
        record.model, record.texts = model, texts


def note_timings(timings: Sequence[RequestTiming], tokens: int) -> None:
    """Times of the texts, of which the longest count, and the tokens generated."""
    if (record := CURRENT.get()) and timings:
        record.queue_s = max(timing.queue_s for timing in timings)
        record.decode_s = max(timing.decode_s for timing in timings)
        record.tokens = tokens


def note_tokens(tokens: int) -> None:
    """Further tokens generated."""
    if record := CURRENT.get():
        record.tokens += tokens


def note_error(code: str) -> None:
    """The error that ended the request."""
    if record := CURRENT.get():
        record.error = code
