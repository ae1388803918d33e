"""Recipes: what is read, what is refused and what the refusal says."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import yaml

from training.errors import ConfigError
from training.models import (
    PRESETS,
    JointConfig,
    LanguageModelConfig,
    TransformerConfig,
    check_model,
)
from training.recipe.config import (
    RECIPES,
    DataConfig,
    LabelledConfig,
    LoopConfig,
    OptimConfig,
    ParallelFiles,
    PretrainingConfig,
    Recipe,
    TextConfig,
    TokenizerConfig,
    expand,
    load_recipe,
    recipe_from_dict,
    recipe_to_dict,
)

SMALL: dict[str, Any] = {
    "name": "test",
    "model": {"preset": "macaron_tiny"},
    "data": {
        "source_language": "de",
        "target_language": "en",
        "train": [{"source": "a.de", "target": "a.en"}],
    },
}


@pytest.fixture
def recipe_file(tmp_path: Path) -> str:
    path = tmp_path / "test.yaml"
    path.write_text(yaml.safe_dump(SMALL))
    return str(path)


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_recipe_parses_and_names_a_buildable_model(path: Path) -> None:
    recipe = load_recipe(path.stem, [])
    assert recipe.name == path.stem
    # What never becomes a bundle needs no words about its text's origin.
    assert recipe.data.attribution or path.stem.startswith("multi30k-")
    check_model(recipe.model)


def test_there_are_recipes() -> None:
    found = {path.stem for path in RECIPES.glob("*.yaml")}
    assert found >= {"macaron-de-en", "transformer-de-en", "joint-fast-de-en"}


@pytest.mark.parametrize("preset", ["macaron_tiny", "joint_base_iwslt"])
def test_a_recipe_survives_being_written_and_read(recipe_file: str, preset: str) -> None:
    recipe = load_recipe(
        recipe_file, [f"model.preset={preset}", "data.validation={source: v.de, target: v.en}"]
    )
    written = yaml.safe_load(yaml.safe_dump(_lists(recipe_to_dict(recipe))))
    assert recipe_from_dict(written) == recipe


def test_the_recipe_of_a_language_model_survives_being_written_and_read() -> None:
    recipe = load_recipe("lm-wikitext2-paper-cascade", ["optim.peak_lr=0.25"])
    assert isinstance(recipe.data, TextConfig)
    written = yaml.safe_load(yaml.safe_dump(_lists(recipe_to_dict(recipe))))
    assert recipe_from_dict(written) == recipe


def test_the_modern_and_the_paper_recipes_differ_from_full_in_the_mask_only() -> None:
    for setting, kinds in (
        ("", ("dilated", "dilated-memory", "cascade")),
        ("paper-", ("cascade",)),
    ):
        full = load_recipe(f"lm-wikitext2-{setting}full", [])
        for kind in kinds:
            recipe = load_recipe(f"lm-wikitext2-{setting}{kind}", [])
            model = dataclasses.replace(full.model, attention=kind.replace("-", "_"))  # type: ignore[call-arg]
            assert recipe == dataclasses.replace(full, name=recipe.name, model=model)


def _lists(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _lists(item) for key, item in value.items()}
    return [_lists(item) for item in value] if isinstance(value, tuple | list) else value


def test_a_preset_is_resolved_and_overridden_field_by_field(recipe_file: str) -> None:
    recipe = load_recipe(recipe_file, ["model.preset=macaron_big", "model.num_heads=8"])
    assert recipe.model == dataclasses.replace(PRESETS["macaron_big"], num_heads=8)


def test_the_architecture_chooses_the_models_keys(recipe_file: str) -> None:
    overrides = ["model.preset=joint_fast_tiny", "model.joint_dropout=ordinary"]
    joint = dataclasses.replace(PRESETS["joint_fast_tiny"], joint_dropout="ordinary")  # type: ignore[call-arg]
    assert load_recipe(recipe_file, overrides).model == joint
    without_preset = SMALL | {"model": {"architecture": "joint", "num_encoder_layers": 0}}
    assert recipe_from_dict(without_preset).model == JointConfig(num_encoder_layers=0)


def test_a_model_of_a_checkpoint_from_before_architectures_is_a_transformer() -> None:
    written = dataclasses.asdict(PRESETS["macaron_tiny"])
    del written["architecture"]
    assert recipe_from_dict(SMALL | {"model": written}).model == PRESETS["macaron_tiny"]


@pytest.mark.parametrize(
    ("override", "attribute", "value"),
    [
        ("optim.peak_lr=1e-3", "optim.peak_lr", 0.001),  # text to YAML, a number to people
        ("optim.peak_lr=2", "optim.peak_lr", 2.0),
        ("optim.betas=[0.8, 0.9]", "optim.betas", (0.8, 0.9)),
        ("loop.bf16=false", "loop.bf16", False),
        ("loop.activation_checkpointing=true", "loop.activation_checkpointing", True),
        ("tokenizer.file=x.model", "tokenizer.file", "x.model"),
        ("tokenizer.file=null", "tokenizer.file", None),
        ("name=a=b", "name", "a=b"),
    ],
)
def test_overrides(recipe_file: str, override: str, attribute: str, value: object) -> None:
    found: Any = load_recipe(recipe_file, [override])
    for name in attribute.split("."):
        found = getattr(found, name)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("optim.peak_rl=1", r"unknown key 'optim.peak_rl'; did you mean 'optim.peak_lr'\?"),
        ("optimm.peak_lr=1", r"unknown key 'optimm'; did you mean 'optim'\?"),
        ("model.layers=2", "unknown key 'model.layers'"),
        ("model.preset=macaron_smal", r"'macaron_smal'; did you mean 'macaron_small'\?"),
        ("model.preset=[1]", "unknown preset"),
        ("model=macaron_small", "model must be a mapping"),
        ("model.architecture=jiont", r"model.architecture .*'jiont'; did you mean 'joint'\?"),
        ("model.architecture=[joint]", r"model.architecture .*\['joint'\]"),
        ("model.architecture=joint", "unknown key 'model.block'"),  # of the preset's Transformer
        ("model.joint_dropout=shared", "unknown key 'model.joint_dropout'"),
        ("model.num_encoder_layers=0", "num_encoder_layers must be >= 1, got 0"),
        ("optim.schedule=cosin", r"'cosin'; did you mean 'cosine'\?"),
        ("tokenizer.model_type=bp", r"did you mean 'bpe'\?"),
        ("loop.max_steps=many", "loop.max_steps must be of type int, got 'many'"),
        ("loop.max_steps=1.5", "loop.max_steps must be of type int"),
        ("loop.max_steps=true", "loop.max_steps must be of type int"),
        ("loop.max_steps=0", "loop.max_steps must be >= 1, got 0"),
        ("loop.bf16=1", "loop.bf16 must be of type bool"),
        ("loop.bleu_beam_size=65", r"loop.bleu_beam_size must be in \[1, 64\], got 65"),
        ("optim.peak_lr=fast", "optim.peak_lr must be of type float, got 'fast'"),
        ("optim.peak_lr=nan", "optim.peak_lr must be >= 0"),
        ("optim.betas=[0.9]", "optim.betas must have 2 items, got 1"),
        ("optim.betas=[0.9, 1.0]", "optim.betas must be in"),
        ("optim.betas=0.9", "optim.betas must be a list"),
        ("optim.label_smoothing=1", "optim.label_smoothing"),
        ("optim.accumulation=0", "optim.accumulation must be >= 1"),
        ("optim.ema_decay=1", r"optim.ema_decay must be in \[0, 0.999999\], got 1.0"),
        ("loop.best_by=blue", r"unknown loop.best_by 'blue'; did you mean 'bleu'\?"),
        ("loop.seed=-1", r"loop.seed must be in \[0, 18446744073709551615\], got -1"),
        ("loop.seed=18446744073709551616", r"loop.seed must be in .* got 18446744073709551616"),
        # SentencePiece takes no less.
        ("tokenizer.character_coverage=0.97", r"must be in \[0.98, 1\], got 0.97"),
        ("loop.keep_best=-1", "loop.keep_best must be >= 0"),
        ("data.train=[]", "data.train must name at least one corpus"),
        ("data.train=[{source: a}]", r"missing key 'data.train\[0\].target'"),
        (
            "data.train=[{source: a, target: b}, {source: c, target: d, weight: -1}]",
            r"data.train\[1\].weight must be in \[0, 1000.0\], got -1",
        ),
        (
            "data.train=[{source: a, target: b, weight: 0}]",
            "data.train: every weight is 0.*at least one corpus a weight above 0",
        ),
        (
            "data.train=[{source: a, target: b, columns: [1, 2]}]",
            r"data.train\[0\].columns belongs to data.train\[0\].file",
        ),
        (
            "data.train=[{file: a.tsv, source: b}]",
            r"data.train\[0\] has both file and source or target",
        ),
        ("data.train=[{file: a.csv}]", r"file must end in one of .tsv, .* got 'a.csv'"),
        (
            "data.train=[{file: a.parquet}]",
            r"data.train\[0\].columns must name two columns of a Parquet file, got None",
        ),
        ("data.train=[{file: a.parquet, columns: [1, 2]}]", r"columns must name two columns"),
        ("data.train=[{file: a.tsv, columns: [0, 1]}]", r"data.train\[0\].columns must be >= 1"),
        (
            "data.train=[{source: a, target: b, direction_column: 4}]",
            r"data.train\[0\].direction_column belongs to data.train\[0\].file",
        ),
        (
            "data.train=[{file: a.parquet, columns: [a, b], direction_column: c}]",
            r"data.train\[0\].direction_column is for TSV files, got 'a.parquet'",
        ),
        (
            "data.train=[{file: a.tsv, direction_column: 0}]",
            r"data.train\[0\].direction_column must be >= 1",
        ),
        ("data.train=[{file: a.tsv, columns: [1]}]", r"columns must have 2 items, got 1"),
        ("data.train=[{file: a.tsv, columns: [1, 2.5]}]", r"columns\[1\] must be of type int"),
        ("data.validation={source: a}", "missing key 'data.validation.target'"),
        ("data.train=[{source: a, target: b, tag: web}]", r"tag must be lower-case .* got 'web'"),
        ("data.train=[{source: a, target: b, tag: <unk>}]", r"but not one of .* got '<unk>'"),
        ("data.temperature=0.5", "data.temperature must be >= 1"),
        ("data.noise.lower=2", r"data.noise.lower must be in \[0, 1\], got 2"),
        ("data.noise.uper=0.1", "unknown key 'data.noise.uper'"),
        ("data.bpe_dropout=0.1", "needs a bpe tokenizer, but tokenizer.model_type is 'unigram'"),
        ("data.held_out_pairs=0", "data.held_out_pairs must be >= 1"),
        ("data.token_budget=0", "data.token_budget must be >= 1"),
        ("data.subword_alpha=-1", "data.subword_alpha"),
        ("name.deep=1", "is a value and has no keys"),
        ("optim.peak_lr", "an override must be key=value"),
        ("optim.peak_lr=[1", "not a YAML value"),
        ("data=null", "data must be a mapping"),
    ],
)
def test_a_wrong_override_is_named(recipe_file: str, override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_recipe(recipe_file, [override])


def test_an_unknown_recipe_is_answered_with_those_of_similar_names() -> None:
    with pytest.raises(ConfigError) as error:
        load_recipe("macron-de-en", [])
    told = str(error.value)
    assert told.startswith("no recipe 'macron-de-en'; did you mean 'macaron-de-en' or ")
    assert told.count("'") <= 8  # the given one and three others, not all of them
    assert f"`ls {RECIPES}` lists all {len(list(RECIPES.glob('*.yaml')))}" in told
    with pytest.raises(ConfigError, match=r"^no recipe '\?\?' \(`ls .* lists all"):
        load_recipe("??", [])


def test_a_best_by_what_is_decoded_needs_something_decoded(recipe_file: str) -> None:
    load_recipe(recipe_file, ["loop.best_by=chrf"])
    with pytest.raises(ConfigError, match=r"loop.best_by = 'chrf' .* loop.bleu_sentences is 0"):
        load_recipe(recipe_file, ["loop.best_by=chrf", "loop.bleu_sentences=0"])
    with pytest.raises(ConfigError, match=r"loop.best_by of this model must be 'loss', because"):
        load_recipe("lm-cascade", ["loop.best_by=bleu"])
    with pytest.raises(ConfigError, match=r"must be 'loss' or 'bleu' or 'chrf', because its"):
        load_recipe(recipe_file, ["loop.best_by=f1"])


def test_subword_sampling_needs_a_unigram_tokenizer(recipe_file: str) -> None:
    load_recipe(recipe_file, ["data.subword_alpha=0.1"])
    with pytest.raises(ConfigError, match=r"unigram tokenizer, but tokenizer.model_type is 'bpe'"):
        load_recipe(recipe_file, ["data.subword_alpha=0.1", "tokenizer.model_type=bpe"])


def test_a_temperature_takes_the_place_of_weights(recipe_file: str) -> None:
    corpora = "data.train=[{source: a, target: b, weight: %s}, {file: c.tsv}]"
    load_recipe(recipe_file, [corpora % 1, "data.temperature=5"])
    with pytest.raises(ConfigError, match=r"computes the weights of data.train; leave out"):
        load_recipe(recipe_file, [corpora % 2, "data.temperature=5"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a: [1", "not a readable YAML"),
        (b"\xff\xfe", "not a readable YAML"),
        (b"- 1", "a recipe is a mapping"),
        (b"", "a recipe is a mapping of keys to values, but this is empty"),
        (b"# all: of it\n", "but this is empty"),
        (b"name: x", "missing key 'data'"),
    ],
)
def test_a_file_that_is_no_recipe(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        load_recipe(str(path), [])


def test_no_held_out_pairs_are_needed_beside_a_validation_file() -> None:
    files = ParallelFiles(source="a", target="b")
    data = DataConfig(
        source_language="de",
        target_language="en",
        train=(files,),
        validation=files,
        held_out_pairs=0,
    )
    assert data.held_out_pairs == 0


def test_paths_take_environment_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOY_FOLDER", "/toy")
    assert expand("${TOY_FOLDER}/a.de") == Path("/toy/a.de")
    monkeypatch.delenv("TOY_FOLDER")
    with pytest.raises(ConfigError, match="TOY_FOLDER is not set"):
        expand("${TOY_FOLDER}/a.de")


def test_keys_that_checkpoints_hold_stay_readable() -> None:
    """Renaming a key would make every written checkpoint unreadable: add, never rename."""
    assert _fields(Recipe) >= {"name", "model", "data", "tokenizer", "optim", "loop"}
    assert _fields(TransformerConfig) >= {
        "block", "model_dim", "num_heads", "ffn_dim", "num_encoder_layers", "num_decoder_layers",
        "vocab_size", "activation", "norm", "norm_type", "norm_eps", "embedding_scale", "fix_norm",
        "fix_norm_scale", "attention_init", "dropout", "attention_dropout", "activation_dropout",
    }  # fmt: skip
    assert _fields(JointConfig) >= {"tie_embeddings", "embedding_scale", "joint_dropout"}
    assert _fields(LanguageModelConfig) >= {
        "attention", "kernel_size", "dilation_base", "first_window", "window_multiplier",
        "positions", "attention_bias", "output_bias", "output_dropout", "dropout_layers",
    }  # fmt: skip
    assert all("architecture" in _fields(kind) for kind in (TransformerConfig, JointConfig))
    assert _fields(TextConfig) >= {
        "train", "validation", "attribution", "cleaning", "batching", "batch_size",
        "segment_length",
    }  # fmt: skip
    assert _fields(PretrainingConfig) >= {
        "train", "validation", "attribution", "next_sentence", "max_length", "mask_share",
        "token_budget",
    }  # fmt: skip
    assert _fields(LabelledConfig) >= {
        "train", "validation", "held_out_share", "attribution", "kind", "columns", "labels",
        "score_range", "symmetric", "batch_size", "max_length", "similarity_scale",
    }  # fmt: skip
    assert _fields(DataConfig) >= {
        "source_language", "target_language", "train", "validation", "held_out_pairs",
        "attribution", "max_pieces", "max_length_ratio", "token_budget", "subword_alpha",
        "filters", "temperature", "noise", "bpe_dropout", "cache",
    }  # fmt: skip
    assert _fields(ParallelFiles) >= {"source", "target", "weight", "file", "columns", "tag"}
    assert _fields(TokenizerConfig) >= {
        "kind", "model_type", "character_coverage", "max_sentences", "file",
    }  # fmt: skip
    assert _fields(OptimConfig) >= {
        "peak_lr", "schedule", "warmup_steps", "final_lr", "betas", "eps", "weight_decay",
        "clip_norm", "label_smoothing", "accumulation", "optimizer",
    }  # fmt: skip
    assert _fields(LoopConfig) >= {
        "max_steps", "log_every", "validate_every", "checkpoint_every", "keep_checkpoints",
        "patience", "bleu_sentences", "bleu_beam_size", "bf16", "activation_checkpointing",
        "compile", "device", "seed",
    }  # fmt: skip


def _fields(kind: Any) -> set[str]:
    return {field.name for field in dataclasses.fields(kind)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"loop": {"compile": True}, "model": {"head_dropout": 0.1}}, "loop.compile.*head_dropout"),
        ({"loop": {"compile": True}, "model": {"encoder_layerdrop": 0.1}}, "encoder_layerdrop"),
        (
            {"optim": {"alignment_weight": 0.1}, "model": {"decoder_layerdrop": 0.1}},
            "optim.alignment_weight .*model.decoder_layerdrop",
        ),
        (
            {"model": {"architecture": "joint", "num_encoder_layers": 0, "encoder_layerdrop": 0.1}},
            "encoder_layerdrop.*num_encoder_layers",
        ),
    ],
)
def test_what_leaves_out_layers_and_heads_excludes_other_options(
    change: dict[str, Any], message: str
) -> None:
    data = {"source_language": "a", "target_language": "b", "train": [{"file": "x.tsv"}]}
    with pytest.raises(ConfigError, match=message):
        recipe_from_dict({"name": "x", "data": data, **change})
