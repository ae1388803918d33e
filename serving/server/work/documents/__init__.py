"""Whole documents, translated beside what clients wait for: where they lie, and who does it.

Every dialect that takes documents uses `Documents`; none of them is known here.
"""
