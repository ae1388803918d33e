"""The arithmetic of each precision: the quantised or rounded twin of a model, and its fitting to a
text. Nothing here writes a graph."""
