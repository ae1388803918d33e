"""The API of text-embeddings-inference (TEI) over the encoders: `/embed`,
`/similarity`, `/rerank`, `/predict`."""

from __future__ import annotations

import uuid

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from serving.encoding.reader import probabilities, ranked
from serving.errors import InvalidOptionError, RequestError
from serving.server.api.dialect import WORK, Dialect, DialectRoute
from serving.server.dialects.tei.answers import of_length_one, pairs_of, render_error
from serving.server.dialects.tei.wire import (
    DocumentRank,
    EmbeddingFields,
    EmbedRequest,
    Prediction,
    Predictions,
    PredictRequest,
    Rank,
    RankedDocuments,
    Ranks,
    Reranked,
    RerankRequest,
    RerankUsage,
    Similarities,
    SimilarityRequest,
    TeiError,
    TextDocument,
    Vectors,
)
from serving.server.http.access_log import RequestContext
from serving.server.http.body import read_json
from serving.server.http.wire import json_response
from serving.server.work.backend import Backend
from serving.server.work.encoding import (
    Given,
    Readings,
    check_dimensions,
    inputs_of,
    place_in,
)


class _TeiEndpoints:
    """Endpoints of TEI's routes."""

    def __init__(self, backend: Backend) -> None:
        self._readings, self._max_bytes = Readings(backend), backend.settings.max_body_bytes

    async def embed(self, request: Request, context: RequestContext) -> Response:
        """Return the vector of each text."""
        body = await read_json(request, EmbedRequest, self._max_bytes)
        read = await self._readings.read(
            inputs_of(body.inputs),
            "encode",
            request,
            context,
            place=place_in("inputs", body.inputs),
            model=body.model,
            truncate=bool(body.truncate),
            prompt_name=body.prompt_name,
        )
        check_dimensions(read, body.dimensions)
        reading = read.model.manifest.reading
        assert reading is not None
        if body.normalize is False and reading.normalised:
            raise InvalidOptionError(
                f"normalize of the model {read.model.name!r} must be true, since its vectors have "
                "length one, got false; leave it out",
                parameter="normalize",
            )
        vectors = read.found_BW if body.normalize is False else of_length_one(read.found_BW)
        return json_response(Vectors(vectors.tolist()))

    async def similarity(self, request: Request, context: RequestContext) -> Response:
        """Return the similarity of each text to one text."""
        body = await read_json(request, SimilarityRequest, self._max_bytes)
        inputs, given = body.inputs, body.parameters or EmbeddingFields()
        read = await self._readings.read(
            [inputs.source_sentence, *inputs.sentences],
            "encode",
            request,
            context,
            place=lambda index, _: (
                f"inputs.sentences[{index - 1}]" if index else "inputs.source_sentence"
            ),
            model=body.model,
            truncate=bool(given.truncate),
            prompt_name=given.prompt_name,
        )
        source_1D, *others = np.split(of_length_one(read.found_BW), [1])
        cosines_B = np.clip(others[0] @ source_1D[0], -1.0, 1.0)  # rounding may pass the bounds
        return json_response(Similarities(cosines_B.tolist()))

    async def rerank(self, request: Request, context: RequestContext) -> Response:
        """Rank texts by how well they answer a query."""
        body = await read_json(request, RerankRequest, self._max_bytes)
        texts = body.given
        pairs: list[Given] = [(body.query, text) for text in texts]
        name = "texts" if body.texts else "documents"
        read = await self._readings.read(
            pairs,
            "classify",
            request,
            context,
            place=lambda index, part: f"{name}[{index}]" if part else "query",
            model=body.model,
            truncate=bool(body.truncate),
        )
        if read.found_BW.shape[1] != 1:
            raise RequestError(
                f"the model {read.model.name!r} has {read.found_BW.shape[1]} classes, and "
                "reranking needs one; name another model",
                parameter="model",
            )
        scores_B1 = read.found_BW if body.raw_scores else probabilities(read.found_BW)
        order = np.argsort(-scores_B1[:, 0], kind="stable")[: body.top_n]
        found = [(int(index), float(scores_B1[index, 0]), texts[index]) for index in order]
        whole = body.return_documents or body.return_text
        if body.texts is not None:
            ranks = [
                Rank(index=index, score=score, text=text if whole else None)
                for index, score, text in found
            ]
            return json_response(Ranks(ranks), exclude_none=True)
        documents = [
            DocumentRank(
                index=index,
                relevance_score=score,
                document=TextDocument(text=text) if whole else None,
            )
            for index, score, text in found
        ]
        answer = RankedDocuments(
            id=f"rerank-{uuid.uuid4().hex}",
            model=read.model.name,
            results=documents,
            usage=RerankUsage(total_tokens=read.tokens),
        )
        return json_response(answer, exclude_none=True)

    async def predict(self, request: Request, context: RequestContext) -> Response:
        """Return the classes of each text or pair."""
        body = await read_json(request, PredictRequest, self._max_bytes)
        several = isinstance(body.inputs, list) and isinstance(body.inputs[0], list)
        inputs = pairs_of(body)

        def place(index: int, part: int) -> str:
            name = f"inputs[{index}]" if several else "inputs"
            return name if isinstance(body.inputs, str) else f"{name}[{part}]"

        read = await self._readings.read(
            inputs,
            "classify",
            request,
            context,
            place=place,
            model=body.model,
            truncate=bool(body.truncate),
        )
        scores_BC = read.found_BW if body.raw_scores else probabilities(read.found_BW)
        labels = read.model.inputs.reading.labels
        found = [
            [Prediction(score=score, label=label) for label, score in ranked(labels, row_C)]
            for row_C in scores_BC
        ]
        return json_response(Predictions(found if several else found[0]))


TEI = Dialect(
    endpoints=_TeiEndpoints,
    routes=(
        DialectRoute(
            "/embed",
            _TeiEndpoints.embed,
            "embed",
            "Vectors of texts",
            Vectors,
            methods=("POST",),
            request=EmbedRequest,
            errors=WORK,
        ),
        DialectRoute(
            "/similarity",
            _TeiEndpoints.similarity,
            "similarity",
            "The similarity of texts to one text",
            Similarities,
            methods=("POST",),
            request=SimilarityRequest,
            errors=WORK,
        ),
        DialectRoute(
            "/rerank",
            _TeiEndpoints.rerank,
            "rerank",
            "Texts, ranked by how well they answer a query",
            Reranked,
            methods=("POST",),
            request=RerankRequest,
            errors=WORK,
        ),
        DialectRoute(
            "/v1/rerank",
            _TeiEndpoints.rerank,
            "v1_rerank",
            "Documents, ranked by how well they answer a query",
            Reranked,
            methods=("POST",),
            request=RerankRequest,
            errors=WORK,
            among_others=True,
        ),
        DialectRoute(
            "/predict",
            _TeiEndpoints.predict,
            "predict",
            "Classes of texts or pairs",
            Predictions,
            methods=("POST",),
            request=PredictRequest,
            errors=WORK,
        ),
    ),
    error=TeiError,
    render_error=render_error,
)
"""The API of text-embeddings-inference."""
