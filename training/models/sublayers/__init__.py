"""The sublayers that layers are built from, each a module of its own. None of them knows layers or
networks."""
