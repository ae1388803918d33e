"""The search that ships, stepped by a PyTorch model. It trains nothing."""
