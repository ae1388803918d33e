"""Updates: the loop, the optimiser, processes and speed. It knows no kind of model by name."""
