"""What goes over the wire in the dialect of text-embeddings-inference.

Optional fields may be null; fields that are not listed are ignored, since other servers have
others. Each body may name a model, which is not in that API.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, RootModel

from serving.server.http.wire import Wire

Ids = Annotated[list[int], Field(min_length=1)]
Texts = Annotated[list[str], Field(min_length=1)]


class EmbedRequest(Wire):
    """Texts whose vectors are wanted."""

    inputs: str | Texts | Ids | Annotated[list[Ids], Field(min_length=1)]
    """A text or a list of token ids without special ones, or several of either."""
    normalize: bool | None = None
    """Give vectors of length one; default true."""
    truncate: bool | None = None
    """Cut the end of texts that are too long off; default false."""
    model: str | None = None
    """Name of an encoder (not in TEI's API); default the first."""


class SimilarityInputs(Wire):
    """A text, and those that it is compared with."""

    source_sentence: str
    sentences: Texts


class SimilarityParameters(Wire):
    """How the texts are read."""

    truncate: bool | None = None
    """Cut the end of texts that are too long off; default false."""


class SimilarityRequest(Wire):
    """Texts to compare with one."""

    inputs: SimilarityInputs
    parameters: SimilarityParameters | None = None
    model: str | None = None
    """Name of an encoder (not in TEI's API); default the first."""


class RerankRequest(Wire):
    """Texts to put in the order in which they answer a query."""

    query: str
    texts: Texts
    raw_scores: bool | None = None
    """Give logits in place of scores between 0 and 1; default false."""
    return_text: bool | None = None
    """Give each text back with its score; default false."""
    truncate: bool | None = None
    """Cut the ends of texts that are too long off; default false."""
    model: str | None = None
    """Name of a classifier with one class (not in TEI's API); default the first classifier."""


class PredictRequest(Wire):
    """Texts or pairs of texts to classify."""

    inputs: str | Texts | Annotated[list[Texts], Field(min_length=1)]
    """A text; a list of one text or of the two of a pair; or several such lists."""
    raw_scores: bool | None = None
    """Give logits in place of probabilities; default false."""
    truncate: bool | None = None
    """Cut the ends of texts that are too long off; default false."""
    model: str | None = None
    """Name of a classifier (not in TEI's API); default the first."""


class Vectors(RootModel[list[list[float]]]):
    """The vectors of all texts, in their order."""


class Similarities(RootModel[list[float]]):
    """The cosine of each text's vector with that of the one, in the order of the request."""


class Rank(Wire):
    """The score of one text."""

    index: int
    """Its place in the request."""
    text: str | None = None
    score: float


class Ranks(RootModel[list[Rank]]):
    """Texts, the one that answers best first."""


class Prediction(Wire):
    """A class and its score."""

    score: float
    label: str


class Predictions(RootModel[list[Prediction] | list[list[Prediction]]]):
    """The classes of a text, the likeliest first; of several inputs a list of such lists."""


class TeiError(Wire):
    """An error in TEI's shape."""

    error: str
    error_type: Literal["Validation", "Overloaded", "Unhealthy", "Backend"]
