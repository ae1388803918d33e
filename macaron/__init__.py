"""Fast Transformer variants: `Translator` and `Generator` decode with bundles, `Embedder` and
`Classifier` read with them, `Client` and `AsyncClient` call a server; the command is `macaron`.

This package only holds the entry points of the others. In a checkout these are the folders beside
it; an installed package contains them (setup.py renames the imports).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from macaron.client import AsyncClient, Client
    from serving import (
        Classifier,
        Embedder,
        FileWishes,
        GenerationOptions,
        Generator,
        SearchOptions,
        TermIndex,
        Terms,
        Translator,
        Wishes,
    )

__all__ = [
    "AsyncClient",
    "Classifier",
    "Client",
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


def __getattr__(name: str) -> Any:
    """Load the documented names on first use, so that the command starts faster."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in ("AsyncClient", "Client"):
        try:
            from macaron.client import AsyncClient, Client
        except ModuleNotFoundError as error:
            from serving.errors import install_command

            error.add_note(f"install what a client needs with: {install_command('client')}")
            raise
        return AsyncClient if name == "AsyncClient" else Client
    import serving

    try:
        return getattr(serving, name)
    except ModuleNotFoundError as error:
        from serving.errors import install_command

        error.add_note(f"install what serving needs with: {install_command('serve')}")
        raise
