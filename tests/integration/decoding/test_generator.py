"""A language model's bundle: the Python interface and the command."""

from __future__ import annotations

import dataclasses
import io
import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from export.__main__ import main as export_main
from export.bundles.run import export_run
from export.bundles.subject import Form
from export.comparison.language import LanguageParity, check_language
from export.errors import ParityError
from export.graphs.shared_weights import share_weights
from serving.__main__ import main
from serving.bundle.folder import read_manifest
from serving.errors import BundleError, InvalidOptionError, InvalidTextError, RequestError
from serving.generation.generator import Generator
from serving.search.ids import EOS_ID
from serving.search.sampling_options import GenerationOptions, parse_generation_options
from serving.translation.translator import Translator
from tests.conftest import TinyLanguageModel
from tests.integration.demo import MODELS
from tests.toy.text import write_toy_text
from training.__main__ import main as training_main
from training.results.perplexity import evaluate_text
from training.runs.folder import load_language_model

pytestmark = pytest.mark.usefixtures("traced_once")

PROMPTS = ["the old man", "", "a dog sees", "the", "every child " * 12]
ENDLESS = {"max_length": 400, "min_length": 400}


@pytest.mark.parametrize(
    "values",
    [
        {"seed": 7},
        {"seed": 7, "num_hypotheses": 3},
        {"seed": 7, "best_of": 4, "num_hypotheses": 2},
        {"temperature": 0},
        {"beam_size": 3, "num_hypotheses": 2},
        {"seed": 3, "sampling_top_k": 8, "stop": "the", "num_logprobs": 4},
    ],
    ids=str,
)
def test_prompts_are_continued_as_if_alone(generator: Generator, values: dict[str, object]) -> None:
    options = parse_generation_options({"max_length": 25, **values})
    together = generator.generate(PROMPTS, options)
    assert together == [generator.generate(prompt, options)[0] for prompt in PROMPTS]
    for outputs in together:
        assert len(outputs) == options.num_hypotheses
        for output in outputs:
            assert not any(stop in output.text for stop in options.stop)
            assert len(output.tokens) <= 25
            ended = output.tokens[-1:] and output.tokens[-1].token_id == EOS_ID
            if output.finish_reason == "length":
                assert len(output.tokens) == 25
            else:
                assert ended or options.stop
            assert all(len(token.top) == options.num_logprobs for token in output.tokens)


def test_without_a_seed_texts_differ(generator: Generator) -> None:
    options = GenerationOptions(max_length=40)
    texts = {generator.generate("the", options)[0][0].text for _ in range(4)}
    assert len(texts) > 1


@pytest.mark.parametrize("values", [{"temperature": 0}, {"beam_size": 8, "num_hypotheses": 8}])
def test_the_first_id_of_a_prompt_is_not_repeated(
    generator: Generator, values: dict[str, Any]
) -> None:
    options = GenerationOptions(max_length=1, no_repeat_ngram_size=1, **values)
    ids = range(EOS_ID + 1, generator.manifest.sizes.vocab_size)
    for first, outputs in zip(ids, generator.generate([[i] for i in ids], options), strict=True):
        assert first not in [output.tokens[0].token_id for output in outputs]


def test_prompts_may_be_the_rows_of_an_array(generator: Generator) -> None:
    options = GenerationOptions(max_length=4, temperature=0)
    for rows in ([[5, 6], [7, 8]], [[5], [6]]):
        found = generator.generate(np.array(rows), options)  # type: ignore[arg-type]
        assert found == generator.generate(rows, options)
    assert generator.generate(np.array([5, 6]), options) == generator.generate([5, 6], options)  # type: ignore[arg-type]


def test_best_of_returns_the_likeliest(generator: Generator) -> None:
    options = GenerationOptions(max_length=12, seed=5, num_hypotheses=6)
    every = generator.generate("a", options)[0]
    best = generator.generate("a", dataclasses.replace(options, best_of=6, num_hypotheses=2))[0]
    assert best == sorted(every, key=lambda output: -output.mean_log_prob)[:2]
    # An output that stops at once has been generated too, and its tokens count.
    stop = dataclasses.replace(options, stop=(" ", "e", "a"), best_of=6)
    assert all(output.num_generated > 0 for output in generator.generate("a", stop)[0])
    assert all(output.mean_log_prob < 0 for output in generator.generate("a", stop)[0])


def test_a_stop_string_ends_a_text_in_the_midst_of_what_was_guessed() -> None:
    generator = Generator(MODELS / "lm-cascade", threads=1)
    prompt = "The film was released in the United States. " * 5
    endless = GenerationOptions(max_length=40, min_length=40, temperature=0.0)
    (whole,) = generator.generate(prompt, endless)[0]
    offsets = [*(token.offset for token in whole.tokens), len(whole.text)]
    for begin in range(8, len(whole.text) - 3, 4):
        stop, done = whole.text[begin : begin + 3], list[int]()
        options = dataclasses.replace(endless, stop=(stop,))
        (found,) = generator.generate(prompt, options, progress=done.append)[0]
        place = whole.text.find(stop)
        count = next(n for n, end in enumerate(offsets) if end >= place + len(stop))
        assert (found.text, found.finish_reason) == (whole.text[:place], "stop")
        assert found.num_generated == count
        assert found.cumulative == sum(token.log_prob or 0.0 for token in whole.tokens[:count])
        assert done == [1]


def test_ids_and_text_are_the_same_prompt(generator: Generator) -> None:
    options = GenerationOptions(max_length=15, seed=1)
    ids = [EOS_ID, *generator.tokenizer.encode("the old man")]
    assert generator.generate([ids], options) == generator.generate("the old man", options)
    assert generator.generate(ids, options) == generator.generate("the old man", options)


def test_one_prompt_alone_is_scored_as_in_a_list(generator: Generator) -> None:
    assert generator.score("the old man") == generator.score(["the old man"])
    prompts = np.array(["the old", "a man"])
    assert generator.score(prompts) == generator.score(list(map(str, prompts)))  # type: ignore[arg-type]
    options = GenerationOptions(max_length=3, temperature=0)
    alike = [prompts, iter(prompts), tuple(map(str, prompts))]
    first, *others = [generator.generate(given, options) for given in alike]  # type: ignore[arg-type]
    assert [first, first] == others
    assert generator.generate(np.array([5, 6]), options) == generator.generate([5, 6], options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (None, "prompts must be a text or a list of texts, got NoneType"),
        (b"the", "prompts must be a text or a list of texts, got bytes"),
        ([b"the"], "prompt must be a text or a list of token ids, got b'the'"),
        (["the", 3], "prompt must be a text or a list of token ids, got 3"),
    ],
)
def test_what_is_no_prompt_is_refused(generator: Generator, given: Any, message: str) -> None:
    for call in (generator.generate, generator.score):
        with pytest.raises(RequestError, match=message):
            call(given)


def test_options_of_another_kind_are_named(generator: Generator) -> None:
    with pytest.raises(InvalidOptionError, match="options must be GenerationOptions, got dict"):
        generator.generate("the", {"max_length": 3})  # type: ignore[arg-type]
    with pytest.raises(InvalidOptionError, match="num_logprobs must be"):
        generator.score(["the"], num_logprobs=-1)
    with pytest.raises(InvalidOptionError, match="stop must be a tuple of at most"):
        GenerationOptions(stop="the")  # type: ignore[arg-type]


def test_scores_are_those_of_generation_and_of_training(
    generator: Generator, tiny_language_model: TinyLanguageModel, tmp_path: Path
) -> None:
    (output,) = generator.generate("the", GenerationOptions(max_length=30, temperature=0))[0]
    ids = [token.token_id for token in output.tokens]
    prompt = [EOS_ID, *generator.tokenizer.encode("the")]
    (scored,) = generator.score([[*prompt, *ids]], num_logprobs=2)
    assert scored[0].log_prob is None
    for token, other in zip(output.tokens, scored[len(prompt) :], strict=True):
        assert token.token == other.token
        assert other.log_prob == pytest.approx(token.log_prob, abs=1e-5)
        assert other.top[0] == (other.token, other.log_prob)  # greedy, and the very same number
    lines = tiny_language_model.text.read_text().splitlines()[:20]
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in lines))
    own = evaluate_text(tiny_language_model.run, tmp_path / "text", protocol="rolling", window=2000)
    total = sum(token.log_prob or 0.0 for tokens in generator.score(lines) for token in tokens)
    assert -total / own["tokens"] == pytest.approx(own["loss"], rel=1e-5)
    assert "".join(token.token for token in generator.score([lines[0]])[0])[1:] == lines[0]


@pytest.mark.parametrize(
    ("prompt", "values", "error", "message"),
    [
        ("a\0b", {}, InvalidTextError, r"U\+0000 at character 1"),
        ([5, 320], {}, RequestError, r"token ids must be in \[0, 319\].*got 320 at 1"),
        ("a", {"logit_bias": {"320": 1}}, InvalidOptionError, "logit_bias: token ids"),
        ("a", {"logit_bias": {"x": 1}}, InvalidOptionError, "must map token ids to numbers"),
        ("a", {"logit_bias": {"5": 101}}, InvalidOptionError, "logit_bias must be in"),
        ("a", {"logit_bias": {"05": 1}}, InvalidOptionError, "must map token ids to numbers"),
        (
            "a",
            {"logit_bias": dict.fromkeys(range(1025), 1)},
            InvalidOptionError,
            "at most 1024 entries",
        ),
        ("a", {"no_repeat_ngram_size": 1} | ENDLESS, InvalidOptionError, "no token that could"),
        ("a", {"temperature": -1}, InvalidOptionError, r"temperature must be a number in \[0"),
        ("a", {"seed": 1.5}, InvalidOptionError, "seed must be an integer"),
        ("a", {"best_of": 1, "num_hypotheses": 2}, InvalidOptionError, "best_of must be at least"),
        ("a", {"beam_size": 2, "temperature": 2.0}, InvalidOptionError, "cannot be combined"),
        ("a", {"beam_size": 2, "num_hypotheses": 3}, InvalidOptionError, "at most beam_size = 2"),
        ("a", {"stop": [""]}, InvalidOptionError, "strings of 1 to 256 characters"),
        ("a", {"stop": ["a"] * 17}, InvalidOptionError, "at most 16 strings, got 17"),
        ("a", {"stop": 5}, InvalidOptionError, "stop must be a text or a list of texts, got 5"),
        ("a", {"min_length": 9, "max_length": 8}, InvalidOptionError, "at most max_length = 8"),
        ("a", {"topk": 9}, InvalidOptionError, "unknown option 'topk'"),
    ],
)
def test_what_cannot_be_done_is_refused(
    generator: Generator,
    prompt: str | list[int],
    values: dict[str, object],
    error: type[Exception],
    message: str,
) -> None:
    with pytest.raises(error, match=message):
        generator.generate([prompt], parse_generation_options(values))


def test_kinds_of_bundles_are_not_confused(
    tiny_language_model: TinyLanguageModel, tiny_bundle: Path
) -> None:
    with pytest.raises(BundleError, match="task must be 'translate', got 'generate'"):
        Translator(tiny_language_model.fp32)
    with pytest.raises(BundleError, match="task must be 'generate', got 'translate'"):
        Generator(tiny_bundle)


def test_the_manifest_says_what_was_found(tiny_language_model: TinyLanguageModel) -> None:
    for bundle in (tiny_language_model.fp32, tiny_language_model.int8):
        manifest = read_manifest(bundle)
        assert (manifest.task, manifest.family, manifest.decoder_kind) == ("generate", "lm", "lm")
        assert manifest.encoder is None
        assert manifest.sizes.reach == (2, 4)
        parity = manifest.parity
        change = parity["perplexity_bundle"] / parity["perplexity_checkpoint"] - 1
        assert abs(change) < 0.005
        assert export_main(["verify", str(bundle)]) == 0


@pytest.mark.parametrize(
    ("precision", "change", "message"),
    [
        ("fp32", {"logits_max_difference": 0.01}, "step logits differ by up to 0.01"),
        ("fp32", {"logits_max_difference": float("nan")}, "step logits differ by up to nan"),
        ("fp32", {"perplexity_bundle": 20.1}, r"perplexity changes from 20.0000 to 20.1000"),
        ("int8", {"logits_mean_difference": 0.01}, "from the same arithmetic in PyTorch"),
        ("int8", {"perplexity_bundle": 20.11}, r"\+0.55%, limit 0.50%"),
        ("int8", {"perplexity_bundle": float("nan")}, "nan"),
    ],
)
def test_a_bundle_that_is_not_good_enough_is_refused(
    precision: str, change: dict[str, float], message: str
) -> None:
    good = LanguageParity(100, 0.0, 0.0, 20.0, 20.0)
    check_language(good, precision)
    with pytest.raises(ParityError, match=message):
        check_language(dataclasses.replace(good, **change), precision)


def test_static_activations(
    tiny_language_model: TinyLanguageModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, out = str(tiny_language_model.run), str(tmp_path / "static")
    assert export_main(["bundle", run, out]) == 0  # the default for int8
    manifest = read_manifest(tmp_path / "static")
    assert manifest.activations == "static"
    assert manifest.parity["logits_mean_difference"] < 0.005
    (output,) = Generator(out, threads=1).generate("the", GenerationOptions(max_length=9, seed=1))[
        0
    ]
    assert 1 <= len(output.tokens) <= 9
    arguments = ["bundle", run, out, "--activations", "static", "--precision", "fp32", "--force"]
    assert export_main(arguments) == 1
    assert "--activations static needs --precision int8, got fp32" in capsys.readouterr().err


def test_products_that_int8_spoils_stay_fp32(
    tiny_language_model: TinyLanguageModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = load_language_model(tiny_language_model.run)
    with torch.no_grad():
        for layer in trained.model.layers:
            ffn: Any = layer.ffn
            ffn.up_proj.weight[0], ffn.up_proj.bias[0] = 0.0, 3000.0  # far above all others
            ffn.down_proj.weight[:, 0] = 0.0
    monkeypatch.setattr("export.bundles.language.load_language_model", lambda _: trained)
    run = tiny_language_model.run
    manifest = export_run(run, tmp_path / "lm", Form("int8"))
    assert 1 <= manifest.parity["fp32_products"] <= len(trained.model.layers)
    monkeypatch.setattr("export.arithmetic.choice.keep_exact", lambda *_: frozenset())
    with pytest.raises(ParityError, match="perplexity changes from"):
        export_run(run, tmp_path / "other", Form("int8"))


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_weights_that_no_file_of_a_graph_holds_lie_beside_it(
    tiny_language_model: TinyLanguageModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    precision: str,
) -> None:
    """As with 2 GiB and more, which protobuf does not write; here the bound is lower."""
    lower = partial(share_weights, least_bytes=1 << 10, most_bytes=1 << 10)
    monkeypatch.setattr("export.graphs.writing.share_weights", lower)
    folder = tmp_path / "lm"
    run = tiny_language_model.run
    manifest = export_run(run, folder, Form(precision))
    usual = tiny_language_model.fp32 if precision == "fp32" else tiny_language_model.int8
    assert "shared.bin" in manifest.files
    assert not (usual / "shared.bin").exists()
    moved = (folder / "shared.bin").stat().st_size
    sizes = [(each / "step.onnx").stat().st_size for each in (folder, usual)]
    assert sizes[0] < sizes[1]
    assert sum(sizes[:1]) + moved >= sizes[1]
    options = GenerationOptions(max_length=12, temperature=0.0)
    found, wanted = (
        Generator(each, threads=1).generate("the", options) for each in (folder, usual)
    )
    assert found == wanted


def test_a_word_list_makes_a_bundle_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = write_toy_text(tmp_path)
    assert training_main(["train", str(recipe), "--run", str(tmp_path / "run")]) == 0
    text = ["valid", str(tmp_path / "valid.txt")]
    command = ["bundle", str(tmp_path / "run"), str(tmp_path / "lm"), "--test-text", *text]
    assert export_main(command) == 0
    report = json.loads(capsys.readouterr().out.partition("\n")[2])
    own = evaluate_text(tmp_path / "run", tmp_path / "valid.txt", protocol="rolling")
    found = report["quality"]["valid word perplexity"]
    assert found == pytest.approx(own["word_perplexity"], rel=0.01)
    generator = Generator(tmp_path / "lm")
    (output,) = generator.generate("the nonsense", GenerationOptions(max_length=9, seed=1))[0]
    words = [token.token for token in output.tokens if token.token_id != EOS_ID]
    assert output.text.split() == words
    assert output.text.startswith(" ")
    assert export_main(["bundle", str(tmp_path / "run"), str(tmp_path / "x"), "--dev", "a", "b"])
    assert "--text and --test-text" in capsys.readouterr().err


def test_texts_are_read_before_a_graph_is_made(
    tiny_language_model: TinyLanguageModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("export.bundles.language.write_language_graphs", None)
    (tmp_path / "short.txt").write_text("the dog\n")
    (tmp_path / "bad.txt").write_bytes(b"the dog\n\xff\n")
    command = ["bundle", str(tiny_language_model.run), str(tmp_path / "lm")]
    for arguments, message in (
        (["--test-text", "bad", "bad.txt"], "bad.txt:2: not UTF-8"),
        (["--test-text", "none", "none.txt"], "none.txt: cannot be read"),
        (["--text", "bad.txt"], "bad.txt:2: not UTF-8"),
        (["--text", "short.txt"], "short.txt: int8 is fitted to at least 128 tokens of text, got"),
    ):
        *options, file = arguments
        assert export_main([*command, *options, str(tmp_path / file)]) == 1
        error = capsys.readouterr().err.splitlines()[-1]
        assert error.startswith("error: ")
        assert message in error
    assert not (tmp_path / "lm").exists()


def run_command(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    text: str,
    *arguments: str,
) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    status = main(["generate", *arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_the_command_gives_the_same_text_twice(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tiny_language_model: TinyLanguageModel,
) -> None:
    bundle = str(tiny_language_model.int8)

    def ask(text: str, *arguments: str) -> str:
        status, out, _ = run_command(monkeypatch, capsys, text, bundle, *arguments)
        assert status == 0
        return out

    first = ask("the old man\na\n", "--seed", "7")
    assert first == ask("the old man\na\n", "--seed", "7")
    assert first.splitlines()[0] == ask("the old man\n", "--seed", "7").splitlines()[0]
    assert first != ask("the old man\na\n", "--seed", "8")
    assert all(
        line.startswith(start)
        for line, start in zip(first.splitlines(), ("the old man", "a"), strict=True)
    )
    found = json.loads(ask("the\n", "--json", "--option", "temperature=0"))
    assert {"text", "tokens", "finish_reason"} <= found.keys()
    assert ask("") == ""
    status, out, err = run_command(monkeypatch, capsys, "fine\na\0b\n", bundle)
    assert (status, out) == (1, "")
    assert "line 2: text must be Unicode" in err


def test_offsets_count_in_the_callers_own_text(generator: Generator) -> None:
    text = "the  old   man ½"
    (tokens,) = generator.score([text])
    by_token = {token.token: token.offset for token in tokens}
    assert text[by_token[" ma"] :].strip().startswith("man")
    assert tokens[-1].offset == len(text) - 1
