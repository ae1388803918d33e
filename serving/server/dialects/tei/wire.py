"""What goes over the wire in the dialect of text-embeddings-inference.

Optional fields may be null; fields that are not listed are ignored, since other servers have
others. Each body may name a model, which is not in that API.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, RootModel

from serving.errors import RequestError
from serving.server.http.wire import Wire

Ids = Annotated[list[int], Field(min_length=1)]
Texts = Annotated[list[str], Field(min_length=1)]
Right = Literal["right", "Right"]


class ReadingFields(Wire):
    """How texts are read."""

    truncate: bool | None = None
    """Cut the ends of texts that are too long off; default false."""
    truncation_direction: Right | None = None
    """The side that is cut off; there is no other."""


class EmbeddingFields(ReadingFields):
    """How texts are read whose vectors are wanted."""

    prompt_name: str | None = None
    """Which of the model's prompts stands before each text; default the model's own default, if it
    has any."""


class ScoringFields(ReadingFields):
    """How texts are read that are put into classes."""

    prompt_name: None = None
    """Classifiers have no prompts of their own: write what is to stand before a text."""


class EmbedRequest(EmbeddingFields):
    """Texts whose vectors are wanted."""

    inputs: str | Texts | Ids | Annotated[list[Ids], Field(min_length=1)]
    """A text or a list of token ids without special ones, or several of either."""
    normalize: bool | None = None
    """Give vectors of length one; default true."""
    dimensions: Annotated[int, Field(ge=1)] | None = None
    """Numbers of a vector; models have one size, and no other is possible."""
    model: str | None = None
    """Name of an encoder (not in TEI's API); default the first."""


class SimilarityInputs(Wire):
    """A text, and those that it is compared with."""

    source_sentence: str
    sentences: Texts


class SimilarityRequest(Wire):
    """Texts to compare with one."""

    inputs: SimilarityInputs
    parameters: EmbeddingFields | None = None
    model: str | None = None
    """Name of an encoder (not in TEI's API); default the first."""


class TextDocument(Wire):
    """A text, as some clients send it."""

    text: str


class RerankRequest(ScoringFields):
    """Texts to put in the order in which they answer a query: `texts`, as TEI calls them, or
    `documents`, as Cohere, Jina and vLLM do, whose answer `documents` get."""

    query: str
    texts: Texts | None = None
    documents: Annotated[list[str | TextDocument], Field(min_length=1)] | None = None
    top_n: Annotated[int, Field(ge=1)] | None = None
    """Give so many of them; default all."""
    return_documents: bool | None = None
    """Give each document back with its score; default false."""
    raw_scores: bool | None = None
    """Give logits in place of scores between 0 and 1; default false."""
    return_text: bool | None = None
    """Give each text back with its score; default false."""
    model: str | None = None
    """Name of a classifier with one class (not in TEI's API); default the first classifier."""

    @property
    def given(self) -> list[str]:
        """The texts of either; raises RequestError where there are none, or both."""
        if (self.texts is None) == (self.documents is None):
            raise RequestError(
                "either texts or documents must be given, and not both", parameter="texts"
            )
        return [
            part if isinstance(part, str) else part.text
            for part in self.texts or self.documents or []
        ]


class PredictRequest(ScoringFields):
    """Texts or pairs of texts to classify."""

    inputs: str | Texts | Annotated[list[Texts], Field(min_length=1)]
    """A text; a list of one text or of the two of a pair; or several such lists."""
    raw_scores: bool | None = None
    """Give logits in place of probabilities; default false."""
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


class DocumentRank(Wire):
    """The score of one document."""

    index: int
    """Its place in the request."""
    relevance_score: float
    document: TextDocument | None = None


class RerankUsage(Wire):
    """Tokens that were read, special ones included."""

    total_tokens: int


class RankedDocuments(Wire):
    """Documents, the one that answers best first."""

    id: str
    model: str
    results: list[DocumentRank]
    usage: RerankUsage


class Reranked(RootModel[list[Rank] | RankedDocuments]):
    """What `texts` get, or `documents`."""


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
