"""A run folder: its files, checkpoints, log and owner. It computes no update."""
