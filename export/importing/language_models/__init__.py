"""Language models, in folders of `transformers` and in GGUF files."""
