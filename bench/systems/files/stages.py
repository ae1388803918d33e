"""Notes the time and memory of a translating process at each stage.

Run as `python -m bench.systems.files.stages FILE KIND ARGUMENT...`.

The command itself runs, with a note taken after some of its functions; the notes go to the file.
Nothing is imported that the command does not import.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

from bench.machine.memory import current_rss, peak_rss

IMPORTED, LOADED, TRANSLATED = "interpreter and imports", "model loaded", "all translated"

_notes: list[dict[str, Any]] = []


def main() -> int:
    """Run the command of this engine (`onnx`) or of the peer."""
    file, kind, *sys.argv[1:] = sys.argv[1:]
    status = (_ours if kind == "onnx" else _peer)()
    with open(file, "w") as notes:
        json.dump(_notes, notes)
    return status


def _ours() -> int:
    from serving.__main__ import main as run
    from serving.threads import keep_numpy_single

    keep_numpy_single()  # as the command itself does
    from serving.commands import TranslatedLines
    from serving.translation.translator import Translator

    _note(IMPORTED)
    _note_behind(Translator, "__init__", LOADED)
    _note_behind(TranslatedLines, "translate", TRANSLATED)
    return run()


def _peer() -> int:
    from bench.systems.files import peer_translate

    _note(IMPORTED)
    _note_behind(peer_translate, "load", LOADED)
    _note_behind(peer_translate, "translate", TRANSLATED)
    peer_translate.main()
    return 0


def _note_behind(owner: Any, name: str, stage: str) -> None:
    """Take a note each time that a function has returned."""
    function: Callable[..., Any] = getattr(owner, name)

    def noted(*arguments: Any, **options: Any) -> Any:
        result = function(*arguments, **options)
        _note(stage)
        return result

    setattr(owner, name, noted)


def _note(stage: str) -> None:
    times = {"at": time.monotonic(), "cpu_seconds": time.process_time()}
    _notes.append({"stage": stage, **times, "rss": current_rss(), "peak_rss": peak_rss()})


if __name__ == "__main__":
    sys.exit(main())
