"""Processes that decode for a server: how they are started, given work, shared and restarted."""
