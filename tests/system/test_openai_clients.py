"""Real clients of OpenAI's API, unmodified, against `bentoml serve` in a process of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from openai.types import Batch, BatchRequestCounts, Completion

from export.bundles.subject import Form
from export.importing.bundle import import_bundle
from serving import Generator
from serving.search.sampling_options import GenerationOptions
from tests.conftest import TinyEncoders, TinyLanguageModel
from tests.system.server import Server, running
from tests.toy.language_checkpoints import write_llama
from training.results.perplexity import evaluate_text

LONG = {"min_tokens": 3900}
"""Fields that keep even a tiny model busy for a while."""


@pytest.fixture(scope="module")
def bundles(
    tiny_language_model: TinyLanguageModel, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    bundles, sources = tmp_path_factory.mktemp("bundles"), tmp_path_factory.mktemp("sources")
    shutil.copytree(tiny_language_model.fp32, bundles / "lm")
    write_llama(sources / "llama", max_position_embeddings=256)
    # lm-eval names no model where it asks for tokens: it gets the preferred one.
    import_bundle(sources / "llama", bundles / "chat", Form("fp32", priority=-1))
    return bundles


@pytest.fixture(scope="module")
def server(bundles: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(bundles, tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[openai.OpenAI]:
    url = f"{server.url}/v1"
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=60) as client:
        yield client


def test_openai_lists_models(client: openai.OpenAI) -> None:
    longest = {model.id: model.to_dict()["max_model_len"] for model in client.models.list()}
    assert longest == {"lm": 4096, "chat": 256}
    assert client.models.retrieve("lm").object == "model"
    with pytest.raises(openai.NotFoundError, match="must be one of"):
        client.models.retrieve("other")


def test_openai_completes_as_the_python_interface_does(
    client: openai.OpenAI, tiny_language_model: TinyLanguageModel
) -> None:
    prompts = ["the old man", "a dog"]
    answer = client.completions.create(
        model="lm", prompt=prompts, max_tokens=20, seed=7, n=2, logprobs=3, temperature=0.8
    )
    options = GenerationOptions(
        max_length=20, seed=7, num_hypotheses=2, num_logprobs=3, temperature=0.8
    )
    wanted = Generator(tiny_language_model.fp32, threads=1).generate(prompts, options)
    flat = [output for outputs in wanted for output in outputs]
    assert [choice.text for choice in answer.choices] == [output.text for output in flat]
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    for choice, output in zip(answer.choices, flat, strict=True):
        assert choice.logprobs is not None
        assert choice.finish_reason == output.finish_reason
        assert choice.logprobs.token_logprobs == [token.log_prob for token in output.tokens]
    assert answer.usage is not None
    assert answer.usage.completion_tokens == sum(len(output.tokens) for output in flat)


def test_usage_counts_what_tokenize_counts(client: openai.OpenAI, server: Server) -> None:
    counted = [
        httpx.post(
            f"{server.url}/tokenize", json={"model": "lm", "prompt": prompt}, timeout=60
        ).json()["count"]
        for prompt in ("the old man", "")
    ]
    assert counted[1] == 1  # the token that begins a text
    answer = client.completions.create(model="lm", prompt=["the old man", ""], max_tokens=1)
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == sum(counted)


def test_openai_streams_the_same_text(client: openai.OpenAI) -> None:
    request = {"model": "lm", "prompt": "the", "max_tokens": 30, "seed": 3, "n": 2}
    whole = client.completions.create(**request)  # type: ignore[call-overload]
    stream = client.completions.create(
        **request,  # type: ignore[call-overload]
        stream=True,
        stream_options={"include_usage": True},
    )
    texts, reasons, usage = ["", ""], {}, None
    for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            texts[choice.index] += choice.text
            if choice.finish_reason:
                reasons[choice.index] = choice.finish_reason
    assert texts == [choice.text for choice in whole.choices]
    assert reasons == {choice.index: choice.finish_reason for choice in whole.choices}
    assert usage == whole.usage


def test_openai_raises_its_own_exceptions(client: openai.OpenAI) -> None:
    create = client.completions.create
    with pytest.raises(openai.NotFoundError) as missing:
        create(model="gpt-5", prompt="a")
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as refused:
        create(model="lm", prompt="a", max_tokens=10**5)
    assert refused.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError, match="n must be at most 16") as refused:
        create(model="lm", prompt="a", n=17)
    assert refused.value.param == "n"
    with pytest.raises(openai.InternalServerError):  # 504: status codes from 500 on
        create(model="lm", prompt="a", max_tokens=4000, extra_body=LONG | {"timeout_s": 0.05})


CHAT: dict[str, Any] = {
    "model": "chat",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": t} for t in ("the old", " man")]},
    ],
    "max_tokens": 30,
    "seed": 3,
}
PROMPT = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nthe old man<|im_end|>\n"


def test_openai_chats_as_the_python_interface_goes_on(client: openai.OpenAI, bundles: Path) -> None:
    generator = Generator(bundles / "chat", threads=1)
    prompt = generator.tokenizer.encode_marked(PROMPT + "<|im_start|>assistant\n")  # type: ignore[attr-defined]
    options = GenerationOptions(max_length=30, seed=3, num_hypotheses=2, num_logprobs=2)
    wanted = generator.generate([prompt], options)[0]
    answer = client.chat.completions.create(**CHAT, n=2, logprobs=True, top_logprobs=2)
    assert [choice.message.content for choice in answer.choices] == [o.text for o in wanted]
    assert {choice.message.role for choice in answer.choices} == {"assistant"}
    for choice, output in zip(answer.choices, wanted, strict=True):
        assert choice.finish_reason == output.finish_reason
        assert choice.logprobs is not None
        assert choice.logprobs.content is not None
        told = [(token.token, token.logprob) for token in choice.logprobs.content]
        assert told == [(token.token, token.log_prob) for token in output.tokens]
        tops = [[(t.token, t.logprob) for t in c.top_logprobs] for c in choice.logprobs.content]
        assert tops == [list(token.top) for token in output.tokens]
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == len(prompt)
    assert answer.usage.completion_tokens == sum(len(output.tokens) for output in wanted)


def test_openai_streams_the_same_chat(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(**CHAT, n=2)
    stream = client.chat.completions.create(
        **CHAT, n=2, stream=True, stream_options={"include_usage": True}
    )
    texts, roles, reasons, usage = ["", ""], {}, {}, None
    for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
            told = choice.delta.to_dict()
            assert None not in told.values()
            if "role" in told:
                assert choice.index not in roles
                roles[choice.index] = choice.delta.role
            if choice.finish_reason:
                reasons[choice.index] = choice.finish_reason
    assert texts == [choice.message.content for choice in whole.choices]
    assert roles == {0: "assistant", 1: "assistant"}
    assert reasons == {choice.index: choice.finish_reason for choice in whole.choices}
    assert usage == whole.usage


def test_a_chat_stops_at_the_texts_that_it_is_given(client: openai.OpenAI) -> None:
    text = client.chat.completions.create(**CHAT).choices[0].message.content
    assert text is not None
    stop = text[4:7]
    stopped = client.chat.completions.create(**CHAT, stop=stop).choices[0]
    assert (stopped.message.content, stopped.finish_reason) == (text[: text.index(stop)], "stop")


def test_a_chat_without_a_limit_keeps_to_what_the_model_can_read(client: openai.OpenAI) -> None:
    fields = {name: value for name, value in CHAT.items() if name != "max_tokens"}
    answer = client.chat.completions.create(**fields, temperature=0, logit_bias={"2": -100})
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.total_tokens == 256


@pytest.mark.parametrize(
    ("fields", "message", "param"),
    [
        ({"model": "lm"}, "'lm' has no chat template; send", "model"),
        ({"messages": []}, "messages", "messages"),
        ({"messages": [{"role": "king", "content": "a"}]}, "'system', 'dev", "messages[0].role"),
        ({"messages": [{"role": "user", "content": "\0"}]}, "NUL", "messages"),
        ({"max_tokens": 300}, "at most 256 tokens together", "messages"),
        ({"tools": [{"type": "function"}]}, "tools must be null or empty", "tools"),
        ({"response_format": {"type": "json_object"}}, "of the type 'text'", "response_format"),
        ({"top_logprobs": 2}, "needs logprobs: true", "top_logprobs"),
        ({"temperature": -1}, "temperature", "temperature"),
        ({"n": 17}, "n must be at most 16", "n"),
    ],
)
def test_a_chat_that_cannot_be_is_refused(
    client: openai.OpenAI, fields: dict[str, Any], message: str, param: str
) -> None:
    with pytest.raises(openai.BadRequestError, match=message) as refused:
        client.post("/chat/completions", body=CHAT | fields, cast_to=object)
    assert refused.value.param == param


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": 3, "min_tokens": 9}, "min_tokens"),
        ({"temperature": -1}, "temperature"),
        ({"top_p": 2}, "top_p"),
        ({"top_k": -5}, "top_k"),
        ({"logprobs": 30}, "logprobs"),
        ({"n": 3, "best_of": 2}, "best_of"),
        ({"beam_size": 2, "n": 3}, "n"),
        ({"beam_size": 2, "top_k": 2}, "top_k"),
        ({"stop": [""]}, "stop"),
        ({"logit_bias": {"99999999": 1}}, "logit_bias"),
        ({"suffix": "x"}, "suffix"),
        ({"timeout_s": 999}, "timeout_s"),
        ({"prompt": [99999999]}, "prompt"),
        ({"prompt": "\0"}, "prompt"),
        ({"max_tokens": 10**5}, "prompt"),
        ({"prompt": ["a"] * 200}, None),  # prompts and outputs together
    ],
)
def test_openai_names_the_parameter_at_fault(
    client: openai.OpenAI, fields: dict[str, object], param: str | None
) -> None:
    with pytest.raises(openai.APIStatusError) as refused:
        client.post("/completions", body={"model": "lm", "prompt": "a", **fields}, cast_to=object)
    assert refused.value.param == param


def test_a_stream_that_fails_says_so_in_the_stream(client: openai.OpenAI) -> None:
    stream = client.completions.create(
        model="lm", prompt="a", max_tokens=4000, stream=True, extra_body=LONG | {"timeout_s": 0.3}
    )
    with pytest.raises(openai.APIError, match="deadline"):
        for _ in stream:
            pass


def test_openai_retries_while_the_server_is_full(server: Server) -> None:
    seen: list[int] = []

    def note(response: httpx.Response) -> None:
        seen.append(response.status_code)
        if len(seen) == 1:  # as if the queue had been full
            response.status_code = 503
            response.headers["retry-after"] = "0"

    with httpx.Client(event_hooks={"response": [note]}, timeout=60) as http:
        client = openai.OpenAI(
            base_url=f"{server.url}/v1", api_key="none", max_retries=1, http_client=http
        )
        answer = client.completions.create(model="lm", prompt="a", max_tokens=2)
    assert len(seen) == 2
    assert answer.choices


def test_a_reader_that_leaves_frees_its_row(server: Server, client: openai.OpenAI) -> None:
    for _ in range(40):  # more than rows, each with minutes of work
        stream = client.completions.create(
            model="lm",
            prompt="a",
            max_tokens=4000,
            stream=True,
            extra_body=LONG | {"timeout_s": 100},
        )
        next(iter(stream))
        stream.close()
    answer = httpx.post(
        f"{server.url}/v1/completions",
        json={"model": "lm", "prompt": "a", "max_tokens": 4, "timeout_s": 20},
        timeout=30,
    )
    assert answer.status_code == 200


@pytest.fixture(scope="module")
def keeping(
    bundles: Path, tiny_encoders: TinyEncoders, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[openai.OpenAI]:
    """A client of a server that keeps files and batches, and has an embedder as well."""
    folder = tmp_path_factory.mktemp("keeping")
    shutil.copytree(bundles, folder / "bundles")
    shutil.copytree(tiny_encoders.bundles / "tiny-embedder", folder / "bundles" / "tiny-embedder")
    store = f"sqlite:///{folder}/store.db"
    with (
        running(folder / "bundles", folder, MACARON_STORE=store) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", timeout=60) as client,
    ):
        yield client


def answered(
    client: openai.OpenAI, endpoint: Any, bodies: Sequence[Any], url: str | None = None
) -> Batch:
    """A batch of these bodies, for the endpoint unless its lines name another, which has ended."""
    lines = [
        {"custom_id": f"n{number}", "method": "POST", "url": url or endpoint, "body": body}
        for number, body in enumerate(bodies)
    ]
    content = "\n".join(map(json.dumps, lines)).encode()
    file = client.files.create(file=("in.jsonl", content), purpose="batch")
    assert client.files.content(file.id).content == content
    batch = client.batches.create(
        input_file_id=file.id, endpoint=endpoint, completion_window="24h", metadata={"of": "test"}
    )
    end = time.monotonic() + 60
    while batch.status not in ("completed", "failed"):
        assert time.monotonic() < end, batch
        time.sleep(0.1)
        batch = client.batches.retrieve(batch.id)
    assert batch.metadata == {"of": "test"}
    assert batch.id in [each.id for each in client.batches.list()]
    return batch


def answers(client: openai.OpenAI, file: str | None) -> list[tuple[str, int, Any]]:
    """Of each line of a batch's file: whose answer it is, its status and its body."""
    assert file is not None
    lines = map(json.loads, client.files.content(file).text.splitlines())
    return [
        (line["custom_id"], line["response"]["status_code"], line["response"]["body"])
        for line in lines
    ]


@pytest.mark.slow
def test_openai_has_completions_answered_in_a_batch(keeping: openai.OpenAI) -> None:
    bodies = [
        {"model": "lm", "prompt": prompt, "max_tokens": 9, "seed": seed}
        for seed, prompt in enumerate(["the old man", "a dog", "the"])
    ]
    batch = answered(keeping, "/v1/completions", [*bodies, {"model": "gpt-5", "prompt": "a"}])
    assert (batch.status, batch.request_counts) == (
        "completed",
        BatchRequestCounts(completed=3, failed=1, total=4),
    )
    for (name, status, body), request, number in zip(
        answers(keeping, batch.output_file_id), bodies, range(3), strict=True
    ):
        wanted = keeping.completions.create(**request)  # type: ignore[call-overload]
        assert (name, status) == (f"n{number}", 200)
        found = Completion.model_validate(body)
        assert (found.choices, found.usage) == (wanted.choices, wanted.usage)
    ((name, status, body),) = answers(keeping, batch.error_file_id)
    assert (name, status, body["error"]["code"]) == ("n3", 404, "model_not_found")


@pytest.mark.slow
def test_openai_has_texts_embedded_in_a_batch(keeping: openai.OpenAI) -> None:
    texts = [["the old man", "a dog"], ["the"]]
    bodies = [{"model": "tiny-embedder", "input": each} for each in texts]
    batch = answered(keeping, "/v1/embeddings", bodies)
    assert (batch.status, batch.error_file_id) == ("completed", None)
    found = answers(keeping, batch.output_file_id)
    assert [(name, status) for name, status, _ in found] == [("n0", 200), ("n1", 200)]
    for (_, _, body), request in zip(found, texts, strict=True):
        wanted = keeping.embeddings.create(model="tiny-embedder", input=request)
        assert body["usage"] == wanted.usage.to_dict()
        for one, other in zip(body["data"], wanted.data, strict=True):
            assert one["index"] == other.index
            assert one["embedding"] == pytest.approx(other.embedding, abs=1e-6)


@pytest.mark.slow
def test_openai_is_told_which_lines_are_for_another_endpoint(keeping: openai.OpenAI) -> None:
    bodies = [{"model": "tiny-embedder", "input": "a"}] * 2
    batch = answered(keeping, "/v1/completions", bodies, url="/v1/embeddings")
    assert (batch.status, batch.output_file_id) == ("failed", None)
    assert batch.errors is not None
    assert batch.errors.data is not None
    assert [error.line for error in batch.errors.data] == [1, 2]
    assert "/v1/completions" in str(batch.errors.data[0].message)


# Without lm-eval's own thousands of tasks, which its command reads first.
LM_EVAL = """
import json, sys
from lm_eval import simple_evaluate
from lm_eval.tasks import TaskManager

given = json.loads(sys.argv[1])
tasks = TaskManager(include_path=given["folder"], include_defaults=False)
options = {"model_args": given["arguments"], "tasks": ["rolling"], "task_manager": tasks}
print(json.dumps(simple_evaluate("local-completions", **options, bootstrap_iters=0)["results"]))
"""


@pytest.mark.slow
def test_lm_eval_finds_the_trainers_perplexity(
    server: Server, tiny_language_model: TinyLanguageModel, tmp_path: Path
) -> None:
    lines = [line for line in tiny_language_model.text.read_text().splitlines() if line][:40]
    lines = [" ".join(lines[i : i + 8]) for i in range(0, len(lines), 8)]  # several windows each
    text = tmp_path / "text.txt"
    text.write_text("".join(f"{line}\n" for line in lines))
    documents = tmp_path / "documents.json"
    documents.write_text("".join(json.dumps({"text": line}) + "\n" for line in lines))
    task = {
        "task": "rolling",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(documents)}},
        "output_type": "loglikelihood_rolling",
        "test_split": "test",
        "doc_to_text": "",
        "doc_to_target": "{{text}}",
        "metric_list": [{"metric": "word_perplexity"}],
        "metadata": {"version": 1.0},
    }
    (tmp_path / "rolling.yaml").write_text(json.dumps(task))
    window = 24
    arguments = {
        "base_url": f"{server.url}/v1/completions",
        "model": "lm",
        "tokenizer_backend": "remote",
        "max_length": window + 2,  # of which it keeps two for itself
        "num_concurrent": 1,
    }
    given = json.dumps({"folder": str(tmp_path), "arguments": arguments})
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(tmp_path / "hf")}
    done = subprocess.run(
        [sys.executable, "-c", LM_EVAL, given],
        env=os.environ | offline,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])["rolling"]["word_perplexity,none"]
    own = evaluate_text(tiny_language_model.run, text, protocol="rolling", window=window)
    assert found == pytest.approx(own["word_perplexity"], rel=1e-3)
