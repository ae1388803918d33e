"""HTTP for all dialects: bodies, keys, logs, metrics, settings and the page. Contains nothing about
models."""
