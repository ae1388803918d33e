"""Traces a model, lowers it and writes the ONNX files of a bundle; compares nothing."""
