"""Outputs of the generation scheduler in the words of OpenAI's completions API."""

from __future__ import annotations

import dataclasses
import time
import uuid
from collections.abc import Sequence
from typing import Literal, cast

from serving.generation.choices import Prompt, TokenScore
from serving.generation.prompts import PromptProcessor
from serving.generation.ticket import Delta, GenerationDone, PromptRead
from serving.server.dialects.openai.wire import (
    Completion,
    CompletionChoice,
    CompletionRequest,
    LogProbs,
    UsageBody,
)
from serving.text.stream import readable


class CompletionAnswer:
    """Makes the answer to one request, whole or in chunks of a stream that share its id."""

    def __init__(self, body: CompletionRequest, texts: PromptProcessor, outputs: int) -> None:
        """`outputs` is the number of outputs that each prompt gets back."""
        self._body, self._outputs = body, outputs
        self._prompts = prompts_of(body)
        self._texts = [
            prompt if isinstance(prompt, str) else readable(texts.tokenizer, prompt)
            for prompt in self._prompts
        ]
        self._added = [texts.num_added(prompt) for prompt in self._prompts]
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
        return self._completion(choices, self._usage(results))

    def prompt_chunks(self, number: int, event: PromptRead) -> list[Completion]:
        """Chunks that begin each output with its prompt; there are none without `echo`."""
        if not self._body.echo:
            return []
        tokens = self._shown(number, event.tokens)
        return [
            self._completion([self._choice(number, place, self._texts[number], tokens, "")])
            for place in range(self._outputs)
        ]

    def chunk(self, number: int, delta: Delta) -> Completion:
        """A chunk with what is new of one output of the prompt with that number."""
        tokens = self._moved(number, delta.tokens)
        choice = self._choice(number, delta.choice, delta.text, tokens, delta.finish_reason)
        return self._completion([choice])

    def usage_chunk(self, results: Sequence[GenerationDone]) -> Completion:
        """The chunk that ends a stream with the token counts, and has no choices."""
        return self._completion([], self._usage(results))

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

    def _usage(self, results: Sequence[GenerationDone]) -> UsageBody:
        # What stands before a prompt that is text is ours, not the caller's.
        prompt = sum(done.num_prompt_tokens for done in results) - sum(self._added)
        generated = sum(done.num_generated_tokens for done in results)
        return UsageBody(
            prompt_tokens=prompt, completion_tokens=generated, total_tokens=prompt + generated
        )

    def _moved(self, number: int, tokens: Sequence[TokenScore]) -> list[TokenScore]:
        """The tokens of an output, with offsets that count from the prompt's beginning."""
        start = len(self._texts[number])
        return [dataclasses.replace(token, offset=token.offset + start) for token in tokens]

    def _shown(self, number: int, tokens: Sequence[TokenScore]) -> Sequence[TokenScore]:
        """The tokens of a prompt without those that are put before one that is text."""
        return tokens[self._added[number] :]


def prompts_of(body: CompletionRequest) -> list[Prompt]:
    """The prompts of a request as a list; one that gives none has an empty one."""
    prompt = body.prompt
    if prompt is None:
        return [""]
    if isinstance(prompt, str) or isinstance(prompt[0], int):
        return [cast(Prompt, prompt)]
    return list(cast(list[Prompt], prompt))


def log_probs(tokens: Sequence[TokenScore]) -> LogProbs:
    """The log-probabilities of tokens, entry for entry; a token's own figure is among the
    likeliest, as the very same number."""
    return LogProbs(
        tokens=[token.token for token in tokens],
        token_logprobs=[token.log_prob for token in tokens],
        top_logprobs=[
            None if token.log_prob is None else {token.token: token.log_prob} | dict(token.top)
            for token in tokens
        ],
        text_offset=[token.offset for token in tokens],
    )
