"""What goes over the wire in OpenAI's dialect, and in vLLM's for tokenizers.

Optional fields may be null, as the clients send them; fields that are not listed are ignored, since
other servers have others.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
)

from serving.bundle.manifest import Task
from serving.server.http.wire import Wire


def _whole(given: object) -> object:
    """16.0 as 16, which is how some clients write whole numbers."""
    return int(given) if isinstance(given, float) and given.is_integer() else given


def _count(given: object) -> object:
    """`true` as 1 and `false` as none, as for `logprobs` of the chat API."""
    return (1 if given else None) if isinstance(given, bool) else _whole(given)


Whole = Annotated[int, BeforeValidator(_whole)]
Ids = Annotated[list[int], Field(min_length=1)]


class StreamOptions(Wire):
    """What a stream has besides its text."""

    include_usage: bool | None = None
    """Send the token counts in a last chunk that has no choices."""


class SamplingFields(Wire):
    """What every request says that has text generated."""

    model: str
    """Name of a language model, as `/v1/models` lists them."""
    temperature: float | None = None
    """Divides the logits; 0 takes the likeliest token; default 1."""
    top_p: float | None = None
    """Draw from the likeliest tokens whose probabilities add up to this; default 1."""
    n: Whole | None = None
    """Outputs for each prompt; default 1."""
    stop: str | list[str] | None = None
    """Texts before which the output ends."""
    seed: Whole | None = None
    """The same seed gives the same text."""
    presence_penalty: float | None = None
    """Subtracted from the logits of tokens that the output holds."""
    frequency_penalty: float | None = None
    """Subtracted from the logits of tokens, times their number in the output."""
    logit_bias: dict[str, float] | None = None
    """Token id to what is added to its logit; -100 forbids it."""
    stream: bool | None = None
    """Send the text as it is made, as server-sent events."""
    stream_options: StreamOptions | None = None
    """What the stream has besides its text."""
    user: str | None = None
    """Ignored."""
    top_k: Whole | None = None
    """Draw from so many likeliest tokens; 0 or -1 is all (not in OpenAI's API)."""
    min_tokens: Whole | None = None
    """Tokens generated before the end of text is allowed (not in OpenAI's API)."""
    repetition_penalty: float | None = None
    """Above 1 makes tokens of prompt and output less likely (not in OpenAI's API)."""
    no_repeat_ngram_size: Whole | None = None
    """No n-gram of this size occurs twice (not in OpenAI's API)."""
    beam_size: Whole | None = None
    """Above 1: beam search in place of sampling (not in OpenAI's API)."""
    length_penalty: float | None = None
    """Exponent of the length normalisation of beam search (not in OpenAI's API)."""
    timeout_s: Annotated[float, Field(gt=0)] | None = None
    """Seconds after which the request fails (not in OpenAI's API)."""

    @property
    def wants_usage(self) -> bool:
        """Whether a stream is to end with the token counts."""
        return bool(self.stream_options and self.stream_options.include_usage)


class CompletionRequest(SamplingFields):
    """Prompts to go on from."""

    prompt: (
        str
        | Annotated[list[str], Field(min_length=1)]
        | Ids
        | Annotated[list[Ids], Field(min_length=1)]
        | None
    ) = None
    """A text or a list of token ids, or several of either; none is the beginning of a document."""
    max_tokens: Annotated[Whole, Field(ge=0)] | None = None
    """Tokens generated at most, the end of text included; default 16."""
    best_of: Whole | None = None
    """Outputs generated, of which the `n` likeliest are returned."""
    echo: bool | None = None
    """Return the prompt before the output."""
    logprobs: Annotated[Annotated[int, Field(ge=0)] | None, BeforeValidator(_count)] = None
    """Report log-probabilities, and those of so many likeliest tokens."""
    suffix: str | None = None
    """Text after the output; not supported, must be null or empty."""


class LogProbs(Wire):
    """Log-probabilities of the tokens of a text, entry for entry."""

    tokens: list[str]
    """Different for each id, so the end of text and bytes have names of their own."""
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    """The likeliest tokens, and the one that is there."""
    text_offset: list[int]
    """Where each token's text begins, in characters from the beginning of the prompt."""


class CompletionChoice(Wire):
    """One output of a prompt, and why it ended there."""

    index: int
    """Of the prompt times n, plus that of the output."""
    text: str
    logprobs: LogProbs | None
    finish_reason: Literal["stop", "length"] | None
    """Null while a stream goes on."""


class UsageBody(Wire):
    """Tokens that were read and generated, for the whole request."""

    model_config = ConfigDict(title="Usage")

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Completion(Wire):
    """The answer, or one chunk of a stream."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: UsageBody | None = None


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
    """Never given."""


class ChatToken(ChatTokenScore):
    """A token of an answer."""

    top_logprobs: list[ChatTokenScore]


class ChatLogProbs(Wire):
    """Log-probabilities of an answer, token for token."""

    content: list[ChatToken]


class ChatAnswerMessage(Wire):
    """The assistant's message; of a chunk what is new of it, without the fields that are not."""

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


class EmbeddingRequest(Wire):
    """Texts whose vectors are wanted."""

    model: str
    """Name of an encoder, as `/v1/models` lists them."""
    input: (
        str
        | Annotated[list[str], Field(min_length=1)]
        | Ids
        | Annotated[list[Ids], Field(min_length=1)]
    )
    """A text or a list of token ids without special ones, or several of either."""
    encoding_format: Literal["float", "base64"] | None = None
    """`float`: numbers, the default; `base64`: their bytes as little-endian float32."""
    dimensions: Whole | None = None
    """Numbers of a vector; models have one size, and no other is possible."""
    user: str | None = None
    """Ignored."""
    truncate: bool | None = None
    """Cut the end of texts that are too long off (not in OpenAI's API)."""
    prompt_name: str | None = None
    """Which of the model's prompts stands before each text (not in OpenAI's API); default the
    model's own default, if it has any."""


class EmbeddingBody(Wire):
    """The vector of one text."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class EmbeddingUsage(Wire):
    """Tokens that were read, special ones included."""

    prompt_tokens: int
    total_tokens: int


class Embeddings(Wire):
    """The vectors of all texts, in their order."""

    object: Literal["list"] = "list"
    data: list[EmbeddingBody]
    model: str
    usage: EmbeddingUsage


class OpenAIModel(Wire):
    """A language model or an encoder that requests can name."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "macaron"
    task: Task
    """What it does: generate, encode or classify (not in OpenAI's API)."""
    max_model_len: int
    """Tokens of prompt and output together, of an encoder those of a text (as in vLLM)."""
    attribution: str
    """The data it was made from, and their licence (not in OpenAI's API)."""
    device: str
    """What it runs on: cpu, cuda or tensorrt (not in OpenAI's API)."""
    device_reason: str
    """Why on this device (not in OpenAI's API)."""


class OpenAIModels(Wire):
    """The language models and encoders that requests can name."""

    object: Literal["list"] = "list"
    data: list[OpenAIModel]


class OpenAIErrorBody(Wire):
    """What went wrong, in the shape that clients of OpenAI read."""

    message: str
    type: str
    param: str | None
    code: str | None


class OpenAIError(Wire):
    """An error in OpenAI's shape."""

    error: OpenAIErrorBody


class TokenizeRequest(Wire):
    """A text that is to be split into the tokens of a model."""

    prompt: str
    model: str | None = None
    add_special_tokens: bool | None = None
    """Begin with what stands before a prompt that is text, as the end of the text before; default
    true."""


class Tokens(Wire):
    """The ids of a text's tokens, as the model reads them."""

    tokens: list[int]
    count: int
    max_model_len: int


class DetokenizeRequest(Wire):
    """Ids of tokens that are to be written as text."""

    tokens: list[int]
    model: str | None = None


class Detokenized(Wire):
    """The text that ids of tokens are written as."""

    prompt: str


class TokenizerInfo(Wire):
    """The special tokens of a model; a text begins with `bos_token`, which ends the text before
    where the model has no other."""

    bos_token: str
    eos_token: str
    unk_token: str
    pad_token: str | None
    chat_template: str | None = None
    vocab_size: int
    model: str
