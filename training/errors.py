"""Errors of training; messages name the parameter, what is allowed, what was found, the next step.

TrainingError
├── ConfigError     an unknown key or a value outside its range
├── CorpusError     a text file that cannot be used
└── CheckpointError a run or checkpoint that does not fit
"""

from __future__ import annotations


class TrainingError(Exception):
    """Root of every error that training raises on purpose."""


class ConfigError(TrainingError):
    """A recipe or an override is wrong."""


class CorpusError(TrainingError):
    """A text file cannot be used; the message names file and line."""


class CheckpointError(TrainingError):
    """A checkpoint or run folder cannot be used."""
