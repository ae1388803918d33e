"""Sentence boundaries of a text; no markup and no translations."""
