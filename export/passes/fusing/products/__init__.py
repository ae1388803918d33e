"""Passes on products with what stands around them, and on the choice among logits."""
