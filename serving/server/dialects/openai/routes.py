"""OpenAI's API for language models and encoders, and vLLM's tokenizer routes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from serving.errors import RequestError
from serving.generation.choices import Prompt, written_form
from serving.generation.ticket import GenerationRequest
from serving.server.api.dialect import QUICK, WORK, Dialect, DialectRoute
from serving.server.dialects.openai.answers import (
    Begun,
    ChatAnswer,
    CompletionAnswer,
    embedded,
    generation_options,
    in_wire_names,
    prompts_of,
    render_error,
    stream_events,
)
from serving.server.dialects.openai.wire import (
    ChatCompletion,
    ChatRequest,
    Completion,
    CompletionRequest,
    Detokenized,
    DetokenizeRequest,
    EmbeddingRequest,
    Embeddings,
    OpenAIError,
    OpenAIModel,
    OpenAIModels,
    SamplingFields,
    TokenizeRequest,
    TokenizerInfo,
    Tokens,
)
from serving.server.http.access_log import RequestContext
from serving.server.http.body import read_json
from serving.server.http.wire import STREAM_HEADERS, json_response
from serving.server.models.served import ServedEncoder, ServedLanguageModel
from serving.server.work.backend import Backend
from serving.server.work.encoding import Readings, check_dimensions, inputs_of, place_in
from serving.server.work.pipeline import Caller, Chosen, Pipeline, TimeLimit
from serving.text.characters import check_text

_LONGEST = 1024
"""Largest number of tokens of a chat's answer if the request has no limit."""
_MESSAGE = 20
"""The number of characters that take as long to read as the frame around a message."""


class _OpenAIEndpoints:
    """Endpoints under /v1, and those of the tokenizer's routes."""

    def __init__(self, backend: Backend) -> None:
        self._registry, self._settings = backend.registry, backend.settings
        self._pipeline = Pipeline(backend.settings, backend.gatekeeper)
        self._readings = Readings(backend)

    async def models(self, _: Request, __: RequestContext) -> Response:
        """List the loaded language models, then the encoders, without translation models."""
        cards = [self._card(model) for model in self._registry.language_models]
        cards += [self._card(model) for model in self._registry.encoders]
        return json_response(OpenAIModels(data=cards))

    async def model(self, request: Request, _: RequestContext) -> Response:
        """Describe the language model or encoder in the path."""
        name = request.path_params["model"]
        for encoder in self._registry.encoders:
            if encoder.name == name:
                return json_response(self._card(encoder))
        return json_response(self._card(self._registry.choose_language_model(name)))

    async def completions(self, request: Request, context: RequestContext) -> Response:
        """Generate text after each prompt; answers at once or as a stream of chunks."""
        body = await read_json(request, CompletionRequest, self._settings.max_body_bytes)
        prompts = prompts_of(body)
        characters = sum(map(len, prompts))

        def choose(limit: TimeLimit) -> Chosen[Begun]:
            model = self._registry.choose_language_model(body.model)
            requests = self._requests(model, body, prompts, limit.timeout_s)

            def submit() -> Begun:
                try:
                    tickets = model.scheduler.submit_all(requests, limit.max_wait_s, limit.held)
                except RequestError as error:
                    named = in_wire_names(error, body)
                    raise (named.within("prompt") if len(prompts) > 1 else named) from error
                outputs = requests[0].options.num_hypotheses
                return CompletionAnswer(body, model.prompts, outputs), tickets

            return Chosen(model.name, "generate", len(requests), characters, submit)

        return await self._answered(body, characters, choose, request, context)

    async def chat(self, request: Request, context: RequestContext) -> Response:
        """Answer the last message, at once or as a stream of chunks."""
        body = await read_json(request, ChatRequest, self._settings.max_body_bytes)
        characters = sum(len(message.text) for message in body.messages)

        def choose(limit: TimeLimit) -> Chosen[Begun]:
            model = self._registry.choose_language_model(body.model)
            _check_chat(body)
            return Chosen(
                model.name, "generate", 1, characters, lambda: self._submit(model, body, limit)
            )

        # A template reads each message, however short it is.
        size = characters + _MESSAGE * len(body.messages)
        return await self._answered(body, size, choose, request, context)

    def _submit(self, model: ServedLanguageModel, body: ChatRequest, limit: TimeLimit) -> Begun:
        messages = [
            {
                "role": "system" if message.role == "developer" else message.role,
                "content": message.text,
            }
            for message in body.messages
        ]
        ids = model.prompts.encode_chat(messages)
        longest = model.prompts.longest(self._settings.max_context_tokens)
        own = {
            "max_length": body.max_completion_tokens
            or body.max_tokens
            or max(1, min(_LONGEST, longest - len(ids))),
            "num_logprobs": (body.top_logprobs or 0) if body.logprobs else None,
        }
        options = generation_options(body, own, model.manifest.search, 1, self._settings)
        given = GenerationRequest(prompt=ids, options=options, timeout_s=limit.timeout_s)
        try:
            tickets = model.scheduler.submit_all([given], limit.max_wait_s, limit.held)
        except RequestError as error:
            raise in_wire_names(error, body).renamed({"prompt": "messages"}) from error
        return ChatAnswer(body, options.num_hypotheses), tickets

    async def _answered(
        self,
        body: SamplingFields,
        size: int,
        choose: Callable[[TimeLimit], Chosen[Begun]],
        request: Request,
        context: RequestContext,
    ) -> Response:
        """Continue prompts with the model that `choose` returns; answers at once or as a stream of
        chunks. `characters` estimates the time to read the prompts."""
        limit = self._pipeline.limit(body.timeout_s, context)
        caller = Caller(context, size, None if body.stream else request.receive)
        answer, tickets = await self._pipeline.begin(caller, lambda: choose(limit))
        if body.stream:
            events = self._pipeline.events(tickets, caller, limit)
            stream = stream_events(answer, events, context, wants_usage=body.wants_usage)
            return StreamingResponse(stream, media_type="text/event-stream", headers=STREAM_HEADERS)
        results = await self._pipeline.results(tickets, caller, limit)
        return json_response(answer.whole(results))

    async def embeddings(self, request: Request, context: RequestContext) -> Response:
        """Return the vector of each text."""
        body = await read_json(request, EmbeddingRequest, self._settings.max_body_bytes)
        read = await self._readings.read(
            inputs_of(body.input),
            "encode",
            request,
            context,
            place=place_in("input", body.input),
            model=body.model,
            truncate=bool(body.truncate),
            prompt_name=body.prompt_name,
        )
        check_dimensions(read, body.dimensions)
        return json_response(embedded(body, read))

    async def tokenizer_info(self, request: Request, _: RequestContext) -> Response:
        """Return the special tokens of a model and the size of its vocabulary."""
        model = self._registry.choose_language_model(request.query_params.get("model"))
        tokenizer = model.prompts.tokenizer
        words = model.manifest.tokenizer.kind == "words"  # word vocabularies have no padding
        ids, chat = model.manifest.decoding_ids, model.prompts.chat
        first = next(reversed(tokenizer.beginning), ids.bos)
        return json_response(
            TokenizerInfo(
                bos_token=written_form(tokenizer, first),
                eos_token=written_form(tokenizer, tokenizer.eos_id),
                unk_token=written_form(tokenizer, tokenizer.unk_id),
                pad_token=None if words else written_form(tokenizer, ids.pad),
                chat_template=chat.source if chat else None,
                vocab_size=tokenizer.vocab_size,
                model=model.name,
            )
        )

    async def tokenize(self, request: Request, _: RequestContext) -> Response:
        """Convert a text into ids; a written-out end of text becomes its own id."""
        body = await read_json(request, TokenizeRequest, self._settings.max_body_bytes)
        model = self._registry.choose_language_model(body.model)
        ids = await run_in_threadpool(_tokenize, model, body.prompt)
        if body.add_special_tokens is not False:
            ids = [*model.prompts.tokenizer.beginning, *ids]
        longest = self._longest(model)
        return json_response(Tokens(tokens=ids, count=len(ids), max_model_len=longest))

    async def detokenize(self, request: Request, _: RequestContext) -> Response:
        """Convert ids into text."""
        body = await read_json(request, DetokenizeRequest, self._settings.max_body_bytes)
        model = self._registry.choose_language_model(body.model)
        try:
            ids = model.prompts.encode(body.tokens) if body.tokens else []
        except RequestError as error:
            raise error.renamed({"prompt": "tokens"}) from None
        text = await run_in_threadpool(model.prompts.tokenizer.decode, ids)
        return json_response(Detokenized(prompt=text))

    def _longest(self, model: ServedLanguageModel | ServedEncoder) -> int:
        """Largest number of tokens: of prompt and output together; for an encoder, of a text."""
        if isinstance(model, ServedEncoder):
            assert model.manifest.sizes.max_source is not None
            return model.manifest.sizes.max_source
        return model.prompts.longest(self._settings.max_context_tokens)

    def _card(self, model: ServedLanguageModel | ServedEncoder) -> OpenAIModel:
        return OpenAIModel(
            id=model.name,
            created=model.loaded_at,
            task=model.manifest.task,
            max_model_len=self._longest(model),
            attribution=model.manifest.attribution,
            device=model.device.name,
            device_reason=model.device.reason,
        )

    def _requests(
        self,
        model: ServedLanguageModel,
        body: CompletionRequest,
        prompts: Sequence[Prompt],
        timeout_s: float,
    ) -> list[GenerationRequest]:
        """Scheduler requests, one for each prompt. Raises RequestError."""
        if body.suffix:
            raise refused("suffix", "must be null or empty: no model here fills in")
        if body.stream and (body.best_of or 1) > (body.n or 1):
            raise refused("best_of", "must be at most n with stream: it ranks whole outputs")
        own = {
            "max_length": 16 if body.max_tokens is None else body.max_tokens,
            "best_of": None if body.best_of == (body.n or 1) else body.best_of,
            "num_logprobs": body.logprobs,
        }
        defaults = model.manifest.search
        options = generation_options(body, own, defaults, len(prompts), self._settings)
        score = bool(body.echo) and body.logprobs is not None
        return [
            GenerationRequest(
                prompt=prompt, options=options, score_prompt=score, timeout_s=timeout_s
            )
            for prompt in prompts
        ]


def refused(parameter: str, reason: str) -> RequestError:
    """An error of a parameter."""
    return RequestError(f"{parameter} {reason}", parameter=parameter)


def _check_chat(body: ChatRequest) -> None:
    """Raise RequestError for unsupported parameters."""
    for place, message in enumerate(body.messages):
        if message.content is None and message.role != "assistant":
            raise RequestError(f"messages[{place}].content is missing", parameter="messages")
    for name, tools in (("tools", body.tools), ("functions", body.functions)):
        if tools:
            raise refused(name, "must be null or empty: no model here calls tools")
    if body.tool_choice not in (None, "none", "auto"):
        raise refused("tool_choice", "must be null, 'none' or 'auto': no model here calls tools")
    if body.response_format and body.response_format.get("type") != "text":
        raise refused("response_format", "must be null or of the type 'text'")
    if body.top_logprobs and not body.logprobs:
        raise refused("top_logprobs", "needs logprobs: true")


def _tokenize(model: ServedLanguageModel, text: str) -> list[int]:
    check_text(text, "prompt")
    tokenizer = model.prompts.tokenizer
    first, *others = text.split(written_form(tokenizer, tokenizer.eos_id))
    ids = tokenizer.encode(first)
    for other in others:
        ids += [tokenizer.eos_id, *tokenizer.encode(other)]
    return ids


OPENAI = Dialect(
    endpoints=_OpenAIEndpoints,
    routes=(
        DialectRoute(
            "/v1/models",
            _OpenAIEndpoints.models,
            "openai_models",
            "Language models and encoders",
            OpenAIModels,
            errors=(503,),
        ),
        DialectRoute(
            "/v1/models/{model}",
            _OpenAIEndpoints.model,
            "model",
            "One language model or encoder",
            OpenAIModel,
            errors=(404, 503),
        ),
        DialectRoute(
            "/v1/completions",
            _OpenAIEndpoints.completions,
            "completions",
            "Continue prompts; requests that arrive together are decoded together",
            Completion,
            methods=("POST",),
            request=CompletionRequest,
            events="With `stream`: Completions, and [DONE] at the end",
            errors=WORK,
            batch=True,
        ),
        DialectRoute(
            "/v1/chat/completions",
            _OpenAIEndpoints.chat,
            "chat",
            "Answer a chat with a model that has a chat template",
            ChatCompletion,
            methods=("POST",),
            request=ChatRequest,
            events="With `stream`: OpenAI's `chat.completion.chunk`s, and [DONE] at the end",
            errors=WORK,
            batch=True,
        ),
        DialectRoute(
            "/v1/embeddings",
            _OpenAIEndpoints.embeddings,
            "embeddings",
            "Vectors of texts",
            Embeddings,
            methods=("POST",),
            request=EmbeddingRequest,
            errors=WORK,
            batch=True,
        ),
        DialectRoute(
            "/tokenizer_info",
            _OpenAIEndpoints.tokenizer_info,
            "tokenizer_info",
            "The special tokens",
            TokenizerInfo,
            query={"model": ()},
            errors=(404, 503),
        ),
        DialectRoute(
            "/tokenize",
            _OpenAIEndpoints.tokenize,
            "tokenize",
            "Text to ids",
            Tokens,
            methods=("POST",),
            request=TokenizeRequest,
            errors=QUICK,
        ),
        DialectRoute(
            "/detokenize",
            _OpenAIEndpoints.detokenize,
            "detokenize",
            "Ids to text",
            Detokenized,
            methods=("POST",),
            request=DetokenizeRequest,
            errors=QUICK,
        ),
    ),
    error=OpenAIError,
    render_error=render_error,
)
"""OpenAI's API, and vLLM's tokenizer routes."""
