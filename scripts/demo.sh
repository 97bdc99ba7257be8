#!/bin/sh
# `make demo`: a chat on a terminal; otherwise an answer to what stands on standard input, or to a
# prompt of ours when nothing does.
set -eu
lode=${BUILD:-build}/lode model=models/demo.gguf

if [ -t 0 ] && [ -t 1 ]; then
    exec "$lode" run "$model" --stats
fi
prompt=
[ -t 0 ] || prompt=$(cat)
[ -n "$prompt" ] || prompt='Tell me a story about a boy named Felix.'
exec "$lode" run "$model" --stats -p "$prompt" </dev/null
