"""Reads texts with an encoder: vectors, and probabilities of classes; no HTTP."""
