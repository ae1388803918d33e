"""Requests that are sent as a file, a line each, and answered beside what clients wait for.

A line goes to the endpoint that would answer it over HTTP; none of them is known here.
"""
