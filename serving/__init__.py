"""Serves exported bundles; imports no torch."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from serving.documents.files import FileWishes
    from serving.encoding.reader import Classifier, Embedder
    from serving.generation.generator import Generator
    from serving.search.options import SearchOptions
    from serving.search.sampling_options import GenerationOptions
    from serving.text.glossary import TermIndex
    from serving.text.terms import Terms
    from serving.translation.translator import Translator, Wishes

# ONNX Runtime reports usage to its makers unless this says otherwise before it is loaded.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

__all__ = [
    "Classifier",
    "Embedder",
    "FileWishes",
    "GenerationOptions",
    "Generator",
    "SearchOptions",
    "TermIndex",
    "Terms",
    "Translator",
    "Wishes",
]
_MODULES = {
    "Classifier": "encoding.reader",
    "Embedder": "encoding.reader",
    "FileWishes": "documents.files",
    "GenerationOptions": "search.sampling_options",
    "Generator": "generation.generator",
    "SearchOptions": "search.options",
    "TermIndex": "text.glossary",
    "Terms": "text.terms",
    "Translator": "translation.translator",
    "Wishes": "translation.translator",
}


def __getattr__(name: str) -> Any:
    """Load a documented name when it is first used, because onnxruntime is slow to import."""
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
