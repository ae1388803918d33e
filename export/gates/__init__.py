"""Checks GPU bundles without a GPU: in PyTorch and in the ONNX reference implementation."""
