"""Recipes: their sections, what each field may be, and the filters that they name. It reads no text
and no checkpoint."""
