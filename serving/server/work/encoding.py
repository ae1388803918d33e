"""Reads texts with an encoder, for every dialect: limits, choice of the model, reading."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from starlette.requests import Request

from serving.arrays import Floats
from serving.bundle.encoder_tokenizer import EncodedText
from serving.bundle.manifest import Task
from serving.encoding.inputs import Input
from serving.encoding.scheduler import ReadTicket
from serving.errors import InvalidOptionError, RequestError
from serving.server.http.access_log import RequestContext
from serving.server.models.served import ServedEncoder
from serving.server.work.admission import check_texts
from serving.server.work.backend import Backend
from serving.server.work.pipeline import Caller, Chosen, Pipeline

Given = Input | list[int]
"""A text, two texts that are read together, or ids."""
Place = Callable[[int, int], str]
"""Returns the dialect's name of a text: of the first (0) or second (1) text of the input with this
number."""


class Read(NamedTuple):
    """The result of reading the texts of a request."""

    model: ServedEncoder
    found_BW: Floats
    """A vector for each text, or the logits of its classes."""
    tokens: int
    """Number of ids that were read, special ones included."""


class Readings:
    """Reads texts with the encoders of a backend."""

    def __init__(self, backend: Backend) -> None:
        self._registry, self._settings = backend.registry, backend.settings
        self._pipeline = Pipeline(backend.settings, backend.gatekeeper)

    async def read(
        self,
        texts: Sequence[Given],
        task: Task,
        request: Request,
        context: RequestContext,
        *,
        place: Place,
        model: str | None = None,
        truncate: bool = False,
        prompt_name: str | None = None,
    ) -> Read:
        """Read texts with the encoder of this name, or the first one for the task. The prompt of
        this name, or the model's default one, is put before each text.

        Raises RequestError, which names the text at fault by its `place` if there is one, and the
        errors of the scheduler.
        """
        limit = self._pipeline.limit(None, context)
        whole = [_whole(given) for given in texts]
        characters = sum(map(len, whole))

        def choose() -> Chosen[tuple[ServedEncoder, list[ReadTicket], int]]:
            encoder = self._registry.choose_encoder(task, model)
            try:
                check_texts(whole, self._settings)
            except RequestError as error:
                raise _placed(error, texts, place) from error

            def submit() -> tuple[ServedEncoder, list[ReadTicket], int]:
                try:
                    read = partial(
                        encoder.inputs.encode, truncate=truncate, prompt_name=prompt_name
                    )
                    encoded = _encoded(read, texts)
                except RequestError as error:
                    raise _placed(error, texts, place) from error
                tickets = encoder.scheduler.submit_all(
                    encoded, limit.timeout_s, limit.max_wait_s, limit.held
                )
                return encoder, tickets, sum(len(text.ids) for text in encoded)

            return Chosen(encoder.name, task, len(texts), characters, submit)

        caller = Caller(context, characters, request.receive)
        encoder, tickets, tokens = await self._pipeline.begin(caller, choose)
        found = await self._pipeline.results(tickets, caller, limit)
        return Read(encoder, np.stack(found), tokens)


def check_dimensions(read: Read, dimensions: int | None) -> None:
    """Raise InvalidOptionError for vectors of another size than the model's."""
    width = read.found_BW.shape[1]
    if dimensions not in (None, width):
        raise InvalidOptionError(
            f"dimensions of the model {read.model.name!r} must be {width}, got {dimensions}; "
            "leave it out",
            parameter="dimensions",
        )


def place_in(field: str, given: str | list[int] | list[str] | list[list[int]]) -> Place:
    """The `Place` for the result of `inputs_of`: the field itself, or one of its parts if there are
    several."""
    several = isinstance(given, list) and not isinstance(given[0], int)
    return lambda index, _: f"{field}[{index}]" if several else field


def inputs_of(given: str | list[int] | list[str] | list[list[int]]) -> list[Given]:
    """A text or a list of ids, or several of either, as a list of texts."""
    if isinstance(given, str):
        return [given]
    ids = [part for part in given if isinstance(part, int)]
    return [ids] if ids else [part for part in given if not isinstance(part, int)]


def _whole(given: Given) -> str:
    """A text as long as the input, for checks of limits; an id counts as a character."""
    if isinstance(given, str):
        return given
    return given[0] + given[1] if isinstance(given, tuple) else " " * len(given)


def _placed(error: RequestError, texts: Sequence[Given], place: Place) -> RequestError:
    """The same error with the name of the text at fault, if there is one. If two texts together are
    too long, the longer one is named. For a prompt, no text is named."""
    if error.parameter == "prompt_name":
        return error
    given = texts[error.index or 0]
    if not isinstance(given, tuple):
        second = False
    elif error.parameter in ("first", "pair"):
        second = error.parameter == "pair"
    else:
        second = len(given[1]) > len(given[0])
    name = place(error.index or 0, int(second))
    error.parameter = re.split(r"[.\[]", name)[0]
    return error if error.index is None else error.at(name)


def _encoded(encode: Callable[[Given], EncodedText], texts: Sequence[Given]) -> list[EncodedText]:
    encoded = []
    for index, given in enumerate(texts):
        try:
            encoded.append(encode(given))
        except RequestError as error:
            error.index = index
            raise
    return encoded
