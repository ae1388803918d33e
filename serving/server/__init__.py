"""HTTP: routes, limits, keys, metrics and which bundle answers; no rule of decoding."""
