"""Comparisons with other products that people would use instead of this engine, each product in a
process of its own."""
