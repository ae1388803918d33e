"""Errors of the serving package; each carries the HTTP status that a dialect renders.

ServingError
├── BundleError                 a bundle cannot be used
│   ├── FormatVersionError      written by a newer export
│   └── HashMismatchError       a file differs from its manifest
├── RequestError                the caller can mend it (4xx)
│   ├── InvalidOptionError      an option outside its range
│   ├── InvalidTextError        a text that is not valid Unicode, or holds NUL
│   ├── TooLongError            a text or a list over its limit
│   ├── UnknownLanguageError    no model for the language pair
│   └── UnknownModelError       no bundle of that name
├── OverloadedError             the queue is full
├── DeadlineExceededError       not finished in time
├── CancelledError              cancelled by the caller
└── DecodingError               the model gave a non-finite score
"""

from __future__ import annotations


class ServingError(Exception):
    """Root of every error that serving raises on purpose."""

    status = 500


class BundleError(ServingError):
    """A bundle cannot be loaded; the message names the bundle, what was found and what was wanted."""


class FormatVersionError(BundleError):
    """The bundle's format_version is newer than this runtime reads."""


class HashMismatchError(BundleError):
    """A file of the bundle differs from the sha256 in its manifest."""


class RequestError(ServingError):
    """The request cannot be served as it is; the message says what to change."""

    status = 400


class InvalidOptionError(RequestError):
    """A decoding option has a wrong name, type or value."""


class InvalidTextError(RequestError):
    """A text holds characters that no model can read (NUL, lone surrogates)."""


class TooLongError(RequestError):
    """A text, or a list of texts, is over its limit; nothing is cut."""

    status = 413


class UnknownLanguageError(RequestError):
    """No loaded model translates between the two languages."""


class UnknownModelError(RequestError):
    """No loaded bundle has that name."""

    status = 404


class OverloadedError(ServingError):
    """The queue is full; try again later."""

    status = 503


class DeadlineExceededError(ServingError):
    """The request was not finished before its deadline."""

    status = 504


class CancelledError(ServingError):
    """The request was cancelled by its caller."""

    status = 499


class DecodingError(ServingError):
    """The model produced a non-finite score for this sentence."""
