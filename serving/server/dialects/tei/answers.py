"""Reads the inputs of TEI's routes and builds their answers: pairs of texts, vectors, errors."""

from __future__ import annotations

import numpy as np
from starlette.responses import Response

from serving.arrays import Floats
from serving.errors import (
    NotReadyError,
    OverloadedError,
    RateLimitedError,
    RequestError,
    ServingError,
)
from serving.server.dialects.tei.wire import PredictRequest, TeiError
from serving.server.http.wire import json_response
from serving.server.work.encoding import Given


def pairs_of(body: PredictRequest) -> list[Given]:
    """The texts and pairs of a body; raises RequestError for a list of more than two texts."""
    given = body.inputs
    if isinstance(given, str):
        return [given]
    lists = given if isinstance(given[0], list) else [given]
    found: list[Given] = []
    for number, texts in enumerate(lists):
        if len(texts) > 2:
            raise RequestError(
                f"inputs[{number}] must be one text or two, got {len(texts)}; several inputs are "
                "lists in a list",
                parameter="inputs",
            )
        found.append(texts[0] if len(texts) == 1 else (texts[0], texts[1]))
    return found


def of_length_one(vectors_BD: Floats) -> Floats:
    """The vectors scaled to length one; a vector of zeros stays as it is."""
    lengths_B1 = np.linalg.norm(vectors_BD, axis=1, keepdims=True)
    found: Floats = vectors_BD / np.maximum(lengths_B1, np.float32(1e-12))
    return found


def render_error(error: ServingError) -> Response:
    """An error response in TEI's shape, which has four kinds of error."""
    if isinstance(error, RequestError):
        kind = "Validation"
    elif isinstance(error, NotReadyError):
        kind = "Unhealthy"
    else:
        kind = "Overloaded" if isinstance(error, OverloadedError | RateLimitedError) else "Backend"
    body = TeiError.model_validate({"error": error.full_message, "error_type": kind})
    return json_response(body, status=error.status)
