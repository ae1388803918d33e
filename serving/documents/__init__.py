"""Whole files as units of text, and written again with their translations; no model."""
