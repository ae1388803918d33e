"""Encoder-decoders in folders of `transformers`, a module a family. Language models and encoders
are elsewhere."""
