"""Requests that wait, tickets that answer them, and the threads that see to engines, whatever the
task; no model, no HTTP."""
