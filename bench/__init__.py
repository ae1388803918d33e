"""Measurements of the engine beside its rivals, on the same weights and in the same run."""

import serving  # noqa: F401  # before ONNX Runtime, whose reports it turns off
