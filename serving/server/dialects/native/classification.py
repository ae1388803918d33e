"""The native route to classifiers: its body and its answer."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from serving.encoding.reader import probabilities, ranked
from serving.errors import RequestError
from serving.server.http.access_log import RequestContext
from serving.server.http.body import read_json
from serving.server.http.wire import Wire, json_response
from serving.server.work.backend import Backend
from serving.server.work.encoding import Given, Readings

Texts = Annotated[list[str], Field(min_length=1)]


class ClassifyRequest(Wire):
    """Texts to classify, or pairs of texts."""

    q: str | Texts
    """A text, or several."""
    pair: str | Texts | None = None
    """The second text of each, for models that read two: as many as `q` has."""
    model: str | None = None
    """Name of a classifier; default the first."""
    truncate: bool = False
    """Cut the ends of texts that are too long off."""


class LabelScore(Wire):
    """A class and its probability."""

    label: str
    probability: float


class Classification(Wire):
    """The classes of one text, the likeliest one first."""

    label: str
    probability: float
    labels: list[LabelScore]
    """All classes; the probabilities of several add up to one."""


class ClassifyResponse(Wire):
    """What was found of each text, in the order of the request."""

    classifications: list[Classification]
    model: str


class ClassifyEndpoint:
    """Answers the requests to /classify."""

    def __init__(self, backend: Backend) -> None:
        self._readings, self._max_bytes = Readings(backend), backend.settings.max_body_bytes

    async def classify(self, request: Request, context: RequestContext) -> Response:
        """The classes of each text with their probabilities."""
        body = await read_json(request, ClassifyRequest, self._max_bytes)
        try:
            read = await self._readings.read(
                _inputs(body),
                "classify",
                request,
                context,
                model=body.model,
                truncate=body.truncate,
            )
        except RequestError as error:
            named = error if isinstance(body.q, str) else error.within("q")
            raise named.renamed({"text": "q", "input": "q"}) from error
        labels = read.model.reader.reading.labels
        found = []
        for row_C in probabilities(read.found_BW):
            scores = [LabelScore(label=a, probability=p) for a, p in ranked(labels, row_C)]
            first = scores[0]
            found.append(
                Classification(label=first.label, probability=first.probability, labels=scores)
            )
        return json_response(ClassifyResponse(classifications=found, model=read.model.name))


def _inputs(body: ClassifyRequest) -> list[Given]:
    """The texts or pairs; raises RequestError where the second texts are not as many."""
    firsts = [body.q] if isinstance(body.q, str) else body.q
    if body.pair is None:
        return list(firsts)
    seconds = [body.pair] if isinstance(body.pair, str) else body.pair
    if len(seconds) != len(firsts):
        raise RequestError(
            f"pair must have as many texts as q, {len(firsts)}, got {len(seconds)}",
            parameter="pair",
        )
    return list(zip(firsts, seconds, strict=True))
