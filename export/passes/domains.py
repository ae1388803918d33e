"""Domains of operators beside ONNX's own."""

MICROSOFT = "com.microsoft"
MACARON = "macaron"
