#!/usr/bin/env python3
"""tokenizer_parts.py LODE: tokenizers that lie in parts give the ids of the tokenizer.json that they
were made from.

vocab.json with merges.txt are its model's two lists.  A file of ranks (tiktoken's) has its pieces in
bytes, the id of each being its rank; tiktoken 0.14 itself gives the same ids for all these texts
(compared once).  Texts with pieces that are not made of bytes in GPT-2's alphabet can't be said in
ranks and are left out."""
import base64
import json
import os
import subprocess
import sys
import tempfile

from lodetest import Count, SHARED, TESTS

# What a directory says of the cut: by its tokenizer's class, or its model's type.
KINDS = {'bpe_qwen2': ('Qwen2Tokenizer', 'qwen2'), 'bpe_gpt2': ('GPT2Tokenizer', None),
         'bpe_llama3': (None, 'llama'), 'bpe_gpt4o': (None, 'gpt_oss'),
         'bpe_starcoder': (None, 'starcoder2'), 'bpe_deepseek_v3': (None, 'deepseek_v3'),
         'bpe_qwen35': (None, 'qwen3_5')}


def alphabet():
    """GPT-2's character -> byte."""
    own = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in own]
    return {**{chr(b): b for b in own}, **{chr(256 + i): b for i, b in enumerate(rest)}}


def tokenize(program, folder, texts):
    r = subprocess.run([program, 'tokenize', folder, '--jsonl', '--no-bos'],
                       input=''.join(json.dumps(t) + '\n' for t in texts).encode(),
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
    if r.returncode:
        raise RuntimeError(r.stderr.decode())
    return [json.loads(line) for line in r.stdout.splitlines()]


def write(folder, name, value):
    with open(os.path.join(folder, name), 'w') as f:
        f.write(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def config_of(tokenizer, kind):
    added = {str(a['id']): {k: v for k, v in a.items() if k != 'id'}
             for a in tokenizer['added_tokens']}
    return {'added_tokens_decoder': added, **({'tokenizer_class': kind} if kind else {})}


def check(count, program, source, name):
    kind, model_type = KINDS[name]
    with open(source + '/tokenizer.json') as f:
        tokenizer = json.load(f)
    with open(source + '/cases.jsonl') as f:
        cases = [json.loads(line) for line in f]
    merges = [m if isinstance(m, str) else ' '.join(m) for m in tokenizer['model']['merges']]
    texts, want = [c['text'] for c in cases], [c['ids'] for c in cases]
    made = {m.replace(' ', '') for m in merges}
    added = {a['content'] for a in tokenizer['added_tokens']} - made
    pieces = {k: v for k, v in tokenizer['model']['vocab'].items() if k not in added}
    with tempfile.TemporaryDirectory() as t:
        write(t, 'vocab.json', tokenizer['model']['vocab'])
        write(t, 'merges.txt', '#version: 0.2\n' + '\n'.join(merges) + '\n')
        write(t, 'tokenizer_config.json', config_of(tokenizer, kind))
        if model_type:
            write(t, 'config.json', {'model_type': model_type})
        got = tokenize(program, t, texts)
        bad = [i for i in range(len(want)) if got[i] != want[i]]
        count.check(not bad, '%s: vocab.json and merges.txt, %d texts%s' % (
            name, len(want), ': %r' % texts[bad[0]] if bad else ''))
    if not model_type:
        return
    of_bytes = alphabet()
    ranks = {bytes(of_bytes[c] for c in k): v for k, v in pieces.items() if set(k) <= set(of_bytes)}
    odd = {v for k, v in pieces.items() if not set(k) <= set(of_bytes)}
    with tempfile.TemporaryDirectory() as t:
        for file in ('tokenizer.model', 'x.tiktoken'):
            write(t, file, ''.join('%s %d\n' % (base64.b64encode(k).decode(), v)
                                   for k, v in sorted(ranks.items(), key=lambda kv: kv[1])))
            write(t, 'tokenizer_config.json', config_of(tokenizer, None))
            write(t, 'config.json', {'model_type': model_type})
            got = tokenize(program, t, texts)
            bad = [i for i in range(len(want)) if got[i] != want[i] and not odd & set(want[i])]
            count.check(not bad, '%s: %s, %d texts%s' % (
                name, file, len(want), ': %r' % texts[bad[0]] if bad else ''))
            os.remove(os.path.join(t, file))


def refusals(count, program):
    cases = [({'vocab.json': '{"a":0}'}, 'merges.txt'),
             ({'vocab.json': '{"a":0}', 'merges.txt': '\n'}, 'model_type'),
             ({'vocab.json': '{"a":', 'merges.txt': '\n', 'config.json': '{"model_type":"qwen2"}'},
              'vocab.json'),
             ({'tokenizer.model': 'YQ== 0\nYQ\n', 'config.json': '{"model_type":"qwen2"}'}, 'line 2'),
             ({'tokenizer.model': 'YQ== 0\nYQ== x\n', 'config.json': '{"model_type":"qwen2"}'},
              'line 2')]
    for files, why in cases:
        with tempfile.TemporaryDirectory() as t:
            for name, text in files.items():
                write(t, name, text)
            r = subprocess.run([program, 'tokenize', t, '-p', 'a'], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, timeout=60)
            count.check(r.returncode == 1 and why in r.stderr.decode(),
                        'refused (%s): %s' % (why, r.stderr.decode().strip()))


def main():
    program, count = os.path.abspath(sys.argv[1]), Count()
    refusals(count, program)
    folder = os.path.join(SHARED, 'ref', 'tokenizers')
    for name in KINDS:
        if os.path.exists('%s/%s/tokenizer.json' % (folder, name)):
            check(count, program, os.path.join(folder, name), name)
        else:
            count.skip('%s: set LODE_SHARED' % name)
    count.end()


main()
