"""Puts markup and capitals back into a translation; parses no format."""
