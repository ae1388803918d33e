"""Texts of requests, translated: in which sentences, with which models, by way of what language."""
