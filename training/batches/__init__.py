"""Ids in batches: by budgets, in segments, packed, masked, streamed; no model and no loss."""
