"""The benches, one module each: their subject, their order and their table. The subpackages are
tasks."""
