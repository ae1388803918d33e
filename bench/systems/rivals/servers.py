"""LibreTranslate's server: `PYTHON THIS_FILE --port N ...`, with the options of its own command.

It runs as its command runs it, except that it downloads nothing. At its start it would fetch an
index of packages, and then every package, unless two are there. Its splitter of sentences would
fetch a model; the one that it gets here leaves a text whole, which takes work off it.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

_MODULES = {"libretranslate": "libretranslate", "argostranslate": "argos-translate-lt"}
"""Packages by the modules that are imported of them."""
_ENGINE = "ctranslate2"


class LibreTranslate:
    """Tells whether LibreTranslate is installed; importing it would make folders in the home."""

    def __init__(self) -> None:
        for module in _MODULES:
            if find_spec(module) is None:
                raise ModuleNotFoundError(f"No module named '{module}'")
        server, *beside = (f"{name} {version(name)}" for name in (*_MODULES.values(), _ENGINE))
        self.version = f"{server} ({', '.join(beside)})"


class WholeText:
    """Stands in for the splitter MiniSBD: a text is one sentence."""

    def __init__(self, package: Any) -> None:
        """`package` is the package of Argos whose texts would be split."""
        del package

    def split_sentences(self, text: str) -> list[str]:
        """The whole text."""
        return [text]


def main() -> None:
    """Serve until the process is ended."""
    sys.path.pop(0)  # this folder, whose modules could be taken for a library's
    translate: Any = import_module("argostranslate.translate")
    translate.MiniSBDSentencizer = WholeText
    init: Any = import_module("libretranslate.init")
    init.boot = _download_nothing
    import_module("libretranslate.main").main()


def _download_nothing(*_: Any) -> None:
    """Stands in for the function that downloads packages before the server starts."""


if __name__ == "__main__":
    main()
