"""Serving of exported bundles; imports no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from serving.translator import Translator

__all__ = ["Translator"]


def __getattr__(name: str) -> Any:
    """Load the documented names when they are asked for: onnxruntime is slow to import."""
    if name == "Translator":
        from serving.translator import Translator

        return Translator
    raise AttributeError(f"module 'serving' has no attribute {name!r}")
