"""Makes batches of ids: by token budget, in segments, packed, masked, streamed; no model, no
loss."""
