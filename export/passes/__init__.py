"""What is done to a graph between torch.onnx and a bundle, one module a pass; `export.lowering`
gives the order. Nothing here knows models or files."""
