"""Vocabularies: learning them from text, and cutting text by them. Nothing here knows batches or
models."""
