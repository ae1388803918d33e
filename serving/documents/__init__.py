"""Reads whole files as units of text, and writes them again with translations; no model."""
