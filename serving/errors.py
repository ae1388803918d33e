"""Errors of the serving package; each carries the HTTP status that a dialect renders.

ServingError
├── SettingsError               a MACARON_ variable has a bad name or value
├── BundleError                 a bundle cannot be used
│   ├── FormatVersionError      written by a newer export
│   ├── HashMismatchError       a file differs from its manifest
│   └── ModelNameError          a name from which no bundle can be obtained
├── RequestError                the caller can correct it (4xx)
│   ├── InvalidOptionError      an option outside its range
│   ├── DocumentError           a file that cannot be read as a document
│   ├── InvalidTextError        a text that is not valid Unicode, or holds NUL
│   ├── TooLongError            a text, a list or a body over its limit
│   │   └── ContextLengthError  prompt and output of a language model
│   ├── UnknownLanguageError    no model for the language pair
│   ├── UnknownModelError       no bundle with that name
│   ├── UnknownGlossaryError    no stored glossary with that id
│   ├── UnknownEvaluationError  no evaluation of translations with that id
│   ├── UnknownMemoryError      no translation memory with that id
│   ├── MediaTypeError          a body of another media type
│   ├── UnauthorizedError       no API key, or not one of ours
│   ├── RequestTimeoutError     the body did not arrive in time
│   ├── NoAdminError            the server has no admin key
│   ├── UnknownKeyError         no API key with that id
│   ├── NoImportsError          the server imports no models
│   ├── ImportingError          another model is being imported
│   └── QuotaExceededError      more characters, or stored things, than a key may have
├── RateLimitedError            a client has exceeded its limit per minute
├── OverloadedError             the queue is full
│   ├── NotReadyError           starting, or shutting down
│   └── DeviceMemoryError       a batch does not fit into a GPU's memory
├── StoreUnavailableError       the database of the store does not answer
├── NoStoreError                the server has no store
├── DeadlineExceededError       not finished in time
├── CancelledError              cancelled by the caller
├── DecodingError               the model gave a non-finite score
└── DecoderLostError            the engine or process that decoded it has failed
    └── DeviceLostError         a GPU that this process cannot use any more
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Self


def install_command(extra: str) -> str:
    """The command that installs an extra, for messages.

    The name `macaron` stands for the installed package. Macaron is not on PyPI, so in a checkout
    that is not installed the command names the folder of the checkout instead.
    """
    package = ".".join(__name__.split(".")[:-2])  # empty in a checkout
    return f"pip install '{package or Path(__file__).resolve().parents[1]}[{extra}]'"


class ServingError(Exception):
    """Base class of every error that serving raises on purpose."""

    status = 500
    code = "internal"
    """Short name of the kind of error, stable for programs."""
    retry_after_s: float | None = None
    """Seconds after which another try makes sense, if the server knows."""
    parameter: str | None = None
    """The option or field of the request at fault, if there is a single one."""
    hint: str | None = None
    """Advice beside the message, for errors whose message clients expect word for word."""

    @property
    def full_message(self) -> str:
        """The message, followed by the hint."""
        return f"{self}; {self.hint}" if self.hint else str(self)


class SettingsError(ServingError):
    """A setting is unknown or out of range; the message names its environment variable."""


class BundleError(ServingError):
    """A bundle cannot be loaded; the message names it, and says what was found and what was
    expected."""


class FormatVersionError(BundleError):
    """The bundle's format_version is newer than this runtime reads."""


class HashMismatchError(BundleError):
    """A file of the bundle differs from the sha256 in its manifest."""


class ModelNameError(BundleError):
    """A model's name from which no bundle can be obtained; the message says why, and what to do."""


class RequestError(ServingError):
    """The request cannot be served as it is; the message says what to change."""

    status = 400
    code = "invalid_request"

    def __init__(self, message: str, *, parameter: str | None = None) -> None:
        """`parameter` is the option or field at fault, as the code that raises the error calls it;
        a dialect replaces it by its own name with `renamed`."""
        super().__init__(message)
        self.parameter = parameter
        self.index: int | None = None
        """Number of the text at fault in a list, if there is one."""

    def within(self, name: str) -> Self:
        """The same error, naming the text at fault by its place in the list `name`."""
        return self if self.index is None else self.at(f"{name}[{self.index}]")

    def at(self, place: str) -> Self:
        """The same error, naming the place at fault."""
        named = type(self)(f"{place}: {self}", parameter=self.parameter)
        named.hint = self.hint
        return named

    def renamed(self, names: Mapping[str, str]) -> Self:
        """This error, with its parameter renamed as in `names`, if it is there."""
        self.parameter = names.get(self.parameter or "", self.parameter)
        return self

    def naming(self, names: Mapping[str, str]) -> Self:
        """The same error, `renamed`. If `names` contains its parameter, the new name also stands
        before the message, which uses another name or none."""
        name = names.get(self.parameter or "")
        return self if name is None else self.at(name).renamed(names)


class InvalidOptionError(RequestError):
    """A decoding option has a wrong name, type or value."""

    code = "invalid_option"


class InvalidTextError(RequestError):
    """A text contains characters that no model can read (NUL, lone surrogates)."""

    code = "invalid_text"


class DocumentError(RequestError):
    """A file cannot be read as a document: its kind is unknown, or it is broken, locked or
    unsafe."""

    code = "invalid_document"


class TooLongError(RequestError):
    """A text, a list of texts or a body is over its limit; nothing is truncated."""

    status = 413
    code = "too_long"


class ContextLengthError(TooLongError):
    """Prompt and output of a language model are longer than it may read."""

    status = 400
    code = "context_length_exceeded"


class UnknownLanguageError(RequestError):
    """No loaded model translates between the two languages.

    Some clients know the message word for word, so the available languages are in the hint.
    """

    code = "unknown_language"

    def __init__(
        self, message: str, *, parameter: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, parameter=parameter)
        self.hint = hint


class UnknownModelError(RequestError):
    """No loaded bundle has that name."""

    status = 404
    code = "unknown_model"


class UnknownGlossaryError(RequestError):
    """The owner has no stored glossary with that id, or it has no entries for that language
    pair."""

    status = 404
    code = "unknown_glossary"


class UnknownEvaluationError(RequestError):
    """The owner has no evaluation with that id, or it has expired."""

    status = 404
    code = "unknown_evaluation"


class UnknownMemoryError(RequestError):
    """The owner has no translation memory with that id, or no such job of one."""

    status = 404
    code = "unknown_memory"


class MediaTypeError(RequestError):
    """The body has a media type that its route does not read."""

    status = 415
    code = "unsupported_media_type"


class NoAdminError(RequestError):
    """The server has no admin key, so it cannot be administered over HTTP."""

    status = 404
    code = "no_admin"


class UnknownKeyError(RequestError):
    """No API key has that id."""

    status = 404
    code = "unknown_key"


class NoImportsError(RequestError):
    """The server is set not to import models over HTTP."""

    status = 404
    code = "no_imports"


class ImportingError(RequestError):
    """Another model is being imported; only one is imported at a time."""

    status = 409
    code = "importing"


class QuotaExceededError(RequestError):
    """A key has used the characters that it may have in a month, or since the server was started if
    there is no store."""

    status = 429
    code = "quota_exceeded"


class UnauthorizedError(RequestError):
    """The request carries no API key, or one that the server does not know."""

    status = 401
    code = "unauthorized"


class RequestTimeoutError(RequestError):
    """The client took too long to send its request."""

    status = 408
    code = "request_timeout"


class RateLimitedError(ServingError):
    """The client has asked for more than its limit per minute; try again later."""

    status = 429
    code = "rate_limited"


class OverloadedError(ServingError):
    """The queue is full; try again later."""

    status = 503
    code = "overloaded"
    retry_after_s: float = 1.0


class NotReadyError(OverloadedError):
    """The server is starting or shutting down; try again later."""

    code = "not_ready"


class DeviceMemoryError(OverloadedError):
    """A GPU's memory does not hold the batch; fewer rows may fit."""


class StoreUnavailableError(ServingError):
    """The database of the store does not answer, or cannot write; try again later."""

    status = 503
    code = "store_unavailable"
    retry_after_s: float = 5.0


class NoStoreError(ServingError):
    """The request needs a store, and the server has none."""

    status = 501
    code = "no_store"


class DeadlineExceededError(ServingError):
    """The request was not finished before its deadline."""

    status = 504
    code = "deadline_exceeded"


class CancelledError(ServingError):
    """The request was cancelled by its caller."""

    status = 499
    code = "cancelled"


class DecodingError(ServingError):
    """The model produced a non-finite score for this sentence."""

    code = "decoding_failed"


class DecoderLostError(ServingError):
    """The process or engine that decoded this request has failed, or has ended before it was
    done."""

    status = 503
    code = "decoder_lost"
    retry_after_s: float = 1.0


def without_memory(error: Exception) -> Exception:
    """The same error. One of too little GPU memory loses its traceback, whose frames would keep
    memory of the batch in use while that is decoded again."""
    return error.with_traceback(None) if isinstance(error, DeviceMemoryError) else error


class DeviceLostError(DecoderLostError):
    """The GPU has failed in a way after which this process cannot use it any more; another process
    may."""
