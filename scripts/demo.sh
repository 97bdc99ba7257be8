#!/bin/sh
# `make demo`: two acts.  A chat with a small model; then a mixture of experts that does not fit the
# memory it is given, packed and streamed, with a table of what came from where.  On a terminal they are
# chats; otherwise each answers what stands on standard input, or prompts of ours when nothing does.
set -eu
lode=${BUILD:-build}/lode model=models/demo.gguf experts=models/moe.gguf
packed=${BUILD:-build}/moe.lode

second_act() {
    [ -f "$packed/manifest.json" ] || "$lode" pack "$experts" -o "$packed"
    echo
    echo "A mixture of experts larger than its memory: 48 experts of 127 kB, with room for 12 of them."
    echo "The others are read from $packed whenever a token needs them."
    "$lode" run "$packed" --expert-cache 1530k --profile "$@"
}

if [ -t 0 ] && [ -t 1 ]; then
    "$lode" run "$model" --stats
    second_act
    exit
fi
prompt=
[ -t 0 ] || prompt=$(cat)
[ -n "$prompt" ] || prompt='Tell me a story about a boy named Felix.'
"$lode" run "$model" --stats -p "$prompt" </dev/null
second_act -p "$prompt" </dev/null
