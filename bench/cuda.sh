#!/bin/bash
# cuda.sh LODE SYNTH [OUT] - what a CUDA device computes and how fast, without building anything here.
#
# LODE: the program (LD_LIBRARY_PATH as it needs it); SYNTH: a script that writes a GGUF of a known shape
# with random weights (SYNTH shape out.gguf --type TYPE); OUT: a folder for the results (/tmp/lode-cuda).
# First tests/device.py: the device's bits are the CPU's.  Then decode and prompts of each model, to
# OUT/cuda.csv (lode bench's columns) and as a table.  Models are written to $TMPDIR and removed.
# TESTS: folder with device.py and data/ (default: beside this file).  Under ten minutes on an H200.
set -u
lode=$1 synth=$2 out=${3:-/tmp/lode-cuda}
tests=${TESTS:-$(dirname "$0")/../tests}
models=$(mktemp -d)
trap 'rm -rf "$models"' EXIT
mkdir -p "$out"
rm -f "$out/cuda.csv"

nvidia-smi --query-gpu=name,driver_version,memory.free --format=csv,noheader
python3 - <<'P' 2>/dev/null || echo 'read bandwidth: not measured (no torch)'
import torch, time
x = torch.ones(1 << 32, dtype=torch.float32, device='cuda')
for _ in range(3): x.sum()
torch.cuda.synchronize(); t = time.time()
for _ in range(10): x.sum()
torch.cuda.synchronize()
print('read bandwidth: %.0f GB/s' % (10 * 4 * (1 << 32) / (time.time() - t) / 1e9))
P

LODE_JOBS=${LODE_JOBS:-6} python3 "$tests/device.py" "$lode" cuda ${DEVICE_MODELS:-} >"$out/device.log" 2>&1
grep '^FAIL' "$out/device.log"
tail -1 "$out/device.log"

row() { # shape type tests...
    local file=$models/$1-$2.gguf
    [ -s "$file" ] || python3 "$synth" "$1" "$file" --type "$2" >/dev/null || return
    timeout 120 "$lode" bench "$file" --device cuda --no-bandwidth -r 3 -o csv "${@:3}" >"$models/csv" || return
    [ -s "$out/cuda.csv" ] && sed 1d "$models/csv" >>"$out/cuda.csv" || cp "$models/csv" "$out/cuda.csv"
    [ -n "${KEEP:-}" ] || rm -f "$file"
}
for shape in ${SHAPES:-qwen3-0.6b smollm2-1.7b qwen3-4b}; do
    row $shape Q4_K_M -p 512 -n 64 -d 0
done
KEEP=1 row llama3-8b Q4_K_M -p 1,8,16,512,2048 -b 2048 -n 64 -d 0,8192 # 1, 8, 16: one pass of few rows
row llama3-8b Q4_K_M -p 0 -n 32 -d 512 -npl 8,32 # sequences, a step for all
row llama3-8b Q8_0 -p 512 -n 64 -d 0
row llama3-8b BF16 -p 512 -n 64 -d 0
row qwen3-30b-a3b Q4_K_M -p 512 -n 64 -d 0
python3 - "$out/cuda.csv" <<'P'
import csv, sys
print('| model | test | sequences | depth | t/s | weights and KV read, GB/s |')
print('| --- | --- | --- | --- | --- | --- |')
for r in csv.DictReader(open(sys.argv[1])):
    test = 'pp' + r['n_prompt'] if r['n_prompt'] != '0' else 'tg' + r['n_gen']
    gb = float(r.get('bytes_per_second') or 0) / 1e9
    print('| %s | %s | %s | %s | %.1f | %s |' % (r['model_filename'].split('/')[-1][:-5], test, r['n_parallel'], r['n_depth'],
                                         float(r['avg_ts']), '%.0f' % gb if gb else ''))
P
