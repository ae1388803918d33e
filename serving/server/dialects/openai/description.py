"""OpenAI's part of the OpenAPI document."""

from __future__ import annotations

from typing import Any

from serving.server.api.description import (
    QUICK,
    WORK,
    Description,
    events,
    get,
    parameter,
    post,
    reference,
)
from serving.server.dialects.openai.chat import ChatCompletion, ChatRequest
from serving.server.dialects.openai.embeddings import EmbeddingRequest, Embeddings
from serving.server.dialects.openai.wire import (
    Completion,
    CompletionRequest,
    Detokenized,
    DetokenizeRequest,
    OpenAIError,
    OpenAIModel,
    OpenAIModels,
    TokenizeRequest,
    TokenizerInfo,
    Tokens,
)


def describe() -> Description:
    """Describe the routes under /v1 and those of tokenizers, whose errors have OpenAI's shape."""
    return Description(
        paths={**_models_paths(), **_completions_paths(), **_tokenizer_paths()},
        requests=(
            CompletionRequest,
            ChatRequest,
            EmbeddingRequest,
            TokenizeRequest,
            DetokenizeRequest,
        ),
        answers=(
            OpenAIModels,
            OpenAIModel,
            Completion,
            ChatCompletion,
            Embeddings,
            TokenizerInfo,
            Tokens,
            Detokenized,
            OpenAIError,
        ),
    )


def _models_paths() -> dict[str, Any]:
    card, error = reference(OpenAIModel), OpenAIError
    one_model = get("model", "One language model or encoder", card, (404, 503), error)
    one_model["get"]["parameters"] = [parameter("model", "path")]
    models = get(
        "openai_models", "Language models and encoders", reference(OpenAIModels), (503,), error
    )
    return {"/v1/models": models, "/v1/models/{model}": one_model}


def _completions_paths() -> dict[str, Any]:
    completions = post(
        "completions",
        "Go on from prompts; requests that arrive together are decoded together",
        CompletionRequest,
        Completion,
        WORK,
        OpenAIError,
    )
    completions["post"]["responses"]["200"]["content"]["text/event-stream"] = events(
        "With `stream`: Completions, and [DONE] at the end"
    )
    chat = post(
        "chat",
        "Answer a chat by a model with a chat template",
        ChatRequest,
        ChatCompletion,
        WORK,
        OpenAIError,
    )
    chat["post"]["responses"]["200"]["content"]["text/event-stream"] = events(
        "With `stream`: OpenAI's `chat.completion.chunk`s, and [DONE] at the end"
    )
    embeddings = post(
        "embeddings", "Vectors of texts", EmbeddingRequest, Embeddings, WORK, OpenAIError
    )
    return {
        "/v1/completions": completions,
        "/v1/chat/completions": chat,
        "/v1/embeddings": embeddings,
    }


def _tokenizer_paths() -> dict[str, Any]:
    info, error = reference(TokenizerInfo), OpenAIError
    special = get("tokenizer_info", "The special tokens", info, (404, 503), error)
    special["get"]["parameters"] = [parameter("model", "query")]
    return {
        "/tokenizer_info": special,
        "/tokenize": post("tokenize", "Text to ids", TokenizeRequest, Tokens, QUICK, error),
        "/detokenize": post(
            "detokenize", "Ids to text", DetokenizeRequest, Detokenized, QUICK, error
        ),
    }
