"""Errors of training; messages name the parameter, what is allowed, what was found, the next step.

TrainingError
├── ConfigError     an unknown key, a value outside its range, or a file that may not be replaced
├── CorpusError     a text file that cannot be used
├── BatchError      batches that could not be prepared
├── CheckpointError a run or checkpoint that does not fit
│   └── BrokenCheckpointError   one of which a file is missing or cut off
├── RankLostError   another of the processes that train together has ended
├── EndedError      training was asked to end before its last step
├── StorageError    a file that cannot be written
└── DivergedError   a gradient or a model's scores are no longer finite
"""

from __future__ import annotations


class TrainingError(Exception):
    """Root of every error that training raises on purpose."""


class ConfigError(TrainingError):
    """A recipe, an override or a command's argument is wrong."""


class CorpusError(TrainingError):
    """A text file cannot be used; the message names file and line."""


class BatchError(TrainingError):
    """The next batches could not be prepared, for a reason other than the text."""


class CheckpointError(TrainingError):
    """A checkpoint or run folder cannot be used."""


class BrokenCheckpointError(CheckpointError):
    """A file of a checkpoint is missing, cut off or otherwise unreadable."""


class RankLostError(TrainingError):
    """Another of the processes that train together has ended. That process reports the reason
    itself."""


class EndedError(TrainingError):
    """Training was asked to end before its last step; what was learnt is saved."""


class StorageError(TrainingError):
    """A file cannot be written; what was saved before is whole."""


class DivergedError(TrainingError):
    """Training diverged: a gradient or a score is infinite or not a number."""


def reason_of(error: Exception) -> str:
    """The reason that the operating system gives for an error, without the path: messages begin
    with the path already."""
    return getattr(error, "strerror", None) or str(error)
