"""What belongs to one HTTP request: made by the outermost middleware, and handed on by name to
whoever works for the request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from starlette.types import Scope

from serving.queue.ticket import RequestTiming

_SCOPE_KEY = "macaron.context"


@dataclass
class RequestContext:
    """One request: who asks, and what its log line and the metrics tell of it at the end.

    The texts of a request are never noted here.
    """

    request_id: str
    address: str = ""
    """Of the client, as the connection tells it."""
    client: str = ""
    """The name under which the request is counted; empty until the gate has let it in."""
    key: str = ""
    """Short name of the API key, where the server asks for keys."""
    model: str = ""
    """The model that was chosen; `several` where texts have different ones."""
    texts: int = 0
    """Texts, or prompts, that the model gets."""
    tokens: int = 0
    """Tokens generated for the best outputs."""
    queue_s: float = 0.0
    """Seconds that a text waited, of the text that waited longest."""
    decode_s: float = 0.0
    """Seconds that a text was decoded, of the text that took longest."""
    error: str = ""
    """Code of the error that ended the request; empty where none did."""

    def note_model(self, model: str, texts: int) -> None:
        """Note the model that was chosen and how many texts or prompts it gets."""
        self.model, self.texts = model, texts

    def note_timings(self, timings: Sequence[RequestTiming], tokens: int) -> None:
        """Note the times of all texts, of which the longest count, and the tokens generated."""
        if timings:
            self.queue_s = max(timing.queue_s for timing in timings)
            self.decode_s = max(timing.decode_s for timing in timings)
            self.tokens = tokens

    def put_into(self, scope: Scope) -> None:
        """Let everything that is called with this ASGI scope find the context with `context_of`."""
        scope[_SCOPE_KEY] = self


def context_of(scope: Scope) -> RequestContext:
    """The context of the request that an ASGI scope belongs to."""
    context = scope[_SCOPE_KEY]
    assert isinstance(context, RequestContext)
    return context
