"""Passes that put integer products in the place of those in fp32."""
