"""Texts on which bundles are compared and scored, as a model reads them. No comparison is here."""
