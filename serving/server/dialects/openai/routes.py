"""OpenAI's API over language models and encoders, and vLLM's tokenizer routes beside it."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from serving.errors import RequestError
from serving.generation.choices import Prompt, written_form
from serving.generation.ticket import GenerationRequest
from serving.server.api.dialect import Dialect, DialectRoute
from serving.server.dialects.openai.answers import CompletionAnswer, prompts_of
from serving.server.dialects.openai.chat import ChatEndpoint
from serving.server.dialects.openai.description import describe
from serving.server.dialects.openai.embeddings import EmbeddingEndpoint
from serving.server.dialects.openai.generating import (
    Begun,
    answered,
    generation_options,
    in_wire_names,
    refused,
    render_error,
)
from serving.server.dialects.openai.wire import (
    CompletionRequest,
    Detokenized,
    DetokenizeRequest,
    OpenAIModel,
    OpenAIModels,
    TokenizeRequest,
    TokenizerInfo,
    Tokens,
)
from serving.server.http.access_log import RequestContext
from serving.server.http.body import read_json
from serving.server.http.wire import json_response
from serving.server.models.served import ServedEncoder, ServedLanguageModel
from serving.server.work.backend import Backend
from serving.server.work.pipeline import Chosen, Pipeline, TimeLimit
from serving.text.characters import check_text


class _OpenAIEndpoints:
    """Answers the requests under /v1, and those to the tokenizer's routes."""

    def __init__(self, backend: Backend) -> None:
        self._registry, self._settings = backend.registry, backend.settings
        self._pipeline = Pipeline(backend.settings, backend.gatekeeper)

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
        prompts = prompts_of(body)
        characters = sum(map(len, prompts))

        def choose(limit: TimeLimit) -> Chosen[Begun]:
            model = self._registry.choose_language_model(body.model)
            requests = self._requests(body, prompts, limit.timeout_s)

            def submit() -> Begun:
                try:
                    tickets = model.scheduler.submit_all(requests, limit.max_wait_s)
                except RequestError as error:
                    raise in_wire_names(error) from error
                outputs = requests[0].options.num_hypotheses
                return CompletionAnswer(body, model.generator.prompts, outputs), tickets

            return Chosen(model.name, len(requests), characters, submit)

        return await answered(self._pipeline, body, characters, choose, request, context)

    async def tokenizer_info(self, request: Request, _: RequestContext) -> Response:
        """Tell the special tokens of a model, and how large its vocabulary is."""
        model = self._registry.choose_language_model(request.query_params.get("model"))
        tokenizer = model.generator.tokenizer
        words = model.manifest.tokenizer.kind == "words"  # these have no padding
        ids, chat = model.manifest.decoding_ids, model.generator.prompts.chat
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
        if isinstance(model, ServedEncoder):
            assert model.manifest.sizes.max_source is not None
            return model.manifest.sizes.max_source
        return model.generator.prompts.longest(self._settings.max_context_tokens)

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
        self, body: CompletionRequest, prompts: Sequence[Prompt], timeout_s: float
    ) -> list[GenerationRequest]:
        """One request of the scheduler for each prompt; raises RequestError."""
        if body.suffix:
            raise refused("suffix", "must be null or empty: no model here fills in")
        if body.stream and (body.best_of or 1) > (body.n or 1):
            raise refused("best_of", "must be at most n with stream: it ranks whole outputs")
        own = {
            "max_length": 16 if body.max_tokens is None else body.max_tokens,
            "best_of": None if body.best_of == (body.n or 1) else body.best_of,
            "num_logprobs": body.logprobs,
        }
        options = generation_options(body, own, len(prompts), self._settings)
        score = bool(body.echo) and body.logprobs is not None
        return [
            GenerationRequest(
                prompt=prompt, options=options, score_prompt=score, timeout_s=timeout_s
            )
            for prompt in prompts
        ]


def _tokenize(model: ServedLanguageModel, text: str) -> list[int]:
    check_text(text, "prompt")
    tokenizer = model.generator.tokenizer
    first, *others = text.split(written_form(tokenizer, tokenizer.eos_id))
    ids = tokenizer.encode(first)
    for other in others:
        ids += [tokenizer.eos_id, *tokenizer.encode(other)]
    return ids


def _routes(backend: Backend) -> list[DialectRoute]:
    endpoints = _OpenAIEndpoints(backend)
    return [
        DialectRoute("/v1/models", endpoints.models),
        DialectRoute("/v1/models/{model}", endpoints.model),
        DialectRoute("/v1/embeddings", EmbeddingEndpoint(backend).embeddings, ("POST",)),
        DialectRoute("/v1/completions", endpoints.completions, ("POST",)),
        DialectRoute("/v1/chat/completions", ChatEndpoint(backend).chat, ("POST",)),
        DialectRoute("/tokenizer_info", endpoints.tokenizer_info),
        DialectRoute("/tokenize", endpoints.tokenize, ("POST",)),
        DialectRoute("/detokenize", endpoints.detokenize, ("POST",)),
    ]


OPENAI = Dialect(
    routes=_routes,
    describe=describe,
    error_paths=("/v1/", "/tokenizer_info", "/tokenize", "/detokenize"),
    render_error=render_error,
)
"""OpenAI's API, and vLLM's tokenizer routes."""
