#!/bin/bash
# gpu_checks.sh BUILD - what only a machine with a GPU can say, in about ten minutes and without building.
#
# BUILD: a build with CUDA (meson setup BUILD -Dcuda=enabled; ninja -C BUILD lode tests/opcheck/opcheck).  Every op
# against the scalar CPU, answers against the CPU's, what doctor measures, and where compute-sanitizer is
# installed some ops under it.  Ends with the number of parts that failed; each says its own counts.
build=${1:-build}
tests=$(dirname "$0")
failed=0
jobs=$(nproc)
jobs=$((jobs > 8 ? 8 : jobs)) # of opcheck, whose time is the scalar CPU's; each has a context of its own on the GPU

part() { # name, command...
    echo "== $1"
    "${@:2}" || { echo "FAIL $1"; failed=$((failed + 1)); }
}

nvidia-smi --query-gpu=name,driver_version,memory.free --format=csv,noheader
part opcheck timeout 240 "$build/tests/opcheck/opcheck" --device cuda --jobs $jobs
part opcheck_fast timeout 400 "$build/tests/opcheck/opcheck" --device cuda --numerics fast --jobs $jobs
# Launches that overlap have nothing to do in opcheck's small products: a model of real shape, whose repetitions must end with the same logits.
if python3 -c 'import gguf, numpy' 2>/dev/null; then
    shape=$(mktemp)
    part shape timeout 120 python3 "$tests/../bench/other_shapes.py" gpt-oss "$shape" 4
    part repeated timeout 60 "$build/lode" bench "$shape" -p 128,512 -n 16 -r 50 --no-bandwidth
    rm -f "$shape"
else
    echo "skip  repeated: Python has no gguf"
fi
part draws env PARTS=draws timeout 120 python3 "$tests/device.py" "$build/lode" cuda
part doctor timeout 60 "$build/lode" doctor --no-disk
if command -v compute-sanitizer >/dev/null; then
    # Not racecheck, which takes sums that go from warp to warp by words released and acquired (few.cuh) for races,
    # nor initcheck, which takes the rows that are read with what lies between them for uninitialized.
    for tool in memcheck synccheck; do
        barriers= # of synccheck: rings have more than it expects
        [ $tool = synccheck ] && barriers='--num-cuda-barriers 65536'
        # Kernels that a module may lack are asked for by name: no error.
        part $tool timeout 120 compute-sanitizer --tool $tool $barriers --report-api-errors no --error-exitcode 9 "$build/tests/opcheck/opcheck" \
            --device cuda --seed 1 gather wide_row delta_gates attention_whole tall_linear router route
    done
else
    echo "skip  compute-sanitizer is not installed"
fi
echo "$failed parts failed"
exit $((failed > 0))
