"""Translations of the past: which of them fits a sentence, and how its figures are put in."""
