"""A language model with several ids that end a text, as Llama 3 has them, against its own library;
and its chats over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from starlette.testclient import TestClient

from export.bundles.subject import Form
from export.importing.bundle import import_bundle
from serving.generation.choices import Generation
from serving.generation.generator import Generator
from serving.search.beams.beam import decode
from serving.search.beams.sentence import Hypothesis, Sentence
from serving.search.options import SearchOptions
from serving.search.sampling_options import GenerationOptions
from serving.server.app import create_app
from serving.server.http.settings import Settings
from serving.server.models.bundles import load_bundles
from serving.server.models.registry import Registry
from tests.toy.language_checkpoints import write_llama

pytestmark = pytest.mark.usefixtures("traced_once", "one_thread")

ENDS = [2, 325, 0]
FORMS = ["<|im_end|>", "<unused325>", "<|end|>"]
"""One of them is no piece's."""
PROMPTS = [torch.randint(3, 320, (6,), generator=torch.manual_seed(n)).tolist() for n in range(16)]
LONGEST = 24


@dataclass(frozen=True)
class Case:
    """The model as its own library has it, and as a bundle."""

    theirs: Any
    bundles: Path
    generator: Generator

    @torch.no_grad()
    def outputs(self, prompt: list[int], **options: Any) -> tuple[list[list[int]], Any]:
        """The outputs of their `generate`, each up to its end, and their scores."""
        found = self.theirs.generate(
            torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt)), do_sample=False,
            max_new_tokens=LONGEST, return_dict_in_generate=True, output_scores=True, **options,
        )  # fmt: skip
        outputs = []
        for ids in found.sequences[:, len(prompt) :].tolist():
            ended = next((n for n, token in enumerate(ids) if token in ENDS), len(ids))
            outputs.append(ids[: ended + 1])
        return outputs, found.get("sequences_scores")


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory, traced_once: None) -> Case:
    folder = tmp_path_factory.mktemp("ends")
    theirs = write_llama(folder / "source", eos_token_id=ENDS, pad_token_id=1)
    with torch.no_grad():
        theirs.lm_head.weight[ENDS] *= 2.0  # each is often the likeliest
    theirs.save_pretrained(folder / "source")
    import_bundle(folder / "source", folder / "bundles" / "model", Form("fp32"))
    return Case(theirs, folder / "bundles", Generator(folder / "bundles" / "model", threads=1))


def ids_of(output: Generation | Hypothesis) -> list[int]:
    if isinstance(output, Generation):
        return [token.token_id for token in output.tokens]
    return [*output.tokens[5:], *([] if output.end is None else [output.end])]


def test_the_manifest_names_them(case: Case) -> None:
    manifest = case.generator.manifest
    assert (manifest.decoding_ids.eos, manifest.other_ends) == (2, (325, 0))


@pytest.mark.parametrize("shortest", [0, 9])
def test_greedy_outputs_end_where_those_of_its_own_library_do(case: Case, shortest: int) -> None:
    options = GenerationOptions(max_length=LONGEST, temperature=0.0, min_length=shortest)
    last = set()
    for prompt, (found,) in zip(PROMPTS, case.generator.generate(PROMPTS, options), strict=True):
        (wanted,), _ = case.outputs(prompt, min_new_tokens=shortest)
        assert ids_of(found) == wanted
        assert found.finish_reason == ("stop" if wanted[-1] in ENDS else "length")
        assert not any(form in found.text for form in FORMS)
        last.add(wanted[-1])
    assert last >= set(ENDS)


def test_beams_and_their_scores_are_those_of_its_own_library(case: Case) -> None:
    options = SearchOptions(
        beam_size=4, num_hypotheses=4, max_length=LONGEST, length_penalty=1.0, eos_in_length=True
    )
    last = []
    for prompt in PROMPTS:
        sentence = Sentence(
            (), options, prompt[1:], start=prompt[0], ends=case.generator.manifest.ends
        )
        (found,) = decode(case.generator.stepper, [sentence])
        wanted, scores = case.outputs(
            prompt, num_beams=4, num_return_sequences=4, early_stopping=True, length_penalty=1.0
        )
        assert [ids_of(hypothesis) for hypothesis in found.hypotheses] == wanted
        assert [h.score for h in found.hypotheses] == pytest.approx(scores.tolist(), abs=1e-4)
        last += [output[-1] for output in wanted]
    assert all(last.count(end) > 5 for end in ENDS)


def test_a_beam_search_reports_the_end_that_it_found(case: Case) -> None:
    options = GenerationOptions(max_length=LONGEST, beam_size=4, length_penalty=0.0)
    last = set()
    for prompt, (found,) in zip(PROMPTS, case.generator.generate(PROMPTS, options), strict=True):
        (wanted,), _ = case.outputs(prompt, num_beams=4, length_penalty=0.0)
        assert ids_of(found) == wanted
        assert found.finish_reason == ("stop" if wanted[-1] in ENDS else "length")
        last.add(wanted[-1])
    assert last >= set(ENDS)


def test_a_sampled_output_ends_at_the_first_of_them(case: Case) -> None:
    options = GenerationOptions(max_length=LONGEST, seed=5, num_hypotheses=4)
    found = [output for each in case.generator.generate(PROMPTS, options) for output in each]
    last = set()
    for output in found:
        *others, token = ids_of(output)
        assert not {*others} & {*ENDS}
        assert (output.finish_reason == "stop") == (token in ENDS)
        last.add(token)
    assert last >= set(ENDS)


@pytest.fixture(scope="module")
def client(case: Case) -> Iterator[TestClient]:
    settings = Settings(bundles=case.bundles, threads=1)
    registry = Registry(settings)
    registry.start(load_bundles(settings))
    with TestClient(create_app(registry, settings)) as client:
        yield client
    registry.close()


def chat(client: TestClient, content: str, **fields: Any) -> Any:
    body = {"model": "model", "messages": [{"role": "user", "content": content}]}
    answer = client.post("/v1/chat/completions", json=body | {"temperature": 0} | fields)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_chats_stop_at_each_of_them(case: Case, client: TestClient) -> None:
    for end in ENDS:
        answer = chat(client, "the old man", logit_bias={str(end): 100})
        assert answer["choices"][0]["message"]["content"] == ""
        assert answer["choices"][0]["finish_reason"] == "stop"
        assert answer["usage"]["completion_tokens"] == 1
    last = set()
    for content in ("the old man", "a cat", "we see", "dogs", "his red house", "yes", "two"):
        text = f"<|im_start|>user\n{content}<|im_end|>\n<|im_start|>assistant\n"
        prompt = case.generator.tokenizer.encode_marked(text)  # type: ignore[attr-defined]
        (wanted,), _ = case.outputs(prompt)
        answer = chat(client, content, max_tokens=LONGEST)
        (choice,) = answer["choices"]
        assert not any(form in choice["message"]["content"] for form in FORMS)
        assert choice["finish_reason"] == ("stop" if wanted[-1] in ENDS else "length")
        assert answer["usage"]["completion_tokens"] == len(wanted)
        last.add(wanted[-1])
    assert len(last & set(ENDS)) > 1
