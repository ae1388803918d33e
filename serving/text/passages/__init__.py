"""Builds stretches of text for a model from the tokens of a format; parses no format."""
