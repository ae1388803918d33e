"""Bodies of OpenAI's dialect, and of vLLM's tokenizer routes.

Optional fields may be null, because clients send them so. Unknown fields are ignored, because
clients send fields of other servers too.
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
    """Turns 16.0 into 16: some clients write whole numbers as floats."""
    return int(given) if isinstance(given, float) and given.is_integer() else given


def _count(given: object) -> object:
    """Turns `true` into 1 and `false` into None, which `logprobs` of the chat API uses."""
    return (1 if given else None) if isinstance(given, bool) else _whole(given)


Whole = Annotated[int, BeforeValidator(_whole)]
Ids = Annotated[list[int], Field(min_length=1)]


class StreamOptions(Wire):
    """Options of a stream."""

    include_usage: bool | None = None
    """Send the token counts in a last chunk, which has no choices."""


class SamplingFields(Wire):
    """Fields of all requests that generate text."""

    model: str
    """Name of a language model; `/v1/models` lists them."""
    temperature: float | None = None
    """Divisor of the logits; 0 takes the most probable token. The default of this and of the
    options below that have none here is the bundle's (`/models`), usually 1."""
    top_p: float | None = None
    """Draw from the most probable tokens whose probabilities add up to this."""
    n: Whole | None = None
    """Number of outputs per prompt; default 1."""
    stop: str | list[str] | None = None
    """The output ends before the first of these texts."""
    seed: Whole | None = None
    """The same seed gives the same text."""
    presence_penalty: float | None = None
    """Value subtracted from the logits of tokens that the output contains."""
    frequency_penalty: float | None = None
    """Value subtracted from the logit of a token, once for each occurrence in the output."""
    logit_bias: dict[str, float] | None = None
    """Numbers to add to logits, by token id; -100 forbids the token."""
    stream: bool | None = None
    """Send the text while it is generated, as server-sent events."""
    stream_options: StreamOptions | None = None
    """Options of the stream, for data beside its text."""
    user: str | None = None
    """Ignored."""
    top_k: Whole | None = None
    """Draw from this many most probable tokens; 0 or -1 means all (not in OpenAI's API)."""
    min_tokens: Whole | None = None
    """Smallest number of tokens before the end of the text (not in OpenAI's API)."""
    repetition_penalty: float | None = None
    """Above 1: makes tokens of prompt and output less probable (not in OpenAI's API)."""
    no_repeat_ngram_size: Whole | None = None
    """Size of the n-grams that must not occur twice (not in OpenAI's API)."""
    beam_size: Whole | None = None
    """Above 1: beam search instead of sampling (not in OpenAI's API)."""
    length_penalty: float | None = None
    """Exponent of the length normalisation of beam search (not in OpenAI's API)."""
    timeout_s: Annotated[float, Field(gt=0)] | None = None
    """Seconds after which the request fails (not in OpenAI's API)."""

    @property
    def wants_usage(self) -> bool:
        """Whether a stream ends with the token counts."""
        return bool(self.stream_options and self.stream_options.include_usage)


class CompletionRequest(SamplingFields):
    """One or several prompts to continue."""

    prompt: (
        str
        | Annotated[list[str], Field(min_length=1)]
        | Ids
        | Annotated[list[Ids], Field(min_length=1)]
        | None
    ) = None
    """A text or a list of token ids, or a list of several; null starts a new document."""
    max_tokens: Annotated[Whole, Field(ge=0)] | None = None
    """Largest number of tokens to generate, including the end of the text; default 16."""
    best_of: Whole | None = None
    """Number of outputs to generate; the `n` most probable are returned."""
    echo: bool | None = None
    """Return the prompt before the output."""
    logprobs: Annotated[Annotated[int, Field(ge=0)] | None, BeforeValidator(_count)] = None
    """Return log-probabilities: those of the output, and of this many most probable tokens."""
    suffix: str | None = None
    """Not supported: must be null or empty."""


class LogProbs(Wire):
    """The tokens of a text with their log-probabilities; the lists have equal lengths."""

    tokens: list[str]
    """A text that is unique to each token id: the end of the text and single bytes have names."""
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    """The most probable tokens at each place, and the actual one."""
    text_offset: list[int]
    """Start of each token's text, in characters from the start of the prompt."""


class CompletionChoice(Wire):
    """An output of a prompt."""

    index: int
    """The prompt's index times n, plus the output's index."""
    text: str
    logprobs: LogProbs | None
    finish_reason: Literal["stop", "length"] | None
    """The reason why the output ended; null in a stream until the end."""


class UsageBody(Wire):
    """Numbers of tokens read and generated, for the whole request."""

    model_config = ConfigDict(title="Usage")

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Completion(Wire):
    """The answer to a CompletionRequest, or one chunk of its stream."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: UsageBody | None = None


class TextPart(Wire):
    """A part of a message. Only text is supported."""

    type: Literal["text"]
    text: str


class ChatMessage(Wire):
    """A message of a chat."""

    role: Literal["system", "developer", "user", "assistant"]
    """`developer` is another name for `system`."""
    content: str | list[TextPart] | None = None

    @property
    def text(self) -> str:
        """The content as one text."""
        if isinstance(self.content, list):
            return "".join(part.text for part in self.content)
        return self.content or ""


class ChatRequest(SamplingFields):
    """A chat to continue."""

    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    max_completion_tokens: Annotated[Whole, Field(ge=1)] | None = None
    """Largest number of tokens to generate, including the end of the message. The default is the
    room that the prompt leaves, but not more than 1,024."""
    max_tokens: Annotated[Whole, Field(ge=1)] | None = None
    """The older name of `max_completion_tokens`."""
    logprobs: bool | None = None
    """Return log-probabilities."""
    top_logprobs: Annotated[Whole, Field(ge=0)] | None = None
    """With `logprobs`: also return those of this many most probable tokens."""
    tools: list[Any] | None = None
    """Not supported: must be null or empty."""
    functions: list[Any] | None = None
    """The older name of `tools`: must be null or empty."""
    tool_choice: Any = None
    """Must be null, `none` or `auto`, since there are no tools."""
    response_format: dict[str, Any] | None = None
    """Only the type `text` is supported."""


class ChatTokenScore(Wire):
    """A token with its log-probability."""

    token: str
    logprob: float
    bytes: list[int] | None = None
    """Always null."""


class ChatToken(ChatTokenScore):
    """A token of an answer."""

    top_logprobs: list[ChatTokenScore]


class ChatLogProbs(Wire):
    """The log-probabilities of an answer's tokens."""

    content: list[ChatToken]


class ChatAnswerMessage(Wire):
    """The assistant's message. A chunk has only the new text, and the role once."""

    role: Literal["assistant"] | None = None
    content: str | None = None


class ChatChoice(Wire):
    """An answer to the chat."""

    index: int
    message: ChatAnswerMessage
    logprobs: ChatLogProbs | None
    finish_reason: Literal["stop", "length"]


class ChatCompletion(Wire):
    """The answer to a ChatRequest."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    usage: UsageBody


class ChatChunkChoice(Wire):
    """The new part of one answer."""

    index: int
    delta: ChatAnswerMessage
    logprobs: ChatLogProbs | None
    finish_reason: Literal["stop", "length"] | None
    """The reason why the answer ended; null until the end."""


class ChatChunk(Wire):
    """A chunk of the stream that answers a ChatRequest."""

    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    choices: list[ChatChunkChoice]
    usage: UsageBody | None = None


class EmbeddingRequest(Wire):
    """Texts to embed."""

    model: str | None = None
    """Name of an encoder; `/v1/models` lists them. The default is the first one."""
    input: (
        str
        | Annotated[list[str], Field(min_length=1)]
        | Ids
        | Annotated[list[Ids], Field(min_length=1)]
    )
    """A text or a list of token ids without special tokens, or a list of several."""
    encoding_format: Literal["float", "base64"] | None = None
    """`float`: numbers (default); `base64`: the bytes of little-endian float32."""
    dimensions: Whole | None = None
    """Size of the vectors. Only the model's own size is supported."""
    user: str | None = None
    """Ignored."""
    truncate: bool | None = None
    """Cut off the end of texts that are too long (not in OpenAI's API)."""
    prompt_name: str | None = None
    """The name of the prompt that is put before each text; default the model's own default, if it
    has one (not in OpenAI's API)."""


class EmbeddingBody(Wire):
    """The vector of one text."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class EmbeddingUsage(Wire):
    """Numbers of tokens read, including special tokens."""

    prompt_tokens: int
    total_tokens: int


class Embeddings(Wire):
    """The vectors of all texts, in order."""

    object: Literal["list"] = "list"
    data: list[EmbeddingBody]
    model: str
    usage: EmbeddingUsage


class OpenAIModel(Wire):
    """A language model or an encoder."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "macaron"
    task: Task
    """The model's task: generate, encode or classify (not in OpenAI's API)."""
    max_model_len: int
    """Largest number of tokens of prompt and output together, or of an encoder's text (as in
    vLLM)."""
    attribution: str
    """The training data and their licence (not in OpenAI's API)."""
    device: str
    """The device that it runs on: cpu, cuda or tensorrt (not in OpenAI's API)."""
    device_reason: str
    """The reason for this device (not in OpenAI's API)."""


class OpenAIModels(Wire):
    """All language models and encoders."""

    object: Literal["list"] = "list"
    data: list[OpenAIModel]


class OpenAIErrorBody(Wire):
    """The description of an error."""

    message: str
    type: str
    param: str | None
    code: str | None


class OpenAIError(Wire):
    """The body of every answer that is not 2xx."""

    error: OpenAIErrorBody


class TokenizeRequest(Wire):
    """A text to split into a model's tokens."""

    prompt: str
    model: str | None = None
    add_special_tokens: bool | None = None
    """Start with the special token that begins a prompt; default true."""


class Tokens(Wire):
    """The token ids of a text."""

    tokens: list[int]
    count: int
    max_model_len: int


class DetokenizeRequest(Wire):
    """Token ids to turn into text."""

    tokens: list[int]
    model: str | None = None


class Detokenized(Wire):
    """The text of the token ids."""

    prompt: str


class TokenizerInfo(Wire):
    """The special tokens of a model. A text begins with `bos_token`; this is the end token if the
    model has no other."""

    bos_token: str
    eos_token: str
    unk_token: str
    pad_token: str | None
    chat_template: str | None = None
    vocab_size: int
    model: str
