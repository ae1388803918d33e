"""Shows where ONNX Runtime's own partitioner puts the nodes of graphs for CUDA, without a GPU.

    python tests/cuda_placement.py PYTHON GRAPH.onnx ...

PYTHON is an interpreter of an environment with onnxruntime-gpu, for Linux. CUDA's libraries are
replaced by libraries that are compiled here and do nothing: sessions can be opened with them, and
run (`tests/cuda_dry_run.py`), but nothing is computed. Needs a C compiler and `nm`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

SHAPES = {"Concat", "Mul", "Reshape", "Squeeze", "Sub", "Unsqueeze"}
"""Operators that make sizes out of sizes: ONNX Runtime does these on the CPU on purpose."""
_MADE = {
    "__cudaRegisterFatBinary": "static void* x[4]; void* {}(void* p) {{ return x; }}",
    "cudaGetDeviceCount": "int {}(int* n) {{ *n = 1; return 0; }}",
    "cudaGetDevice": "int {}(int* n) {{ *n = 0; return 0; }}",
    "cudaMemGetInfo": "int {}(size_t* a, size_t* b) {{ *a = *b = 1ul << 34; return 0; }}",
    "cudaMalloc": "int {}(void** p, size_t n) {{ *p = told(n); return 0; }}",
    "cudaMallocHost": "int {}(void** p, size_t n) {{ *p = malloc(n + 256); return 0; }}",
    "cudaHostAlloc": "int {}(void** p, size_t n, int f) {{ *p = malloc(n + 256); return 0; }}",
    "cudaMemcpy": "int {}(void* d, void* s, size_t n, int k) {{ memcpy(d, s, n); return 0; }}",
    "cudaMemcpyAsync": "int {}(void* d, void* s, size_t n) {{ memcpy(d, s, n); return 0; }}",
    "cudaGetDeviceProperties": "int {}(int* p, int d) {{ properties(p); return 0; }}",
    "cudaDeviceGetAttribute": "int {}(int* v, int a) {{ *v = attribute(a); return 0; }}",
    "cudaGraphInstantiate": "int {}(void** g) {{ *g = malloc(8); return 0; }}",
    "cudaStreamEndCapture": "int {}(void* s, void** g) {{ *g = malloc(8); return 0; }}",
    "cuInit": "int {}(unsigned f) {{ return 0; }}",
    "cuDriverGetVersion": "int {}(int* v) {{ *v = 13000; return 0; }}",
    "cuDeviceGetCount": "int {}(int* n) {{ *n = 1; return 0; }}",
    "cuDeviceGet": "int {}(int* d, int n) {{ *d = n; return 0; }}",
    "cuDeviceGetName": 'int {}(char* s, int n, int d) {{ strcpy(s, "no GPU"); return 0; }}',
    "cuDeviceGetAttribute": "int {}(int* v, int a) {{ *v = attribute(a); return 0; }}",
    "cuDevicePrimaryCtxRetain": "int {}(void** c, int d) {{ *c = malloc(8); return 0; }}",
    "cuCtxSetCurrent": "int {}(void* c) {{ return 0; }}",
    "cuMemGetInfo_v2": "int {}(size_t* a, size_t* b) {{ *a = *b = 1ul << 34; return 0; }}",
    "cudaStreamCreateWithFlags": "int {}(void** s, int f) {{ *s = malloc(8); return 0; }}",
    "cudaEventCreateWithFlags": "int {}(void** s, int f) {{ *s = malloc(8); return 0; }}",
}
_CARD = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static void* told(size_t n) {
  fprintf(stderr, "\\ncudaMalloc %zu\\n", n);
  return malloc(n + 256);
}
static int attribute(int a) {
  switch (a) {
    case 10: return 32; case 16: return 132; case 75: return 9; case 76: return 0;
    case 81: return 233472; case 97: return 232448; default: return 1024;
  }
}
static void properties(int* p) {
  memset(p, 0, 700);
  *(size_t*)(p + 72) = 1ul << 34; *(size_t*)(p + 74) = 49152; p[76] = 65536; p[77] = 32;
  p[80] = p[81] = p[82] = 1024; p[83] = 64; p[84] = 2147483647; p[85] = p[86] = 65535;
  p[90] = 9; p[91] = 0; p[96] = 132;
}
"""
"""The card that the stand-ins describe: compute capability 9.0 with 132 multiprocessors. The
offsets are those of cudaDeviceProp of CUDA 13."""
_OPEN = """
import sys, onnxruntime
options = onnxruntime.SessionOptions()
options.log_severity_level = 0
cuda = ("CUDAExecutionProvider", {"enable_cuda_graph": "1"})
onnxruntime.InferenceSession(sys.argv[1], options, providers=[cuda, "CPUExecutionProvider"])
print("opened with onnxruntime-gpu", onnxruntime.__version__)
"""


def stand_ins(provider: Path, folder: Path) -> None:
    """Compile a stand-in for each CUDA library that the provider needs, with the functions that it
    uses, and for cuDNN, whose functions it looks up by name."""
    listed = _run("readelf", "-d", str(provider))
    needed = re.findall(r"\[(lib(?:cu)\w+\.so[.\d]*)\]", listed)
    symbols: dict[str, set[str]] = defaultdict(set)
    for line in _run("nm", "-D", "--undefined-only", str(provider)).splitlines():
        name, _, library = line.split()[-1].partition("@")
        if library in needed or re.match(r"(__cuda|cu[A-Z])", name):
            symbols[library or "libcuda.so.1"].add(name)
    symbols["libcuda.so.1"].update(name for name in _MADE if re.match("cu[A-Z]", name))
    names = re.findall(rb"\0(cudnn[A-Z]\w+)(?=\0)", provider.read_bytes())
    symbols["libcudnn.so"] = {name.decode() for name in names}
    for library in (*needed, "libcudnn.so"):
        code, versions = folder / "code.c", folder / "versions"
        bodies = [_body(name) for name in sorted(symbols[library])]
        code.write_text("\n".join([_CARD, *bodies]))
        versions.write_text(f"{library} {{ global: *; }};")
        flags = ["-w", "-shared", "-fPIC", f"-Wl,-soname,{library},--version-script={versions}"]
        _run("cc", *flags, "-o", str(folder / library), str(code))


def _body(name: str) -> str:
    """A function that does as little as may be."""
    if name.startswith("cudnnCreate"):
        return f"int {name}(void** p) {{ *p = malloc(64); return 0; }}"
    return _MADE.get(name, "long {}() {{ return 0; }}").format(name)


def placement(python: str, libraries: Path, graph: str) -> dict[str, object]:
    """The number of nodes on the GPU, the operators on the CPU, and the number of memory copies."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(libraries)}
    done = subprocess.run(
        [python, "-c", _OPEN, graph], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{graph}: {done.stderr[-2000:]}")
    nodes: dict[str, Counter[str]] = defaultdict(Counter)
    provider = ""
    for line in done.stderr.splitlines():
        if found := re.search(r"placed on \[(\w+)ExecutionProvider\]", line):
            provider = found[1]
        elif provider and (found := re.search(r"IsAssignedToAnEp\]   (\w+) \(", line)):
            nodes[provider][found[1]] += 1
    return {
        "graph": graph,
        "opened": done.stdout.strip(),
        "on_gpu": nodes["CUDA"].total(),
        "on_cpu": dict(nodes["CPU"]),
        "copies": sum(count[n] for count in nodes.values() for n in count if "Memcpy" in n),
    }


def main() -> int:
    """Print a line of JSON for each graph; fails if the CPU computes more than sizes."""
    python, *graphs = sys.argv[1:]
    find = "import onnxruntime; print(onnxruntime.__path__[0])"
    package = Path(_run(python, "-c", find).split()[-1])
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        stand_ins(package / "capi" / "libonnxruntime_providers_cuda.so", Path(folder))
        for graph in graphs:
            found = placement(python, Path(folder), graph)
            print(json.dumps(found))
            on_cpu = found["on_cpu"]
            assert isinstance(on_cpu, dict)
            wrong += not found["on_gpu"] or bool(found["copies"]) or not set(on_cpu) <= SHAPES
    return int(wrong > 0)


def _run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    sys.exit(main())
