"""Training of Transformer variants: corpora, tokenizers, models, optimisation, validation."""
