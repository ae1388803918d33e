"""GGUF files: header, vocabulary and weights. Folders of `transformers` are read elsewhere."""
