"""Whole files, cut into blocks that decoding processes of one machine or of many work through; what
a text becomes is decided below."""
