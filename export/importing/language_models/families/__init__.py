"""The families of decoders in folders of `transformers`, one module a family; no file of GGUF."""
