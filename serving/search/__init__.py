"""Beam search and sampling over any stepper, in numpy; no text, no file, no ONNX Runtime."""
