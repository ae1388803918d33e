"""Checks of bundles for a GPU that need none: in PyTorch and in the ONNX reference."""
