"""Imports that must not happen, each checked in a fresh interpreter."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# `__main__` modules are left out: one without a guard would run. The --help test below covers them.
# What Alembic runs can be imported by it alone; the tests of the store run it.
IMPORT_ALL_OF_SERVING = """
import importlib, pkgutil, sys
import serving
for module in pkgutil.walk_packages(serving.__path__, "serving."):
    if module.name.rpartition(".")[2] != "__main__" and ".migrations." not in module.name:
        importlib.import_module(module.name)
        print(module.name, file=sys.stderr)
print("\\n".join(sys.modules))
"""


def run_python(
    *arguments: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_serving_needs_no_torch_and_no_other_package_of_this_repository() -> None:
    done = run_python("-c", IMPORT_ALL_OF_SERVING)
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split())
    assert "serving.errors" in loaded  # the walk did find modules
    assert loaded & {"torch", "training", "export", "bench"} == set()


# What runs beside it, and what it loaded of language models.
TRANSLATE_NOTHING = """
import os, sys
from serving.__main__ import main
main(["translate", "tests"])
print(len(os.listdir("/proc/self/task")) - 1, "serving.generation.generator" in sys.modules)
"""


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs /proc")
def test_translating_starts_without_numpys_threads_and_without_language_models() -> None:
    done = run_python("-c", TRANSLATE_NOTHING)
    assert "no readable manifest.json" in done.stderr
    threads, loaded = done.stdout.split()
    assert int(threads) <= 1  # on some machines ONNX Runtime has one for itself
    assert loaded == "False"


def test_reading_settings_loads_neither_the_search_nor_onnx_runtime() -> None:
    done = run_python("-c", "import serving.server.http.settings, sys; print(*sys.modules)")
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split())
    assert "serving.queue.limits" in loaded
    assert loaded & {"serving.search.beams.beam", "onnxruntime"} == set()


def test_who_watches_the_workers_has_no_onnx_runtime_in_memory() -> None:
    done = run_python("-c", "import serving.service, sys; print(*sys.modules)")
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split())
    assert "serving.server.check" in loaded
    # Nor what only a worker needs: it would be imported before any worker starts.
    assert loaded & {"onnxruntime", "serving.server.app", "serving.translation.translator"} == set()


def test_who_watches_the_workers_of_macaron_serve_imports_little() -> None:
    done = run_python("-c", "import serving.server.supervisor, sys; print(*sys.modules)")
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split())
    assert {"circus.arbiter", "serving.bundle.folder"} <= loaded
    assert loaded & {"bentoml", "starlette", "uvicorn", "numpy", "onnxruntime"} == set()


NOT_FOR_THE_FIRST_ANSWER = {
    *("torch", "bentoml", "onnxruntime", "jinja2", "markdown_it", "py3langid", "lxml", "pypdf"),
    *("sqlalchemy", "alembic", "huggingface_hub", "tokenizers", "charset_normalizer", "rapidfuzz"),
    *("serving.documents.recognition", "serving.store.database", "serving.hub.pull"),
}
"""What a worker imports when something needs it: a text in Markdown, a document, the store."""


def test_a_worker_imports_nothing_that_the_first_answer_does_not_need() -> None:
    imports = "import serving.worker, serving.server.hosting, serving.server.app, uvicorn, sys"
    done = run_python("-c", f"{imports}; print(*sys.modules)")
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split())
    assert {"starlette", "serving.server.dialects.native.routes"} <= loaded
    assert loaded & NOT_FOR_THE_FIRST_ANSWER == set()


def test_a_worker_starts_what_loads_models_before_it_imports_anything() -> None:
    done = run_python("-c", "import serving.worker, sys; print(*sys.modules)")
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split())
    assert "serving.processes.loader" in loaded
    assert loaded & {"numpy", "pydantic", "starlette", "uvicorn", "serving.server.app"} == set()


# ONNX Runtime's reports wait in a database under the cache folder from its import on. It makes none
# where it finds itself in continuous integration.
@pytest.mark.parametrize(
    ("module", "reports"),
    [
        ("onnxruntime", True),
        ("serving.runtime.ort", False),
        ("serving.service", False),
        ("bench.machine.roofline", False),
    ],
)
def test_onnx_runtime_does_not_report_to_its_makers(
    tmp_path: Path, module: str, reports: bool
) -> None:
    hidden = ("CI", "ORT_DISABLE_TELEMETRY")
    kept = {name: value for name, value in os.environ.items() if name not in hidden}
    done = run_python(
        "-c",
        f"import {module}, onnxruntime",
        environment={**kept, "XDG_CACHE_HOME": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    assert bool(list(tmp_path.rglob("onnxruntime.db"))) == reports


@pytest.mark.parametrize(
    "words",
    [
        *(["training"], ["export"], ["serving"], ["bench"], ["macaron"]),
        *(["macaron", verb] for verb in ("serve", "translate", "train", "export", "bench")),
    ],
    ids=" ".join,
)
def test_help_is_fast(words: list[str]) -> None:
    # -X importtime prints "import time: self | cumulative | name" on stderr for each module.
    done = run_python("-X", "importtime", "-m", *words, "--help")
    assert done.returncode == 0, done.stderr
    assert "usage:" in done.stdout.lower()
    loaded = {
        line.rpartition("|")[2].strip()
        for line in done.stderr.splitlines()
        if line.startswith("import time:")
    }
    assert "runpy" in loaded  # the lines were understood
    assert loaded & {"torch", "onnxruntime", "numpy", "bentoml"} == set()


def test_a_client_needs_httpx_alone() -> None:
    done = run_python("-c", "import macaron.client, sys; print(*sys.modules)")
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split())
    assert "httpx" in loaded
    assert loaded & {"serving", "numpy", "pydantic", "torch", "onnxruntime"} == set()
