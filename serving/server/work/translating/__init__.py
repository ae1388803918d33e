"""Translates the texts of requests: division into sentences, choice of models, and third
languages."""
