"""Outputs of language models, token by token; no HTTP."""
