"""The training loop, optimiser, processes and speed; knows no kind of model by name."""
