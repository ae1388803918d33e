"""HTTP as all dialects share it: bodies, keys, logs, metrics, settings and the page. It knows no
model."""
