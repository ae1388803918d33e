"""OpenAI's embeddings API over the encoders: its body and its answer."""

from __future__ import annotations

import base64
from typing import Annotated, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from serving.arrays import Floats
from serving.errors import InvalidOptionError, RequestError
from serving.server.dialects.openai.wire import Ids, Whole
from serving.server.http.access_log import RequestContext
from serving.server.http.body import read_json
from serving.server.http.wire import Wire, json_response
from serving.server.work.backend import Backend
from serving.server.work.encoding import Readings, inputs_of


class EmbeddingRequest(Wire):
    """Texts whose vectors are wanted."""

    model: str
    """Name of an encoder, as `/v1/models` lists them."""
    input: (
        str
        | Annotated[list[str], Field(min_length=1)]
        | Ids
        | Annotated[list[Ids], Field(min_length=1)]
    )
    """A text or a list of token ids without special ones, or several of either."""
    encoding_format: Literal["float", "base64"] | None = None
    """`float`: numbers, the default; `base64`: their bytes as little-endian float32."""
    dimensions: Whole | None = None
    """Numbers of a vector; models have one size, and no other is possible."""
    user: str | None = None
    """Ignored."""
    truncate: bool | None = None
    """Cut the end of texts that are too long off (not in OpenAI's API)."""


class EmbeddingBody(Wire):
    """The vector of one text."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class EmbeddingUsage(Wire):
    """Tokens that were read, special ones included."""

    prompt_tokens: int
    total_tokens: int


class Embeddings(Wire):
    """The vectors of all texts, in their order."""

    object: Literal["list"] = "list"
    data: list[EmbeddingBody]
    model: str
    usage: EmbeddingUsage


class EmbeddingEndpoint:
    """Answers the requests to /v1/embeddings."""

    def __init__(self, backend: Backend) -> None:
        self._readings, self._settings = Readings(backend), backend.settings

    async def embeddings(self, request: Request, context: RequestContext) -> Response:
        """The vector of each text."""
        body = await read_json(request, EmbeddingRequest, self._settings.max_body_bytes)
        try:
            read = await self._readings.read(
                inputs_of(body.input),
                "encode",
                request,
                context,
                model=body.model,
                truncate=bool(body.truncate),
            )
        except RequestError as error:
            named = error.within("input") if isinstance(body.input, list) else error
            raise named.renamed({"text": "input"}) from error
        width = read.found_BW.shape[1]
        if body.dimensions not in (None, width):
            raise InvalidOptionError(
                f"dimensions of the model {body.model!r} must be {width}, got {body.dimensions}; "
                "leave it out",
                parameter="dimensions",
            )
        encode = _base64 if body.encoding_format == "base64" else _numbers
        data = [
            EmbeddingBody(index=index, embedding=encode(vector))
            for index, vector in enumerate(read.found_BW)
        ]
        usage = EmbeddingUsage(prompt_tokens=read.tokens, total_tokens=read.tokens)
        return json_response(Embeddings(data=data, model=read.model.name, usage=usage))


def _numbers(vector: Floats) -> list[float]:
    numbers: list[float] = vector.tolist()
    return numbers


def _base64(vector: Floats) -> str:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()
