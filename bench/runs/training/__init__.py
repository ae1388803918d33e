"""Speed of training: updates of a model, and attention forward and backward."""
