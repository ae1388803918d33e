"""Figures of quality, from texts and numbers alone. They know no model and no run."""
