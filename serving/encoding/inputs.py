"""Turns what an encoder is given into token ids; it runs no model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from serving.bundle.encoder_tokenizer import EncodedText, EncoderTokenizer
from serving.bundle.folder import read_manifest
from serving.bundle.manifest import Manifest, Reading
from serving.errors import BundleError, InvalidOptionError, RequestError
from serving.text.characters import check_text, token_ids

Input = str | tuple[str, str]
"""A text, or a pair of texts read together."""


class InputProcessor:
    """An encoder's tokenizer and prompts: everything that the handling of inputs needs."""

    def __init__(self, manifest: Manifest, reading: Reading, tokenizer: EncoderTokenizer) -> None:
        self.manifest, self.reading, self.tokenizer = manifest, reading, tokenizer

    def encode(
        self,
        given: Input | Sequence[int],
        *,
        truncate: bool = False,
        prompt_name: str | None = None,
    ) -> EncodedText:
        """Token ids of a text, a pair, or ids without special ones; raises RequestError for an
        input that the model cannot read, and for an empty text.

        The bundle's prompt of this name, or its default prompt, stands before a text.
        """
        if isinstance(given, str):
            _check(given)
            prompt = self.reading.prompt(prompt_name)
            return self.tokenizer.encode(prompt + given, truncate=truncate)
        if prompt_name is not None:
            raise InvalidOptionError(
                "prompt_name is for single texts, got a pair or token ids; leave it out",
                parameter="prompt_name",
            )
        if isinstance(given, tuple):
            _check_two(given)
            for text, parameter in zip(given, ("first", "pair"), strict=True):
                _check(text, parameter)
            return self.tokenizer.encode(*given, truncate=truncate)
        ids = token_ids(given, "input")
        if not ids:
            raise RequestError("a text must not be empty, got no token", parameter="input")
        return self.tokenizer.complete(ids, truncate=truncate)


def load_inputs(folder: Path) -> InputProcessor:
    """Check a bundle, and load what the handling of inputs needs. Raises BundleError if it cannot
    be used."""
    manifest = read_manifest(folder)
    reading, length = manifest.reading, manifest.sizes.max_source
    if reading is None or length is None:
        raise BundleError(f"{folder}: task must be 'encode' or 'classify', got {manifest.task!r}")
    file = folder / manifest.tokenizer.source_file
    tokenizer = EncoderTokenizer(file, manifest.sizes.vocab_size, length)
    return InputProcessor(manifest, reading, tokenizer)


def _check_two(pair: tuple[object, ...]) -> None:
    if len(pair) != 2:
        raise RequestError(f"a pair must have two texts, got {len(pair)}", parameter="input")


def _check(text: str, parameter: str = "input") -> None:
    check_text(text, parameter)
    if not text.strip():
        raise RequestError("a text must not be empty", parameter=parameter)
