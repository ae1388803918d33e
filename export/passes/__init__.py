"""Passes that rewrite a graph, a module each. They know no model and no bundle."""
