"""The graphs of a bundle in ONNX Runtime, as steppers of `serving.search`; no text, no request."""
