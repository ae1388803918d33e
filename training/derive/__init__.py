"""Makes new runs and text from trained models: pruning, scaling, distillation, grid search. Has no
training loop of its own."""
