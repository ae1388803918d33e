"""Downloads and archives, from any URL into a folder. Publishers are unknown here."""
