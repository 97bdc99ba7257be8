#!/usr/bin/env python3
"""`lode plan`: its memory against what then happens, its refusals, and models that run as planned.

    tests/verb_plan.py PROGRAM [--table MODEL...]

A program's memory is its peak resident size, over a run that uses what is planned: a full context, logits
of every position.  It is within 3 % of the plan, and of a budget (--ram) at most 2 % are exceeded, and in both
by no more than a tenth of the program's own files (lodetest.code_pages).  Two
threads, for a machine of many would spread them thinly over work memory that is planned for each.

Noise: a fault of a page of a file maps up to 15 around it, in a window that the addresses' randomness
moves over the file, so program and plan vary by a few windows of 64 KiB each; over the same models both
stay within 0.7 % of their means, which differ by -0.6 to +0.4 %.

Sanitizers have memory of their own: with LODE_SANITIZED set, sizes are not compared.
--table prints the comparison as a table for bench/measured/memory.md instead.
"""
import fcntl
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import termios
import time

from lodetest import SHARED, code_pages

PROGRAM = sys.argv[1]
MODELS = os.path.join(SHARED, 'models')
EXACT = not os.environ.get('LODE_SANITIZED')
MORE = 0 if EXACT else 44  # MiB: a sanitizer's program is so much larger
THREADS = '-t', '2'
HELD = 128 << 10  # of the logits: more than a pipe takes, so that the program waits
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
    r = run('plan', model, '--json', '--no-bandwidth', '--device', 'cpu', *THREADS, *args)
    return r.returncode, json.loads(r.stdout) if r.stdout else None


def told(pid, file, key):
    with open('/proc/%d/%s' % (pid, file)) as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith(key))


def look(p):
    """Bytes that the program holds, when the last rows that it computed are in the pipe, and those of its code."""
    there = bytearray(4)
    while p.poll() is None:
        fcntl.ioctl(p.stdout, termios.FIONREAD, there)
        if int.from_bytes(there, sys.byteorder) >= HELD // 4:
            return max(told(p.pid, 'smaps_rollup', 'Rss:'), told(p.pid, 'status', 'VmHWM:')), code_pages(p.pid)
        time.sleep(0.001)
    return 0, 0


def peak(model, n, *args):
    """Evaluates n tokens, all logits: -> (exit status, bytes at most, those of its code, a digest of the logits).

    They go through a pipe, and the program is looked at while it waits for the last of them to be taken:
    then it has used all, and the sum over its pages is exact.  What the system tells after a program's
    end is added up from counters of each CPU, which may lack some pages of each."""
    with tempfile.NamedTemporaryFile('w') as f:
        f.write(','.join(str(i * 5 % 8000) for i in range(n)))  # every expert comes
        f.flush()
        p = subprocess.Popen([PROGRAM, 'logits', model, '--ids', '@' + f.name, '-o', '/dev/stdout',
                              '--all', '--device', 'cpu', *THREADS, *args],
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, bufsize=0)
        digest, size, code = hashlib.sha256(), 0, 0
        head = p.stdout.read(10)
        if len(head) == 10:
            shape = p.stdout.read(int.from_bytes(head[8:], 'little'))
            rows, columns = map(int, re.search(rb'\((\d+), (\d+)\)', shape).groups())
            left = rows * columns * 4 - HELD
            while left > 0 and (piece := p.stdout.read(min(left, 1 << 20))):
                digest.update(piece)
                left -= len(piece)
            size, code = look(p)
            while piece := p.stdout.read(1 << 20):
                digest.update(piece)
        return p.wait(), size, code, digest.hexdigest()


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


def unused(p):
    """A recurrent state has four checkpoints beside it.  A prompt keeps one, of its last step, and
    writes each beside the one before."""
    return sum(r['ram'] for r in p['rows'] if r['name'] == 'recurrent state') * 2 // 5


def compare(name, model, n, ram, whole=None):
    args = ['-c', str(n)] + (['--ram', ram, '-b', '512'] if ram else [])  # a smaller batch leaves room for all
    status, p = plan(model, *args)
    check('%s %s fits' % (name, ram), status == 0 and p['fits'], p and p['advice'])
    adds_up(name, p)
    status, size, code, logits = peak(model, n, *args)
    check('%s %s runs' % (name, ram), status == 0)
    if EXACT:
        off = p['ram']['size'] - unused(p) - size
        check('%s %s as planned' % (name, ram), abs(off) < 0.03 * size + 0.1 * code, '%+d of %d' % (off, size))
        check('%s %s budget kept' % (name, ram), not ram or size < 1.02 * p['ram']['budget'] + 0.1 * code,
              '%d bytes of %d, %d of them code' % (size, p['ram']['budget'], code))
    check('%s %s same bits' % (name, ram), whole is None or logits == whole)
    return p, logits


def batches():
    """Larger ones than a session's are for experts that are streamed, for one sequence, and for buffers that are
    small beside the cache, which this model's are not; what is named stays.  What nobody named gives way to weights
    that would be streamed otherwise, and the program does as planned."""
    model = os.path.join(MODELS, 'moe', 'moe-Q4_K_M.gguf')
    args = '-c', '2048', '--ram', '%dM' % (38 + MORE)  # 1.8 MB more than it takes: the program's own pages are 0.3 more or less
    plans = [plan(model, *args, *more)[1] for more in ((), ('-b', '64'), ('-b', '600'))]
    check('batches', [p['batch'] for p in plans] == [512, 64, 600], [p['batch'] for p in plans])
    for name, part in ('moe/moe-Q4_K_M.gguf', 'expert_cache'), ('demo/demo-Q4_K_M.gguf', 'layer_cache'):
        model = os.path.join(MODELS, name)
        ram = plan(model, '-c', '2048', '-b', '64')[1]['ram']['size'] + ((1 if EXACT else 8) << 20)
        p, q = (plan(model, '-c', '2048', '--ram', str(ram), *more)[1] for more in ((), ('-b', '512')))
        check('a batch gives way to weights', p['fits'] and p['batch'] < 512 and not p[part], p)
        check('not one that was named', q['batch'] == 512 and (q[part] or not q['fits']), q)
        r = run('plan', model, '--no-bandwidth', '-c', '2048', '--ram', str(ram))
        check('the plan says so', b', prompts %d tokens at a time' % p['batch'] in r.stdout, r.stdout)
        r = run('run', model, '--ram', str(ram), '-c', '2048', '-p', 'Who?', '-n', '3')
        check('the program too', r.returncode == 0 and b'%d tokens at a time' % p['batch'] in r.stderr and
              b'each token reads' not in r.stderr and b'are read when' not in r.stderr, r.stderr)


def least_for(model, *flags):
    """MiB that a refusal says are enough."""
    return int(re.search(r'--ram (\d+)M is the least', plan(model, '--ram', '1', *flags)[1]['advice'])[1])


def gives_way():
    """Where not even the streamed model fits, the batch is cut, then the context; what is named is not."""
    model = os.path.join(MODELS, 'moe', 'moe-Q4_K_M.gguf')
    rooms = ['%dM' % least_for(model, *named) for named in (('-c', '2048', '-b', '128'), ('-c', '256', '-b', '64'))]
    plans = [plan(model, '--ram', ram) for ram in rooms]
    check('gives way', all(s == 0 and p['fits'] for s, p in plans), [p['advice'] for _, p in plans])
    (_, some), (_, least) = plans
    check('the batch first', 64 <= some['batch'] < 512 and some['ctx'] == 2048, (some['batch'], some['ctx']))
    check('then the context', least['batch'] <= 64 and least['ctx'] < 2048, (least['batch'], least['ctx']))
    p = plan(model, '--ram', rooms[0], '-c', '2048')[1]
    check('beside a context that is named', p['fits'] and p['ctx'] == 2048 and p['batch'] < 512, p)
    status, p = plan(model, '--ram', rooms[0], '-b', '512', '-c', '1024')
    check('not what is named', status == 1 and p['batch'] == 512 and p['ctx'] == 1024, p)
    said = [run('run', model, *ram, '-p', 'What is the capital of Portugal?', '--temp', '0', '-n', '12')
            for ram in ([], ['--ram', rooms[0]], ['--ram', rooms[1]])]
    check('the same answer', all(r.returncode == 0 and r.stdout == said[0].stdout for r in said), [r.stderr for r in said])


def fewer_experts():
    """Answers are others then, which is said once, whatever is done with the model."""
    model = os.path.join(MODELS, 'moe', 'moe-Q4_K_M.gguf')
    for verb in ('plan', '--no-bandwidth'), ('run', '-p', 'Who?', '-n', '1'), ('logits', '--ids', '1'):
        said = [run(verb[0], model, *verb[1:], '--experts', k).stderr for k in ('2', '4')]
        check('fewer experts', [s.count(b'each token uses 2 experts of a layer, 4 in training') for s in said] == [1, 0], said)


def refusals():
    model = os.path.join(MODELS, 'demo', 'demo-bf16.gguf')
    status, p = plan(model, '--ram', '40M', '-c', '2048')
    check('refused plan', status == 1 and not p['fits'] and '--ram' in p['advice'])
    r = run('logits', model, '--ids', '1,2', '--ram', '20M')
    check('refused run', r.returncode == 1 and re.search(
        rb'--ram: there are 21.0 MB; all of the model in memory takes .* MB with a context of \d+, and --ram \d+M is the '
        rb'least for these settings, with layers read from the disk as they are used: \d+ MiB more', r.stderr), r.stderr)
    mixture = os.path.join(MODELS, 'moe', 'moe-Q4_K_M.gguf')
    r = run('logits', mixture, '--ids', '1', '-c', '256', '-b', '64', '--ram', '12M')
    whole = plan(mixture, '-c', '256', '-b', '64')[1]['ram']['size'] / 1e6
    said = float(re.search(rb'in memory takes ([\d.]+) MB', r.stderr)[1])
    check('what all takes, experts too', r.returncode == 1 and abs(said / whole - 1) < 0.05, (said, whole))
    least = p['advice'].split()[1]
    check('the least that is said is enough', plan(model, '--ram', least, '-c', '2048')[0] == 0)
    below = '%dM' % (int(least[:-1]) - 3)
    check('and a little less is not', plan(model, '--ram', below, '-c', '2048')[0] == 1)
    for flag, word in (('--ram=0', b'leaves room for nothing'), ('--ram=-1', b'not a size'), ('--ram=abc', b'not a size'),
                       ('--ram=150%', b'not a size'), ('--ram=0.2', b'leaves room for nothing'), ('-c=99999999999', b'whole number'), ('--kv=bogus', b'not one of'),
                       ('--parallel=0', b'whole number')):
        r = run('plan', model, '--no-bandwidth', *flag.split('='))
        check('refused ' + flag, r.returncode in (1, 2) and word in r.stderr and not r.stdout, r.stderr)
    status, p = plan(model, '--ram', '1e-12%')
    check('a share of next to nothing is a budget', status == 1 and not p['fits'] and p['ram']['budget'] == 1)
    status, p = plan(model, '--ram', '1000T')
    check('no more than is free', status == 0 and p['ram']['budget'] < 1 << 49 and 'free' in p['advice'], p['advice'])
    status, p = plan(model, '-c', '200000000')
    check('more than any machine has', status == 1 and 'than are free' in p['advice'] and 'q8_0' in p['advice'],
          p['advice'])
    wide, narrow = (sum(r['ram'] for r in plan(model, *a)[1]['rows'] if r['name'] == 'KV cache')
                    for a in ((), ('--kv', 'q8_0')))
    check('--kv is for keys and values', 32 * narrow == 17 * wide, '%d, %d' % (wide, narrow))
    r = run('plan', model, '-ot', 'exps=CUDA7', '--no-bandwidth')
    check('no such device', r.returncode == 1 and b'no such device' in r.stderr, r.stderr)
    r = run('plan', model, '-ot', 'exps', '--no-bandwidth')
    check('no pattern', r.returncode == 1 and b'PATTERN=DEVICE' in r.stderr, r.stderr)
    r = run('plan', model, '-ot', 'exps=CPU', '--cpu-moe', '--device', 'cpu', '--no-bandwidth')
    check('all on the CPU', r.returncode == 0, r.stderr)
    for verb in ('plan', '--no-bandwidth'), ('logits', '--ids', '1'):
        for flag, more in (('-ngl', ['99']), ('--vram', ['1G']), ('--cpu-moe', []), ('-ts', ['3,1'])):
            r = run(verb[0], model, '--device', 'cpu', flag, *more, *verb[1:])
            check('nothing for a GPU: ' + flag, r.returncode == 0 and (flag + ' is for GPUs').encode() in r.stderr and
                  r.stderr.count(b'\n') == 1, r.stderr)
        r = run(verb[0], model, '-c', '70000', *verb[1:])
        check('a longer context than it knows', r.returncode == 0 and b'longer than the 2048' in r.stderr, r.stderr)
    r = run('plan', model, '--hot-experts', 'x', '--no-bandwidth', '--profile')
    check('no part in a plan', r.returncode == 0 and b'--hot-experts has no part' in r.stderr and
          b'--profile has no part' in r.stderr, r.stderr)
    r = run('logits', model, '--ids', '1', '--ram', '1G', '--layer-cache', '1M')
    check('two budgets', r.returncode == 1 and b'--layer-cache' in r.stderr, r.stderr)


def direct():
    """Each weight that is read past the page cache comes with what is around it in the file."""
    model = os.path.join(SHARED, 'ref', 'arch', 'exaone4_swa', 'model.gguf')  # of many small ones
    whole, padded = (sum(r['ram'] for r in plan(model, '-c', '256', *more)[1]['rows'] if r['name'].startswith('program'))
                     for more in ((), ('--direct',)))
    check('--direct', not EXACT or 4e6 < padded - whole < 8e6, padded - whole)


def layers_beside():
    """The CPU's layers come from the disk while a device has others; a second CPU stands in for it."""
    model = os.path.join(MODELS, 'demo', 'demo-bf16.gguf')
    args = ['-c', '512', '-b', '64', '--device', 'cpu,cpu', '-ngl', '4']
    whole = plan(model, *args)[1]
    ram = whole['ram']['size'] - whole['layers_size'] // 4
    status, p = plan(model, *args, '--ram', str(ram))
    check('layers beside a device', status == 0 and p['fits'] and p['gpu_layers'] == 4 and
          p['layer_cache_least'] <= p['layer_cache'] < p['layers_size'] < plan(model)[1]['layers_size'], p)
    adds_up('layers beside a device', p)
    logits = [peak(model, 64, '-c', '512', *a)[3] for a in ([], [*args, '--ram', str(ram)])]
    check('the same bits beside a device', logits[0] == logits[1])


def bringing():
    """Of long prompts a device computes the host's layers too, with as much brought as they have of matrices."""
    model = os.path.join(MODELS, 'demo', 'demo-bf16.gguf')
    args = '-c', '512', '--device', 'cpu,cpu', '--bring-rows', '9'
    for n in 1, 3:
        _, p = plan(model, *args, '-ngl', str(n))
        matrices = sum(r['ram'] for r in p['rows'] if r['name'] in ('attention', 'feed-forward'))
        check('what is brought', p['brings'] and 0.98 < p['bring_size'] / matrices <= 1, p)
    for more in ('-ngl', '3', '-nopo'), ('-ngl', '99'):
        _, p = plan(model, *args, *more)
        check('nothing is brought', not p['brings'] and p['bring_size'] == 0, p)


def pace():
    """Of memory and products the slower counts, unless the cache holds the model; of another machine's memory only that."""
    model = os.path.join(MODELS, 'demo', 'demo-Q4_K_M.gguf')
    for more in [], ['--ram-speed', '10G']:
        r = run('plan', model, '--json', '--device', 'cpu', '-c', '512', '--disk-speed', '1G', *THREADS, *more)
        p = json.loads(r.stdout)
        reads, products, weights = (p[k + '_bytes_per_second'] for k in ('ram', 'multiply', 'weights'))
        check('products are measured', products == 0 if more else products > 1e7, p)
        check('how fast weights are', abs(weights / (0.75 * reads) - 1) < 1e-6 if more else
              weights > 1e6 if p['cached'] else abs(weights / min(0.85 * reads, products) - 1) < 1e-6, p)
        check('what else there is', p['seconds_besides'] == 0 if p['cached'] else
              p['seconds_besides'] >= (1 - 1e-7) * p['forks'] * p['fork_seconds'], p)
        said = p['ram']['read'] / weights + p['seconds_besides']
        check('what a token takes', abs(said * p['tokens_per_second'] - 1) < 1e-3, p)


def traces():
    """What `trace record` writes has guesses, and replay and plan say what they bring, in time."""
    model = os.path.join(MODELS, 'moe', 'moe-Q4_K_M.gguf')
    with tempfile.TemporaryDirectory() as t:
        trace, text = os.path.join(t, 'a.trace'), os.path.join(MODELS, 'books.txt')
        r = run('trace', 'record', model, '-f', text, '-o', trace, *THREADS)
        check('trace record', r.returncode == 0, r.stderr)
        speeds = '--ram-speed', '10G', '--disk-speed', '1G'
        r = run('trace', 'replay', trace, '--sizes', '50%', '--json', *speeds)
        for cell in json.loads(r.stdout)['traces'][0]['sizes']:
            g = cell.get('guesses')
            check('replay ' + cell['policy'], g is None if cell['policy'] == 'belady' else
                  g['hit_rate'] > cell['hit_rate'] and g['guessed'] <= g['hits'] and
                  g['bytes_wrong'] < g['bytes_read'] and g['tokens_per_second'] > 0, cell)
        other = os.path.join(t, 'other.trace')
        run('trace', 'synth', other, '--layers', '3', '--experts', '32', '--tokens', '20')
        empty = os.path.join(t, 'empty.trace')
        with open(trace, 'rb') as f, open(empty, 'wb') as g:
            head = f.read(40).replace(b'LODETRS4', b'LODETRC3')  # which had no checksum
            g.write(head + f.read(3 * 9 + int.from_bytes(head[20:24], 'little')) + bytes(8))  # none follow
        for file, word in (other, 'another model'), (empty, 'no tokens'), ('missing.trace', 'no such file'):
            if file != other:
                r = run('trace', 'replay', file, '--json')
                check('nothing is said before it: ' + word, r.returncode == 1 and not r.stdout, r.stdout)
            r = run('plan', model, '--trace', file, '--no-bandwidth')
            check('plan --trace ' + word, r.returncode == 1 and word in r.stderr.decode() and
                  os.path.basename(file) in r.stderr.decode() and not r.stdout, r.stderr)
        r = run('trace', 'replay', empty, '--json', *speeds)
        check('replay of nothing', r.returncode == 1 and b'no tokens' in r.stderr, r.stderr)
        with open(trace, 'rb') as f, open(other, 'wb') as g:
            g.write(f.read()[:-8].replace(b'LODETRS4', b'LODETRC3'))
        r = run('trace', 'replay', other, '--sizes', '50%', *speeds)
        check('a trace without a checksum', r.returncode == 0 and b'has no checksum' in r.stderr, r.stderr)
        with open(other, 'r+b') as f:
            f.write(b'LODETRS4')
        r = run('plan', model, '--trace', other, '--no-bandwidth')
        check('one that was cut', r.returncode == 1 and b'record it again' in r.stderr, r.stderr)
        whole = plan(model, '-c', '2048')[1]
        # (a named batch: a smaller one would leave room for all)
        half = whole['ram']['size'] - whole['experts_size'] // 2
        _, p = plan(model, '--ram', str(half), '-c', '2048', '-b', '512', '--trace', trace, *speeds)
        check('plan --trace', p['expert_cache'] and p['hit_rate_with_guesses'] > p['hit_rate'] > 0 and
              p['seconds_waited'] > 0 and p['tokens_per_second'] * p['seconds_waited'] < 1, p)


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
            _, size, _, _ = peak(model, int(n), *args)
            print('| %s | %.1f MB | %.1f MB | %.1f MB | %+.1f %% |' % (
                os.path.relpath(model, MODELS) if model.startswith(MODELS) else os.path.basename(model),
                ram / 1e6, q['ram']['size'] / 1e6, size / 1e6,
                100 * ((q['ram']['size'] - unused(q)) / size - 1)))


if '--table' in sys.argv:
    table(sys.argv[sys.argv.index('--table') + 1:])
    sys.exit(0)
if not os.path.isdir(MODELS):
    print('skipped: no %s' % MODELS)
    sys.exit(77)
warm(PROGRAM)
for name, budgets in (('moe/hf', ('42M', '36M')), ('hybrid/hf', ('38M',)),
                      ('demo/demo-bf16.gguf', ('120M', '66M'))):
    model = os.path.join(MODELS, name)
    warm(model)
    _, logits = compare(name, model, 1024, None)
    for ram in budgets:
        compare(name, model, 1024, '%dM' % (int(ram[:-1]) + MORE), logits)
refusals()
fewer_experts()
batches()
direct()
gives_way()
if EXACT:  # a sanitizer's own memory is more than a layer's
    layers_beside()
bringing()
pace()
traces()
print('%d passed, %d failed' % (passed, failed))
sys.exit(failed > 0)
