"""Settings of the server: each field is set by the environment variable MACARON_<FIELD>."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)

import serving
from serving.errors import SettingsError
from serving.queue.limits import BatchLimits, usual_limits
from serving.threads import Preset, default_threads

PREFIX = "MACARON_"
BENTOMLS_OWN = ("BENTOML_CONFIG", "BENTOML_CONFIG_OPTIONS")
"""Variables with BentoML's own settings, such as exporters of traces, which need BentoML's own
worker."""
_EXPECTED = {
    "bool_parsing": "must be on or off",
    "string_pattern_mismatch": "must be empty or a path such as /macaron, without a slash at its "
    "end",
}
"""What is allowed, by the type of pydantic's error, where its own message does not tell an
operator."""
_FOLLOWS = "default_factory_not_called"
"""The type of pydantic's error that follows from another one: a default needs the wrong value."""
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#\s]+|null")
"""What a browser sends as `Origin`."""
_CHECKOUT = Path(__file__).resolve().parents[3]
ROOT = Path.cwd() if "." in serving.__name__ else _CHECKOUT
"""Where relative paths begin: the repository, or the source folder of a built Bento. For an
installed package it is the folder where the server is started, since nothing is written where
packages are. `macaron serve` makes them begin where it is typed."""


def _share_of_threads(before: dict[str, Any]) -> int:
    """The default threads of one worker; `before` contains the validated fields declared
    earlier."""
    workers: int = before.get("workers", 1)
    return max(1, default_threads() // workers)


class Settings(BaseModel):
    """Settings of the server: where bundles are, how they are run, and what requests may ask
    for."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    bundles: Path = Field(Path("models"), validate_default=True)
    """Folder that holds the bundles, one folder each."""
    workers: int = Field(1, ge=1, le=64)
    """Number of server processes. Each loads its own copy of every model and has its own batches;
    without a store each also counts requests separately."""
    threads: int = Field(default_factory=_share_of_threads, ge=1, le=1024)
    """Threads that each model may use; by default the available processors, divided among the
    workers."""
    preset: Preset = "throughput"
    """`throughput`: a translation model decodes as many batches at once as it has threads.
    `latency`: one batch, whose work is shared by as many threads as are found to be fastest for a
    short text; for a machine that does nothing else."""
    decode_in: Literal["processes", "threads"] = "processes"
    """`processes`: translation models are decoded by processes beside the server's, each with a
    batch of every model. `threads`: by threads of the server, which needs less memory and is slower
    under load."""

    load: Literal["start", "use"] = "start"
    """`start`: every model is loaded before the server is ready. `use`: a translation model is
    loaded by the first request for it, which has to wait."""
    max_model_bytes: int = Field(0, ge=0)
    """Largest number of bytes of the files of translation models that are loaded at the same time.
    If another model is needed, the least recently used one is unloaded, unless it has work. 0 sets
    no limit."""

    idle_unload_s: float = Field(0.0, ge=0, le=10**7, allow_inf_nan=False)
    """Seconds without requests after which a translation model is unloaded; the next request for it
    loads it again, and has to wait. 0 keeps models loaded."""

    zero_shot: bool = False
    """`on`: a model of several directions also translates between two of its languages if it was
    not trained on that pair, and if no third language connects the two."""

    root_path: str = Field("", pattern=r"^(/[^/?#\s]+)*$")
    """Path below which a proxy has put the server, such as `/macaron`; `/openapi.json` names it,
    and requests that still carry it are served too."""

    max_body_bytes: int = Field(1024 * 1024, ge=1024)
    """Largest size of a request body in bytes."""
    max_texts: int = Field(128, ge=1)
    """Largest number of texts in a request."""
    max_text_chars: int = Field(20_000, ge=1)
    """Largest number of characters of a text, or of a target prefix; of HTML those that a reader
    sees."""
    max_tags: int = Field(50_000, ge=1)
    """Largest number of HTML tags in a request, counted by their `<`; reading that many takes most
    of a second."""
    max_beam_size: int = Field(16, ge=1, le=64)
    """Highest beam_size."""
    max_num_hypotheses: int = Field(16, ge=1, le=256)
    """Highest num_hypotheses, `alternatives` included."""
    max_output_tokens: int = Field(512, ge=1, le=4096)
    """Highest max_length and min_length."""
    max_request_beams: int = Field(2560, ge=1)
    """Highest number of sentences x beam_size, or of prompts x outputs, in a request."""
    max_context_tokens: int = Field(4096, ge=16)
    """Largest number of tokens of a language model's prompt and output together."""
    max_logprobs: int = Field(20, ge=0, le=64)
    """Highest number of likeliest tokens reported for each token."""

    max_queue: int = Field(512, ge=1)
    """Largest number of sentences that may wait for a model, and of sentences in a request."""
    max_batch_rows: int | None = Field(None, ge=1)
    """Largest number of texts decoded together; by default the number that suits the model's
    device."""
    max_terms: int = Field(100, ge=1)
    """Largest number of glossary entries, required and forbidden terms in one request."""
    max_term_chars: int = Field(100, ge=1)
    """Largest number of characters of a term, in a request or in a stored glossary."""
    max_glossaries: int = Field(1000, ge=1, le=100_000)
    """Largest number of glossaries that are stored for a key."""
    max_glossary_entries: int = Field(10_000, ge=1, le=1_000_000)
    """Largest number of entries of a stored glossary, for each of its language pairs."""
    max_suggestions: int = Field(100_000, ge=1, le=10_000_000)
    """Largest number of suggested translations that are stored for a key."""
    max_memories: int = Field(100, ge=1, le=100_000)
    """Largest number of translation memories that are stored for a key."""
    max_memory_segments: int = Field(1_000_000, ge=1, le=10_000_000)
    """Largest number of segments of a translation memory; a million take about 400 MB in each
    worker that uses them."""
    max_segment_chars: int = Field(5000, ge=1, le=100_000)
    """Largest number of characters of a sentence in a translation memory, and of its
    translation."""
    max_memory_bytes: int = Field(200 * 1024 * 1024, ge=1024)
    """Largest size in bytes of a file that is read into a translation memory."""
    max_batch_tokens: int | None = Field(None, ge=1)
    """Largest number of texts times tokens of the longest source that are decoded together; by
    default the number that suits the device."""
    max_cache_bytes: int = Field(BatchLimits().max_cache_bytes, ge=2**20)
    """Bytes of the caches of a model, shared by the batches that it decodes at once, on each of
    several GPUs. A text that may need more than one batch's share is refused."""
    default_timeout_s: float = Field(30.0, gt=0, allow_inf_nan=False)
    """Seconds until a request without timeout_s fails."""
    max_wait_s: float = Field(5.0, gt=0, allow_inf_nan=False)
    """Seconds from the arrival of a request without timeout_s to its answer. A request is refused
    at once if other requests would make it take longer."""
    max_timeout_s: float = Field(120.0, gt=0, le=3600, allow_inf_nan=False)
    """Highest timeout_s."""
    character_limit: int = Field(10**12, ge=1)
    """Characters per month of a key without a limit of its own, for all tasks. Without a store,
    only a dialect that reports usage counts them, until the server is restarted."""

    client_timeout_s: float = Field(30.0, gt=0, le=3600, allow_inf_nan=False)
    """Seconds that a client has to send the head of its request, to send the body, and to read the
    data written for it."""
    drain_s: float = Field(0.0, ge=0, le=3600, allow_inf_nan=False)
    """Seconds for which requests are still accepted after the signal to end, while `/readyz`
    answers that none should be sent."""
    grace_s: float = Field(130.0, gt=0, le=3600, allow_inf_nan=False)
    """Seconds after the drain until unfinished requests fail; by default more than any deadline."""
    answer_cache_bytes: int = Field(0, ge=0)
    """Bytes of translations that each model stores, to return them again for the same text and
    options; 0 stores none."""

    documents: Path | None = None
    """Folder for documents during their translation, and for the results; shared by the workers,
    and kept when the server ends. Without it, a single worker uses a temporary folder."""
    max_document_bytes: int = Field(30 * 1024 * 1024, ge=1024)
    """Largest size of an uploaded document in bytes."""
    max_documents: int = Field(100, ge=1)
    """Largest number of documents that may wait for translation."""
    document_hours: float = Field(24.0, gt=0, allow_inf_nan=False)
    """Hours for which the translation of a document is kept. The same applies to files that are
    uploaded for batches, and to their results."""

    files: str = ""
    """Folder for the files of batches and their results, or a URL that fsspec knows, such as
    `s3://BUCKET/PREFIX`; shared by the servers of a store. The default for a store in SQLite is a
    folder beside it, with its name and `-files`; for PostgreSQL there is no default."""
    max_file_bytes: int = Field(100 * 1024 * 1024, ge=1024)
    """Largest size in bytes of a file that is uploaded for batches, and of the answers of a
    batch."""
    max_files: int = Field(100, ge=1)
    """Largest number of files that a key may upload before they are deleted."""
    max_batches: int = Field(20, ge=1)
    """Largest number of unfinished batches of a key."""
    max_kept_batches: int = Field(10_000, ge=1)
    """Largest number of batches of a key, including finished ones that are kept."""
    max_batch_lines: int = Field(50_000, ge=1, le=1_000_000)
    """Largest number of lines of a batch."""
    webhook_hosts: str = ""
    """Hosts in the server's own network that webhooks may be sent to, separated by spaces."""

    store: SecretStr = SecretStr("")
    """Database for data that outlive a request: `sqlite:///FILE` (after a fourth slash, an absolute
    path) or `postgresql://USER:PASSWORD@HOST/DATABASE`. Without it nothing is stored."""

    api_keys: SecretStr = SecretStr("")
    """API keys, separated by spaces or commas; if there are any, requests need one."""
    api_keys_file: Path | None = None
    """File with further API keys, one per line; `#` begins a comment."""
    admin_key: SecretStr = SecretStr("")
    """Key for administering keys and models over HTTP, at least 16 characters; without it nobody
    can. If there is a store, setting it makes requests need a key."""
    model_imports: bool = False
    """`on`: holders of the admin key can have models downloaded by name, imported and served
    (`/admin/imports`, and the page). This needs `MACARON_ADMIN_KEY`, and a writable folder of
    bundles."""
    max_keys: int = Field(10_000, ge=1, le=1_000_000)
    """Largest number of keys in the store."""
    max_label_chars: int = Field(200, ge=1, le=10_000)
    """Largest number of characters of the label of a key."""
    max_requests_per_minute: int = Field(0, ge=0)
    """Requests per minute of a key, or of an address on a server without keys; 0 sets no limit."""
    max_chars_per_minute: int = Field(0, ge=0)
    """Characters per minute that a key or address may send to be decoded; 0 sets no limit."""
    cors_origins: str = ""
    """Origins whose pages may call this server, separated by spaces or commas; `*` allows any."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest level of log lines. Those of `/livez`, `/readyz` and `/metrics` that succeed are
    `debug`."""
    log_format: Literal["json", "text"] = "json"
    """Format of log lines. `json`: one object per line. `text`: for people."""

    @field_validator("bundles", "api_keys_file", "documents")
    @classmethod
    def _from_the_root(cls, value: Path | None) -> Path | None:
        return None if value is None else ROOT / value.expanduser()

    @field_validator("files")
    @classmethod
    def _folder_from_the_root(cls, value: str) -> str:
        return value if not value or "://" in value else str(ROOT / Path(value).expanduser())

    @model_validator(mode="after")
    def _agree(self) -> Self:
        for low, high in (
            ("default_timeout_s", "max_timeout_s"),
            ("max_texts", "max_queue"),  # or so many texts could never be served
        ):
            if getattr(self, low) > getattr(self, high):
                raise ValueError(
                    f"{variable(low)} = {getattr(self, low)} must be at most "
                    f"{variable(high)} = {getattr(self, high)}"
                )
        for origin in re.split(r"[\s,]+", self.cors_origins.strip()):
            if origin not in ("", "*") and not _ORIGIN.fullmatch(origin):
                raise ValueError(
                    f"{variable('cors_origins')} must be * or origins such as https://example.org, "
                    f"without a path or a slash at their end, got {origin!r}"
                )
        if self.model_imports and not self.admin_key.get_secret_value():
            raise ValueError(f"{variable('model_imports')} needs {variable('admin_key')}")
        return self

    def batch_limits(self, device: str) -> BatchLimits:
        """The limits of a model's batches on a device (`cpu`, `cuda`, `tensorrt`), as schedulers
        need them."""
        usual = usual_limits(device)
        return BatchLimits(
            max_rows=self.max_batch_rows or usual.max_rows,
            max_tokens=self.max_batch_tokens or usual.max_tokens,
            max_cache_bytes=self.max_cache_bytes,
        )

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """Settings from MACARON_ variables; an empty one counts as not set.

        Raises SettingsError, in one line, for a value out of range and for a misspelt name. Other
        names that begin with MACARON_ are allowed, because Kubernetes sets some for a service
        called macaron.
        """
        known = {variable(name): name for name in cls.model_fields}
        values = {}
        for name, value in environment.items():
            if name in known and value.strip():
                values[known[name]] = value.strip()
            elif name.startswith(PREFIX) and name not in known:
                near = difflib.get_close_matches(name, known, n=1, cutoff=0.9)
                if near:
                    raise SettingsError(f"unknown setting {name}; did you mean {near[0]}?")
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            found = [each for each in error.errors() if each["type"] != _FOLLOWS]
            raise SettingsError("; ".join(map(_describe, found))) from error


def variable(field: str) -> str:
    """The environment variable that sets a field."""
    return PREFIX + field.upper()


def _describe(error: Mapping[str, object]) -> str:
    location = error["loc"]
    assert isinstance(location, tuple)
    if not location:  # a rule on several fields names them itself
        return str(error["msg"]).removeprefix("Value error, ")
    message = _EXPECTED.get(str(error["type"]), str(error["msg"]))
    message = message.replace("Input should be", "must be", 1)
    return (
        f"{variable(str(location[0]))} {message[:1].lower()}{message[1:]}, got {error['input']!r}"
    )
