"""Export of checkpoints to bundles: graphs, lowering to a precision, and parity with PyTorch."""
