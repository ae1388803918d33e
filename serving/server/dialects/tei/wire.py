"""Bodies of the dialect of text-embeddings-inference (TEI).

Optional fields may be null. Unknown fields are ignored, because clients send fields of other
servers too. Each body may name a model, which TEI's API does not have.
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
    """Options of reading texts."""

    truncate: bool | None = None
    """Cut off the end of texts that are too long; default false."""
    truncation_direction: Right | None = None
    """The side that is cut off. Only the right is supported."""


class EmbeddingFields(ReadingFields):
    """Options of reading texts for embeddings."""

    prompt_name: str | None = None
    """The name of the prompt that is put before each text; default the model's own default, if it
    has one."""


class ScoringFields(ReadingFields):
    """Options of reading texts for classification."""

    prompt_name: None = None
    """Must be null: classifiers have no prompts. Put the prompt into the text itself."""


class EmbedRequest(EmbeddingFields):
    """Texts to embed."""

    inputs: str | Texts | Ids | Annotated[list[Ids], Field(min_length=1)]
    """A text or a list of token ids without special tokens, or a list of several."""
    normalize: bool | None = None
    """Scale the vectors to length one; default true."""
    dimensions: Annotated[int, Field(ge=1)] | None = None
    """Size of the vectors. Only the model's own size is supported."""
    model: str | None = None
    """Name of an encoder; default the first (not in TEI's API)."""


class SimilarityInputs(Wire):
    """A text, and the texts to compare with it."""

    source_sentence: str
    sentences: Texts


class SimilarityRequest(Wire):
    """A request for the similarities of one text to several others."""

    inputs: SimilarityInputs
    parameters: EmbeddingFields | None = None
    model: str | None = None
    """Name of an encoder; default the first (not in TEI's API)."""


class TextDocument(Wire):
    """A document as an object, which some clients send instead of a text."""

    text: str


class RerankRequest(ScoringFields):
    """Texts to rank by how well they answer a query.

    TEI calls them `texts`; Cohere, Jina and vLLM call them `documents`. The answer has the form
    that belongs to the name.
    """

    query: str
    texts: Texts | None = None
    documents: Annotated[list[str | TextDocument], Field(min_length=1)] | None = None
    top_n: Annotated[int, Field(ge=1)] | None = None
    """Return only this many of the best; default all."""
    return_documents: bool | None = None
    """Return each document with its score; default false."""
    raw_scores: bool | None = None
    """Return logits instead of scores between 0 and 1; default false."""
    return_text: bool | None = None
    """Return each text with its score; default false."""
    model: str | None = None
    """Name of a classifier with one class; default the first classifier (not in TEI's API)."""

    @property
    def given(self) -> list[str]:
        """The texts to rank. Raises RequestError unless exactly one of the two fields is given."""
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
    """A text; a list of one text, or of the two texts of a pair; or a list of such lists."""
    raw_scores: bool | None = None
    """Return logits instead of probabilities; default false."""
    model: str | None = None
    """Name of a classifier; default the first (not in TEI's API)."""


class Vectors(RootModel[list[list[float]]]):
    """The vectors of all texts, in order."""


class Similarities(RootModel[list[float]]):
    """The cosine similarity of each text to `source_sentence`, in order."""


class Rank(Wire):
    """The score of one text."""

    index: int
    """Position in the request, from 0."""
    text: str | None = None
    score: float


class Ranks(RootModel[list[Rank]]):
    """Scores of the texts, best first."""


class DocumentRank(Wire):
    """The score of one document."""

    index: int
    """Position in the request, from 0."""
    relevance_score: float
    document: TextDocument | None = None


class RerankUsage(Wire):
    """Number of tokens read, including special tokens."""

    total_tokens: int


class RankedDocuments(Wire):
    """Scores of the documents, best first."""

    id: str
    model: str
    results: list[DocumentRank]
    usage: RerankUsage


class Reranked(RootModel[list[Rank] | RankedDocuments]):
    """The answer to a RerankRequest: a list for `texts`, an object for `documents`."""


class Prediction(Wire):
    """A class and its score."""

    score: float
    label: str


class Predictions(RootModel[list[Prediction] | list[list[Prediction]]]):
    """The classes of a text, most probable first; for several inputs, a list of such lists."""


class TeiError(Wire):
    """An error in TEI's shape."""

    error: str
    error_type: Literal["Validation", "Overloaded", "Unhealthy", "Backend"]
