"""Passes that rewrite a graph, one module each. They know neither models nor bundles."""
