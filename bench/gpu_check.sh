#!/usr/bin/env bash
# Everything that needs a GPU, in one call of at most ten minutes: installs what is missing, runs the tests marked gpu and
# the benches, and leaves what they print in OUT, line by line as it comes. A part that fails or runs out of time does
# not stop the others; the exit status is the number of parts that failed.
# Usage: bench/gpu_check.sh [OUT] [WHEELS] [MATERIALS]
#        bench/gpu_check.sh --prepare MATERIALS [ENCODER]
#   OUT        a folder for logs and tables (default gpu_check)
#   WHEELS     a folder of wheels, where there is no package index; '' where there is one
#   MATERIALS  the models in the form of each system (default OUT/materials), whose exports take two minutes:
#              --prepare makes them on any machine, with the Python of .venv, to be carried to the one with the GPU
#   ENCODER    the folder of a sentence encoder of Hugging Face, such as all-MiniLM-L6-v2, to be timed beside
#              sentence-transformers; without it that part is left out
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export BENTOML_DO_NOT_TRACK=True ORT_DISABLE_TELEMETRY=1
shapes=(base iwslt-joint-fast)

if [ "${1:-}" = --prepare ]; then
  materials=$(realpath -m "${2:?name the folder of MATERIALS}")
  encoder=${3:+$(realpath -m "$3")}
  if [ -n "$encoder" ] && [ ! -f "$encoder/config.json" ]; then
    echo "ENCODER must be the folder of a model, with its config.json, got $3" >&2
    exit 1
  fi
  case "$encoder/" in
    "$materials"/encoder/*)
      echo "ENCODER must not lie in the folder that is made of it, got $3; name where it came from" >&2
      exit 1 ;;
  esac
  for shape in "${shapes[@]}"; do
    .venv/bin/python -m bench engine --device cuda --shape "$shape" --materials "$materials/$shape" --prepare || exit
  done
  [ -n "$encoder" ] || exit 0
  rm -rf "$materials/encoder" && mkdir -p "$materials/encoder" || exit
  cp -r "$encoder" "$materials/encoder/source" || exit
  { cut -f 2,3 docs/hand-read.tsv | tr '\t' '\n'; cut -f 2 docs/phrases.tsv; } > "$materials/encoder/texts.txt"
  .venv/bin/python -m export import "$encoder" "$materials/encoder/bundle" --target cuda --precision fp16
  exit
fi
out=$(realpath -m "${1:-gpu_check}")
wheels=${2:+$(realpath "$2")}
materials=$(realpath -m "${3:-$out/materials}")
encoder=
[ ! -e "$materials/encoder" ] || encoder=$materials/encoder
end=$((SECONDS + ${GPU_CHECK_SECONDS:-580}))
failed=0

# part NAME SHARE COMMAND...: run within that percentage of the time that is left.
part() {
  local name=$1 seconds=$(((end - SECONDS) * $2 / 100)) start=$SECONDS
  shift 2
  if [ "$seconds" -lt 5 ]; then
    echo "$name: no time left"
    failed=$((failed + 1))
    return
  fi
  : > "$out/$name.txt"
  : > "$out/$name.log"
  timeout "$seconds" "$@" >> "$out/$name.txt" 2>> "$out/$name.log" &
  local process=$! status=0
  tail -q -n +1 -s 0.2 -f --pid=$process "$out/$name.txt" "$out/$name.log"
  wait $process || status=$?
  echo "$name: status $status after $((SECONDS - start)) s"
  [ "$status" -eq 0 ] || failed=$((failed + 1))
}

if ! command -v nvidia-smi > /dev/null; then
  echo "there is no GPU with its driver here: nvidia-smi is not found"
  exit 1
fi
mkdir -p "$out"
nvidia-smi > "$out/gpu.txt"

# A PyTorch for CUDA that is there already is kept: it is by far the largest download.
python=$out/venv/bin/python
[ -x "$python" ] || python3 -m venv --system-site-packages "$out/venv"
site=$(echo "$out"/venv/lib/python3*/site-packages)
# Where python3 is that of a virtual environment, ours sees what that one was made over, but not its packages.
python3 -c 'import site, sys
for folder in site.getsitepackages() if sys.prefix != sys.base_prefix else []:
    print(f"import site; site.addsitedir({folder!r})")' > "$site/beneath.pth"
from=(${wheels:+--no-index --find-links "$wheels"})
grep -v '^onnxruntime==' requirements/serve.txt > "$out/serve.txt"
sed 's/^-r serve.txt/-r '"${out//\//\\/}"'\/serve.txt/; s/^-c /-c '"${PWD//\//\\/}"'\/requirements\//; /^torch==/d' \
  requirements/dev.txt > "$out/dev.txt"
version=$(sed -n 's/^onnxruntime==//p' requirements/serve.txt)
torch=$("$python" -c 'import torch; print("" if torch.version.cuda else "torch")' 2> /dev/null || echo torch)
part install 50 "$python" -m pip install --disable-pip-version-check "${from[@]}" -r "$out/dev.txt" \
  "onnxruntime-gpu==$version" ${torch:+"$(grep '^torch==' requirements/dev.txt)"}

# TensorRT is NVIDIA's own, and no requirement: where it cannot be had, the tables say so.
if [ $((end - SECONDS)) -ge 30 ]; then
  timeout 90 "$python" -m pip install --disable-pip-version-check "${from[@]}" tensorrt-cu13 > "$out/tensorrt.log" 2>&1 ||
    echo "tensorrt: cannot be installed here"
fi

# ONNX Runtime looks for CUDA's libraries beside itself; those of a PyTorch that was there lie beside that one.
libraries=$("$python" -c 'import pathlib, torch
print(*pathlib.Path(torch.__file__).parents[1].glob("nvidia/*/lib"), sep=":")' 2> /dev/null)
[ -z "$libraries" ] || export LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
# A package `tests` of some project among the machine's packages would win over our folder, which has no __init__.py.
mkdir -p "$site/tests"
printf '__path__ = ["%s/tests"]\n' "$PWD" > "$site/tests/__init__.py"

# -W: another PyTorch warns of other things, and here a warning is an error. What memory is free is asked alone.
mapfile -t marked < <(grep -rl 'mark\.gpu' tests --include='test_*.py')
pytest=("$python" -m pytest -W default -p no:cacheprovider -v -rfEs --tb=short)
bench=("$python" -m bench)
part tests 45 "${pytest[@]}" -n 6 -m "gpu and not slow" "${marked[@]}"
for shape in "${shapes[@]}"; do
  part "$shape" 50 "${bench[@]}" engine --device cuda --shape "$shape" --materials "$materials/$shape" --busy \
    --batch 1,32,256 --beam 5 --repetitions 3 --json "$out/$shape.json"
done
if [ -n "$encoder" ]; then
  # The rival changes nothing that was tested. Where it cannot be had, the table says so.
  "$python" -m pip list --disable-pip-version-check --format freeze > "$out/installed.txt" 2> /dev/null
  timeout 60 "$python" -m pip install --disable-pip-version-check "${from[@]}" -c "$out/installed.txt" \
    sentence-transformers > "$out/sentence-transformers.log" 2>&1 || echo "sentence-transformers: cannot be installed here"
  part encoder 40 "${bench[@]}" encoder-rivals --device cuda --source "$encoder/source" --bundle "$encoder/bundle" \
    --texts "$encoder/texts.txt" --batch 1,32,256 --repetitions 3 --busy
else
  echo "encoder: left out, as MATERIALS have none"
fi
part language 40 "${bench[@]}" language --device cuda --batch 1,32,256 --repetitions 3 --busy
part training 50 "${bench[@]}" training --device cuda --bf16 --preset transformer_base --token-budget 16384 --busy
part memory 50 "${pytest[@]}" -m "gpu and slow" "${marked[@]}"
part compiled 90 "${bench[@]}" engine --device cuda --shape base --materials "$materials/base" --busy \
  --batch 1,32 --beam 5 --repetitions 3 --compiled
exit "$failed"
