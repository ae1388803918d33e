"""Makes new runs and text from trained models: pruning, scaling, distillation, grid search. It has
no training loop of its own."""
