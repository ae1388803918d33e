"""The blocking client."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from time import sleep as wait
from types import TracebackType
from typing import Self, TypeVar

import httpx

from macaron.client import calls
from macaron.client.calls import EventReader, RemoteCall
from macaron.client.errors import LEFT, ApiError, ConnectionLostError, DocumentFailedError
from macaron.client.records import (
    DocumentOptions,
    Label,
    ModelInfo,
    Ranked,
    RemoteDocument,
    RemotePartial,
    RemoteTranslation,
    RemoteVectors,
    TranslationOptions,
)
from macaron.client.retries import Retries, api_error, headers, read_answer
from macaron.client.stored import (
    RemoteBatches,
    RemoteGlossaries,
    RemoteMemories,
    RemoteSuggestions,
)

T = TypeVar("T")

_LOOK_S = 0.5
"""Seconds between requests for the state of a document."""


class Client:
    """Calls a Macaron server. Thread-safe; close it, or use it in a `with`.

    A request is sent again, after the time that the server asks for, if the server is busy or
    starting or the connection breaks. Every method raises ApiError if the server refuses the
    request, and ConnectionLostError if it cannot be reached.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:3000",
        *,
        api_key: str | None = None,
        timeout_s: float = 120.0,
        retries: int = 4,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """`timeout_s` bounds each wait for the server; `retries` is the number of further attempts;
        `transport` is httpx's, for proxies, certificates and tests."""
        self._retries = Retries(retries)
        self._http = httpx.Client(
            base_url=url, headers=headers(api_key), timeout=timeout_s, transport=transport
        )
        self.glossaries = RemoteGlossaries(self._call)
        """Stored glossaries."""
        self.memories = RemoteMemories(self._call)
        """Translation memories."""
        self.batches = RemoteBatches(self._call)
        """Files of requests that are answered in the background."""
        self.suggestions = RemoteSuggestions(self._call)
        """Better translations."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def translate(
        self,
        text: str,
        target: str,
        source: str = "auto",
        options: TranslationOptions = calls.DEFAULTS,
    ) -> RemoteTranslation:
        """Translate a text. Languages are codes; `auto` is detected."""
        return self.translate_all([text], target, source, options)[0]

    def translate_all(
        self,
        texts: Sequence[str],
        target: str,
        source: str = "auto",
        options: TranslationOptions = calls.DEFAULTS,
    ) -> list[RemoteTranslation]:
        """Translate texts in one request, as `translate` does; the server limits their number."""
        return self._call(calls.translate(texts, source, target, options))

    def stream(
        self,
        text: str,
        target: str,
        source: str = "auto",
        options: TranslationOptions = calls.DEFAULTS,
    ) -> Iterator[RemotePartial | RemoteTranslation]:
        """Translate a text; yields its certain beginnings, then the whole translation.

        A stream that breaks off after it has started is not sent again.
        """
        body = {**calls.translation_body([text], source, target, options), "stream": True}
        reader = EventReader()
        try:
            with self._http.stream("POST", "/translate", json=body) as response:
                if not response.is_success:
                    response.read()
                    raise api_error(response)
                for chunk in response.iter_text():
                    for found in reader.read(chunk):
                        yield found[0] if isinstance(found, list) else found
        except httpx.TransportError as error:
            raise ConnectionLostError(f"{self._http.base_url}: {error}") from error
        reader.check_end()

    def translate_file(
        self,
        source_path: str | Path,
        target_path: str | Path,
        target: str,
        source: str = "auto",
        *,
        options: TranslationOptions = calls.DEFAULTS,
        document_options: DocumentOptions = calls.DOCUMENT_DEFAULTS,
        progress: Callable[[RemoteDocument], None] | None = None,
    ) -> RemoteDocument:
        """Translate a file and write the result. `progress` is called regularly. Of the options,
        model, glossary and memory are used. A PDF becomes what `target_path` ends with, `.docx` or
        `.txt`; any other file stays of its kind.

        Raises DocumentFailedError where the server cannot translate it, and OSError where a file
        cannot be read or written. The server forgets the document, where it is reached.
        """
        path = Path(source_path)
        fields = {
            **calls.document_fields(source, target, options, document_options),
            **calls.output_fields(path, Path(target_path)),
        }
        document = self._call(calls.submit(path.name, path.read_bytes(), fields))
        try:
            while not document.ended:
                wait(_LOOK_S)
                document = self._call(calls.document(document.id))
                if progress is not None:
                    progress(document)
            if document.state == "failed":
                raise DocumentFailedError(document.error)
            result = self._call(calls.translated_file(document.id))
            Path(target_path).write_bytes(result)
        finally:
            with suppress(*LEFT):
                self._call(calls.forget(document.id))
        return document

    def embed(self, texts: Sequence[str], model: str | None = None) -> RemoteVectors:
        """The vectors of texts."""
        return self._call(calls.embed(texts, model))

    def rerank(self, query: str, texts: Sequence[str], model: str | None = None) -> list[Ranked]:
        """Rank texts by how well they answer a query, best first."""
        return self._call(calls.rerank(query, texts, model))

    def classify(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None, model: str | None = None
    ) -> list[Label]:
        """Classify texts; for a model that reads pairs, `pairs` has the second text of each."""
        return self._call(calls.classify(texts, pairs, model))

    def models(self) -> list[ModelInfo]:
        """The models of the server."""
        return self._call(calls.models())

    def languages(self) -> dict[str, list[str]]:
        """The source languages, each with its target languages."""
        return self._call(calls.languages())

    def wait_ready(self, timeout_s: float = 60.0) -> None:
        """Wait until the server can translate; raises TimeoutError."""
        end = time.monotonic() + timeout_s
        while True:
            try:
                self._once(calls.ready())
                return
            except (ApiError, httpx.TransportError) as error:
                if time.monotonic() > end:
                    raise TimeoutError(f"the server is not ready after {timeout_s:g} s") from error
            wait(0.1)

    def _call(self, call: RemoteCall[T]) -> T:
        tried = 0
        while True:
            tried += 1
            try:
                return self._once(call)
            except ApiError as error:
                wait_s = self._retries.wait_s(tried, error, repeatable=call.repeatable)
                if wait_s is None:
                    raise
            except httpx.TransportError as error:
                wait_s = self._retries.wait_s(tried, None, repeatable=call.repeatable)
                if wait_s is None:
                    raise ConnectionLostError(f"{self._http.base_url}: {error}") from error
            wait(wait_s)

    def _once(self, call: RemoteCall[T]) -> T:
        response = self._http.request(
            call.method,
            call.path,
            params=call.query,
            json=call.body,
            data=call.form,
            files=call.files,
        )
        if not response.is_success:
            raise api_error(response)
        return read_answer(call, response)
