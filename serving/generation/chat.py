"""Writes the messages of a chat as a prompt, by the template that a model was trained with."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from jinja2 import TemplateError
from jinja2.ext import Extension
from jinja2.nodes import CallBlock, Node
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from serving.errors import BundleError, RequestError
from serving.search.ids import SpecialIds
from serving.text.characters import check_text

if TYPE_CHECKING:  # imported here, so that a server of bundles without templates does not load it
    from serving.bundle.fast_vocabulary import FastVocabulary

Message = Mapping[str, str]
"""A message with `role` and `content`, as templates read it."""

_BROKEN = "\0"
"""Character put inside a special token that a message spells out; texts that are read never contain
it."""


class _GenerationTag(Extension):
    """Renders the content of `{% generation %}` unchanged: only training needs the tag."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> Node:
        """Returns a block whose content is rendered unchanged."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return CallBlock(self.call_method("_rendered"), [], [], body).set_lineno(line)

    def _rendered(self, caller: Callable[[], str]) -> str:
        return caller()


class ChatTemplate:
    """A Jinja template, which runs in a sandbox: it reads messages and changes nothing.

    It can use the same names that `transformers` gives a template: `messages`, the special tokens
    by name, `add_generation_prompt`, `tools` and `documents`, which are none, `raise_exception`,
    `strftime_now`, `tojson` and the tag `generation`.
    """

    def __init__(self, source: str, vocabulary: FastVocabulary, special_ids: SpecialIds) -> None:
        """Compile the template. Raises BundleError if the source is not a valid template."""
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols", _GenerationTag],
        )
        environment.filters["tojson"] = _to_json
        environment.globals |= {"raise_exception": _refuse, "strftime_now": _now}
        self._vocabulary = vocabulary
        self._tokens = {
            f"{name}_token": vocabulary.pieces([number])[0]
            for name, number in vars(special_ids).items()
        }
        special = sorted(vocabulary.special_tokens, key=len, reverse=True)
        self._special = re.compile("|".join(map(re.escape, special)) or r"(?!)")
        self.source = source
        """The template's source text."""
        try:
            self._template = environment.from_string(source)
        except TemplateError as error:
            raise BundleError(f"not a chat template: {' '.join(str(error).split())}") from error

    def encode(self, messages: Sequence[Message]) -> list[int]:
        """Token ids of a prompt that the assistant is to continue.

        A special token that a message spells out is treated as ordinary text, so it cannot end a
        message early. Raises RequestError if the template refuses the messages, or if one contains
        text that no model can read.
        """
        for place, message in enumerate(messages):
            check_text(message["role"], "messages")
            try:
                check_text(message["content"], "messages")
            except RequestError as error:
                raise error.at(f"messages[{place}].content") from None
        broken = [{key: self._break(text) for key, text in each.items()} for each in messages]
        text = self._render(broken)
        if broken == list(messages):
            return self._vocabulary.encode_marked(text)
        return self._encode_broken(text)

    def _encode_broken(self, text: str) -> list[int]:
        """Token ids of a prompt with broken special tokens. What stands between two whole ones is
        read anew if one is broken there; all else is read as in a prompt without broken ones."""
        ids, spans = self._vocabulary.encode_marked(text), self._vocabulary.marked_spans(text)
        found: list[int] = []
        first = begin = 0
        for place, (start, end) in enumerate([*spans, (len(text), len(text))]):
            whole = place == len(ids) or self._vocabulary.is_control(ids[place])
            if whole and _BROKEN not in text[start:end]:
                found += self._mended(text[begin:start], ids[first:place])
                found += ids[place : place + 1]
                first, begin = place + 1, end
        return found

    def _mended(self, text: str, broken: list[int]) -> list[int]:
        """Token ids of text between special tokens, where it has the `broken` ones. Some files read
        the beginning of a text otherwise than the same behind a special token: it stays."""
        if _BROKEN not in text:
            return broken
        alone, ids = (
            self._vocabulary.encode(text),
            self._vocabulary.encode(text.replace(_BROKEN, "")),
        )
        same = 0
        while same < min(len(alone), len(broken)) and alone[-1 - same] == broken[-1 - same]:
            same += 1
        other = alone[: len(alone) - same]
        if ids[: len(other)] != other:
            return ids
        return broken[: len(broken) - same] + ids[len(other) :]

    def _break(self, text: str) -> str:
        return self._special.sub(lambda found: found[0][0] + _BROKEN + found[0][1:], text)

    def _render(self, messages: Sequence[Message]) -> str:
        try:
            return self._template.render(
                messages=messages,
                add_generation_prompt=True,
                tools=None,
                documents=None,
                **self._tokens,
            )
        except Exception as error:  # of any kind, for unexpected messages
            reason = " ".join(str(error).split()).replace(_BROKEN, "")
            raise RequestError(
                f"the model's chat template refuses these messages: {reason}", parameter="messages"
            ) from error


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)


def _now(form: str) -> str:
    return datetime.datetime.now().strftime(form)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """A value as JSON, without the escapes for HTML that Jinja's own filter adds."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
