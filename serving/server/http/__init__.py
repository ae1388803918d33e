"""HTTP for all dialects: bodies, logs, metrics, settings and the page. Contains nothing about keys
or models."""
