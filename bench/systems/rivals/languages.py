"""llama.cpp as a worker process runs it, through the declarations of llama-cpp-python."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_CONTEXT = 512
"""Smallest number of tokens per stream in a context, and the step in which it grows."""
_MOST_TOGETHER = 2048
"""Tokens of one call; `llama.cpp`'s own default."""


class LlamaCpp:
    """A model of GGUF, decoded greedily in one context with a sequence for each stream."""

    def __init__(self, file: str, threads: int) -> None:
        self._api = _library()
        parameters = self._api.llama_model_default_params()
        parameters.n_gpu_layers = 0
        self._model = self._api.llama_model_load_from_file(file.encode(), parameters)
        if not self._model:
            raise ValueError(f"llama.cpp does not read {file}")
        self._vocabulary = self._api.llama_model_get_vocab(self._model)
        self._greedy = self._api.llama_sampler_init_greedy()
        self._threads = threads
        self._open: tuple[tuple[int, int], Any] | None = None
        self.version = _version()

    def tokenize(self, text: str) -> list[int]:
        """Ids of a text, nothing added."""
        raw = text.encode()
        buffer = (self._api.llama_token * (len(raw) + 8))()
        count = self._api.llama_tokenize(
            self._vocabulary, raw, len(raw), buffer, len(buffer), False, False
        )
        return list(buffer[:count])

    def generate(self, prompts: list[list[int]], tokens: int) -> list[list[int]]:
        """The likeliest next ids of each prompt, all prompts at once; an end of text does not stop
        the generation."""
        streams, longest = len(prompts), max(map(len, prompts))
        context = self._context(streams, longest + tokens)
        rows = [
            (token, place, stream, place == len(prompt) - 1)
            for stream, prompt in enumerate(prompts)
            for place, token in enumerate(prompt)
        ]
        self._decode(context, rows)
        wanted = [number for number, row in enumerate(rows) if row[3]]
        found = [[self._sample(context, number)] for number in wanted]
        for step in range(tokens - 1):
            self._decode(
                context, [(own[-1], len(prompts[n]) + step, n, True) for n, own in enumerate(found)]
            )
            for stream, own in enumerate(found):
                own.append(self._sample(context, stream))
        return found

    def loss(self, ids: list[int]) -> float:
        """Mean negative log-likelihood of the ids after the first."""
        import numpy as np

        context = self._context(1, len(ids))
        self._decode(context, [(token, place, 0, True) for place, token in enumerate(ids)])
        size = self._api.llama_vocab_n_tokens(self._vocabulary)
        total = 0.0
        for place, token in enumerate(ids[1:]):
            row = self._api.llama_get_logits_ith(context, place)
            logits = np.ctypeslib.as_array(row, shape=(size,)).astype(np.float64)
            highest = logits.max()
            total += float(highest + np.log(np.exp(logits - highest).sum()) - logits[token])
        return total / (len(ids) - 1)

    def _context(self, streams: int, length: int) -> Any:
        """An empty context; the one of the previous call if it has the same size."""
        size = (streams, streams * _CONTEXT * -(-length // _CONTEXT))
        if self._open is None or self._open[0] != size:
            if self._open is not None:
                self._api.llama_free(self._open[1])
            parameters = self._api.llama_context_default_params()
            parameters.n_seq_max, parameters.n_ctx = size
            parameters.n_batch = _MOST_TOGETHER
            parameters.n_threads = parameters.n_threads_batch = self._threads
            self._open = size, self._api.llama_init_from_model(self._model, parameters)
        context = self._open[1]
        self._api.llama_memory_clear(self._api.llama_get_memory(context), True)
        return context

    def _decode(self, context: Any, rows: list[tuple[int, int, int, bool]]) -> None:
        """Read rows of (id, place, stream, whether its logits are wanted)."""
        batch = self._api.llama_batch_init(len(rows), 0, 1)
        for number, (token, place, stream, wanted) in enumerate(rows):
            batch.token[number], batch.pos[number] = token, place
            batch.n_seq_id[number], batch.seq_id[number][0] = 1, stream
            batch.logits[number] = wanted
        batch.n_tokens = len(rows)
        status = self._api.llama_decode(context, batch)
        self._api.llama_batch_free(batch)
        if status:
            raise RuntimeError(f"llama_decode ended with status {status}")

    def _sample(self, context: Any, row: int) -> int:
        return int(self._api.llama_sampler_sample(self._greedy, context, row))


class LlamaQuantiser:
    """llama.cpp's own quantiser."""

    _TYPES = {"Q4_0": 2, "Q8_0": 7}  # noqa: RUF012  # of `enum llama_ftype`

    def __init__(self) -> None:
        self._api = _library()
        self.version = _version()

    def quantise(self, source: str, target: str, kind: str, threads: int) -> None:
        """Write a GGUF file as `Q4_0` or `Q8_0`, whatever types it has."""
        parameters = self._api.llama_model_quantize_default_params()
        parameters.ftype, parameters.nthread = self._TYPES[kind], threads
        parameters.allow_requantize = True
        status = self._api.llama_model_quantize(
            source.encode(), target.encode(), ctypes.byref(parameters)
        )
        if status:
            raise RuntimeError(f"llama_model_quantize ended with status {status}")


def _library() -> Any:
    """llama-cpp-python's declarations, with the library loaded and its messages off.

    LLAMA_CPP_LIB_PATH, a variable of llama-cpp-python, names the folder of another library than the
    one that was compiled with it.
    """
    own = os.environ.get("LLAMA_CPP_LIB_PATH")
    with _without_functions():
        import llama_cpp.llama_cpp as api
    _check_structures(api)
    global _silent
    _silent = api.llama_log_callback(lambda level, text, data: None)
    api.llama_log_set(_silent, ctypes.c_void_p(0))
    if own is not None and list(Path(own).glob("libggml-cpu-*.so")):
        # Its parts for kinds of processors are files; the best one is chosen when it is loaded.
        ggml = ctypes.CDLL(str(Path(own) / "libggml.so"))
        ggml.ggml_backend_load_all_from_path(own.encode())
    api.llama_backend_init()
    return api


_silent: Any = None
"""Kept, as the library calls it."""


class _Missing:
    """Stands for a function that the library lacks; nothing here calls one."""

    argtypes: Any = None
    restype: Any = None


class _Library(ctypes.CDLL):
    """A library of which some functions may be missing, because llama-cpp-python and a prebuilt
    library are not always of the same day."""

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if not name.startswith("llama_"):
                raise
            return _Missing()


@contextlib.contextmanager
def _without_functions() -> Iterator[None]:
    """Libraries that are loaded inside may lack functions."""
    whole = ctypes.CDLL
    setattr(ctypes, "CDLL", _Library)  # noqa: B010  # a type, which mypy does not let one assign
    try:
        yield
    finally:
        setattr(ctypes, "CDLL", whole)  # noqa: B010


def _check_structures(api: Any) -> None:
    """Raise ImportError if the declarations do not fit the library: numbers would then go into
    wrong fields without an error."""
    context, model = api.llama_context_default_params(), api.llama_model_default_params()
    found = (context.n_ctx, context.n_batch, context.n_ubatch, model.main_gpu)
    if found != (512, 2048, 512, 0) or not model.use_extra_bufts or not context.offload_kqv:
        raise ImportError(
            "the library's structures are not those of llama-cpp-python "
            f"{_version()}; take versions that belong together"
        )


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"llama-cpp-python {version('llama-cpp-python')}"
    except PackageNotFoundError:  # only its sources, beside a prebuilt library
        import llama_cpp

        return f"llama-cpp-python {llama_cpp.__version__}"
