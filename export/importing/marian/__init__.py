"""Marian's own files: models, vocabularies and shortlists. Marian's weights in a folder of
`transformers` are not read here."""
