"""A bundle beside its checkpoint: logits, whole searches, quality and their limits. It writes
nothing."""
