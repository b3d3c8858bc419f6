#!/usr/bin/env bash
# The driver capture on a GPU, against what programs count by themselves: scripts/gpu/driver/run.sh FOLDER
#
#   POOLSIM_BIN     folder with poolsim and libpoolsim_capture.so; without it, cargo builds them here
#   POOLSIM_COMMIT  the commit that was built, where this is no git checkout
#
# At most 150 s beside a build. FOLDER gets table.md and all.tar.gz: outputs, traces, and what info says of them.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
out=$(realpath -m "${1:-driver-capture}")
mkdir -p "$out"
work=$(mktemp -d)
limit=148
if [ -n "${POOLSIM_BIN:-}" ]; then
    bin=$(realpath "$POOLSIM_BIN")
else
    (cd "$root" && cargo build --release --locked -p poolsim -p poolsim-capture) || exit 1
    bin=$root/target/release
fi
commit=${POOLSIM_COMMIT:-$(git -C "$root" rev-parse --short HEAD 2>/dev/null)}
export POOLSIM_CAPTURE_LIBRARY=$bin/libpoolsim_capture.so
SECONDS=0

# step SECONDS NAME COMMAND...: its output into NAME.out and NAME.err, unless no time is left.
step() {
    local most=$1 name=$2 left=$((limit - SECONDS))
    shift 2
    if [ "$left" -lt 3 ]; then
        echo "$name: skipped, no time is left" | tee -a "$work/steps.txt"
        return 1
    fi
    [ "$most" -lt "$left" ] || most=$left
    local start=$SECONDS
    timeout -k 3 "$most" "$@" >"$work/$name.out" 2>"$work/$name.err" </dev/null
    local rc=$?
    echo "$name: exit code $rc after $((SECONDS - start)) s" | tee -a "$work/steps.txt"
    return "$rc"
}

# captured SECONDS NAME VIA COMMAND...: under capture; then what info says of the trace.
captured() {
    local most=$1 name=$2 via=$3
    shift 3
    step "$most" "$name" "$bin/poolsim" capture --driver --via "$via" --keep-calls -o "$work/$name.pst" -- "$@"
    local trace
    trace=$(ls -S "$work/$name".pst "$work/$name".pid*.pst 2>/dev/null | head -n 1)
    [ -n "$trace" ] || return 0
    timeout 20 "$bin/poolsim" info "$trace" --json >"$work/$name.info.json" 2>>"$work/$name.err"
    timeout 20 "$bin/poolsim" info "$trace" >"$work/$name.info.txt" 2>>"$work/$name.err"
    timeout 20 "$bin/poolsim" replay "$trace" --policy pytorch --policy cuda-async >"$work/$name.replay.txt" 2>&1
}

{
    nvidia-smi
    ls -l /usr/local/cuda/extras/CUPTI/lib64 /usr/local/cuda/lib64/libcupti* 2>&1
    python3 -c 'import torch; print(torch.__version__, torch.version.cuda)'
} >"$work/machine.txt" 2>&1
machine=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -n 1)

nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)
for kind in static shared; do
    if [ -n "$nvcc" ]; then
        step 60 "build-$kind" "$nvcc" -O2 -cudart "$kind" -o "$work/count-$kind" "$here/count.cpp"
    fi
    [ -x "$work/count-$kind" ] || cp "$bin/count-$kind" "$work/" 2>/dev/null
done
cuda=$(dirname "$(dirname "${nvcc:-/usr/local/cuda/bin/nvcc}")")
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}:$cuda/lib64:$cuda/extras/CUPTI/lib64

for via in cupti preload; do
    captured 10 "count-static-plain-$via" "$via" "$work/count-static" plain 4000
    captured 10 "count-static-pools-$via" "$via" "$work/count-static" pools 8000
    captured 10 "count-shared-pools-$via" "$via" "$work/count-shared" pools 8000
done
captured 6 "count-static-killed-auto" auto timeout -s KILL 3 "$work/count-static" endless 8000

step 10 time-plain "$work/count-static" time 20000
for via in cupti preload; do
    step 15 "time-$via" "$bin/poolsim" capture --driver --via "$via" -o "$work/time.pst" -- "$work/count-static" time 20000
    rm -f "$work/time.pst"
done

captured 30 torch-count-native auto python3 "$here/torch_job.py" count
export PYTORCH_ALLOC_CONF=backend:cudaMallocAsync
captured 30 torch-count-async auto python3 "$here/torch_job.py" count
unset PYTORCH_ALLOC_CONF
if python3 -c 'import jax' 2>/dev/null; then
    export XLA_PYTHON_CLIENT_PREALLOCATE=false
    captured 35 jax auto python3 "$here/jax_job.py"
else
    echo "jax: skipped, it is not installed" | tee -a "$work/steps.txt"
fi

for n in 1 2; do
    for allocator in async native; do
        [ "$allocator" = native ] || export PYTORCH_ALLOC_CONF=backend:cudaMallocAsync
        step 25 "steps-$allocator-plain-$n" python3 "$here/torch_job.py" steps
        step 25 "steps-$allocator-cupti-$n" "$bin/poolsim" capture --driver --via cupti -o "$work/steps-$allocator.pst" -- \
            python3 "$here/torch_job.py" steps
        unset PYTORCH_ALLOC_CONF
    done
done

python3 "$here/table.py" "$work" "${commit:-unknown}" "$machine" >"$out/table.md" 2>"$work/table.err"
cat "$work/steps.txt" >>"$work/machine.txt"
rm -f "$work"/count-static "$work"/count-shared
find "$work" -name '*.calls' -size +3M -delete
tar -C "$work" -czf "$out/all.tar.gz" .
rm -rf "$work"
cat "$out/table.md"
echo "$SECONDS s"
