"""Passes on what treats each row by itself: norms, gates, rounding, lookups."""
