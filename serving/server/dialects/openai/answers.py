"""Builds OpenAI's answers, streams and errors from the outputs of models, and converts the options
of a body into those of the generation scheduler."""

from __future__ import annotations

import base64
import dataclasses
import re
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Literal, Protocol, cast

from pydantic import BaseModel
from starlette.responses import Response

from serving.arrays import Floats
from serving.errors import RequestError, ServingError, UnknownModelError
from serving.generation.choices import Prompt, TokenScore
from serving.generation.prompts import PromptProcessor
from serving.generation.ticket import Delta, GenerationDone, GenerationTicket, PromptRead
from serving.search.sampling_options import (
    GenerationOptions,
    over_defaults,
    parse_generation_options,
)
from serving.server.dialects.openai.wire import (
    ChatAnswerMessage,
    ChatChoice,
    ChatChunk,
    ChatChunkChoice,
    ChatCompletion,
    ChatLogProbs,
    ChatRequest,
    ChatToken,
    ChatTokenScore,
    Completion,
    CompletionChoice,
    CompletionRequest,
    EmbeddingBody,
    EmbeddingRequest,
    Embeddings,
    EmbeddingUsage,
    LogProbs,
    OpenAIError,
    OpenAIErrorBody,
    SamplingFields,
    UsageBody,
)
from serving.server.http.access_log import RequestContext
from serving.server.http.settings import Settings
from serving.server.http.wire import json_response
from serving.server.work.admission import check_generation
from serving.server.work.encoding import Read
from serving.text.stream import readable

_WIRE_NAMES = {
    "max_length": "max_tokens",
    "min_length": "min_tokens",
    "sampling_top_k": "top_k",
    "sampling_top_p": "top_p",
    "num_hypotheses": "n",
    "num_logprobs": "logprobs",
}
"""Names of options in the body that differ from ours."""
_OF_THE_API = ("max_length", "num_hypotheses", "best_of", "num_logprobs")
"""Options whose defaults are those of OpenAI's API, whatever the bundle says."""


class CompletionAnswer:
    """Builds the answer to one request, whole or as chunks of a stream with the same id."""

    def __init__(self, body: CompletionRequest, texts: PromptProcessor, outputs: int) -> None:
        """`outputs` is the number of outputs of each prompt."""
        self._body, self._outputs = body, outputs
        prompts = prompts_of(body)
        self._texts = [""] * len(prompts)
        """The log-probabilities of the prompts, if the answer shows them."""
        if body.echo or body.logprobs is not None:  # making the text of many ids takes long
            self._texts = [
                prompt if isinstance(prompt, str) else readable(texts.tokenizer, prompt)
                for prompt in prompts
            ]
        self._added = [texts.num_added(prompt) for prompt in prompts]
        self._id, self._created = f"cmpl-{uuid.uuid4().hex}", int(time.time())

    def whole(self, results: Sequence[GenerationDone]) -> Completion:
        """The whole answer, with the outputs of every prompt in one list."""
        choices = []
        for number, done in enumerate(results):
            for place, output in enumerate(done.choices):
                text, tokens = output.text, self._moved(number, output.tokens)
                if self._body.echo:
                    text = self._texts[number] + text
                    tokens = [*self._shown(number, done.prompt_tokens), *tokens]
                choices.append(self._choice(number, place, text, tokens, output.finish_reason))
        return self._completion(choices, _usage(results))

    def prompt_chunks(self, number: int, event: PromptRead) -> list[Completion]:
        """Chunks that start each output with its prompt; none without `echo`."""
        if not self._body.echo:
            return []
        tokens = self._shown(number, event.tokens)
        return [
            self._completion([self._choice(number, place, self._texts[number], tokens, "")])
            for place in range(self._outputs)
        ]

    def chunk(self, number: int, delta: Delta) -> Completion:
        """A chunk with new text of one output of a prompt, given by its number."""
        tokens = self._moved(number, delta.tokens)
        choice = self._choice(number, delta.choice, delta.text, tokens, delta.finish_reason)
        return self._completion([choice])

    def usage_chunk(self, results: Sequence[GenerationDone]) -> Completion:
        """The last chunk of a stream: token counts without choices."""
        return self._completion([], _usage(results))

    def _completion(
        self, choices: list[CompletionChoice], usage: UsageBody | None = None
    ) -> Completion:
        return Completion(
            id=self._id,
            created=self._created,
            model=self._body.model,
            choices=choices,
            usage=usage,
        )

    def _choice(
        self,
        number: int,
        place: int,
        text: str,
        tokens: Sequence[TokenScore],
        finish_reason: str,
    ) -> CompletionChoice:
        return CompletionChoice(
            index=number * self._outputs + place,
            text=text,
            logprobs=None if self._body.logprobs is None else log_probs(tokens),
            finish_reason=cast(Literal["stop", "length"] | None, finish_reason or None),
        )

    def _moved(self, number: int, tokens: Sequence[TokenScore]) -> list[TokenScore]:
        """The tokens of an output, with offsets from the start of the prompt, if the answer shows
        them."""
        start = len(self._texts[number])
        if not start:
            return list(tokens)
        return [dataclasses.replace(token, offset=token.offset + start) for token in tokens]

    def _shown(self, number: int, tokens: Sequence[TokenScore]) -> Sequence[TokenScore]:
        """The tokens of a prompt without those that are added before a text."""
        return tokens[self._added[number] :]


def prompts_of(body: CompletionRequest) -> list[Prompt]:
    """The prompts of a request as a list; an empty prompt if it has none."""
    prompt = body.prompt
    if prompt is None:
        return [""]
    if isinstance(prompt, str) or isinstance(prompt[0], int):
        return [cast(Prompt, prompt)]
    return list(cast(list[Prompt], prompt))


def log_probs(tokens: Sequence[TokenScore]) -> LogProbs:
    """Log-probabilities of tokens. The token itself is also among the most probable ones, with the
    same number."""
    return LogProbs(
        tokens=[token.token for token in tokens],
        token_logprobs=[token.log_prob for token in tokens],
        top_logprobs=[
            None if token.log_prob is None else {token.token: token.log_prob} | dict(token.top)
            for token in tokens
        ],
        text_offset=[token.offset for token in tokens],
    )


class ChatAnswer:
    """Builds the answer to one request, whole or as chunks of a stream with the same id."""

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
        """Chunks with the role of the speaker."""
        del number, event
        beginning = ChatAnswerMessage(role="assistant", content="")
        return [self._chunk([self._choice(place, beginning)]) for place in range(self._outputs)]

    def chunk(self, number: int, delta: Delta) -> ChatChunk:
        """A chunk with new text of one output."""
        del number
        message = ChatAnswerMessage(content=delta.text)
        tokens, reason = self._log_probs(delta.tokens), delta.finish_reason
        return self._chunk([self._choice(delta.choice, message, tokens, reason)])

    def usage_chunk(self, results: Sequence[GenerationDone]) -> ChatChunk:
        """The last chunk of a stream: token counts without choices."""
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
    """Number of tokens that the model has read, as `/tokenize` counts them: including tokens added
    before a text, and the template's text around messages."""
    prompt = sum(done.num_prompt_tokens for done in results)
    generated = sum(done.num_generated_tokens for done in results)
    return UsageBody(
        prompt_tokens=prompt, completion_tokens=generated, total_tokens=prompt + generated
    )


def embedded(body: EmbeddingRequest, read: Read) -> Embeddings:
    """The vectors of the texts, in the format of the body."""
    encode = _base64 if body.encoding_format == "base64" else _numbers
    data = [
        EmbeddingBody(index=index, embedding=encode(vector))
        for index, vector in enumerate(read.found_BW)
    ]
    usage = EmbeddingUsage(prompt_tokens=read.tokens, total_tokens=read.tokens)
    return Embeddings(data=data, model=read.model.name, usage=usage)


def _numbers(vector: Floats) -> list[float]:
    numbers: list[float] = vector.tolist()
    return numbers


def _base64(vector: Floats) -> str:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()


class GeneratedAnswer(Protocol):
    """Builds the answer to one request, whole or as chunks of a stream with the same id."""

    def whole(self, results: Sequence[GenerationDone]) -> BaseModel: ...

    def prompt_chunks(self, number: int, event: PromptRead) -> Sequence[BaseModel]: ...

    def chunk(self, number: int, delta: Delta) -> BaseModel: ...

    def usage_chunk(self, results: Sequence[GenerationDone]) -> BaseModel: ...


Begun = tuple[GeneratedAnswer, list[GenerationTicket]]
"""The builder of the answer, and a ticket for each prompt."""


def _openai_error(error: ServingError) -> OpenAIError:
    """The body of an error in OpenAI's shape, with the parameter at fault."""
    code = "model_not_found" if isinstance(error, UnknownModelError) else error.code
    kind = "invalid_request_error" if isinstance(error, RequestError) else "server_error"
    body = OpenAIErrorBody(message=error.full_message, type=kind, param=error.parameter, code=code)
    return OpenAIError(error=body)


def render_error(error: ServingError) -> Response:
    """An error response."""
    return json_response(_openai_error(error), status=error.status)


async def stream_events(
    answer: GeneratedAnswer,
    events: AsyncGenerator[tuple[int, PromptRead | Delta | GenerationDone]],
    context: RequestContext,
    *,
    wants_usage: bool,
) -> AsyncIterator[bytes]:
    """Server-sent events: chunks as they come, an error if one ends the request, then `[DONE]`. If
    the client disconnects, decoding stops."""
    results: dict[int, GenerationDone] = {}
    try:
        async with aclosing(events):
            async for number, event in events:
                if isinstance(event, Delta):
                    yield _event(answer.chunk(number, event))
                elif isinstance(event, PromptRead):
                    for chunk in answer.prompt_chunks(number, event):
                        yield _event(chunk)
                else:
                    results[number] = event
        if wants_usage:
            yield _event(answer.usage_chunk([results[n] for n in range(len(results))]))
    except ServingError as error:
        context.error = error.code
        yield _event(_openai_error(error))
    yield b"data: [DONE]\n\n"


def _event(body: BaseModel) -> bytes:
    return b"data: " + body.model_dump_json(exclude=_unused(body)).encode() + b"\n\n"


def _unused(body: BaseModel) -> dict[str, Any]:
    """Fields to leave out of an event: the token counts of every chunk but the last, and unchanged
    parts of a message."""
    unused: dict[str, Any] = {"usage": True} if getattr(body, "usage", 0) is None else {}
    if isinstance(body, ChatChunk):
        unused["choices"] = {
            place: {"delta": {name for name, value in choice.delta if value is None}}
            for place, choice in enumerate(body.choices)
        }
    return unused


def generation_options(
    body: SamplingFields,
    own: Mapping[str, Any],
    defaults: Mapping[str, Any],
    prompts: int,
    settings: Settings,
) -> GenerationOptions:
    """The generation options of a body, with the route's `own` options and the bundle's defaults;
    raises RequestError, with the names of the body, for a value that is not allowed."""
    kept = {name: value for name, value in defaults.items() if name not in _OF_THE_API}
    kept["min_length"] = min(kept.get("min_length", 0), own["max_length"])
    try:
        options = parse_generation_options(over_defaults(_options_of(body, own), kept))
        check_generation(prompts, options, settings)
    except RequestError as error:
        raise in_wire_names(error, body) from error
    return options


def in_wire_names(error: RequestError, body: SamplingFields) -> RequestError:
    """The same error with the option names of the body."""
    names = _WIRE_NAMES
    if isinstance(body, ChatRequest):
        older = body.max_completion_tokens is None and body.max_tokens is not None
        most = "max_tokens" if older else "max_completion_tokens"
        names = names | {"num_logprobs": "top_logprobs", "max_length": most, "max_tokens": most}
    ours = r"\b(" + "|".join(names) + r")\b"
    message = re.sub(ours, lambda match: names[match[0]], str(error))
    named = type(error)(message, parameter=error.parameter).renamed(names)
    named.index = error.index
    return named


def _options_of(body: SamplingFields, own: Mapping[str, Any]) -> dict[str, Any]:
    """The generation options of a body under our names, with the route's `own`; null fields are
    left out."""
    values = {
        "min_length": body.min_tokens,
        "temperature": body.temperature,
        "sampling_top_k": 0 if body.top_k == -1 else body.top_k,
        "sampling_top_p": body.top_p,
        "repetition_penalty": body.repetition_penalty,
        "presence_penalty": body.presence_penalty,
        "frequency_penalty": body.frequency_penalty,
        "no_repeat_ngram_size": body.no_repeat_ngram_size,
        "logit_bias": body.logit_bias,
        "stop": body.stop,
        "seed": body.seed,
        "num_hypotheses": body.n,
        "beam_size": body.beam_size,
        "length_penalty": body.length_penalty,
        **own,
    }
    return {name: value for name, value in values.items() if value is not None}
