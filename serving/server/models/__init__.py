"""The models of a server: which exist, and how they are loaded, replaced and closed. Handles no
requests."""
