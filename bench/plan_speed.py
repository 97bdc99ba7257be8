#!/usr/bin/env python3
"""Tokens/s that `lode plan` says beside what `lode run` then does, as a row of a table in bench/measured/memory.md.

    bench/plan_speed.py LODE MODEL [--ram SIZE] [-n TOKENS] [--trace FILE] [--prefault]

The plan is asked before and after the run, so that it has the speeds of the same minute.  --trace: a
recording of the same tokens (`lode trace record MODEL -p 'The quick brown fox' -n TOKENS`), for a mixture
whose experts are streamed: random weights are not routed to as trained ones are.  --prefault: the plan
is of a program that has its memory already; a virtual machine may get it from its host only when it is
used, at a tenth of a disk's speed.

A plan says tokens/s with nothing in the context and with all of it; what is held against the run is what
lies between them for the answer's mean position.  The answer goes to a file, as who reads a pipe takes
time from the run's threads, and where nothing is streamed no profile is written, which a model of a few MB
would notice (4,300 tokens/s for 5,000).
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

ap = argparse.ArgumentParser()
ap.add_argument('lode')
ap.add_argument('model')
ap.add_argument('--ram')
ap.add_argument('-n', type=int, default=100)
ap.add_argument('--trace')
ap.add_argument('--prefault', action='store_true')
o = ap.parse_args()
CTX = 512
SHARED = [o.model, '--device', 'cpu', '-c', str(CTX)] + (['--ram', o.ram] if o.ram else [])


def call(*args, stdout=subprocess.PIPE):
    r = subprocess.run([o.lode, *args], stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE)
    if r.returncode:
        sys.exit(r.stderr.decode())
    return r


def plan():
    return json.loads(call('plan', *SHARED, '--json', *(['--trace', o.trace] if o.trace else [])).stdout)


def tokens_per_second(p, position):
    empty, full = (1 / p[k] for k in ('tokens_per_second', 'tokens_per_second_full'))
    return 1 / (empty + (full - empty) * position / CTX)


before = plan()
streamed = before['disk']['read'] > 0
with tempfile.TemporaryDirectory() as t:
    path = os.path.join(t, 'steps.json')
    with open(os.path.join(t, 'answer'), 'wb') as answer:
        r = call('run', *SHARED, '-p', 'The quick brown fox', '--raw', '-n', str(o.n), '--temp', '0', '--ignore-eos',
                 '--stats', *(['--profile-tokens', path] if streamed else []), *(['--prefault'] if o.prefault else []),
                 stdout=answer)
    steps = []
    if streamed:
        with open(path) as f:
            steps = [json.loads(line) for line in f]
after = plan()
prompt, measured = re.search(rb'prompt (\d+) tokens.*answer \d+ tokens, ([\d.]+) tokens/s', r.stderr).groups()
measured = float(measured)
said = [tokens_per_second(p, int(prompt) + o.n / 2) for p in (before, after)]
print('%s %s: predicted %.3g, %.3g; measured %.3g; measured / mean %.2f' %
      (o.model.split('/')[-1], o.ram or '', *said, measured, measured / (sum(said) / 2)))
print('  memory %.1f, %.1f GB/s; products %.1f, %.1f; disk %.2f, %.2f' %
      (*(p['ram_bytes_per_second'] / 1e9 for p in (before, after)),
       *(p['multiply_bytes_per_second'] / 1e9 for p in (before, after)),
       *(p['disk_bytes_per_second'] / 1e9 for p in (before, after))))
if not streamed:
    sys.exit()
answer = [s for s in steps if s['tokens'] == 1]  # what the prompt read is not of the answer's tokens
total = {k: sum(s[k] for s in answer) for k in ('seconds', 'waited', 'uses', 'hits', 'bytes', 'guessed')}
n = len(answer)
print('  a token: %.1f ms, of these waiting %.1f (%s planned); from disk %.0f MB (%.0f without guesses planned); hit rate %.3f (%.3f)' %
      (1e3 * total['seconds'] / n, 1e3 * total['waited'] / n,
       '%.1f' % (1e3 * before['seconds_waited']) if 'seconds_waited' in before else 'not', total['bytes'] / n / 1e6,
       before['disk']['read'] / 1e6,
       (total['hits'] - total['guessed']) / total['uses'] if total['uses'] else 1, before['hit_rate']))
