"""Recipes: their sections, the allowed values of each field, and the filters that they name.
Nothing here reads text or checkpoints."""
