"""Checks a translation against its source and repairs faults; no models, no HTTP."""
