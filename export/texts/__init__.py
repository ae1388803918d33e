"""Texts on which bundles are compared and scored, as a model reads them. It compares nothing."""
