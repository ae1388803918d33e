"""Processes that decode for a server: how they are started, asked, shared and restarted."""
