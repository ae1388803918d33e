"""Requests that wait and tickets that answer them, whatever the task; no model, no HTTP."""
