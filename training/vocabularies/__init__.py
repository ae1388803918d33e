"""Vocabularies: how they are learnt from text, and how text is cut by them. It knows no batch and
no model."""
