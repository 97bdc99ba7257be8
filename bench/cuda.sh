#!/bin/bash
# cuda.sh LODE SYNTH [OUT] - what a CUDA device computes and how fast, without building anything here.
#
# LODE: the program (LD_LIBRARY_PATH as it needs it); SYNTH: a script that writes a GGUF of a known shape
# with random weights (SYNTH shape out.gguf --type TYPE); OUT: a folder for the results (/tmp/lode-cuda).
#
# First correctness: OPCHECK, if that names the program (every op against the scalar CPU, LODE_JOBS processes of it), and tests/device.py
# (whole models' bits are the CPU's).  Then every row of README's table: OUT/cuda.csv has lode bench's columns behind one
# that names the row, OUT/cuda.md the table with targets and what llama.cpp does (cuda_table.py).  Models are written
# to $TMPDIR (50 GB), all at once while correctness runs, and removed.
# TESTS: folder with device.py and data/ (default: beside this file); DEVICE_MODELS: what device.py looks at (all);
# ROWS: those wanted (all of ROWS below); BEFORE: a cuda.csv, from which the table says what has changed.  Under ten minutes on an H200 whose host has 16 cores.
set -u
lode=$1 synth=$2 out=${3:-/tmp/lode-cuda}
here=$(dirname "$0")
tests=${TESTS:-$here/../tests}
rows=${ROWS:-small 8b 8b-deep 8b-many 8b-fast q8_0 bf16 30b 30b-offload upload}
jobs=${LODE_JOBS:-8} # processes of what is checked
models=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$models"' EXIT
mkdir -p "$out"
rm -f "$out/cuda.csv" "$out/device.txt" "$out/upload.txt"

make() { # name, shape, type
    python3 "$synth" "$2" "$models/$1.part" --type "$3" >/dev/null 2>"$models/$1.err" && mv "$models/$1.part" "$models/$1.gguf"
}
wanted() { [[ " $rows " == *" $1 "* ]]; }
if wanted small; then
    make qwen3-0.6b qwen3-0.6b Q4_K_M &
    make smollm2-1.7b smollm2-1.7b Q4_K_M &
    make qwen3-4b qwen3-4b Q4_K_M &
fi
if wanted bf16; then make 8b-bf16 qwen3-8b BF16 & fi
if wanted q8_0; then make 8b-q8_0 qwen3-8b Q8_0 & fi
if [[ " $rows" == *" 8b"* || " $rows " == *" upload "* ]]; then make 8b qwen3-8b Q4_K_M & fi
if [[ " $rows" == *" 30b"* ]]; then make 30b qwen3-30b-a3b Q4_K_M & fi

nvidia-smi --query-gpu=name,driver_version,memory.free --format=csv,noheader | tee "$out/device.txt"
if [ -n "${OPCHECK:-}" ]; then
    for numerics in exact fast; do
        timeout 150 "$OPCHECK" --device cuda --numerics $numerics --jobs "$jobs" >"$out/opcheck-$numerics.log" 2>&1 ||
            echo "FAIL opcheck $numerics: status $?" # 124: its time was over
        grep FAIL "$out/opcheck-$numerics.log"
        echo "opcheck $numerics: $(tail -1 "$out/opcheck-$numerics.log")"
    done
fi
LODE_JOBS=$jobs timeout 200 python3 "$tests/device.py" "$lode" cuda ${DEVICE_MODELS:-} >"$out/device.log" 2>&1
grep '^FAIL' "$out/device.log"
echo "device.py: $(tail -1 "$out/device.log")"
wait # for the models: what is measured next has the machine to itself
"$lode" doctor --no-disk --no-bandwidth | grep 'cuda:0' | tee -a "$out/device.txt"

bench() { # row, model, flags...
    if ! timeout 120 "$lode" bench "$models/$2.gguf" --device cuda -o csv "${@:3}" >"$models/csv" 2>"$models/err"; then
        echo "FAIL $1 $2 ${*:3}: $(tail -1 "$models/err") $(tail -1 "$models/$2.err" 2>/dev/null)"
        return
    fi
    [ -s "$out/cuda.csv" ] || { printf 'row,' && head -1 "$models/csv"; } >"$out/cuda.csv"
    sed "1d; s/^/$1,/" "$models/csv" >>"$out/cuda.csv"
}
both() { # as it is by itself, and with the CPU's bits
    bench "$@"
    bench "$@" --numerics exact
}
if wanted small; then
    for m in qwen3-0.6b smollm2-1.7b qwen3-4b; do
        both $m $m -p 512 -n 128 -r 3 --greedy
    done
fi
# A pass of few rows becomes a graph the second time: many repetitions.  Answers are drawn on the device, as `lode run` does.
passes=(-p 1,2,4,8,16,32 -n 0 -r 30)
if wanted 8b; then
    both 8b 8b -p 512,2048,4096 -b 2048 -n 128 -r 3 --greedy
    both 8b 8b "${passes[@]}"
fi
if wanted 8b-deep; then
    both 8b 8b -p 512 -b 2048 -n 128 -d 8192,32768 -r 3 --greedy
    bench 8b-kv-q8_0 8b -ctk q8_0 -ctv q8_0 -p 512 -b 2048 -n 128 -d 0,8192,32768 -r 3 --greedy
    bench 8b 8b -p 1,8,16 -n 0 -d 2048,8192,32768 -b 2048 -r 10 # drafts, short questions
fi
wanted 8b-many && both 8b 8b -p 0 -n 64 -d 512 -npl 8,32 -r 2 --greedy # sequences, a step for all
wanted 8b-fast && bench 8b 8b --numerics fast -p 512,2048 -b 2048 -n 0 -r 3
if wanted q8_0; then
    both q8_0 8b-q8_0 -p 512,2048 -b 2048 -n 128 -r 3 --greedy
    both q8_0 8b-q8_0 "${passes[@]}"
fi
if wanted bf16; then
    both bf16 8b-bf16 -p 512,2048 -b 2048 -n 128 -r 3 --greedy
    bench bf16 8b-bf16 -p 4096 -b 4096 -n 0 -r 3
    both bf16 8b-bf16 "${passes[@]}"
    both bf16 8b-bf16 -p 0 -n 64 -d 512 -npl 8,32 -r 2 --greedy
fi
wanted 30b && both 30b 30b -p 512,2048 -b 2048 -n 128 -r 3 --greedy
if wanted 30b-offload; then
    bench 30b-cpu-moe 30b --cpu-moe -p 512 -n 128 -r 3
    bench 30b-vram 30b --vram 3.8G -p 512 -n 128 -r 3
fi
if wanted upload; then
    for m in 8b 30b 8b-bf16; do
        [ -s "$models/$m.gguf" ] || continue
        printf '%s: ' $m
        "$lode" run "$models/$m.gguf" --device cuda -v -n 1 -p x 2>&1 | grep -o 'weights uploaded.*'
    done | tee "$out/upload.txt"
fi
python3 "$here/cuda_table.py" "$out/cuda.csv" ${BEFORE:+"$BEFORE"} | tee "$out/cuda.md"
