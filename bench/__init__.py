"""Measurements of the engine beside its rivals, on the same weights and in the same run."""
