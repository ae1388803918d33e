"""Compares a bundle with its checkpoint: logits, whole searches, quality, and their limits. Writes
nothing."""
