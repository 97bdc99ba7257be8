#!/bin/bash
# test_cli.sh LODE - the built program as a person meets it: help, bad input, where output goes,
# which of flag, environment and model decides.  Prints one line for each failure and the sum.
#
# Models are those of the repository: models/demo.gguf, tests/data/arch/*.gguf.
set -u
lode=$(realpath "${1:?the program}")
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
model=$root/models/demo.gguf
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
unset "${!LODE_@}"

passed=0 failed=0 skipped=0
ok() { passed=$((passed + 1)); }
bad() {
    failed=$((failed + 1))
    printf 'FAILED: %s\n' "$1"
    sed 's/^/    | /' out err 2>/dev/null | head -20
}
check() { if [ "$1" = 0 ]; then ok; else bad "$2"; fi; }

# run STATUS ARGS...: runs, keeps out and err, and fails unless the exit status is STATUS.
run() {
    local want=$1 got
    shift
    "$lode" "$@" >out 2>err </dev/null
    got=$?
    what="lode $* -> $got, not $want"
    [ "$got" = "$want" ]
    check $? "$what"
}
# The last command said this: a part of its standard output, of its standard error.
says() { grep -qF -- "$1" out; check $? "$what: standard output lacks '$1'"; }
complains() { grep -qF -- "$1" err; check $? "$what: standard error lacks '$1'"; }
quiet() { [ ! -s "$1" ]; check $? "$what: something on $1"; }
# A complaint is one sentence, and nothing else was printed.
one_sentence() {
    quiet out
    [ "$(wc -l <err)" = 1 ]
    check $? "$what: not one line on standard error"
}

# ------------------------------------------------------------------------------------------ help
run 0 --help; says 'Usage: lode VERB'; quiet err
run 2; complains 'Usage: lode VERB'; quiet out
run 0 --version; says 'lode '
run 2 rnu; complains "did you mean 'run'"
run 2 frobnicate-everything; complains 'lode --help'
verbs=$("$lode" --help | sed -n '/^Usage/,/lode VERB --help/ s/^  \([a-z]*\) .*/\1/p' | grep -v '^lode$')
for verb in $verbs; do
    run 0 "$verb" --help; says "lode $verb - "; says 'Examples'; quiet err
    awk 'length > 101 { exit 1 }' out; check $? "lode $verb --help: a line is too wide"
    cp out long
    run 0 help "$verb"; cmp -s out long; check $? "lode help $verb differs"
    run 0 "$verb" --help-debug; says "lode $verb"
    run 2 "$verb" --no-such-flag; complains '--no-such-flag'; complains "lode $verb --help"; quiet out
done
for verb in run logits bench embed perplexity doctor inspect tokenize detokenize convert; do
    grep -qw "$verb" <<<"$verbs"; check $? "there is no verb $verb"
done
run 0 --help-debug; says '--float-act'; says '--isa'

# ------------------------------------------------------------------------------------- bad files
head -c 100 /dev/zero >zeros.gguf
: >empty.gguf
mkdir dir.gguf
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n' >lfs.gguf
printf '<!DOCTYPE html><html></html>' >page.gguf
head -c 4096 "$model" >cut.gguf
for verb in run logits bench embed perplexity inspect tokenize convert; do
    case $verb in
    run | embed) more=(-p hello) ;;
    convert) more=(-o converted.gguf) ;;
    logits) more=(--ids 1,2) ;;
    perplexity) more=(-f /dev/null) ;;
    tokenize) more=(-f /dev/null) ;;
    *) more=() ;;
    esac
    for file in missing zeros empty dir lfs page cut; do
        run 1 "$verb" "$file.gguf" "${more[@]}"
        complains "$file.gguf"
        one_sentence
    done
done
run 2 run -p hello; complains 'model'
run 2 logits "$model"; complains '--ids'

# A model of an architecture that does not exist is named, with those that do.
small=$(ls "$root"/tests/data/arch/*/*.gguf 2>/dev/null | head -1)
if [ -n "$small" ]; then
    arch=$("$lode" inspect "$small" --json | sed -n 's/.*"general.architecture"[^"]*"\([a-z0-9]*\)".*/\1/p' | head -1)
    python3 - "$small" <<'PY'
import sys
data = open(sys.argv[1], 'rb').read()
key = b'general.architecture'
at = data.index(key) + len(key) + 4
n = int.from_bytes(data[at:at + 8], 'little')
open('strange.gguf', 'wb').write(data[:at + 8] + b'q' * n + data[at + 8 + n:])
PY
    run 1 logits strange.gguf --ids 1,2; complains 'qqq'; complains 'llama'; one_sentence
else
    skipped=$((skipped + 1))
fi

# ----------------------------------------------------------------------------------------- flags
run 2 run "$model" -p hi --top-k x; complains '--top-k'; complains 'a whole number from'
run 2 run "$model" -p hi --temp 1000; complains '--temp'; complains 'from 0 to 100'
run 2 run "$model" -p hi -ctk f7; complains 'f32, f16, bf16 or q8_0'
run 2 run "$model" -p hi -n; complains '-n'
run 2 run "$model" one two; complains 'two'
run 2 run "$model" -p hi --tmep 1; complains 'did you mean --temp'
run 2 bench "$model" -p 1-8*1; complains '-p'
run 2 bench "$model" -o xml; complains 'md, csv, json or jsonl'
run 1 logits "$model" --ids 1,x; complains "'x'"; one_sentence
run 1 logits "$model" --ids 1,999999999; complains '999999999'; one_sentence
run 1 logits "$model" --ids 1,2,3 -c 2; complains '3'; complains '2'; one_sentence
run 0 logits "$model" --ids 1,2 -ngl 0 -fa on; complains '-fa is ignored'
run 0 run --list-devices; says 'the CPU'
run 1 logits "$model" --ids 1 --device tpu; complains 'auto, cuda, cuda:N, several'; one_sentence
run 1 logits "$model" --ids 1 --device vulkan:0; complains 'no backend for Vulkan yet'; one_sentence
run 2 logits "$model" --ids 1 --cache-policy best; complains 'lru, slru'
run 0 trace replay --help; [ "$(grep -c '^$' out)" -gt 3 ]; check $? 'no empty line before the flags'
# what cannot be written is said before the work
run 1 trace record "$model" -p hello -o no/such/x.trace; complains 'no/such/x.trace'; one_sentence
run 1 trace synth no/such/x.trace; complains 'no/such/x.trace'; one_sentence
# and what would be lost by it
cp "$model" kept.gguf
printf '\2\0\0\0\0\0\0\0{}' >kept.safetensors; cp kept.safetensors same.safetensors
for flag in -o --profile-json --profile-tokens --hot-experts; do
    run 1 logits kept.gguf --ids 1 $flag kept.gguf; complains 'kept.gguf: is a model'; quiet out
    run 1 logits "$model" --ids 1 $flag kept.safetensors; complains 'is a model'; quiet out
done
run 1 trace record kept.gguf -p hello -o kept.gguf; complains 'is a model'
run 1 trace synth kept.gguf; complains 'is a model'; one_sentence
run 1 serve kept.gguf --port 0 --log-file kept.gguf; complains 'is a model'
cmp -s "$model" kept.gguf && cmp -s same.safetensors kept.safetensors; check $? 'a model was written over'
run 1 logits "$model" --ids 1 --profile-json p --profile-tokens p; complains 'each needs its own'; quiet out
run 1 logits "$model" --ids 1 --profile-json ''; complains 'name is empty'; quiet out
run 1 logits "$model" --ids 1 --profile-json no/such/x.json; complains 'no/such/x.json'; quiet out
run 1 trace synth x.trace --tokens 16m --layers 4096 --used 128; complains 'MiB are free'; one_sentence

# --------------------------------------------------------------------------------- where it goes
run 0 logits "$model" --ids 1,2,3 -o x.npy; quiet out; quiet err
[ "$(wc -c <x.npy)" = $((128 + 4 * 8192)) ]; check $? 'x.npy has another size'
[ "$(ls -A | grep -c tmp)" = 0 ]; check $? 'a temporary file is left'
"$lode" logits "$model" --ids 1,2,3 -o /dev/stdout </dev/null >piped.npy 2>err
cmp -s x.npy piped.npy; check $? '-o /dev/stdout differs from a file'
"$lode" logits "$model" --ids 1,2,3 -o /dev/stdout </dev/null 2>err | cat >piped.npy
cmp -s x.npy piped.npy; check $? '-o into a pipe differs from a file'
cp x.npy before.npy
run 1 logits "$model" --ids 1,99999999 -o x.npy
cmp -s x.npy before.npy; check $? 'a failure changed the file that was there'
printf '[1, 2,\n3]' >ids.txt
run 0 logits "$model" --ids @ids.txt -o y.npy; cmp -s x.npy y.npy; check $? 'ids from a file differ'
run 0 logits "$model" --ids 1,2,3 --all -o all.npy
tail -c $((4 * 8192)) all.npy | cmp -s - <(tail -c $((4 * 8192)) x.npy)
check $? 'the last row of --all is not the row without it'
run 1 logits "$model" --ids 1,2 -o /dev/full; complains 'No space'; one_sentence
run 1 logits "$model" --ids 1,2 -o no/such/dir/x.npy; complains 'no/such/dir'; one_sentence
run 1 logits "$model" --ids 1,2 -o dir.gguf; complains 'directory'; one_sentence
run 0 logits "$model" --ids 1,2 --trace-norms
[ "$(grep -cP '^\d+\t[0-9.]+$' out)" = 9 ]; check $? '--trace-norms: not 8 layers and the embedding'

# A reader that leaves: one sentence, an exit status, no crash.
for words in '--help' "inspect $model" "logits $model --ids 1,2 --trace-norms" "run $model -p hi -n 40"; do
    # shellcheck disable=SC2086
    { "$lode" $words 2>err </dev/null; echo $? >status; } | :
    sleep 0.1
    status=$(cat status)
    { [ "$status" = 1 ] && [ "$(wc -l <err)" = 1 ]; } || [ "$status" = 0 ]
    check $? "lode $words | : ended with $status"
    "$lode" $words >/dev/full 2>err </dev/null
    status=$?
    [ "$status" = 1 ] && grep -q 'No space' err; check $? "lode $words >/dev/full ended with $status"
done

# ------------------------------------------------------------------------------------ run, piped
run 0 run "$model" -p 'What is the capital of France?' --temp 0; says 'Paris'; quiet err
[ "$(wc -l <out)" = 1 ]; check $? 'an answer in a pipe is not one line'
cp out answer
echo 'What is the capital of France?' | "$lode" run "$model" --temp 0 >out 2>err
cmp -s out answer; check $? 'a prompt from standard input gives another answer'
run 0 run "$model" 'What is the capital of France?' --temp 0 --stats; complains 'tokens/s'
cmp -s out answer; check $? '--stats changed the answer'
complains 'that this machine reads'
run 0 run "$model" -p 'Tell me a story.' -n 8 --seed 5; cp out a; complains '-n'
run 0 run "$model" -p 'Tell me a story.' -n 8 --seed 5 -t 1 -b 1; cmp -s out a
check $? 'the same seed gave another answer with one thread'
run 0 run "$model" -p 'Tell me a story.' -n 20 --seed 5 --stop ' '; [ "$(wc -w <out)" = 1 ]
check $? '--stop did not stop'

# an answer held to a form
echo '{"type":"object","properties":{"age":{"type":"integer","minimum":7,"maximum":120},"ok":{"enum":[true,"maybe"]}},"required":["age","ok"],"additionalProperties":false}' >form.json
for seed in 1 2 3; do
    run 0 run "$model" -p 'Anna is 31.' --json-schema-file form.json --seed $seed -n 200; cp out answer.json
    run 0 schema form.json answer.json; says 'answer.json: accepted'
done
run 0 run "$model" -p 'Yes?' --regex '(yes|no)( indeed){2}' -n 60; grep -qxE '(yes|no) indeed indeed' out
check $? '--regex was not held to'
run 0 run "$model" -p 'Yes?' --grammar 'root ::= "<" [a-c]{4} ">"' --ignore-eos -n 60; grep -qxE '<[a-c]{4}>' out
check $? '--grammar was not held to'
run 1 run "$model" -p 'Yes?' -j '{"items":{"uniqueItems":true}}'; one_sentence; complains '#/items/uniqueItems'
run 1 run "$model" -p 'Yes?' -j '{}' --regex 'a'; one_sentence; complains 'one form'
run 1 run "$model" -p ''; complains 'empty'; one_sentence
head -c 20000 "$model" | tr -dc 'a-z ' >letters
run 1 run "$model" -f letters -c 64; complains '64'; complains 'context'; one_sentence
printf 'a\0b' >nul; run 1 run "$model" -f nul; complains 'NUL'; one_sentence
run 1 run "$model" -p $'\xff\xfe'; complains 'UTF-8'; one_sentence
run 0 run "$model" -p 'Tell me a story.' -c 40 --seed 1; complains 'context is full'

# The chat's commands, from a pipe.
printf '%s\n' 'My name is Anna.' '/save chat.json' '/set temp 7000' '/set top_k 3' '/set nothing 1' \
    '/clear' '/load chat.json' '/load no.json' 'What is my name?' '"""two' 'lines"""' '/shwo' '/quit' |
    "$lode" run "$model" -i --temp 0 >out 2>err
check $? 'the chat failed'
what='lode run -i'
says 'Anna'; says '2 messages saved'; says '2 messages loaded'; says 'cannot be set'; says 'did you mean /show'
complains '--temp'; complains 'no.json'
python3 - <<'PY'
import json
m = json.load(open('chat.json'))
assert [x['role'] for x in m] == ['user', 'assistant'] and m[0]['content'] == 'My name is Anna.'
PY
check $? 'a saved chat is not JSON messages'

run 0 run "$model" --messages <(printf '[{"role": "user", "content": "My name is Anna."},
    {"role": "assistant", "content": "Nice to meet you, Anna!"},
    {"role": "user", "content": "What is my name?"}]') --temp 0
says 'Anna'
run 1 run "$model" --messages <(printf '[{"role": "assistant", "content": "Hello"}]'); complains 'prompt'
run 1 run "$model" --messages <(printf '[{"role": 7}]'); complains 'role'; one_sentence
run 1 run "$model" --messages <(printf '[{"role": "user", "content": "x"'); complains 'JSON'; one_sentence

# ------------------------------------------------------------------------------------ precedence
setting() { sed -n "s/.*$1 \([-0-9.]*\).*/\1/p" out | head -1; }
chat() { printf '/set\n' | "$lode" run "$model" -i "$@" >out 2>err; }
chat; [ "$(setting top-k)" = 20 ] && grep -q 'top-k 20 (model)' out
check $? "top-k is $(setting top-k), not 20 of the model"
LODE_TOP_K=30 chat; [ "$(setting top-k)" = 30 ]; check $? 'the environment does not beat the model'
LODE_TOP_K=30 chat --top-k 50; [ "$(setting top-k)" = 50 ]; check $? 'the flag does not beat the environment'
chat; [ "$(setting min-p)" = 0.05 ]; check $? 'the built-in default is gone'
# GGUF's own name for the penalty, put where another key of as many letters was
python3 - "$model" <<'PY'
import sys
data = bytearray(open(sys.argv[1], 'rb').read())
at = data.index(b'tokenizer.ggml.padding_token_id')
data[at:at + 31] = b'general.sampling.penalty_repeat'
data[at + 35:at + 39] = b'\3\0\0\0'
open('penalty.gguf', 'wb').write(data)
PY
printf '/set\n' | "$lode" run penalty.gguf -i >out 2>err; grep -q 'repeat-penalty 3 (model)' out
check $? 'general.sampling.penalty_repeat is not the repeat penalty'
LODE_MODEL=$model run 0 run -p 'What is the capital of France?' --temp 0; says Paris
LODE_TOP_K=many run 2 run "$model" -p hi; complains LODE_TOP_K

# ---------------------------------------------------------------------------------------- experts
moe=$root/tests/data/arch/qwen3_moe/model.gguf
python3 - "$moe" <<'PY'
import struct, sys
data = bytearray(open(sys.argv[1], 'rb').read())
key = b'qwen3moe.expert_used_count'
at = data.index(key) + len(key)
assert struct.unpack_from('<I', data, at)[0] == 4 # a u32
data[at + 4:at + 8] = struct.pack('<I', 1)
open('one.gguf', 'wb').write(data)
PY
run 0 logits one.gguf --ids 5,6,7,8 --all -o one.npy
run 0 logits "$moe" --ids 5,6,7,8 --all --experts 1 -o override.npy; cmp -s one.npy override.npy
check $? '--experts 1 is not a model whose tokens use one expert'
run 0 logits "$moe" --ids 5,6,7,8 --all -o trained.npy; ! cmp -s trained.npy override.npy
check $? '--experts 1 changed nothing'
run 0 perplexity "$moe" -f "$root/models/README.md" -c 64 --experts 2 --chunks 1; says PPL
run 0 bench "$moe" -p 4 -n 2 -r 1 --experts 8 --no-bandwidth; says 'tg2'
run 1 logits "$moe" --ids 5 --experts 9; complains 'the model has 8 experts'; one_sentence
run 1 run "$model" -p hi --experts 2; complains 'no experts to choose from'; one_sentence

# ------------------------------------------------------------------------------------------ bench
run 0 bench "$model" -p 8 -n 4 -r 2 -t 1 --no-bandwidth; says ' pp8 '; says 'tg4'
run 0 bench "$model" -p 8 -n 4 -r 2 -t 1,2 -o json
python3 - <<'PY'
import json
rows = json.load(open('out'))
assert [(r['n_prompt'], r['n_gen'], r['n_threads']) for r in rows] == [(8, 0, 1), (0, 4, 1), (8, 0, 2), (0, 4, 2)]
for r in rows:
    assert len(r['samples_ns']) == len(r['samples_ts']) == 2 and r['model_n_params'] == 28321280
    assert abs(sum(r['samples_ns']) / 2 - r['avg_ns']) <= 1
assert rows[0]['logits_fingerprint'] == rows[2]['logits_fingerprint']
assert rows[1]['bandwidth_share'] > 0
PY
check $? 'bench -o json is not what it should be'
run 0 bench "$model" -p 4,8 -n 0 -r 1 -o jsonl --no-bandwidth; [ "$(wc -l <out)" = 2 ]; check $? 'jsonl: not 2 lines'
run 0 bench "$model" -p 4 -n 0 -r 1 -o csv --no-bandwidth; says 'build_commit,'
# the logits of a prompt are those of its tokens one by one
run 0 bench "$model" -p 6 -n 6 -r 1 -o jsonl --no-bandwidth
[ "$(grep -o '"logits_fingerprint": "[0-9a-f]*"' out | sort -u | wc -l)" = 1 ]
check $? 'prefill and decode gave different logits'

# ------------------------------------------------------------------------------------ perplexity
for _ in 1 2 3; do cat "$root/models/README.md"; done | head -c 5000 >text
run 0 perplexity "$model" -f text -c 128; says 'Final estimate: PPL = '; cp out half
run 0 perplexity "$model" -f text -c 128 --kl-divergence-base base.kld; cmp -s out half
check $? 'saving changed the perplexity'
run 0 perplexity "$model" --kl-divergence-base base.kld --kl-divergence; says 'Same top p: 100.000'
says 'Mean    KLD:'
awk '/Mean    KLD/ { exit !($3 < 1e-6 && $3 > -1e-6) }' out; check $? 'a model differs from itself'
run 0 perplexity "$model" -f text -c 128 --score all --parse-special --no-bos; says 'PPL'
run 1 perplexity "$model" -f empty.gguf; complains 'empty.gguf'; one_sentence
run 1 perplexity "$model" --kl-divergence-base zeros.gguf --kl-divergence; complains zeros; one_sentence
head -c 5000 base.kld >cut.kld
run 1 perplexity "$model" --kl-divergence-base cut.kld --kl-divergence; complains 'cut short'; one_sentence
run 2 perplexity "$model" --kl-divergence; complains '--kl-divergence-base'

# ---------------------------------------------------------------------------------------- doctor
run 0 doctor --no-bandwidth; says 'CPU'; says 'Memory'; says 'Disk'; says 'GPU'; says 'kernels:'
[ -z "$(ls /tmp/lode-doctor-* 2>/dev/null)" ]; check $? 'doctor left a file'

printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
[ "$failed" = 0 ]
