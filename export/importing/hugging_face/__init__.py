"""Encoder-decoders in folders of `transformers`, one module per family. Language models and
encoders are elsewhere."""
