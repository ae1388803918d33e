"""Stored data that requests use: glossaries and translation memories."""
