"""Texts within files of several kinds: direction, markup, pieces, places; no kind of file."""
