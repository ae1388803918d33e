"""Serves exported bundles; imports no torch."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from serving.documents.files import FileWishes
    from serving.encoding.reader import Classifier, Embedder
    from serving.generation.generator import Generator
    from serving.translation.translator import Translator, Wishes

# ONNX Runtime reports usage to its makers unless this says otherwise before it is loaded.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

__all__ = ["Classifier", "Embedder", "FileWishes", "Generator", "Translator", "Wishes"]


def __getattr__(name: str) -> Any:
    """Load a documented name when it is first used, because onnxruntime is slow to import."""
    if name in ("Translator", "Wishes"):
        from serving.translation import translator

        return getattr(translator, name)
    if name == "FileWishes":
        from serving.documents.files import FileWishes

        return FileWishes
    if name == "Generator":
        from serving.generation.generator import Generator

        return Generator
    if name in ("Classifier", "Embedder"):
        from serving.encoding import reader

        return getattr(reader, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
