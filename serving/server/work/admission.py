"""The limits on the texts and options of a request, for every dialect."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from serving.errors import InvalidOptionError, TooLongError
from serving.search.options import SearchOptions, check_names
from serving.search.sampling_options import GenerationOptions
from serving.server.http.settings import Settings, variable
from serving.text.terms import Terms


def check_texts(texts: Sequence[str], settings: Settings, parameter: str = "text") -> None:
    """Raise TooLongError for too many texts, or for one that is too long, named by its index;
    `parameter` is the parameter that they came in."""
    if len(texts) > settings.max_texts:
        raise TooLongError(
            f"a request must have at most {settings.max_texts} texts ({variable('max_texts')}), "
            f"got {len(texts)}; send several requests",
            parameter=parameter,
        )
    for index, text in enumerate(texts):
        if len(text) > settings.max_text_chars:
            error = TooLongError(
                f"text must have at most {settings.max_text_chars} characters "
                f"({variable('max_text_chars')}), got {len(text)}; split it",
                parameter=parameter,
            )
            error.index = index
            raise error


def check_tags(texts: Sequence[str], settings: Settings) -> None:
    """Raise TooLongError for more HTML tags than may be in one request."""
    tags = sum(text.count("<") for text in texts)
    if tags > settings.max_tags:
        raise TooLongError(
            f"a request must have at most {settings.max_tags} tags of HTML "
            f"({variable('max_tags')}), got {tags}; send several requests",
            parameter="text",
        )


def check_terms(terms: Terms, settings: Settings) -> None:
    """Raise TooLongError for too many terms or one that is too long, and InvalidOptionError for a
    blank one."""
    texts = [
        *(("required", text) for text in terms.required),
        *(("forbidden", text) for text in terms.forbidden),
        *(("glossary", text) for pair in terms.glossary for text in pair),
    ]
    count = len(terms.required) + len(terms.forbidden) + len(terms.glossary)
    if count > settings.max_terms:
        raise TooLongError(
            f"a request must have at most {settings.max_terms} terms ({variable('max_terms')}), "
            f"got {count}"
        )
    for name, text in texts:
        if not text.strip():
            raise InvalidOptionError("terms must not be blank; leave them out", parameter=name)
    name, longest = max(texts, key=lambda term: len(term[1]), default=("", ""))
    if len(longest) > settings.max_term_chars:
        raise TooLongError(
            f"a term must have at most {settings.max_term_chars} characters "
            f"({variable('max_term_chars')}), got {len(longest)}",
            parameter=name,
        )


def choose_options(
    given: Mapping[str, Any],
    defaults: SearchOptions,
    settings: Settings,
    *,
    alternatives: int = 0,
) -> SearchOptions:
    """The bundle's own options, overridden by those that the request sets.

    `alternatives` further hypotheses widen the beam if the request does not set it. Raises
    InvalidOptionError for an unknown option and for a value out of range or over a limit.
    """
    options = defaults
    if given:
        check_names(given, SearchOptions)
        options = dataclasses.replace(defaults, **given)
    if alternatives:
        _check("alternatives", alternatives, settings.max_num_hypotheses - 1, "max_num_hypotheses")
        count = max(options.num_hypotheses, alternatives + 1)
        beam_size = options.beam_size if "beam_size" in given else max(options.beam_size, count)
        options = dataclasses.replace(options, num_hypotheses=count, beam_size=beam_size)
    for name, limit in (
        ("beam_size", "max_beam_size"),
        ("num_hypotheses", "max_num_hypotheses"),
        ("min_length", "max_output_tokens"),
        ("max_length", "max_output_tokens"),
    ):
        _check(name, getattr(options, name) or 0, getattr(settings, limit), limit)
    return options


def check_cost(sentences: int, beam_size: int, settings: Settings) -> None:
    """Raise TooLongError if a request needs more sentences or beams than allowed."""
    if sentences > settings.max_queue:
        raise TooLongError(
            f"a request must have at most {settings.max_queue} sentences "
            f"({variable('max_queue')}), got {sentences}; send several requests",
            parameter="text",
        )
    if sentences * beam_size > settings.max_request_beams:
        raise TooLongError(
            f"sentences x beam_size must be at most {settings.max_request_beams} "
            f"({variable('max_request_beams')}), got {sentences} x {beam_size}; send fewer "
            "or a smaller beam_size"
        )


def check_generation(prompts: int, options: GenerationOptions, settings: Settings) -> None:
    """Raise InvalidOptionError for an option over its limit, and TooLongError for more prompts or
    outputs than one request may have."""
    for name, limit in (
        ("num_hypotheses", "max_num_hypotheses"),
        ("best_of", "max_num_hypotheses"),
        ("beam_size", "max_beam_size"),
        ("num_logprobs", "max_logprobs"),
    ):
        _check(name, getattr(options, name) or 0, getattr(settings, limit), limit)
    outputs = prompts * max(options.num_choices, options.beam_size)
    if prompts > settings.max_texts or outputs > settings.max_request_beams:
        raise TooLongError(
            f"a request must have at most {settings.max_texts} prompts ({variable('max_texts')}) "
            f"and {settings.max_request_beams} outputs ({variable('max_request_beams')}), got "
            f"{prompts} and {outputs}; send several requests"
        )


def _check(name: str, value: int, allowed: int, limit: str) -> None:
    if value > allowed:
        raise InvalidOptionError(
            f"{name} must be at most {allowed} on this server ({variable(limit)}), got {value}",
            parameter=name,
        )
