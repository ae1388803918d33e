"""PyTorch as the rival of every model, eager or compiled; nothing of this project's engine."""
