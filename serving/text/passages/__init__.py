"""From the tokens of a format to stretches of text that a model can read; no format."""
