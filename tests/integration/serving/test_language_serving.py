"""Language models over OpenAI's API, in this process."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from serving.bundle.folder import read_manifest, write_manifest
from serving.server.app import create_app
from serving.server.http.settings import Settings
from serving.server.models.bundles import load_bundles
from serving.server.models.registry import Registry
from tests.conftest import TinyLanguageModel
from tests.toy.language_checkpoints import write_llama

CHAT = {"model": "chat", "messages": [{"role": "user", "content": "the cat"}], "max_tokens": 5}
PROMPT = {"model": "lm", "prompt": "the old man", "max_tokens": 8}


@pytest.fixture(scope="module")
def http(
    tiny_language_model: TinyLanguageModel, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TestClient]:
    from export.bundles.subject import Form
    from export.importing.bundle import import_bundle

    folder = tmp_path_factory.mktemp("language")
    bundles = folder / "bundles"
    bundles.mkdir()
    (bundles / "lm").symlink_to(tiny_language_model.fp32)
    write_llama(folder / "llama", max_position_embeddings=256)
    import_bundle(folder / "llama", bundles / "chat", Form("fp32"))
    _with_defaults(bundles, "greedy", temperature=0.0, repetition_penalty=1.3, best_of=2)
    _with_defaults(bundles, "beams", beam_size=3, length_penalty=0.5, min_length=6)
    settings = Settings(bundles=bundles, threads=1)
    registry = Registry(settings)
    registry.start(load_bundles(settings))
    with TestClient(create_app(registry, settings), raise_server_exceptions=False) as http:
        yield http
    registry.close()


def _with_defaults(bundles: Path, name: str, **search: Any) -> None:
    """Copy the bundle `lm` under another name, with default options of its own."""
    folder = bundles / name
    shutil.copytree(bundles / "lm", folder)
    manifest = read_manifest(folder)
    write_manifest(folder, manifest.model_copy(update={"name": name, "search": search}))


def complete(http: TestClient, **body: Any) -> Any:
    return http.post("/v1/completions", json={**PROMPT, **body}).json()["choices"]


@pytest.mark.parametrize(
    ("model", "given", "means"),
    [
        ("greedy", {}, {"temperature": 0, "repetition_penalty": 1.3}),
        (
            "greedy",
            {"stream": False, "n": 2},
            {"temperature": 0, "repetition_penalty": 1.3, "n": 2},
        ),
        ("greedy", {"temperature": 2, "seed": 4}, {"temperature": 2, "repetition_penalty": 1.3}),
        ("greedy", {"beam_size": 2}, {"beam_size": 2, "repetition_penalty": 1.3}),
        ("beams", {}, {"beam_size": 3, "length_penalty": 0.5, "min_tokens": 6}),
        ("beams", {"max_tokens": 4}, {"beam_size": 3, "length_penalty": 0.5, "min_tokens": 4}),
        ("beams", {"temperature": 0}, {"temperature": 0, "min_tokens": 6}),
        ("beams", {"beam_size": 1, "seed": 4}, {"min_tokens": 6}),
    ],
)
def test_what_a_body_leaves_out_is_the_bundles_default(
    http: TestClient, model: str, given: dict[str, Any], means: dict[str, Any]
) -> None:
    wanted = complete(http, **(given | means))
    assert complete(http, model=model, **given) == wanted


@pytest.mark.parametrize(
    ("given", "message", "parameter"),
    [
        ({"logprobs": True, "top_logprobs": 63}, "top_logprobs must be at most", "top_logprobs"),
        ({"max_completion_tokens": 2 * 10**6}, "max_completion_tokens must be", None),
        ({"max_tokens": 2 * 10**6}, "max_tokens must be an integer", "max_tokens"),
        ({"functions": [{"name": "f"}]}, "functions must be null or empty", "functions"),
        ({"tool_choice": "required"}, "tool_choice must be null, 'none'", "tool_choice"),
        ({"messages": [{"role": "user"}]}, "messages[0].content is missing", "messages"),
        ({"max_completion_tokens": 10**5}, "or lower max_completion_tokens", "messages"),
        ({"max_tokens": 10**5}, "shorten the prompt or lower max_tokens", "messages"),
    ],
)
def test_an_error_of_a_chat_names_the_field_that_was_sent(
    http: TestClient, given: dict[str, Any], message: str, parameter: str | None
) -> None:
    body = {name: value for name, value in CHAT.items() if name != "max_tokens"}
    error = http.post("/v1/chat/completions", json={**body, **given}).json()["error"]
    assert message in error["message"]
    assert error["param"] == (parameter or "max_completion_tokens")


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        (["a", "b\0"], "prompt[1]: text must be Unicode"),
        ([[5], [10**6]], "prompt[1]: token ids must be in"),
        (["a", "the " * 5000], "prompt[1]: prompt and output must have at most"),
        (["b\0"], "text must be Unicode"),
        ("b\0", "text must be Unicode"),
    ],
)
def test_an_error_of_a_prompt_in_a_list_names_it(
    http: TestClient, prompt: Any, message: str
) -> None:
    error = http.post("/v1/completions", json={**PROMPT, "prompt": prompt}).json()["error"]
    assert error["message"].startswith(message)
    assert error["param"] == "prompt"


def test_a_stream_that_ends_in_an_error_says_that_it_is_done(http: TestClient) -> None:
    forbidden = dict.fromkeys(map(str, range(320)), -100)
    body = {**PROMPT, "stream": True, "logit_bias": forbidden}
    *_, error, done = http.post("/v1/completions", json=body).text.strip().split("\n\n")
    assert error.startswith('data: {"error":')
    assert done == "data: [DONE]"
