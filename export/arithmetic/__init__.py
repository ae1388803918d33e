"""What a precision makes of a model: the quantised or rounded twin, and what it is fitted to. It
writes no graph."""
