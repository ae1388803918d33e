"""A model to the ONNX files of a bundle: traced, lowered and written. It compares nothing."""
