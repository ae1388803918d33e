"""OpenAI's completions API over the language models, and vLLM's tokenizer routes beside it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence

from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from serving.errors import RequestError, ServingError, UnknownModelError
from serving.generation.choices import written_form
from serving.generation.ticket import (
    Delta,
    GenerationDone,
    GenerationRequest,
    GenerationTicket,
    PromptRead,
)
from serving.search.sampling_options import parse_generation_options
from serving.server.access_log import RequestContext
from serving.server.admission import check_generation
from serving.server.backend import Backend
from serving.server.body import read_json
from serving.server.dialect import Dialect, DialectRoute
from serving.server.dialects.openai.answers import CompletionAnswer, prompts_of
from serving.server.dialects.openai.description import describe
from serving.server.dialects.openai.embeddings import EmbeddingEndpoint
from serving.server.dialects.openai.wire import (
    WIRE_NAMES,
    CompletionRequest,
    Detokenized,
    DetokenizeRequest,
    OpenAIError,
    OpenAIErrorBody,
    OpenAIModel,
    OpenAIModels,
    TokenizeRequest,
    TokenizerInfo,
    Tokens,
    options_of,
)
from serving.server.in_flight import completed, followed
from serving.server.registry import ServedEncoder, ServedLanguageModel
from serving.server.settings import variable
from serving.server.wire import STREAM_HEADERS, json_response
from serving.text.characters import check_text

_OUR_NAMES = re.compile(r"\b(" + "|".join(WIRE_NAMES) + r")\b")


class _OpenAIEndpoints:
    """Answers the requests under /v1, and those to the tokenizer's routes."""

    def __init__(self, backend: Backend) -> None:
        self._registry, self._settings = backend.registry, backend.settings
        self._gatekeeper = backend.gatekeeper

    async def models(self, _: Request, __: RequestContext) -> Response:
        """Every language model that is loaded, then every encoder; translators are not listed."""
        cards = [self._card(model) for model in self._registry.language_models]
        cards += [self._card(model) for model in self._registry.encoders]
        return json_response(OpenAIModels(data=cards))

    async def model(self, request: Request, _: RequestContext) -> Response:
        """Describe the language model or the encoder that the path names."""
        name = request.path_params["model"]
        for encoder in self._registry.encoders:
            if encoder.name == name:
                return json_response(self._card(encoder))
        return json_response(self._card(self._registry.choose_language_model(name)))

    async def completions(self, request: Request, context: RequestContext) -> Response:
        """Generate text after each prompt, and answer at once or as a stream of chunks."""
        body = await read_json(request, CompletionRequest, self._settings.max_body_bytes)
        model = self._registry.choose_language_model(body.model)
        requests, timeout_s = self._requests(body)
        context.note_model(model.name, len(requests))
        self._gatekeeper.charge(context, sum(len(request.prompt) for request in requests))
        try:
            # Tokenising a full body takes long enough to hold up other requests.
            tickets = await run_in_threadpool(model.scheduler.submit_all, requests)
        except RequestError as error:
            raise _in_wire_names(error) from error
        options = requests[0].options
        answer = CompletionAnswer(body, model.generator.prompts, options.num_hypotheses)
        if body.stream:
            wants_usage = bool(body.stream_options and body.stream_options.include_usage)
            stream = _stream(answer, tickets, context, wants_usage=wants_usage)
            return StreamingResponse(stream, media_type="text/event-stream", headers=STREAM_HEADERS)
        results = await completed(tickets, request.receive, timeout_s)
        context.tokens += sum(result.num_generated_tokens for result in results)
        return json_response(answer.whole(results))

    async def chat(self, _: Request, __: RequestContext) -> Response:
        """Refuse every chat: a plain language model has no template for it, and none is made up."""
        raise RequestError(
            "the language models here have no chat template; send the whole text as `prompt` to "
            "/v1/completions"
        )

    async def tokenizer_info(self, request: Request, _: RequestContext) -> Response:
        """Tell the special tokens of a model, and how large its vocabulary is."""
        model = self._registry.choose_language_model(request.query_params.get("model"))
        tokenizer = model.generator.tokenizer
        words = model.manifest.tokenizer.kind == "words"  # these have no padding
        ids = model.manifest.decoding_ids
        first = next(reversed(tokenizer.beginning), ids.bos)
        return json_response(
            TokenizerInfo(
                bos_token=written_form(tokenizer, first),
                eos_token=written_form(tokenizer, tokenizer.eos_id),
                unk_token=written_form(tokenizer, tokenizer.unk_id),
                pad_token=None if words else written_form(tokenizer, ids.pad),
                vocab_size=tokenizer.vocab_size,
                model=model.name,
            )
        )

    async def tokenize(self, request: Request, _: RequestContext) -> Response:
        """Turn a text into ids; an end of text that is written out in it becomes its own id."""
        body = await read_json(request, TokenizeRequest, self._settings.max_body_bytes)
        model = self._registry.choose_language_model(body.model)
        ids = await run_in_threadpool(_tokenize, model, body.prompt)
        if body.add_special_tokens is not False:
            ids = [*model.generator.tokenizer.beginning, *ids]
        longest = self._longest(model)
        return json_response(Tokens(tokens=ids, count=len(ids), max_model_len=longest))

    async def detokenize(self, request: Request, _: RequestContext) -> Response:
        """Turn ids into the text that they stand for."""
        body = await read_json(request, DetokenizeRequest, self._settings.max_body_bytes)
        model = self._registry.choose_language_model(body.model)
        try:
            ids = model.generator.encode(body.tokens) if body.tokens else []
        except RequestError as error:
            raise error.renamed({"prompt": "tokens"}) from None
        text = await run_in_threadpool(model.generator.tokenizer.decode, ids)
        return json_response(Detokenized(prompt=text))

    def _longest(self, model: ServedLanguageModel | ServedEncoder) -> int:
        """Tokens of prompt and output together, of an encoder those of a text."""
        sizes = model.manifest.sizes
        if isinstance(model, ServedEncoder):
            assert sizes.max_source is not None
            return sizes.max_source
        limit = self._settings.max_context_tokens
        return min(limit, sizes.max_positions or limit)

    def _card(self, model: ServedLanguageModel | ServedEncoder) -> OpenAIModel:
        device = (model.reader if isinstance(model, ServedEncoder) else model.generator).device
        return OpenAIModel(
            id=model.name,
            created=model.loaded_at,
            max_model_len=self._longest(model),
            attribution=model.manifest.attribution,
            device=device.name,
            device_reason=device.reason,
        )

    def _requests(self, body: CompletionRequest) -> tuple[list[GenerationRequest], float]:
        """One request of the scheduler for each prompt, and the seconds they have; raises
        RequestError."""
        settings, prompts = self._settings, prompts_of(body)
        if body.suffix:
            raise _refused("suffix", "must be null or empty: no model here fills in")
        if body.stream and (body.best_of or 1) > (body.n or 1):
            raise _refused("best_of", "must be at most n with stream: it ranks whole outputs")
        timeout_s = body.timeout_s or settings.default_timeout_s
        if timeout_s > settings.max_timeout_s:
            limit = f"{settings.max_timeout_s:g} ({variable('max_timeout_s')})"
            raise _refused("timeout_s", f"must be at most {limit}, got {timeout_s:g}")
        try:
            options = parse_generation_options(options_of(body))
            check_generation(len(prompts), options, settings)
        except RequestError as error:
            raise _in_wire_names(error) from error
        score = bool(body.echo) and body.logprobs is not None
        requests = [
            GenerationRequest(
                prompt=prompt, options=options, score_prompt=score, timeout_s=timeout_s
            )
            for prompt in prompts
        ]
        return requests, timeout_s


def _openai_error(error: ServingError) -> OpenAIError:
    """The body of an error in OpenAI's shape, which names the parameter at fault."""
    code = "model_not_found" if isinstance(error, UnknownModelError) else error.code
    kind = "invalid_request_error" if isinstance(error, RequestError) else "server_error"
    body = OpenAIErrorBody(message=error.full_message, type=kind, param=error.parameter, code=code)
    return OpenAIError(error=body)


def _render_error(error: ServingError) -> Response:
    return json_response(_openai_error(error), status=error.status)


async def _stream(
    answer: CompletionAnswer,
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


def _tokenize(model: ServedLanguageModel, text: str) -> list[int]:
    check_text(text, "prompt")
    tokenizer = model.generator.tokenizer
    first, *others = text.split(written_form(tokenizer, tokenizer.eos_id))
    ids = tokenizer.encode(first)
    for other in others:
        ids += [tokenizer.eos_id, *tokenizer.encode(other)]
    return ids


def _refused(parameter: str, reason: str) -> RequestError:
    return RequestError(f"{parameter} {reason}", parameter=parameter)


def _in_wire_names(error: RequestError) -> RequestError:
    """The same error, its message and its parameter naming options as the body does."""
    message = _OUR_NAMES.sub(lambda match: WIRE_NAMES[match[0]], str(error))
    return type(error)(message, parameter=error.parameter).renamed(WIRE_NAMES)


def _event(body: BaseModel) -> bytes:
    return b"data: " + body.model_dump_json(exclude=_unused(body)).encode() + b"\n\n"


def _unused(body: BaseModel) -> set[str]:
    """The fields that are left out of an event: the counts of every chunk but the one that is there
    to tell them."""
    return {"usage"} if getattr(body, "usage", 0) is None else set()


def _routes(backend: Backend) -> list[DialectRoute]:
    endpoints = _OpenAIEndpoints(backend)
    return [
        DialectRoute("/v1/models", endpoints.models),
        DialectRoute("/v1/models/{model}", endpoints.model),
        DialectRoute("/v1/embeddings", EmbeddingEndpoint(backend).embeddings, ("POST",)),
        DialectRoute("/v1/completions", endpoints.completions, ("POST",)),
        DialectRoute("/v1/chat/completions", endpoints.chat, ("POST",)),
        DialectRoute("/tokenizer_info", endpoints.tokenizer_info),
        DialectRoute("/tokenize", endpoints.tokenize, ("POST",)),
        DialectRoute("/detokenize", endpoints.detokenize, ("POST",)),
    ]


OPENAI = Dialect(
    routes=_routes,
    describe=describe,
    error_paths=("/v1/", "/tokenizer_info", "/tokenize", "/detokenize"),
    render_error=_render_error,
)
"""OpenAI's completions API, and vLLM's tokenizer routes."""
