"""The answering side of a rival's process: `PYTHON FOLDER_OF_THIS_FILE`, lines of JSON.

The first line names what to load: a module of this folder, a class of it, and its arguments. The
answer is the product's version or an error. Each further line names a method and its arguments; the
answer is the result, the seconds and the processor seconds that it took.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
from pathlib import Path
from typing import Any


def main() -> None:
    """Load, then answer requests until stdin ends."""
    # Libraries may write to stdout; the answers must not mix with that.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sys.path.pop(0)  # this folder, whose modules could be taken for a library's
    first = json.loads(sys.stdin.readline())
    try:
        product: Any = getattr(_module(first["module"]), first["kind"])(**first["arguments"])
        print(json.dumps({"version": product.version}), file=answers, flush=True)
    except Exception as error:  # whatever a library raises is the reason
        print(json.dumps({"error": _line(error)}), file=answers, flush=True)
        return
    for line in sys.stdin:
        request = json.loads(line)
        method = getattr(product, request.pop("do"))
        try:
            answer = _timed(method, request)
        except Exception as error:
            answer = {"error": _line(error)}
        print(json.dumps(answer), file=answers, flush=True)


def _timed(method: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    cpu, start = time.process_time(), time.perf_counter()
    result = method(**arguments)
    seconds = time.perf_counter() - start
    return {"result": result, "seconds": seconds, "cpu_seconds": time.process_time() - cpu}


def _module(name: str) -> Any:
    path = Path(__file__).with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"_rival_{name}", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"no module {path}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _line(error: Exception) -> str:
    """The error in one line, with its kind."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:500]


if __name__ == "__main__":
    main()
