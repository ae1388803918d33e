"""A translator that says back what it was told, through the real search and scheduler."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from starlette.applications import Starlette
from starlette.routing import BaseRoute
from starlette.testclient import TestClient
from starlette.types import Message

from serving.bundle.graph import Graph
from serving.bundle.languages import Languages
from serving.bundle.manifest import Manifest, ModelSizes, TokenizerFiles
from serving.queue.limits import BatchLimits
from serving.search.ids import EOS_ID, UNK_ID
from serving.search.stepper import StepInputs, StepOutputs
from serving.server.app import create_app
from serving.server.http.settings import Settings
from serving.server.models.registry import Registry
from serving.translation.texts import TextProcessor
from serving.translation.translator import ModelTranslator
from tests.unit.serving.search.fake_stepper import FakeModel, FakeState, FakeStepper, Slots

POISON = "\u16a6"
"""A text that begins with it makes the model answer NaN."""
LONGEST_READ = 18 * 1024 * 1024
"""Bytes of a chunked body that are read at most before it is refused: 1 MB that it may have, 16 MB
more so that a client that reads last gets its answer, and what arrives with their ends."""
_FIRST_BYTE = 4
_POISON_IDS = tuple(_FIRST_BYTE + byte for byte in POISON.encode())


class ByteTokenizer:
    """An id for each byte of UTF-8."""

    def encode(self, text: str) -> list[int]:
        """Ids of a stripped text: blank texts have none, as with SentencePiece."""
        return [_FIRST_BYTE + byte for byte in text.strip().encode()]

    def decode(self, ids: list[int]) -> str:
        """Text of ids."""
        data = bytes(i - _FIRST_BYTE for i in ids if i >= _FIRST_BYTE)
        return data.decode(errors="replace")

    def pieces(self, ids: list[int]) -> list[str]:
        """One name for each id."""
        return [f"<{i}>" for i in ids]

    def spans(self, text: str) -> list[tuple[int, int]]:
        """One character each: of plain ASCII only."""
        begin = len(text) - len(text.lstrip())
        return [(begin + i, begin + i + 1) for i in range(len(self.encode(text)))]

    def decoded_spans(self, ids: list[int]) -> list[tuple[int, int]]:
        """One character each: of plain ASCII only."""
        return [(i, i + 1) for i in range(len(ids))]

    vocab_size = _FIRST_BYTE + 256
    unk_id, eos_id = UNK_ID, EOS_ID
    beginning = (EOS_ID,)

    def segmentations(self, text: str) -> list[list[int]]:
        """The only one."""
        return [self.encode(text)]

    def is_byte(self, token_id: int) -> bool:
        """All are."""
        return token_id >= _FIRST_BYTE

    def is_control(self, token_id: int) -> bool:
        """All others have no text."""
        return token_id < _FIRST_BYTE

    def control_id(self, piece: str) -> int | None:
        """There are none."""
        del piece
        return None


class TaggedTokenizer(ByteTokenizer):
    """Bytes, and tags: ids of bytes that no text has, which `decode` shows as `[de]`."""

    def __init__(self, tags: Mapping[str, str]) -> None:
        self._ids = {tag: _FIRST_BYTE + 0xF8 + number for number, tag in enumerate(tags.values())}
        self._shown = {self._ids[tag]: f"[{language}]" for language, tag in tags.items()}

    def control_id(self, piece: str) -> int | None:
        """Of a tag."""
        return self._ids.get(piece)

    def decode(self, ids: list[int]) -> str:
        """Text of ids, tags included."""
        shown = "".join(self._shown[i] for i in ids if i in self._shown)
        return shown + super().decode([i for i in ids if i not in self._shown])


class EchoModel(FakeModel):
    """Continues with the source's next id, or, less likely, with the one after that."""

    def logits(self, source: tuple[int, ...], slots: Slots) -> NDArray[np.float32]:
        """[V]"""
        logits = np.zeros(self.vocab_size, dtype=np.float32)
        for skipped, value in ((1, 6.0), (0, 12.0)):
            position = len(slots) - 1 + skipped
            logits[source[position] if position < len(source) else EOS_ID] = value
        if source[: len(_POISON_IDS)] == _POISON_IDS:
            logits[:] = np.nan
        return logits


class EchoStepper(FakeStepper):
    """Takes a step only while `gate` is set; `steps` counts them."""

    def __init__(self) -> None:
        super().__init__(EchoModel(vocab_size=_FIRST_BYTE + 256))
        self.gate = threading.Event()
        self.gate.set()
        self.steps = 0

    def step(
        self,
        state: FakeState,
        inputs: StepInputs,
        *,
        want_logits: bool,
        attention_rows: Sequence[int] = (),
    ) -> StepOutputs:
        """One step of the echo."""
        self.gate.wait(30)
        self.steps += 1
        return super().step(state, inputs, want_logits=want_logits, attention_rows=attention_rows)


def echo_manifest(name: str = "echo-de-en", **changes: Any) -> Manifest:
    """Of a model that translates German to English, but for what is changed."""
    graph = Graph(file="step.onnx", opset=24, inputs=(), outputs=())
    sizes = ModelSizes(
        model_dim=8,
        num_heads=2,
        num_encoder_layers=1,
        num_decoder_layers=1,
        vocab_size=260,
        max_source=256,
        num_parameters=1000,
    )
    told: dict[str, Any] = {
        "format_version": 1,
        "name": name,
        "task": "translate",
        "family": "macaron",
        "decoder_kind": "cross",
        "block": "macaron",
        "precision": "fp32",
        "target": "cpu",
        "sizes": sizes,
        "languages": Languages(source=("de",), target=("en",)),
        "tokenizer": TokenizerFiles(kind="sentencepiece", source_file="s", target_file="s"),
        "encoder": graph,
        "step": graph,
        "search": {"beam_size": 4},
        "attribution": "made up",
    }
    return Manifest(**told | changes)


class OneStepper:
    """A model that has the same graph for every sentence."""

    def __init__(self, stepper: FakeStepper) -> None:
        self.whole = self.shortlist = stepper


class EchoTranslator(ModelTranslator):
    """The echo, or another fake model, behind a manifest."""

    def __init__(
        self,
        name: str = "echo-de-en",
        source: str = "de",
        target: str = "en",
        *,
        priority: int = 0,
        search: dict[str, object] | None = None,
        limits: BatchLimits | None = None,
        stepper: Any = None,
        languages: Languages | None = None,
    ) -> None:
        """`languages` are those of a model of several directions, whose translations tell by
        `[de]` which tag it was given."""
        self.stepper = stepper or EchoStepper()
        languages = languages or Languages(source=(source,), target=(target,))
        search = search or {"beam_size": 4}
        manifest = echo_manifest(name, priority=priority, languages=languages, search=search)
        tokenizer = TaggedTokenizer(languages.tags) if languages.tags else ByteTokenizer()
        max_bytes = (limits or BatchLimits()).max_cache_bytes
        texts = TextProcessor(manifest, tokenizer, tokenizer, self.stepper, max_bytes)
        super().__init__(texts, OneStepper(self.stepper), limits=limits)


def several(*pairs: str) -> Languages:
    """Those of a model that was trained on some pairs, such as `de-en`."""
    found = [(pair[:2], pair[3:]) for pair in pairs]
    targets = dict.fromkeys(target for _, target in found)
    return Languages(
        source=tuple(dict.fromkeys(source for source, _ in found)),
        target=tuple(targets),
        pairs=tuple(found),
        tags={target: f"<2{target}>" for target in targets},
    )


@contextmanager
def served(
    *translators: EchoTranslator, settings: Settings | None = None
) -> Iterator[tuple[TestClient, Registry]]:
    """The app over some echoes."""
    settings = settings or Settings()
    registry = Registry(settings)
    translators = translators or (EchoTranslator(),)
    registry.start(translators)
    try:
        with TestClient(create_app(registry, settings)) as client:
            yield client, registry
    finally:
        for translator in translators:
            translator.stepper.gate.set()
        registry.close()


@dataclass(frozen=True)
class LongBodyAnswer:
    """What an app answers to a body that it need not read to its end."""

    status: int
    text: str
    parts_read: int


def send_in_parts(
    app: Any, method: str, path: str, headers: Mapping[str, str], part: bytes, parts: int
) -> LongBodyAnswer:
    """Send a body of so many equal parts, each when the app wants it, as a server does."""
    messages: list[Message] = []
    read = 0

    async def receive() -> Message:
        nonlocal read
        read += 1
        assert read <= parts, "a server waits here until the client leaves"
        return {"type": "http.request", "body": part, "more_body": read < parts}

    async def send(message: Message) -> None:
        messages.append(message)

    raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": method, "path": path, "headers": raw}
    asyncio.run(app({**scope, "query_string": b"", "root_path": ""}, receive, send))
    text = b"".join(message.get("body", b"") for message in messages).decode()
    return LongBodyAnswer(messages[0]["status"], text, read)


def all_routes(app: Starlette) -> list[BaseRoute]:
    """The routes of an app, those with fixed paths first."""
    return [found for route in app.routes for found in getattr(route, "routes", [route])]


def wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait for another thread; fails after some seconds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.005)
