"""Translates or scores whole files: cuts them into blocks, which processes on one machine or on a
cluster decode. How one text is translated is decided in other packages."""
