"""Makes batches of ids: by token budget, in segments, packed, masked, streamed. Nothing here knows
models or losses."""
