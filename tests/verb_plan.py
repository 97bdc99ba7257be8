#!/usr/bin/env python3
"""`lode plan`: its memory against what then happens, its refusals, and models that run as planned.

    tests/verb_plan.py PROGRAM [--table MODEL...]

A program's memory is its peak resident size, over a run that uses all of what is planned: a full
context, logits of every position.  It is within 3 % of the plan, and of a budget (--ram) at most 2 %
are exceeded.  Sanitizers have memory of their own: with LODE_SANITIZED set, sizes are not compared.
--table prints the comparison as a table for bench/README.md instead.
"""
import hashlib
import json
import os
import subprocess
import sys
import tempfile

from lodetest import SHARED

PROGRAM = sys.argv[1]
MODELS = os.path.join(SHARED, 'models')
EXACT = not os.environ.get('LODE_SANITIZED')
passed = failed = 0


def check(name, ok, detail=''):
    global passed, failed
    passed += bool(ok)
    failed += not ok
    if not ok:
        print('FAILED %s %s' % (name, detail))


def run(*args):
    return subprocess.run([PROGRAM, *args], stdin=subprocess.DEVNULL, timeout=300,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def plan(model, *args):
    """-> (exit status, the JSON)."""
    r = run('plan', model, '--json', '--no-bandwidth', '--device', 'cpu', *args)
    return r.returncode, json.loads(r.stdout) if r.stdout else None


def peak(model, n, *args):
    """Evaluates n tokens, all logits: -> (exit status, bytes at most, a digest of the logits).

    The peak that the system tells counts what this process had when it forked: it stays small."""
    with tempfile.TemporaryDirectory() as t:
        with open(t + '/ids', 'w') as f:
            f.write(','.join(str(i * 7919 % 8000) for i in range(n)))
        p = subprocess.Popen([PROGRAM, 'logits', model, '--ids', '@' + t + '/ids', '-o',
                              t + '/x.npy', '--all', '--device', 'cpu', *args],
                             stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, status, use = os.wait4(p.pid, 0)
        p.returncode = os.waitstatus_to_exitcode(status)
        digest = hashlib.sha256()
        if p.returncode == 0:
            with open(t + '/x.npy', 'rb') as f:
                for piece in iter(lambda: f.read(1 << 20), b''):
                    digest.update(piece)
        return p.returncode, use.ru_maxrss * 1024, digest.hexdigest()


def warm(model):
    """A fault maps what the page cache has around it, and counts it: so that it has all."""
    files = [os.path.join(model, f) for f in os.listdir(model)] if os.path.isdir(model) else [model]
    for path in files:
        with open(path, 'rb') as f:
            while f.read(1 << 20):
                pass


def adds_up(name, p):
    for rung in 'vram', 'ram', 'disk':
        check(name + ' sums', p[rung]['size'] == sum(r[rung] for r in p['rows']))
    if EXACT:  # how much a sanitizer takes changes while it is counted
        check(name + ' budget', not p['fits'] or p['ram']['size'] <= p['ram']['budget'])


def compare(name, model, n, ram, whole=None):
    args = ['-c', str(n)] + (['--ram', ram] if ram else [])
    status, p = plan(model, *args)
    check('%s %s fits' % (name, ram), status == 0 and p['fits'], p and p['advice'])
    adds_up(name, p)
    status, size, logits = peak(model, n, *args)
    check('%s %s runs' % (name, ram), status == 0)
    if EXACT:
        off = p['ram']['size'] / size - 1
        check('%s %s as planned' % (name, ram), abs(off) < 0.03, '%+.2f %%' % (100 * off))
        check('%s %s budget kept' % (name, ram), not ram or size < 1.02 * p['ram']['budget'])
    check('%s %s same bits' % (name, ram), whole is None or logits == whole)
    return p, logits


def refusals():
    model = os.path.join(MODELS, 'demo', 'demo-bf16.gguf')
    status, p = plan(model, '--ram', '40M', '-c', '2048')
    check('refused plan', status == 1 and not p['fits'] and '--ram' in p['advice'])
    r = run('logits', model, '--ids', '1,2', '--ram', '20M')
    check('refused run', r.returncode == 1 and b'--ram' in r.stderr, r.stderr)
    least = p['advice'].split()[1]
    check('the least that is said is enough', plan(model, '--ram', least, '-c', '2048')[0] == 0)
    below = '%dM' % (int(least[:-1]) - 3)
    check('and a little less is not', plan(model, '--ram', below, '-c', '2048')[0] == 1)
    r = run('plan', model, '-ot', 'exps=CUDA7', '--no-bandwidth')
    check('no such device', r.returncode == 1 and b'no such device' in r.stderr, r.stderr)
    r = run('plan', model, '-ot', 'exps', '--no-bandwidth')
    check('no pattern', r.returncode == 1 and b'PATTERN=DEVICE' in r.stderr, r.stderr)
    r = run('plan', model, '-ot', 'exps=CPU', '--cpu-moe', '--device', 'cpu', '--no-bandwidth')
    check('all on the CPU', r.returncode == 0, r.stderr)


def table(models, n='256'):
    print('| model | budget | planned | peak | difference |\n| --- | --- | --- | --- | --- |')
    for model in models:
        _, p = plan(model, '-c', n)
        for share in 1, 0.75, 0.5, 0.35:
            ram = int(share * p['ram']['size']) + (1 << 20)
            args = ['-c', n, '--ram', str(ram)]
            status, q = plan(model, *args)
            if status:
                continue
            _, size, _ = peak(model, int(n), *args)
            print('| %s | %.1f MB | %.1f MB | %.1f MB | %+.1f %% |' % (
                os.path.relpath(model, MODELS) if model.startswith(MODELS) else os.path.basename(model), ram / 1e6, q['ram']['size'] / 1e6, size / 1e6,
                100 * (q['ram']['size'] / size - 1)))


if '--table' in sys.argv:
    table(sys.argv[sys.argv.index('--table') + 1:])
    sys.exit(0)
if not os.path.isdir(MODELS):
    print('skipped: no %s' % MODELS)
    sys.exit(77)
for name, budgets in (('moe/hf', ('42M', '36M')), ('hybrid/hf', ('38M',)),
                      ('demo/demo-bf16.gguf', ('120M', '66M'))):
    model = os.path.join(MODELS, name)
    warm(model)
    _, logits = compare(name, model, 1024, None)
    for ram in budgets:
        more = 0 if EXACT else 32  # a sanitizer's program is so much larger
        compare(name, model, 1024, '%dM' % (int(ram[:-1]) + more), logits)
refusals()
print('%d passed, %d failed' % (passed, failed))
sys.exit(failed > 0)
