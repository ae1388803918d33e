"""The verbs of `python -m training`."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

import torch

from training.checkpoint import average_checkpoints, list_checkpoints, save_weights
from training.config import load_recipe, recipe_to_dict
from training.data import prepare_tokenizer, read_corpus
from training.trainer import read_run_recipe
from training.trainer import train as train_run

logger = logging.getLogger(__name__)


def train(options: argparse.Namespace) -> int:
    """Train or resume."""
    if options.threads:
        torch.set_num_threads(options.threads)
    recipe = load_recipe(options.recipe, options.overrides)
    run = options.run or Path("runs") / recipe.name
    print(train_run(recipe, run, options.stop_after))
    return 0


def tokenizer(options: argparse.Namespace) -> int:
    """Train the SentencePiece model of a recipe."""
    recipe = load_recipe(options.recipe, options.overrides)
    run = options.run or Path("runs") / recipe.name
    pairs, _, report = read_corpus(recipe)
    logger.info("%s", report)
    prepare_tokenizer(recipe, run, pairs)
    print(run / "tokenizer.model")
    return 0


def average(options: argparse.Namespace) -> int:
    """Average a run's last checkpoints into RUN/averaged."""
    folders = list_checkpoints(options.run)[-options.last :]
    weights = average_checkpoints(folders)
    recipe = read_run_recipe(options.run)
    state = {"averaged": [folder.name for folder in folders], "recipe": recipe_to_dict(recipe)}
    save_weights(options.run / "averaged", weights, state)
    print(options.run / "averaged")
    return 0
