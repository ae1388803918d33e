"""Translates whole documents in the background: their storage, and the workers that translate them.

Every dialect with documents uses `Documents`; none of them is named here.
"""
