"""Checkpoints of other projects: recognised, read without running anything of theirs, and given to
the export as models of `training.models`. No architecture is defined here."""
