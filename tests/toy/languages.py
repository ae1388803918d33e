"""A toy recipe of several directions in one model."""

from __future__ import annotations

import random
from pathlib import Path

import yaml

from tests.toy.corpus import NOUNS
from tests.toy.recipe import write_toy_recipe

WORDS = {
    "de": [german.lower() for german, _, _ in NOUNS],
    "en": [english for _, _, english in NOUNS],
    "es": [f"{english[::-1]}o" for _, _, english in NOUNS],
}
"""Names of 20 things in each language; the third language is invented."""


def translated(text: str, source: str, target: str) -> str:
    """The only correct translation."""
    return " ".join(WORDS[target][WORDS[source].index(word)] for word in text.split())


def texts(language: str, count: int, seed: int) -> list[str]:
    """Distinct texts of two to four words."""
    draw = random.Random(seed)
    found: dict[str, None] = {}
    while len(found) < count:
        found[" ".join(draw.choices(WORDS[language], k=draw.randint(2, 4)))] = None
    return list(found)


def write_multilingual_recipe(folder: Path, pairs: int = 1500) -> Path:
    """Write texts and folder/toy.yaml, German-English and English-Spanish in both directions;
    returns the recipe. The model has about 200,000 parameters and learns the texts in 800 steps."""
    path = write_toy_recipe(folder, pairs=20)
    recipe = yaml.safe_load(path.read_text())
    recipe["data"] |= {"source_language": "en", "target_language": "de", "held_out_pairs": 80}
    recipe["data"]["train"] = []
    for seed, other in enumerate(("de", "es"), 1):
        english = texts("en", pairs, seed)
        files = {"source": folder / f"{other}.en", "target": folder / f"en.{other}"}
        files["source"].write_text("".join(f"{text}\n" for text in english))
        lines = (translated(text, "en", other) for text in english)
        files["target"].write_text("".join(f"{line}\n" for line in lines))
        named = {name: str(file) for name, file in files.items()}
        recipe["data"]["train"].append(named | {"target_language": other, "directions": "both"})
    recipe["model"] |= {
        "model_dim": 64,
        "ffn_dim": 128,
        "dropout": 0.0,
        "vocab_size": 345,
    }
    recipe["data"]["token_budget"] = 1024
    recipe["optim"] |= {
        "peak_lr": 4e-3,
        "warmup_steps": 50,
        "schedule": "cosine",
        "label_smoothing": 0.0,
    }
    recipe["loop"] |= {
        "max_steps": 800,
        "validate_every": 800,
        "checkpoint_every": 800,
        "bf16": False,
        "bleu_sentences": 40,
    }
    path.write_text(yaml.safe_dump(recipe, sort_keys=False), encoding="utf-8")
    return path
