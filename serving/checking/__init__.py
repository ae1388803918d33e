"""What a translation must have in common with its source, and what to do where it has not; no
models, no HTTP."""
