"""Encoders, in folders of `transformers` and sentence-transformers."""
