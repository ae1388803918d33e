"""Passes that put several nodes into one operator. They change no number."""
