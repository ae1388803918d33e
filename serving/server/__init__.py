"""The HTTP server: routes, limits, keys, metrics and the choice of a bundle; no rules of
decoding."""
