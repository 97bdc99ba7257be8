#!/usr/bin/env python3
"""invariance.py LODE [NAME|DIR...]: a token's logits are the same bits, whatever the circumstances.
   invariance.py LODE --also 'COMMAND' [NAME|DIR...]: ... and COMMAND, lode built for another CPU and
                                                      run by an emulator, gives these bits too.

Every position's logits of a prompt, written by `lode logits --all`, must be the same file for each
number of threads, each chunking of the prompt (1 is how decoding runs), each instruction set and
each way of reading the file; and a prompt's logits must begin with those of its own beginning.
"""
import json
import os
import platform
import random
import shlex
import sys
import tempfile

import retype
from lodetest import Count, LONG, TESTS, logits_bytes

FAST = ['--numerics', 'fast']  # other bits than exact ones, but law 2 holds for them too
KV = [[], ['-ctk', 'f32', '-ctv', 'f32'], ['-ctk', 'q8_0', '-ctv', 'q8_0'],
      ['-ctk', 'bf16', '-ctv', 'f16']]
ISAS = ['scalar'] + (['neon'] if platform.machine() == 'aarch64' else
                     ['avx2', 'avxvnni', 'avx512', 'avx512vnni', 'avx512vbmi', 'avx512zen4', 'avx512intel', 'amx'])
WAYS = [['-t', t] for t in '1238'] + [['-b', b] for b in ('1', '7', '64', '512')] \
    + [['--isa', i] for i in ISAS] \
    + [['--no-mmap'], ['-t', '3', '-b', '7', '--isa', 'scalar']]


def cases(folders):
    """(name, path, ids): each tiny model on its longest golden prompt, one of them with matrices of all types
    too that no file here has; the bundled one on more."""
    for group in ('arch', 'quant'):
        folder = os.path.join(TESTS, 'data', group)
        folders = folders + [os.path.join(folder, name) for name in sorted(os.listdir(folder))]
    for path in folders:
        if os.path.exists(path + '/golden/meta.json'):
            with open(path + '/golden/meta.json') as f:
                ids = json.load(f)['prompts'][-1]['ids']
            yield os.path.basename(path), path + '/model.gguf', ids
            if os.path.basename(path) == 'llama-256-Q4_K_M':
                with tempfile.TemporaryDirectory() as made:
                    retype.retype(path + '/model.gguf', made + '/types.gguf', ','.join(retype.TYPES))
                    yield 'types', made + '/types.gguf', ids
    rng = random.Random(1)
    yield ('demo', os.path.join(TESTS, '..', 'models', 'demo.gguf'),
           [rng.randrange(8000) for _ in range(700 if LONG else 150)])


def refuse(count, what, error):
    """A head of 16 numbers has no room for Q8_0's blocks of 32, and lode says so."""
    if "can't be kept as Q8_0" in str(error):
        count.skip('%s: %s' % (what, error))
    else:
        count.check(False, '%s: %s' % (what, error))


def same_elsewhere(count, program, other, name, path, ids):
    """Both programs on one model: prefill and decode, in every KV format."""
    ids = ids[:40]  # an emulator takes its time
    for kv in KV:
        try:
            base = logits_bytes(program, path, ids, '--all', *kv)
            for way in [], ['-b', '7'], ['-b', '1', '-t', '2'], ['--isa', 'scalar']:
                same = logits_bytes(other, path, ids, '--all', *kv, *way) == base
                count.check(same, 'there: %s' % ' '.join([name] + kv + way))
        except RuntimeError as e:
            refuse(count, name, e)


def main():
    args, count = sys.argv[1:], Count()
    program, other = os.path.abspath(args.pop(0)), None
    if args[:1] == ['--also']:
        other, args = shlex.split(args[1]), args[2:]
    folders = [os.path.abspath(a) for a in args if '/' in a]
    chosen = [os.path.basename(a) for a in args]
    for name, path, ids in cases(folders):
        if chosen and name not in chosen:
            continue
        if other:
            same_elsewhere(count, program, other, name, path, ids)
            continue
        for i, kv in enumerate(KV):
            if i and not LONG and name not in ('qwen3', 'gemma3'):
                continue  # the formats besides the default one: once each, and in full at length
            what = ' '.join([name] + kv)
            try:
                base = logits_bytes(program, path, ids, '--all', *kv)
            except RuntimeError as e:
                refuse(count, what, e)
                continue
            for way in WAYS:
                try:
                    same = logits_bytes(program, path, ids, '--all', *kv, *way) == base
                    count.check(same, '%s: %s' % (what, ' '.join(way)))
                except RuntimeError as e:
                    if way[0] == '--isa' and way[1] != 'scalar':
                        count.skip('%s: %s' % (what, e))  # this machine has not got it
                    else:
                        count.check(False, '%s: %s' % (what, e))
            n, row = len(ids) // 2 + 1, 4 * base[0][-1]
            # phi3's longrope picks its factors by the context: that must be the same one
            part = logits_bytes(program, path, ids[:n], '--all', '-c', str(len(ids)), *kv)[2]
            count.check(part == base[2][:n * row], '%s: the first %d alone' % (what, n))
            if not i:
                fast = logits_bytes(program, path, ids, '--all', *FAST)
                for way in ['-b', '1'], ['-b', '7', '-t', '3']:
                    same = logits_bytes(program, path, ids, '--all', *FAST, *way) == fast
                    count.check(same, '%s: %s' % (what, ' '.join(FAST + way)))
            last = logits_bytes(program, path, ids, *kv)[2]
            count.check(last == base[2][-row:], '%s: the last position alone' % what)
    count.end()


main()
