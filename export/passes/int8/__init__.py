"""Passes that replace fp32 products by integer products."""
