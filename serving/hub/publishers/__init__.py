"""Who publishes models, a module each, and what they share; nothing that needs PyTorch."""
