"""Training on the toy corpus: the run folder, the loop, and what a run refuses."""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file

import training.loop.trainer
from tests.toy.corpus import toy_pairs, write_toy_corpus
from tests.toy.recipe import write_toy_recipe
from tests.toy.refusal import refusal
from tests.toy.run import ToyRun, train_toy
from training.corpora.pairs import read_lines
from training.errors import CheckpointError, ConfigError, CorpusError, DivergedError
from training.loop.ranks import TrainingRanks
from training.loop.trainer import Trainer, train
from training.loop.updates import Place, Update
from training.models import Transformer
from training.recipe.config import load_recipe
from training.runs.checkpoint import find_checkpoint, list_checkpoints
from training.runs.folder import check_compiler, load_trained, read_run_recipe
from training.runs.log import read_metrics
from training.tasks.guide import guided_loss
from training.tasks.translation import prepare
from training.tasks.validation import validate
from training.vocabularies.sentence_pieces import train_tokenizer

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> ToyRun:
    """A finished run; tests only read it."""
    return train_toy(tmp_path_factory.mktemp("toy"))


@pytest.fixture
def small_recipe(tmp_path: Path) -> Path:
    return write_toy_recipe(tmp_path, pairs=120)


@pytest.fixture
def tokenizer_file(toy: ToyRun) -> str:
    return f"tokenizer.file={toy.run / 'tokenizer.model'}"


def run_training(recipe: Path, run: Path, *overrides: str) -> Path:
    return train(load_recipe(str(recipe), list(overrides)), run)


# The run folder


def test_a_run_folder_holds_what_its_description_promises(toy: ToyRun) -> None:
    names = {path.name for path in toy.run.iterdir()}
    assert names == {
        "config.yaml", "corpus_report.json", "tokenizer.model", "validation.source",
        "validation.target", "metrics.jsonl", "tensorboard", "checkpoints", "best",
    }  # fmt: skip
    steps = [path.name for path in list_checkpoints(toy.run)]
    assert steps == ["step_00000010", "step_00000020"]
    assert read_run_recipe(toy.run) == load_recipe(str(toy.recipe), [])
    assert read_run_recipe(toy.run / "best") == load_recipe(str(toy.recipe), [])


def test_the_validation_text_is_held_out_and_aligned(toy: ToyRun) -> None:
    pairs = set(toy_pairs(300, seed=1))
    held_out = list(
        zip(
            read_lines(toy.run / "validation.source"),
            read_lines(toy.run / "validation.target"),
            strict=True,
        )
    )
    assert len(held_out) >= 20
    assert set(held_out) <= pairs
    report = json.loads((toy.run / "corpus_report.json").read_text())
    (corpus,) = report.pop("corpora")
    assert report == {"kept": 300, "held_out": len(held_out), "dropped": {}, "first_line": {}}
    assert corpus["pairs"] == corpus["kept"] == 300
    recipe = load_recipe(str(toy.recipe), [])
    data = prepare(recipe, toy.run)
    assert data.validation == held_out
    trained_on = sum(map(len, data.train.epoch(0)))
    assert trained_on == 300 - len(held_out)


def test_metrics_hold_losses_quality_and_signatures(toy: ToyRun) -> None:
    records = read_metrics(toy.run)
    kinds = [(record["kind"], record["step"]) for record in records]
    assert kinds == [
        ("train", 5), ("train", 10), ("validation", 10),
        ("train", 15), ("train", 20), ("validation", 20),
    ]  # fmt: skip
    first, last = records[2], records[5]
    assert last["loss"] < first["loss"]
    assert set(last) >= {"perplexity", "bleu", "chrf", "length_ratio"}
    assert "tok:13a" in last["bleu_signature"]
    assert "nc:6" in last["chrf_signature"]
    assert records[0]["lr"] == pytest.approx(5e-3 * 5 / 10)


def test_the_best_checkpoint_is_that_of_the_lowest_loss(toy: ToyRun) -> None:
    state = json.loads((toy.run / "best" / "state.json").read_text())
    losses = {r["step"]: r["loss"] for r in read_metrics(toy.run) if r["kind"] == "validation"}
    assert state["step"] == min(losses, key=losses.__getitem__)
    assert (state["best_by"], state["best_value"]) == ("loss", min(losses.values()))
    assert find_checkpoint(toy.run) == toy.run / "best"


def test_validation_loss_counts_each_label_once_and_smooths_nothing(toy: ToyRun) -> None:
    trained = load_trained(toy.run / "best")
    total, count = 0.0, 0
    sources, targets = (read_lines(toy.run / f"validation.{side}") for side in ("source", "target"))
    for source, target in zip(sources, targets, strict=True):
        ids = trained.tokenizer.encode(target)
        with torch.no_grad():
            logits = trained.model(
                torch.tensor([[*trained.tokenizer.encode(source), 3]]), torch.tensor([[2, *ids]])
            )
        labels = torch.tensor([*ids, 3])
        total += float(torch.nn.functional.cross_entropy(logits[0], labels, reduction="sum"))
        count += len(labels)
    logged = json.loads((toy.run / "best" / "state.json").read_text())["best_value"]
    assert logged == pytest.approx(total / count, rel=2e-2)  # it was measured in bfloat16


# The loop


def test_early_stopping_waits_for_patience_validations(
    small_recipe: Path, tmp_path: Path, tokenizer_file: str
) -> None:
    run = tmp_path / "run"
    last = run_training(
        small_recipe, run, tokenizer_file, "loop.max_steps=50", "loop.validate_every=2",
        "loop.patience=3", "optim.peak_lr=0", "loop.bleu_sentences=0",
    )  # fmt: skip
    # The first validation is the best; the three after it bring nothing.
    assert last.name == "step_00000008"
    state = json.loads((run / "best" / "state.json").read_text())
    assert state["step"] == 2
    # A stopped run stays stopped.
    again = run_training(
        small_recipe, run, tokenizer_file, "loop.max_steps=50", "loop.validate_every=2",
        "loop.patience=3", "optim.peak_lr=0", "loop.bleu_sentences=0",
    )  # fmt: skip
    assert again == last
    assert len(read_metrics(run)) == 5  # one record of training, four of validation


@pytest.mark.parametrize("by", ["bleu", "chrf"])
def test_the_best_may_be_chosen_by_what_is_decoded(
    small_recipe: Path, tmp_path: Path, tokenizer_file: str, by: str
) -> None:
    run = tmp_path / "run"
    run_training(
        small_recipe, run, tokenizer_file, "loop.max_steps=12", "loop.validate_every=3",
        f"loop.best_by={by}", "loop.bleu_sentences=20", "optim.ema_decay=0.5",
    )  # fmt: skip
    values = {r["step"]: r[by] for r in read_metrics(run) if r["kind"] == "validation"}
    state = json.loads((run / "best" / "state.json").read_text())
    assert state["best_value"] == state["validated"][by] == max(values.values())
    assert state["step"] == max(values, key=values.__getitem__)


def test_what_is_validated_and_saved_is_the_average(
    small_recipe: Path, tmp_path: Path, tokenizer_file: str
) -> None:
    overrides = ["loop.bf16=false", "loop.bleu_sentences=0", "loop.max_steps=10"]
    figures = {}
    for name, decay in (("run", 0.99), ("plain", 0)):
        run = tmp_path / name
        run_training(small_recipe, run, tokenizer_file, *overrides, f"optim.ema_decay={decay}")
        figures[name] = [(r["kind"], r["loss"]) for r in read_metrics(run)]
    run = tmp_path / "run"
    trained = load_trained(run / "best")
    source, target = (read_lines(run / f"validation.{side}") for side in ("source", "target"))
    pairs = list(zip(source, target, strict=True))
    found = validate(trained.model, trained.tokenizer, pairs, [0] * len(pairs), trained.recipe)
    loss = found["loss"]
    assert loss == pytest.approx(figures["run"][-1][1], rel=1e-5)
    assert loss != pytest.approx(figures["plain"][-1][1], rel=1e-2)
    assert figures["run"][:-1] == figures["plain"][:-1]  # what is trained is the same


# Another run's weights


def test_a_run_begins_with_the_weights_and_vocabulary_of_another(
    toy: ToyRun, small_recipe: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run, first = tmp_path / "run", f"loop.initial_weights={toy.run}"
    short = ["loop.bf16=false", "loop.bleu_sentences=0", "loop.max_steps=1", "optim.peak_lr=0"]
    run_training(small_recipe, run, first, "data.attribution=written by hand", *short)
    assert (run / "tokenizer.model").read_bytes() == (toy.run / "tokenizer.model").read_bytes()
    begun = load_file(run / "checkpoints" / "step_00000001" / "model.safetensors")
    given = load_file(toy.run / "best" / "model.safetensors")
    assert begun.keys() == given.keys()
    assert all(torch.equal(begun[name], given[name]) for name in given)
    origin = "generated by tests/toy/corpus.py; written by hand"
    assert read_run_recipe(run).data.attribution == origin
    short[-2:] = ["loop.max_steps=2"]
    with caplog.at_level("INFO"):
        run_training(small_recipe, run, first, "data.attribution=written by hand", *short)
    assert read_run_recipe(run).data.attribution == origin
    assert "loop.max_steps of this run changes" in caplog.text
    assert "attribution" not in caplog.text


def test_a_run_that_has_begun_goes_on_with_its_own_weights(
    toy: ToyRun, small_recipe: Path, tmp_path: Path
) -> None:
    finished = shutil.copytree(toy.run, tmp_path / "finished")
    words = [f"loop.initial_weights={finished}", "loop.bf16=false", "loop.bleu_sentences=0"]
    run_training(small_recipe, tmp_path / "whole", *words, "loop.max_steps=4")
    broken = tmp_path / "broken"
    train(load_recipe(str(small_recipe), [*words, "loop.max_steps=4"]), broken, stop_after=2)
    shutil.rmtree(finished)
    run_training(small_recipe, broken, *words, "loop.max_steps=4")
    whole, again = (
        load_file(run / "checkpoints" / "step_00000004" / "model.safetensors")
        for run in (tmp_path / "whole", broken)
    )
    assert all(torch.equal(whole[name], again[name]) for name in whole)


@pytest.mark.parametrize(
    ("overrides", "error", "says"),
    [
        (["loop.initial_weights=/nowhere"], CheckpointError, "/nowhere: no checkpoint"),
        (["model.ffn_dim=48"], CheckpointError, "the model's is"),
        (["tokenizer.file=other.model"], ConfigError, "leave out tokenizer.file"),
    ],
    ids=["nothing there", "another size", "another vocabulary"],
)
def test_weights_that_do_not_fit_are_refused_before_the_work(
    toy: ToyRun,
    small_recipe: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    overrides: list[str],
    error: type[Exception],
    says: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    train_tokenizer(
        (line for pair in toy_pairs(200, seed=9) for line in pair),
        tmp_path / "other.model",
        vocab_size=380,
    )
    words = [f"loop.initial_weights={toy.run}", *overrides]
    with pytest.raises(error, match=re.escape(says)):
        run_training(small_recipe, tmp_path / "run", *words)
    assert not (tmp_path / "run").exists()


def test_old_checkpoints_go(small_recipe: Path, tmp_path: Path, tokenizer_file: str) -> None:
    run = tmp_path / "run"
    run_training(
        small_recipe, run, tokenizer_file, "loop.max_steps=5", "loop.checkpoint_every=1",
        "loop.keep_checkpoints=2", "loop.bleu_sentences=0",
    )  # fmt: skip
    assert [path.name for path in list_checkpoints(run)] == ["step_00000004", "step_00000005"]


def test_divergence_is_an_error_that_says_what_to_do(
    small_recipe: Path, tmp_path: Path, tokenizer_file: str
) -> None:
    with pytest.raises(
        DivergedError, match=r"gradient norm is .* at step \d+; lower optim.peak_lr"
    ):
        run_training(
            small_recipe, tmp_path / "run", tokenizer_file, "optim.peak_lr=1e30",
            "optim.warmup_steps=1", "optim.weight_decay=1e10",
        )  # fmt: skip


def trainer(
    recipe: Path, run: Path, *overrides: str, ranks: TrainingRanks | None = None
) -> Trainer:
    loaded = load_recipe(str(recipe), ["model.dropout=0", "loop.bf16=false", *overrides])
    torch.manual_seed(1)
    return Trainer(loaded, run, prepare(loaded, run), ranks)


def gradients_seen(some: Trainer) -> dict[str, torch.Tensor]:
    """Fills with the gradients at each optimiser step."""
    seen: dict[str, torch.Tensor] = {}

    def step() -> None:
        seen.update({n: p.grad.clone() for n, p in some.model.named_parameters()})  # type: ignore[union-attr]

    some.optimizer.step = step  # type: ignore[method-assign]
    return seen


def test_attention_is_guided_to_the_links_of_the_corpus(
    small_recipe: Path, tmp_path: Path, tokenizer_file: str
) -> None:
    words = [tokenizer_file, "loop.bf16=false", "loop.max_steps=12", "loop.bleu_sentences=0"]
    found = {}
    for weight in (0, 1):
        some = trainer(
            small_recipe, tmp_path / str(weight), *words, f"optim.alignment_weight={weight}"
        )
        some.run(None)
        guided = trainer(small_recipe, tmp_path / "look", *words, "optim.alignment_weight=1")
        batch = guided.data.collate(guided.data.epoch(0)[0], torch.device("cpu"))
        assert isinstance(some.model, Transformer)
        with torch.no_grad():
            _, context = some.model.eval().aligned_states(batch.source_BS, batch.target_BT)
        loss = guided_loss(context, batch.links_BTS, some.model.config.num_heads)
        found[weight] = float(loss / batch.links_BTS.sum())
    assert found[1] < found[0] - 0.05


def test_accumulation_equals_one_large_batch(
    small_recipe: Path, tmp_path: Path, tokenizer_file: str
) -> None:
    some = trainer(small_recipe, tmp_path / "run", tokenizer_file, "optim.clip_norm=0")
    batches = some.data.train.epoch(0)[:3]
    assert len({len(batch) for batch in batches}) > 1  # of unequal weight
    seen = gradients_seen(some)
    separate = some.update(Update(batches))
    expected = dict(seen)
    together = some.update(Update([[pair for batch in batches for pair in batch]]))
    assert separate["labels"] == together["labels"]
    assert separate["loss"] == pytest.approx(together["loss"], rel=1e-5)
    for name, gradient in expected.items():
        torch.testing.assert_close(seen[name], gradient, rtol=1e-3, atol=1e-6, msg=name)


def fail_for_want_of_memory(some: Trainer, failures: int = 1) -> list[int]:
    """Let the next batches fail as on a GPU; returns the rows of each batch, which go on being
    noted."""
    loss, seen, left = type(some.data).loss, [], [failures]

    def failing(model: Any, batch: Any, smoothing: float) -> torch.Tensor:
        seen.append(len(batch.source_BS))
        value = loss(some.data, model, batch, smoothing)
        if left[0]:
            left[0] -= 1
            value.backward()  # something is in the gradient already
            raise torch.OutOfMemoryError("out of memory")
        return value

    object.__setattr__(some.data, "loss", failing)  # of a frozen dataclass
    return seen


def test_without_memory_batches_are_halved_once_and_the_gradient_is_the_same(
    small_recipe: Path,
    tmp_path: Path,
    tokenizer_file: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    some = trainer(small_recipe, tmp_path / "run", tokenizer_file, "optim.clip_norm=0")
    batches = some.data.train.epoch(0)[:3]
    seen = gradients_seen(some)
    whole = some.update(Update(batches))
    expected = dict(seen)
    rows = fail_for_want_of_memory(some)
    with caplog.at_level(logging.WARNING):
        halves = some.update(Update(batches))
    (message,) = caplog.messages
    assert "cpu ran out of memory: each batch is computed in two halves" in message
    assert "data.token_budget = 256" in message
    assert rows[0] == len(batches[0])
    assert rows[1:] == [
        n for batch in batches for n in ((len(batch) + 1) // 2, len(batch) // 2) if n
    ]
    assert halves["labels"] == whole["labels"]
    assert halves["loss"] == pytest.approx(whole["loss"], rel=1e-5)
    for name, gradient in expected.items():
        torch.testing.assert_close(seen[name], gradient, rtol=1e-3, atol=1e-6, msg=name)


def test_halves_stay_halves_after_a_restart_and_are_not_halved_again(
    small_recipe: Path, tmp_path: Path, tokenizer_file: str
) -> None:
    run = tmp_path / "run"
    some = trainer(small_recipe, run, tokenizer_file)
    fail_for_want_of_memory(some)
    batches = some.data.train.epoch(0)[:1]
    some.update(Update(batches))
    some.save()
    again = trainer(small_recipe, run, tokenizer_file)
    rows = fail_for_want_of_memory(again)
    with pytest.raises(ConfigError, match=r"half of data.token_budget = 512 too; lower it"):
        again.update(Update(batches))
    assert rows == [(len(batches[0]) + 1) // 2]


def test_without_memory_for_halves_the_update_ends_in_an_error(
    small_recipe: Path, tmp_path: Path, tokenizer_file: str
) -> None:
    some = trainer(small_recipe, tmp_path / "run", tokenizer_file)
    rows = fail_for_want_of_memory(some, 2)
    batches = some.data.train.epoch(0)[:1]
    with pytest.raises(ConfigError, match=r"half of data.token_budget = 512 too; lower it"):
        some.update(Update(batches))
    assert rows == [len(batches[0]), (len(batches[0]) + 1) // 2]


def test_without_memory_for_one_row_the_error_names_what_makes_rows_shorter(
    small_recipe: Path, tmp_path: Path, tokenizer_file: str
) -> None:
    some = trainer(small_recipe, tmp_path / "run", tokenizer_file, "data.max_pieces=77")
    rows = fail_for_want_of_memory(some)
    batch = some.data.train.epoch(0)[0]
    with pytest.raises(ConfigError, match=r"batches of one row, of data.max_pieces = 77 at most"):
        some.update(Update([batch[:1]]))
    assert rows == [1]
    assert not some.gradient.halved


class OtherHalves(TrainingRanks):
    """One of two processes, of which the other has nothing to compute and has taken halves."""

    def sum(self, values: list[float]) -> list[float]:
        return [value + float(index == 1) for index, value in enumerate(values)]


def test_where_another_process_takes_halves_this_one_does_from_the_next_update_on(
    small_recipe: Path, tmp_path: Path, tokenizer_file: str
) -> None:
    some = trainer(small_recipe, tmp_path / "run", tokenizer_file, ranks=OtherHalves())
    rows = fail_for_want_of_memory(some, 0)
    batch = some.data.train.epoch(0)[0]
    some.update(Update([batch]))
    some.update(Update([batch]))
    assert rows == [len(batch), (len(batch) + 1) // 2, len(batch) // 2]
    some.save()
    assert trainer(small_recipe, tmp_path / "run", tokenizer_file).gradient.halved


@pytest.mark.parametrize("halved", [False, True])
def test_the_share_of_matrix_speed_is_measured_in_what_is_computed_at_once(
    small_recipe: Path, tmp_path: Path, tokenizer_file: str, halved: bool
) -> None:
    some = trainer(small_recipe, tmp_path / "run", tokenizer_file, "loop.log_every=1")
    some.gradient.halved = halved
    rows = fail_for_want_of_memory(some, 0)
    some.run(stop_after=1)
    (record,) = read_metrics(some.folder)
    assert record["matrix_share"] > 0
    measured = 2 if halved else 1
    assert rows[:measured] == rows[measured : 2 * measured]


def test_where_memory_ends_while_the_machine_is_measured_the_run_goes_on_without_the_share(
    small_recipe: Path, tmp_path: Path, tokenizer_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = trainer(small_recipe, tmp_path / "run", tokenizer_file, "loop.log_every=1")
    tries = []

    def fails(*arguments: Any, bf16: bool) -> float:
        tries.append(arguments)
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(training.loop.trainer, "matrix_seconds", fails)
    some.run(stop_after=2)
    records = read_metrics(some.folder)
    assert [record["step"] for record in records] == [1, 2]
    assert not any("matrix_share" in record for record in records)
    assert len(tries) == 1


def test_accumulation_takes_that_many_batches_an_update(
    small_recipe: Path, tmp_path: Path, tokenizer_file: str
) -> None:
    some = trainer(small_recipe, tmp_path / "run", tokenizer_file, "optim.accumulation=3")
    batches = some.data.train.epoch(0)
    with some.updates() as updates:
        groups = [updates.next().batches for _ in range(-(-len(batches) // 3))]
        assert [batch for group in groups for batch in group] == batches
        assert {len(group) for group in groups[:-1]} == {3}
        assert updates.next().after == Place(epoch=1, position=3, begun=len(groups))


def test_the_gradient_is_clipped_and_its_norm_logged_unclipped(
    small_recipe: Path, tmp_path: Path, tokenizer_file: str
) -> None:
    norms = {}
    for clip in (0, 0.01):
        some = trainer(
            small_recipe, tmp_path / f"run{clip}", tokenizer_file, f"optim.clip_norm={clip}"
        )
        seen = gradients_seen(some)
        logged = some.update(Update(some.data.train.epoch(0)[:1]))["gradient_norm"]
        norm = float(torch.stack([g.square().sum() for g in seen.values()]).sum().sqrt())
        norms[clip] = (logged, norm)
    assert norms[0][0] == pytest.approx(norms[0][1], rel=1e-4)
    assert norms[0.01][0] == pytest.approx(norms[0][0], rel=1e-4)
    assert norms[0.01][1] == pytest.approx(0.01, rel=1e-3)


def test_bf16_computes_in_bfloat16_and_keeps_float32_weights(
    small_recipe: Path, tmp_path: Path, tokenizer_file: str
) -> None:
    dtypes = {}
    for bf16 in ("true", "false"):
        some = trainer(small_recipe, tmp_path / f"run{bf16}", tokenizer_file, f"loop.bf16={bf16}")
        found = dtypes.setdefault(bf16, [])
        some.model.encoder[0].ffn.up_proj.register_forward_hook(
            lambda *arguments, found=found: found.append(arguments[-1].dtype)
        )
        some.update(Update(some.data.train.epoch(0)[:1]))
        assert {p.dtype for p in some.model.parameters()} == {torch.float32}
    assert dtypes == {"true": [torch.bfloat16], "false": [torch.float32]}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the compiler's own
def test_a_compiled_model_learns_the_same(
    small_recipe: Path, tmp_path: Path, tokenizer_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Traced as a whole; only the making of kernels is left out for its time."""
    monkeypatch.setattr(training.loop.trainer, "COMPILER", "eager")
    words = [tokenizer_file, "loop.bf16=false", "loop.max_steps=6", "loop.bleu_sentences=0"]
    words += ["loop.log_every=2", "loop.validate_every=6", "model.dropout=0"]
    plain, compiled = tmp_path / "plain", tmp_path / "compiled"
    run_training(small_recipe, plain, *words)
    torch._dynamo.utils.counters.clear()
    recipe = load_recipe(str(small_recipe), [*words, "loop.compile=true"])
    train(recipe, compiled, stop_after=4)
    train(recipe, compiled)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0
    first, second = ([record["loss"] for record in read_metrics(run)] for run in (plain, compiled))
    assert len(first) == 4
    assert second == pytest.approx(first, rel=1e-5)
    weights = load_trained(compiled).model.state_dict()
    assert weights.keys() == load_trained(plain).model.state_dict().keys()


@pytest.mark.parametrize(
    ("device", "missing"),
    [("cpu", r"a C\+\+ compiler \(nowhere-cc; CXX names another one\)"), ("cuda", "Triton")],
)
def test_what_torch_compile_needs_is_asked_for_before_the_work(
    device: str, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "nowhere-cc")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=rf"^loop.compile needs {missing} on {device}, which is"):
        check_compiler(device)


@pytest.mark.slow
def test_a_tiny_model_learns_the_toy_language(tmp_path: Path) -> None:
    recipe = write_toy_recipe(tmp_path, pairs=3000)
    run_training(
        recipe, tmp_path / "run", "model.model_dim=64", "model.ffn_dim=64", "model.dropout=0",
        "loop.max_steps=300", "loop.validate_every=300", "loop.bleu_sentences=20",
        "loop.bf16=false", "data.token_budget=1024", "optim.warmup_steps=60",
        "model.vocab_size=400",
    )  # fmt: skip
    assert read_metrics(tmp_path / "run")[-1]["bleu"] > 90


# What a run is made of


def test_a_recipe_of_other_norms_vectors_and_activations_trains_and_is_read_back(
    small_recipe: Path, tmp_path: Path, tokenizer_file: str
) -> None:
    run = tmp_path / "run"
    run_training(
        small_recipe, run, tokenizer_file, "loop.max_steps=3", "model.norm_type=scale",
        "model.fix_norm=true", "model.fix_norm_scale=true", "model.attention_init=small",
        "model.activation=swiglu",
    )  # fmt: skip
    model = load_trained(run).model
    assert (model.config.norm_type, model.config.attention_init) == ("scale", "small")
    torch.testing.assert_close(model.output_weight.norm(dim=1), torch.ones(model.config.vocab_size))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["model.block=macron"], "block must be one of"),
        (["loop.device=abacus"], "device 'abacus' cannot be used"),
        (["tokenizer.file=/nowhere.model"], "nowhere.model: no usable SentencePiece model"),
        (["data.train=[{source: /nowhere.de, target: x}]"], "nowhere.de: cannot be read"),
        (["data.held_out_pairs=120"], "held_out_pairs = 120 leaves none"),
        (["model.vocab_size=30000"], "no more pieces, got 30000"),
        (["data.max_pieces=1"], "no training pair is left"),
    ],
)
def test_a_recipe_that_cannot_be_followed_is_one_line(
    small_recipe: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    overrides: list[str],
    message: str,
) -> None:
    run = str(tmp_path / "run")
    assert message in refusal(capsys, "train", str(small_recipe), *overrides, "--run", run)


def test_a_tokenizer_of_another_size_says_which_size_to_set(
    small_recipe: Path, tmp_path: Path, tokenizer_file: str
) -> None:
    with pytest.raises(ConfigError, match=r"set model\.vocab_size=380"):
        run_training(small_recipe, tmp_path / "run", tokenizer_file, "model.vocab_size=300")


def test_validation_text_of_ones_own_is_used_whole(
    small_recipe: Path, tmp_path: Path, tokenizer_file: str
) -> None:
    source, target = write_toy_corpus(tmp_path / "validation", 9, seed=5)
    override = f"data.validation={{source: {source}, target: {target}}}"
    data = prepare(load_recipe(str(small_recipe), [override, tokenizer_file]), tmp_path / "run")
    assert data.validation == toy_pairs(9, seed=5)
    assert sum(map(len, data.train.epoch(0))) == 120
    data.write(tmp_path / "run")
    assert (tmp_path / "run" / "validation.source").read_bytes() == source.read_bytes()


def test_a_corpus_comes_as_often_as_its_weight_says(
    small_recipe: Path, tmp_path: Path, tokenizer_file: str
) -> None:
    files = [write_toy_corpus(tmp_path / str(n), count, seed=n) for n, count in ((7, 30), (8, 20))]
    train = ", ".join(
        f"{{source: {source}, target: {target}, weight: {weight}}}"
        for (source, target), weight in zip(files, (2, 1), strict=True)
    )
    overrides = [f"data.train=[{train}]", "data.held_out_pairs=1", tokenizer_file]
    data = prepare(load_recipe(str(small_recipe), overrides), tmp_path / "run")
    seen = Counter(
        data.tokenizer.decode(source) for batch in data.train.epoch(0) for source, _ in batch
    )
    first, second = ({s for s, _ in toy_pairs(count, seed=n)} for n, count in ((7, 30), (8, 20)))
    held_out = {s for s, _ in data.validation}
    assert all(seen[source] >= 2 for source in first - held_out)
    assert any(seen[source] == 1 for source in second - first - held_out)
    assert not any(seen[source] for source in held_out)


def test_text_without_one_usable_pair_is_an_error(small_recipe: Path, tmp_path: Path) -> None:
    for name in ("a.de", "a.en"):
        (tmp_path / name).write_text("\n \n")
    override = f"data.train=[{{source: {tmp_path}/a.de, target: {tmp_path}/a.en}}]"
    with pytest.raises(CorpusError, match=r"a\.de: no usable pair; .*2 empty"):
        run_training(small_recipe, tmp_path / "run", override)


def test_a_run_is_not_resumed_on_other_text(toy: ToyRun, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(toy.run.parent, folder)
    config = folder / "run" / "config.yaml"
    recipe = folder / "toy.yaml"
    for path in (config, recipe):
        path.write_text(path.read_text().replace(str(toy.run.parent), str(folder)))
    last = run_training(recipe, folder / "run")
    assert last.name == "step_00000020"
    text = folder / "toy.en"
    text.write_text(text.read_text().replace("dog", "hound"))
    with pytest.raises(CheckpointError, match="training text is no longer the one"):
        run_training(recipe, folder / "run")


def test_a_checkpoint_apart_from_its_tokenizer_is_an_error(toy: ToyRun, tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b" / "lonely"
    shutil.copytree(toy.run / "best", folder)
    with pytest.raises(CheckpointError, match=r"no tokenizer\.model"):
        load_trained(folder)


def test_resolved_configurations_are_yaml_that_people_can_read(toy: ToyRun) -> None:
    config = yaml.safe_load((toy.run / "config.yaml").read_text())
    assert config["model"]["block"] == "macaron"
    assert config["optim"]["betas"] == [0.9, 0.98]
