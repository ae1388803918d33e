"""The publishers of models, one module for each, and what they share; nothing here needs
PyTorch."""
