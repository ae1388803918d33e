"""What completions and chats have in common: their options, their deadline, their streams."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Protocol

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from serving.errors import RequestError, ServingError, UnknownModelError
from serving.generation.ticket import Delta, GenerationDone, GenerationTicket, PromptRead
from serving.search.sampling_options import GenerationOptions, parse_generation_options
from serving.server.dialects.openai.wire import (
    WIRE_NAMES,
    OpenAIError,
    OpenAIErrorBody,
    SamplingFields,
    options_of,
)
from serving.server.http.access_log import RequestContext
from serving.server.http.settings import Settings
from serving.server.http.wire import STREAM_HEADERS, json_response
from serving.server.work.admission import check_generation
from serving.server.work.pipeline import Caller, Chosen, Pipeline, TimeLimit

_OUR_NAMES = re.compile(r"\b(" + "|".join(WIRE_NAMES) + r")\b")


class Answer(Protocol):
    """Makes the answer to one request, whole or in the chunks of a stream, which share its id."""

    def whole(self, results: Sequence[GenerationDone]) -> BaseModel: ...

    def prompt_chunks(self, number: int, event: PromptRead) -> Sequence[BaseModel]: ...

    def chunk(self, number: int, delta: Delta) -> BaseModel: ...

    def usage_chunk(self, results: Sequence[GenerationDone]) -> BaseModel: ...


Begun = tuple[Answer, list[GenerationTicket]]
"""What makes the answer, and a ticket for each prompt."""


def generation_options(
    body: SamplingFields, own: Mapping[str, Any], prompts: int, settings: Settings
) -> GenerationOptions:
    """What the body asks for, with the route's `own` options under our names; raises RequestError,
    in the names of the body, for what is not allowed."""
    try:
        options = parse_generation_options(options_of(body, own))
        check_generation(prompts, options, settings)
    except RequestError as error:
        raise in_wire_names(error) from error
    return options


def refused(parameter: str, reason: str) -> RequestError:
    """An error of a parameter."""
    return RequestError(f"{parameter} {reason}", parameter=parameter)


def in_wire_names(error: RequestError) -> RequestError:
    """The same error, its message and its parameter naming options as the body does."""
    message = _OUR_NAMES.sub(lambda match: WIRE_NAMES[match[0]], str(error))
    return type(error)(message, parameter=error.parameter).renamed(WIRE_NAMES)


def _openai_error(error: ServingError) -> OpenAIError:
    """The body of an error in OpenAI's shape, which names the parameter at fault."""
    code = "model_not_found" if isinstance(error, UnknownModelError) else error.code
    kind = "invalid_request_error" if isinstance(error, RequestError) else "server_error"
    body = OpenAIErrorBody(message=error.full_message, type=kind, param=error.parameter, code=code)
    return OpenAIError(error=body)


def render_error(error: ServingError) -> Response:
    """An answer that is an error."""
    return json_response(_openai_error(error), status=error.status)


async def answered(
    pipeline: Pipeline,
    body: SamplingFields,
    characters: int,
    choose: Callable[[TimeLimit], Chosen[Begun]],
    request: Request,
    context: RequestContext,
) -> Response:
    """Have prompts of so many characters gone on from, with the model that `choose` takes; answers
    at once or as a stream of chunks."""
    limit = pipeline.limit(body.timeout_s)
    caller = Caller(context, characters, None if body.stream else request.receive)
    answer, tickets = await pipeline.begin(caller, lambda: choose(limit))
    if body.stream:
        events = pipeline.events(tickets, caller, limit.timeout_s)
        stream = _sent(answer, events, context, wants_usage=body.wants_usage)
        return StreamingResponse(stream, media_type="text/event-stream", headers=STREAM_HEADERS)
    return json_response(answer.whole(await pipeline.results(tickets, caller, limit.timeout_s)))


async def _sent(
    answer: Answer,
    events: AsyncGenerator[tuple[int, PromptRead | Delta | GenerationDone]],
    context: RequestContext,
    *,
    wants_usage: bool,
) -> AsyncIterator[bytes]:
    """Server-sent events: chunks in the order in which they come, an error where one ends the
    request, `[DONE]` at the end. When the client leaves, nothing is decoded further."""
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
        yield b"data: [DONE]\n\n"
    except ServingError as error:
        context.error = error.code
        yield _event(_openai_error(error))


def _event(body: BaseModel) -> bytes:
    return b"data: " + body.model_dump_json(exclude=_unused(body)).encode() + b"\n\n"


def _unused(body: BaseModel) -> set[str]:
    """The fields that are left out of an event: the counts of every chunk but the one that is there
    to tell them."""
    return {"usage"} if getattr(body, "usage", 0) is None else set()
