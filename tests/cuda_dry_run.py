"""Whole searches, and reads of encoders, in onnxruntime-gpu itself, without a GPU: its work on the
host is done, its kernels do nothing.

    python tests/cuda_dry_run.py PYTHON BUNDLE ...

PYTHON is an interpreter with the packages of `.[serve-cuda]`, BUNDLE a folder that was exported
with `--target cuda`. This shows that ONNX Runtime takes the bindings, addresses and copies, that it
captures CUDA graphs and replays them, how much memory it takes from CUDA, and which kernel
attention gets on a card of compute capability 9.0. The outputs have no meaning. Needs a C compiler
and `nm`. MACARON_CUDA_STREAMS is the number of batches that are computed at once.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.cuda_placement import stand_ins  # noqa: E402

_RUN = """
import sys
sys.path.insert(0, sys.argv[1])
import onnxruntime
from serving.runtime.gpu import cuda_device, cuda_session
opened = cuda_device._session
copied = cuda_session._Outputs.copied
def nothing(self, role):
    # What no kernel has written holds what was there before, which may be no beam.
    found = copied(self, role)
    found[...] = 0
    return found
cuda_session._Outputs.copied = nothing
def telling(path, options, *, graphs):
    options.log_severity_level = 1
    return opened(path, options, graphs=graphs)
cuda_device._session = telling
from serving import Generator, Translator
from serving.encoding.reader import TextReader
from serving.bundle.folder import parse_manifest
from pathlib import Path
task = parse_manifest(Path(sys.argv[2])).task
if task == "translate":
    loaded = Translator(sys.argv[2], threads=1, workers=8)
    serve = loaded.translate
elif task in ("encode", "classify"):
    loaded = TextReader(sys.argv[2], threads=1, workers=8)
    serve = loaded.read
else:
    loaded = Generator(sys.argv[2], threads=1, workers=8)
    serve = loaded.generate
texts = ["Ein Satz.", "Noch ein etwas anderer Satz, der laenger ist.", "A", "The film was"]
for turn in range(8):
    for count in (1, 2, 4, 7, 12):
        serve((texts * 3)[:count])
    if turn == 3:
        print("\\nhalf", file=sys.stderr, flush=True)
print("on", loaded.device.name, loaded.device.reason)
"""


def dry_run(python: str, libraries: Path, bundle: str) -> dict[str, object]:
    """The log of ONNX Runtime about a bundle's searches; ends the program if they failed."""
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(libraries),
        "ORT_ENABLE_ATTENTION_KERNEL_DEBUG_INFO": "1",
    }
    done = subprocess.run(
        [python, "-c", _RUN, str(ROOT), bundle],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{bundle}: {done.stderr[-3000:]}")
    told = done.stdout + done.stderr
    halves = done.stderr.split("\nhalf\n")
    taken = [sum(map(int, re.findall(r"^cudaMalloc (\d+)$", h, re.MULTILINE))) for h in halves]
    return {
        "bundle": bundle,
        "device": done.stdout.rpartition("on ")[2].strip(),
        "attention": dict(Counter(re.findall(r"SdpaKernel=(\w+)", told))),
        "captured": told.count("Capturing the cuda graph"),
        "replayed": told.count("Replaying the captured"),
        "bytes_taken": taken,
        "refused": re.findall(r"runs without CUDA graphs.*", told),
    }


def main() -> int:
    """Print a line of JSON for each bundle. Fails if no CUDA graph is captured, if attention gets
    the kernel that keeps all scores in memory, or if requests like earlier ones take additional
    memory."""
    python, *bundles = sys.argv[1:]
    find = "import onnxruntime; print(onnxruntime.__path__[0])"
    found = subprocess.run([python, "-c", find], capture_output=True, text=True, check=True)
    package = Path(found.stdout.split()[-1])
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        stand_ins(package / "capi" / "libonnxruntime_providers_cuda.so", Path(folder))
        for bundle in bundles:
            told = dry_run(python, Path(folder), bundle)
            print(json.dumps(told))
            taken = told["bytes_taken"]
            assert isinstance(taken, list)
            wrong += not told["replayed"] or "MATH" in str(told["attention"]) or taken[1:] != [0]
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
