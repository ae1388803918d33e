"""What completions and chats have in common: their options, their deadline, their streams."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Protocol

from pydantic import BaseModel
from starlette.responses import Response

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
from serving.server.http.settings import Settings, variable
from serving.server.http.wire import json_response
from serving.server.work.admission import check_generation
from serving.server.work.in_flight import followed

_OUR_NAMES = re.compile(r"\b(" + "|".join(WIRE_NAMES) + r")\b")


class StreamedAnswer(Protocol):
    """Makes the chunks of a stream, which share its id."""

    def prompt_chunks(self, number: int, event: PromptRead) -> Sequence[BaseModel]: ...

    def chunk(self, number: int, delta: Delta) -> BaseModel: ...

    def usage_chunk(self, results: Sequence[GenerationDone]) -> BaseModel: ...


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


def timeout_of(body: SamplingFields, settings: Settings) -> float:
    """Seconds that the request has; raises RequestError for more than any may have."""
    timeout_s = body.timeout_s or settings.default_timeout_s
    if timeout_s > settings.max_timeout_s:
        limit = f"{settings.max_timeout_s:g} ({variable('max_timeout_s')})"
        raise refused("timeout_s", f"must be at most {limit}, got {timeout_s:g}")
    return timeout_s


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


async def stream_events(
    answer: StreamedAnswer,
    tickets: Sequence[GenerationTicket],
    context: RequestContext,
    *,
    wants_usage: bool,
) -> AsyncIterator[bytes]:
    """Server-sent events: chunks in the order in which they come, an error where one ends the
    request, `[DONE]` at the end. When the client leaves, nothing is decoded further."""
    results: dict[int, GenerationDone] = {}
    try:
        async for number, event in followed(tickets, context):
            if isinstance(event, Delta):
                yield _event(answer.chunk(number, event))
            elif isinstance(event, PromptRead):
                for chunk in answer.prompt_chunks(number, event):
                    yield _event(chunk)
            else:
                results[number] = event
                context.tokens += event.num_generated_tokens
        if wants_usage:
            yield _event(answer.usage_chunk([results[n] for n in range(len(tickets))]))
        yield b"data: [DONE]\n\n"
    except ServingError as error:
        context.error = error.code
        yield _event(_openai_error(error))
    finally:
        for ticket in tickets:
            ticket.cancel()  # changes nothing where it has ended


def _event(body: BaseModel) -> bytes:
    return b"data: " + body.model_dump_json(exclude=_unused(body)).encode() + b"\n\n"


def _unused(body: BaseModel) -> set[str]:
    """The fields that are left out of an event: the counts of every chunk but the one that is there
    to tell them."""
    return {"usage"} if getattr(body, "usage", 0) is None else set()
