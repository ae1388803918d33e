"""Prepares prompts for a language model, and turns the search's results into outputs; it runs no
model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from serving.bundle.folder import read_manifest
from serving.bundle.load_tokenizer import load_tokenizer
from serving.bundle.manifest import Manifest
from serving.bundle.tokenizer import TextTokenizer
from serving.errors import (
    BundleError,
    ContextLengthError,
    DecodingError,
    InvalidOptionError,
    RequestError,
)
from serving.generation.choices import (
    ChoiceBuilder,
    Generation,
    Prompt,
    TokenScore,
    text_offsets,
    written_form,
)
from serving.search.beams.sentence import Finished, Hypothesis, Sentence
from serving.search.sampling.batch import Generated, SampledOutput
from serving.search.sampling.drawing import Uniforms
from serving.search.sampling.prompts import PromptScores
from serving.search.sampling_options import GenerationOptions, parse_generation_options
from serving.text.characters import check_text, token_ids

if TYPE_CHECKING:
    from serving.generation.chat import ChatTemplate, Message


class PromptProcessor:
    """A language model's tokenizer, chat template and default options: everything that the handling
    of prompts needs."""

    def __init__(
        self, manifest: Manifest, tokenizer: TextTokenizer, chat: ChatTemplate | None = None
    ) -> None:
        self.manifest, self.tokenizer, self.chat = manifest, tokenizer, chat

    @property
    def default_options(self) -> GenerationOptions:
        """Options from the bundle's manifest, for requests that do not set them."""
        return parse_generation_options(self.manifest.search)

    def encode(self, prompt: Prompt) -> list[int]:
        """Token ids of a prompt, never empty; a text is read as the beginning of a document.

        Raises RequestError for text or ids that the model cannot read.
        """
        if isinstance(prompt, str):
            check_text(prompt, "prompt")
            ids = [*self.tokenizer.beginning, *self.tokenizer.encode(prompt)]
            return ids or [self.manifest.decoding_ids.bos]
        size = self.manifest.sizes.vocab_size
        ids = token_ids(prompt, "prompt")
        for place, token in enumerate(ids):
            if not 0 <= token < size:
                raise RequestError(
                    f"token ids must be in [0, {size - 1}] for this model, got {token} at {place}",
                    parameter="prompt",
                )
        return ids or [self.tokenizer.eos_id]

    def encode_chat(self, messages: Sequence[Message]) -> list[int]:
        """Token ids of a prompt after which the assistant's next message follows.

        Raises RequestError if the model has no chat template, or if its template refuses the
        messages.
        """
        if self.chat is None:
            raise RequestError(
                f"the model {self.manifest.name!r} has no chat template; send the whole text as "
                "`prompt` to /v1/completions",
                parameter="model",
            )
        return self.chat.encode(messages)

    def num_added(self, prompt: Prompt) -> int:
        """Number of ids that `encode` puts before those of the prompt itself."""
        if not isinstance(prompt, str):
            return 0
        return len(self.tokenizer.beginning) or int(not prompt)

    def check_options(self, options: GenerationOptions) -> None:
        """Raise InvalidOptionError for options that this model does not support."""
        size = self.manifest.sizes.vocab_size
        for token, _ in options.logit_bias:
            if not 0 <= token < size:
                raise InvalidOptionError(
                    f"logit_bias: token ids must be in [0, {size - 1}] for this model, got {token}",
                    parameter="logit_bias",
                )
        if options.num_logprobs > size:
            raise InvalidOptionError(
                f"num_logprobs must be at most {size} for this model, got {options.num_logprobs}",
                parameter="num_logprobs",
            )

    def longest(self, limit: int) -> int:
        """Largest number of tokens of prompt and output together: the limit, or the model's own if
        that is less."""
        return min(limit, self.manifest.sizes.max_positions or limit)

    def check_length(
        self, ids: Sequence[int], options: GenerationOptions, limit: int | None = None
    ) -> None:
        """Raise ContextLengthError if prompt and output together have more tokens than the limit,
        or than the model can read."""
        own = self.manifest.sizes.max_positions
        most = own if limit is None else self.longest(limit)
        if most is not None and len(ids) + options.max_length > most:
            raise ContextLengthError(
                f"prompt and output must have at most {most} tokens together, got {len(ids)} + "
                f"{options.max_length}; shorten the prompt or lower max_tokens",
                parameter="prompt",
            )

    def outputs(
        self, keys: Sequence[int], prompt: list[int], options: GenerationOptions, seed: int
    ) -> list[SampledOutput]:
        """The rows of a sampled prompt, one for each choice, with these keys."""
        return [
            SampledOutput(key, prompt, options, Uniforms(seed, choice), self.manifest.ends)
            for choice, key in enumerate(keys)
        ]

    def builder(self, prompt: Sequence[int], options: GenerationOptions) -> ChoiceBuilder:
        """A builder for the text of one output of a prompt."""
        return ChoiceBuilder(self.tokenizer, self.manifest.ends, prompt, options)

    def search(self, prompt: Sequence[int], options: GenerationOptions) -> Sentence:
        """The sentence with which a beam search continues a prompt."""
        first, *others = prompt
        ends = self.manifest.ends
        before = () if first in ends else (first,)
        return Sentence((), options.search_options, others, start=first, before=before, ends=ends)

    def complete_search(self, prompt: list[int], finished: Finished) -> list[Generation]:
        """The outputs that a beam search has found. Raises the DecodingError that ended it."""
        if finished.error is not None:
            raise finished.error
        return [self._from_hypothesis(prompt, found) for found in finished.hypotheses]

    def prompt_scores(
        self, prompt: Prompt, ids: list[int], scores: PromptScores, num_logprobs: int
    ) -> list[TokenScore]:
        """The ids of a prompt, with the scores in one row of a batch for all but the first.

        Raises DecodingError if a score is not finite.
        """
        if isinstance(prompt, str):
            spans = self.tokenizer.spans(prompt)
            offsets = [*[0] * self.num_added(prompt), *(begin for begin, _ in spans)]
        else:
            offsets = text_offsets(self.tokenizer, self.manifest.ends, ids)
        found = [TokenScore(ids[0], written_form(self.tokenizer, ids[0]), 0, None)]
        labels = scores.labels_BP[0, : len(ids) - 1]
        if not np.isfinite(labels).all():
            raise DecodingError("the model gave a non-finite score for this prompt")
        top_tokens = scores.top_tokens_BPT[0, :, :num_logprobs].tolist()
        top_scores = scores.top_scores_BPT[0, :, :num_logprobs].tolist()
        for place, (token, label) in enumerate(zip(ids[1:], labels.tolist(), strict=True)):
            top = tuple(
                (written_form(self.tokenizer, other), score)
                for other, score in zip(top_tokens[place], top_scores[place], strict=True)
            )
            form = written_form(self.tokenizer, token)
            found.append(TokenScore(token, form, offsets[place + 1], label, top))
        return found

    def _from_hypothesis(self, prompt: list[int], found: Hypothesis) -> Generation:
        ends = [] if found.end is None else [found.end]
        tokens = [*found.tokens[len(prompt) - 1 :], *ends]
        scores = found.token_scores[len(found.token_scores) - len(tokens) :]
        builder = self.builder(prompt, GenerationOptions(max_length=len(tokens)))
        for token, score in zip(tokens, scores, strict=True):
            builder.push(Generated(0, token, score))
        return builder.finished()


def load_prompts(folder: Path) -> PromptProcessor:
    """Check a bundle, and load what the handling of prompts needs. Raises BundleError if it cannot
    be used."""
    manifest = read_manifest(folder)
    if manifest.task != "generate":
        raise BundleError(f"{folder}: task must be 'generate', got {manifest.task!r}")
    tokenizer = load_tokenizer(folder, manifest.tokenizer.source_file, manifest)
    return PromptProcessor(manifest, tokenizer, _load_chat(folder, manifest, tokenizer))


def _load_chat(folder: Path, manifest: Manifest, tokenizer: TextTokenizer) -> ChatTemplate | None:
    """Load the chat template of a bundle, if it has one."""
    name = manifest.tokenizer.chat_template_file
    if name is None:
        return None
    # Imported here, because other bundles do not need its library.
    from serving.bundle.fast_vocabulary import FastVocabulary
    from serving.generation.chat import ChatTemplate

    if not isinstance(tokenizer, FastVocabulary):
        raise BundleError(
            f"{folder}: a chat template needs a tokenizer of the kind 'tokenizers', got "
            f"{manifest.tokenizer.kind!r}"
        )
    try:
        source = (folder / name).read_text(encoding="utf-8")
        return ChatTemplate(source, tokenizer, manifest.decoding_ids)
    except (BundleError, ValueError) as error:
        raise BundleError(f"{folder / name}: {error}") from error
