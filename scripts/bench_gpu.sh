#!/usr/bin/env bash
# Measures the latency of a policy of OpenVLA-7B's shapes (random weights) on this machine's GPU, with CUDA graphs and
# without, within 10 minutes; docs/gpu.md says what. Needs an NVIDIA driver, 24 GB of GPU memory and Python 3.10 to
# 3.13, no ROS. Arguments go to both runs, e.g.  bash scripts/bench_gpu.sh --quantisation int8
#
# The first time it makes an environment in .venv-gpu, which is not counted in the 10 minutes. Instead:
#   PYTHON=/path/to/python  uses an interpreter that has PyTorch and the other packages, and installs nothing;
#   TORCH_INDEX=URL         takes PyTorch from another index, e.g. PyTorch's own one for CUDA 12.6 where the driver is
#                           too old for the CUDA that PyPI's PyTorch is built with;
#   OUT=FOLDER              is where the results go (out/bench/gpu).
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
ENVIRONMENT=$ROOT/.venv-gpu
OUT=${OUT:-$ROOT/out/bench/gpu}
PACKAGES="numpy scipy transformers tokenizers safetensors filterpy faiss-cpu opencv-python-headless pillow pydantic
    PyYAML typer rich tqdm psutil"
MINUTES_EACH=4.3  # two runs with their imports stay below 10 minutes

make_environment() {
    PYTHON=$ENVIRONMENT/bin/python
    [ -x "$PYTHON" ] || "$(find_python)" -m venv "$ENVIRONMENT"
    local pip=("$PYTHON" -m pip install -q --disable-pip-version-check)
    # The build with CUDA: PyPI's on Linux is one. A local version of the same release, such as +cpu, is replaced.
    if ! "$PYTHON" -c 'import sys, torch; sys.exit(torch.version.cuda is None)' 2>/dev/null; then
        say "PyTorch with CUDA (about 3 GB to fetch)"
        local release
        release=$(sed -n 's/^torch==//p' "$ROOT/constraints.txt")
        if [ -n "${TORCH_INDEX:-}" ]; then
            "${pip[@]}" --force-reinstall --index-url "$TORCH_INDEX" torch  # which may have other releases only
        else
            "${pip[@]}" --force-reinstall "torch===$release"
        fi
    fi
    say "other packages"
    local installed=$ENVIRONMENT/constraints.txt
    grep -v -e '^torch==' -e '^opencv-python==' "$ROOT/constraints.txt" > "$installed"
    "$PYTHON" -c 'import torch; print("torch==" + torch.__version__)' >> "$installed"
    # shellcheck disable=SC2086
    "${pip[@]}" -c "$installed" $PACKAGES
    case " $* " in *" --quantisation int"*) "${pip[@]}" -c "$installed" torchao ;; esac
}

[ -n "${PYTHON:-}" ] || make_environment "$@"
"$PYTHON" - <<'PYTHON_CODE'
import sys, torch
if not torch.cuda.is_available():
    build = torch.version.cuda or "none"
    sys.exit(f"PyTorch {torch.__version__} (CUDA {build}) finds no GPU. Does nvidia-smi show one? Is its driver as new "
             "as that CUDA asks for? TORCH_INDEX chooses a PyTorch for an older one.")
print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}")
PYTHON_CODE

cd "$ROOT"
export PYTHONPATH=$ROOT${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1
status=0
for runtime in graphs eager; do
    say "$runtime"
    "$PYTHON" -m vla_sd_ros.cli.bench_gpu --device cuda --size 7b --runtime "$runtime" --max-minutes "$MINUTES_EACH" \
        --out "$OUT/$runtime" "$@" || status=$?
done
say "results in $OUT"
exit "$status"
