"""A run folder: its files, checkpoints, log and owner; computes no update."""
