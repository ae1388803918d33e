"""ONNX files as they are run: their fields, mapped weights, and programs of native code. Nothing of
it needs ONNX Runtime."""
