"""Translates or scores whole files: cuts them into blocks, which processes on one machine or on a
cluster decode. Other packages decide how each text is translated."""
