"""Translates texts: sentences in running batches, and texts made of their translations; no HTTP."""
