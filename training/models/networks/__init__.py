"""Whole networks, one module an architecture; what several of them are made of stands below."""
