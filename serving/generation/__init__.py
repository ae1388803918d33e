"""Decodes outputs of language models, token by token; no HTTP."""
