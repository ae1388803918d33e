"""Batches: files of requests, one per line, that are answered in the background.

A line goes to the endpoint that would answer it over HTTP; this package knows no endpoint.
"""
