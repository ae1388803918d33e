"""OpenAI's chat API over the language models that have a chat template."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import Annotated, Any, Literal, cast

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from serving.errors import RequestError
from serving.generation.choices import TokenScore
from serving.generation.ticket import Delta, GenerationDone, GenerationRequest, PromptRead
from serving.server.dialects.openai.generating import (
    Begun,
    answered,
    generation_options,
    in_wire_names,
    refused,
)
from serving.server.dialects.openai.wire import SamplingFields, UsageBody, Whole
from serving.server.http.access_log import RequestContext
from serving.server.http.body import read_json
from serving.server.http.wire import Wire
from serving.server.models.served import ServedLanguageModel
from serving.server.work.backend import Backend
from serving.server.work.pipeline import Chosen, Pipeline, TimeLimit

_LONGEST = 1024
"""Tokens of an answer where the request names no limit."""


class TextPart(Wire):
    """A part of a message; only texts can be read."""

    type: Literal["text"]
    text: str


class ChatMessage(Wire):
    """What somebody said."""

    role: Literal["system", "developer", "user", "assistant"]
    """`developer` is the newer name of `system`, which templates know."""
    content: str | list[TextPart] | None = None

    @property
    def text(self) -> str:
        """The content, its parts one after the other."""
        if isinstance(self.content, list):
            return "".join(part.text for part in self.content)
        return self.content or ""


class ChatRequest(SamplingFields):
    """A chat to go on with."""

    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    max_completion_tokens: Annotated[Whole, Field(ge=1)] | None = None
    """Tokens generated at most, the end of the message included; default: what prompt and model
    leave, 1,024 at most."""
    max_tokens: Annotated[Whole, Field(ge=1)] | None = None
    """The older name of `max_completion_tokens`."""
    logprobs: bool | None = None
    """Report log-probabilities."""
    top_logprobs: Annotated[Whole, Field(ge=0)] | None = None
    """With `logprobs`: those of so many likeliest tokens, too."""
    tools: list[Any] | None = None
    """Not supported, must be null or empty."""
    response_format: dict[str, Any] | None = None
    """Not supported but for the type `text`."""


class ChatTokenScore(Wire):
    """A token with its log-probability."""

    token: str
    logprob: float
    bytes: list[int] | None = None
    """Not told."""


class ChatToken(ChatTokenScore):
    """A token of an answer."""

    top_logprobs: list[ChatTokenScore]


class ChatLogProbs(Wire):
    """Log-probabilities of an answer, token for token."""

    content: list[ChatToken]


class ChatAnswerMessage(Wire):
    """The assistant's message; of a chunk what is new of it."""

    role: Literal["assistant"] | None = None
    content: str | None = None


class ChatChoice(Wire):
    """One answer, and why it ended there."""

    index: int
    message: ChatAnswerMessage
    logprobs: ChatLogProbs | None
    finish_reason: Literal["stop", "length"]


class ChatCompletion(Wire):
    """The answer."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    usage: UsageBody


class ChatChunkChoice(Wire):
    """What is new of one answer."""

    index: int
    delta: ChatAnswerMessage
    logprobs: ChatLogProbs | None
    finish_reason: Literal["stop", "length"] | None
    """Null while it goes on."""


class ChatChunk(Wire):
    """One chunk of a stream."""

    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    choices: list[ChatChunkChoice]
    usage: UsageBody | None = None


class ChatAnswer:
    """Makes the answer to one request, whole or in chunks of a stream that share its id."""

    def __init__(self, body: ChatRequest, outputs: int) -> None:
        self._body, self._outputs = body, outputs
        self._id, self._created = f"chatcmpl-{uuid.uuid4().hex}", int(time.time())

    def whole(self, results: Sequence[GenerationDone]) -> ChatCompletion:
        """The whole answer; a chat is one prompt."""
        [done] = results
        choices = [
            ChatChoice(
                index=place,
                message=ChatAnswerMessage(role="assistant", content=output.text),
                logprobs=self._log_probs(output.tokens),
                finish_reason=cast(Literal["stop", "length"], output.finish_reason),
            )
            for place, output in enumerate(done.choices)
        ]
        return ChatCompletion(
            id=self._id,
            created=self._created,
            model=self._body.model,
            choices=choices,
            usage=_usage(results),
        )

    def prompt_chunks(self, number: int, event: PromptRead) -> list[ChatChunk]:
        """Chunks that say who begins to speak."""
        del number, event
        beginning = ChatAnswerMessage(role="assistant", content="")
        return [self._chunk([self._choice(place, beginning)]) for place in range(self._outputs)]

    def chunk(self, number: int, delta: Delta) -> ChatChunk:
        """A chunk with what is new of one output."""
        del number
        message = ChatAnswerMessage(content=delta.text)
        tokens, reason = self._log_probs(delta.tokens), delta.finish_reason
        return self._chunk([self._choice(delta.choice, message, tokens, reason)])

    def usage_chunk(self, results: Sequence[GenerationDone]) -> ChatChunk:
        """The chunk that ends a stream with the token counts, and has no choices."""
        return self._chunk([], _usage(results))

    def _chunk(self, choices: list[ChatChunkChoice], usage: UsageBody | None = None) -> ChatChunk:
        return ChatChunk(
            id=self._id,
            created=self._created,
            model=self._body.model,
            choices=choices,
            usage=usage,
        )

    def _choice(
        self,
        place: int,
        delta: ChatAnswerMessage,
        tokens: ChatLogProbs | None = None,
        finish_reason: str = "",
    ) -> ChatChunkChoice:
        reason = cast(Literal["stop", "length"] | None, finish_reason or None)
        return ChatChunkChoice(index=place, delta=delta, logprobs=tokens, finish_reason=reason)

    def _log_probs(self, tokens: Sequence[TokenScore]) -> ChatLogProbs | None:
        if not self._body.logprobs:
            return None
        return ChatLogProbs(
            content=[
                ChatToken(
                    token=token.token,
                    logprob=token.log_prob,
                    top_logprobs=[
                        ChatTokenScore(token=name, logprob=score) for name, score in token.top
                    ],
                )
                for token in tokens
                if token.log_prob is not None
            ]
        )


def _usage(results: Sequence[GenerationDone]) -> UsageBody:
    """What the template has written counts as the caller's: it is of their messages."""
    prompt = sum(done.num_prompt_tokens for done in results)
    generated = sum(done.num_generated_tokens for done in results)
    return UsageBody(
        prompt_tokens=prompt, completion_tokens=generated, total_tokens=prompt + generated
    )


class ChatEndpoint:
    """Answers the requests to /v1/chat/completions."""

    def __init__(self, backend: Backend) -> None:
        self._registry, self._settings = backend.registry, backend.settings
        self._pipeline = Pipeline(backend.settings, backend.gatekeeper)

    async def chat(self, request: Request, context: RequestContext) -> Response:
        """Answer the last message, at once or as a stream of chunks."""
        body = await read_json(request, ChatRequest, self._settings.max_body_bytes)
        characters = sum(len(message.text) for message in body.messages)

        def choose(limit: TimeLimit) -> Chosen[Begun]:
            model = self._registry.choose_language_model(body.model)
            _check(body)
            return Chosen(model.name, 1, characters, lambda: self._submit(model, body, limit))

        return await answered(self._pipeline, body, characters, choose, request, context)

    def _submit(self, model: ServedLanguageModel, body: ChatRequest, limit: TimeLimit) -> Begun:
        messages = [
            {
                "role": "system" if message.role == "developer" else message.role,
                "content": message.text,
            }
            for message in body.messages
        ]
        ids = model.generator.prompts.encode_chat(messages)
        longest = model.generator.prompts.longest(self._settings.max_context_tokens)
        own = {
            "max_length": body.max_completion_tokens
            or body.max_tokens
            or max(1, min(_LONGEST, longest - len(ids))),
            "num_logprobs": (body.top_logprobs or 0) if body.logprobs else None,
        }
        options = generation_options(body, own, 1, self._settings)
        given = GenerationRequest(prompt=ids, options=options, timeout_s=limit.timeout_s)
        try:
            tickets = model.scheduler.submit_all([given], limit.max_wait_s)
        except RequestError as error:
            raise in_wire_names(error).renamed({"prompt": "messages"}) from error
        return ChatAnswer(body, options.num_hypotheses), tickets


def _check(body: ChatRequest) -> None:
    """Raise RequestError for what is asked for and cannot be done."""
    if body.tools:
        raise refused("tools", "must be null or empty: no model here calls tools")
    if body.response_format and body.response_format.get("type") != "text":
        raise refused("response_format", "must be null or of the type 'text'")
    if body.top_logprobs and not body.logprobs:
        raise refused("top_logprobs", "needs logprobs: true")
