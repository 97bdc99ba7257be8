#!/usr/bin/env python3
"""`lode pack`: the same logits bit by bit from source and result, whole or with room for some of the
experts; killing it, filling its disk and breaking it at every call; damaged records; its complaints.

    tests/verb_pack.py PROGRAM IOFAULT     IOFAULT: tests/iofault.c, built
"""
import filecmp
import glob
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile

from lodetest import LONG, SHARED, TESTS, Count, logits_bytes

PROGRAM, SHIM = sys.argv[1], sys.argv[2]
count = Count()
FILES = 'manifest.json keys.gguf weights.bin'.split()
IDS = [(7 * i * i + 3 * i) % 250 for i in range(40)]


def run(*args, fault=None, **more):
    env = dict(os.environ)
    if fault:
        env.update(LD_PRELOAD=SHIM, IOFAULT=fault, ASAN_OPTIONS='verify_asan_link_order=0:detect_leaks=0')
    return subprocess.run([PROGRAM, *args], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          env=env, timeout=300, **more)


def pack(source, to, fault=None):
    return run('pack', source, '-o', to, fault=fault)


def experts_of(folder):
    """-> bytes of the largest record, of all."""
    with open(folder + '/manifest.json') as f:
        lists = json.load(f)['experts']
    return max(x['step'] for x in lists), sum(x['step'] * len(x['xxh3']) for x in lists)


def same_logits(source, packed, ids, shares):
    whole = logits_bytes(PROGRAM, source, ids)
    count.check(logits_bytes(PROGRAM, packed, ids) == whole, packed + ': mapped')
    least, most = experts_of(packed)
    for share in shares:
        room = max(least, int(most * share))
        for model, room, more in (packed, room, []), (source, room + 3 * 4096, ['-b', '7']):
            count.check(logits_bytes(PROGRAM, model, ids, '--expert-cache', str(room), *more) == whole,
                        '%s: room for %.0f %% of the experts' % (model, 100 * share))


def check_sources(t):
    for name in 'arch/qwen3_moe arch/gpt_oss_trunc arch/deepseek_v3 arch/qwen3_5_moe'.split():
        source = os.path.join(TESTS, 'data', name, 'model.gguf')
        if not os.path.exists(source):
            continue
        to = t + '/' + os.path.basename(name)
        r = pack(source, to)
        count.check(r.returncode == 0 and 'experts' in r.stdout, 'pack ' + name + ': ' + r.stderr)
        same_logits(source, to, IDS, (0, 0.3, 1))
    for name in 'moe/hf', 'moe/moe-Q4_K_M.gguf', 'hybrid/hf':
        source = os.path.join(SHARED, 'models', name)
        if not os.path.exists(source):
            count.skip(name + ' is not here')
            continue
        to = t + '/' + name.replace('/', '-')
        r = pack(source, to)
        count.check(r.returncode == 0, 'pack ' + name + ': ' + r.stderr)
        same_logits(source, to, [(131 * i) % 8000 for i in range(60)], (0.05, 0.1, 0.25, 0.5, 0.75, 1))


def check_faults(t, source, clean):
    r = pack(source, t + '/counted', fault='COUNT')
    n = int(r.stderr.split('iofault: ')[1].split()[0])
    count.check(r.returncode == 0 and n > 20, 'a pack makes %d calls' % n)
    ks = range(1, n + 1) if LONG else sorted({*range(1, n, 1 + n // 8), 2, 3, n - 2, n - 1, n})
    for how in 'KILL', 'ENOSPC', 'EIO', 'SHORT':
        wrong = []
        for k in ks:
            to = '%s/%s-%d' % (t, how, k)
            r = pack(source, to, fault='%s:%d' % (how, k))
            # without room set aside, or with its journal left, a pack may still be whole
            ended = r.returncode == -9 if how == 'KILL' else r.returncode in (0, 1)
            said = how in ('KILL', 'SHORT') or r.returncode == 0 or to in r.stderr
            whole = os.path.exists(to + '/manifest.json')
            if not whole:
                # before its manifest it is no model
                r = run('logits', to, '--ids', '1', '-o', t + '/x.npy')
                said = said and r.returncode == 1
                r = pack(source, to)
                said = said and r.returncode == 0
            good = ended and said and all(filecmp.cmp(to + '/' + f, clean + '/' + f, False) for f in FILES)
            if not good:
                wrong.append((k, ended, said, r.stderr.strip()))
            shutil.rmtree(to, ignore_errors=True)
        count.check(not wrong, '%s at %d of %d calls: %s' % (how, len(ks), n, wrong[:3]))
    said = [pack(source, t + '/no room', fault='ENOSPC:%d' % k).stderr for k in (1, 2, 3)]
    count.check(any(re.search(r'takes [0-9]+\.[1-9] MB, and the disk has [0-9.]+ left', x) for x in said), said)
    # it goes on where it was
    to = t + '/resumed'
    pack(source, to, fault='KILL:%d' % (n * 2 // 3))
    r = run('inspect', to)
    count.check(r.returncode == 1 and 'not finished' in r.stderr, 'a killed pack is no model: ' + r.stderr)
    r = pack(source, to)
    count.check('from an earlier start' in r.stderr, 'a killed pack goes on: ' + r.stderr)
    r = pack(source, to)
    count.check(r.returncode == 1 and 'already' in r.stderr, 'a second pack is refused: ' + r.stderr)


def check_restarts(t):
    """What was written is only gone on from where source and directory are what they were."""
    source, to = t + '/source', t + '/restarted'
    shutil.copytree(os.path.join(TESTS, 'data', 'arch/qwen2_moe/hf'), source)
    n = int(pack(source, t + '/calls', fault='COUNT').stderr.split('iofault: ')[1].split()[0])

    def killed():
        shutil.rmtree(to, ignore_errors=True)
        pack(source, to, fault='KILL:%d' % (n * 2 // 3))
        return os.path.getsize(to + '/pack.journal') > 40

    def as_new(what):
        shutil.rmtree(t + '/fresh', ignore_errors=True)
        good = pack(source, t + '/fresh').returncode == 0
        r = pack(source, to)
        count.check(good and r.returncode == 0 and 'earlier start' not in r.stderr and
                    all(filecmp.cmp(to + '/' + f, t + '/fresh/' + f, False) for f in FILES), what + ': ' + r.stderr)

    begun = killed()
    with open(source + '/model.safetensors', 'r+b') as f:
        size = int.from_bytes(f.read(8), 'little')
        data = f.read(size) and f.read()
        f.seek(8 + size)
        f.write(data[len(data) // 2:] + data[:len(data) // 2])  # other numbers, all else the same
    as_new('a directory that was changed meanwhile')
    begun = killed() and begun
    os.truncate(to + '/weights.bin', 4096)
    as_new('weights.bin was cut meanwhile')
    begun = killed() and begun
    os.unlink(to + '/weights.bin')
    as_new('weights.bin was removed meanwhile')
    count.check(begun, 'what was killed had begun')


def check_places(t, source):
    """Where a model may be packed to."""
    folder = t + '/with a space, übel'
    os.mkdir(folder)
    r = pack(source, folder)
    count.check(r.returncode == 0 and run('pack', folder, '--check').returncode == 0, 'an odd name: ' + r.stderr)
    for name, make in (('config.json', '{}'), ('model.gguf', 'GGUF')):
        other = t + '/other-' + name
        os.mkdir(other)
        with open(other + '/' + name, 'w') as f:
            f.write(make)
        r = pack(source, other)
        count.check(r.returncode == 1 and name in r.stderr and os.listdir(other) == [name],
                    'a directory of something else: ' + r.stderr)
    other = t + '/with manifest'
    shutil.copytree(os.path.join(TESTS, 'data', 'arch/qwen2_moe/hf'), other)
    for name in 'manifest.json', 'weights.bin':
        with open(other + '/' + name, 'w') as f:
            f.write('{}')
    r = run('inspect', other)
    count.check(r.returncode == 0, 'a directory of another kind with a manifest.json: ' + r.stderr)
    with open(t + '/a-file', 'w') as f:
        f.write('x')
    r = pack(source, t + '/a-file')
    count.check(r.returncode == 1 and 'a-file' in r.stderr and r.stderr.count('\n') == 1, r.stderr)


def check_damage(t, clean):
    with open(clean + '/manifest.json') as f:
        m = json.load(f)
    whole = logits_bytes(PROGRAM, clean, IDS)
    for i, l in enumerate(m['experts'][:2]):
        for e in 0, len(l['xxh3']) - 1:
            bad = t + '/bad'
            shutil.copytree(clean, bad)
            with open(bad + '/weights.bin', 'r+b') as f:
                at = l['at'] + e * l['step'] + (i * 977 + e * 131) % l['size']
                f.seek(at)
                byte = f.read(1)[0]
                f.seek(at)
                f.write(bytes([byte ^ 1 << (e % 8)]))
            least, _ = experts_of(bad)
            r = run('logits', bad, '--ids', ','.join(map(str, IDS)), '-o', t + '/x.npy', '--expert-cache', str(2 * least))
            named = 'expert %d of layer %d' % (e, l['layer'])
            used = r.returncode == 1
            count.check(named in r.stderr and 'byte %d' % (l['at'] + e * l['step']) in r.stderr and
                        'damaged' in r.stderr if used else
                        logits_bytes(PROGRAM, bad, IDS, '--expert-cache', str(2 * least)) == whole,
                        'a flipped bit in %s: %s' % (named, r.stderr))
            r = run('pack', bad, '--check')
            count.check(r.returncode == 1 and named in r.stderr, '--check: ' + r.stderr)
            shutil.rmtree(bad)
    for name, ats in ('keys.gguf', range(7, 10 ** 9, 1501)), ('manifest.json', range(5, 10 ** 9, 1097)):
        bad, said = t + '/bad', []
        shutil.copytree(clean, bad)
        with open(clean + '/' + name, 'rb') as f:
            data = f.read()
        for at in ats:
            if at >= len(data):
                break
            with open(bad + '/' + name, 'wb') as f:
                f.write(data[:at] + bytes([data[at] ^ 1]) + data[at + 1:])
            r = run('logits', bad, '--ids', '1,2', '-o', t + '/x.npy')
            if r.returncode != 1 or name not in r.stderr and 'is missing' not in r.stderr:
                said.append((at, r.returncode, r.stderr))
        count.check(not said, 'flipped bits in %s: %s' % (name, said[:2]))
        shutil.rmtree(bad)
    old = t + '/old'
    shutil.copytree(clean, old)
    with open(old + '/manifest.json') as f:
        text = f.read()
    with open(old + '/manifest.json', 'w') as f:
        f.write(text[:text.index(',\n "keys"')] + '\n}\n')
    count.check(logits_bytes(PROGRAM, old, IDS) == whole, 'a manifest without checksums of its own')
    bad = t + '/cut'
    shutil.copytree(clean, bad)
    os.truncate(bad + '/weights.bin', m['size'] - 4096)
    r = run('logits', bad, '--ids', '1', '-o', t + '/x.npy')
    count.check(r.returncode == 1 and 'manifest says' in r.stderr, 'a cut file: ' + r.stderr)


def check_sharing(t, clean):
    """Two processes over one packed model."""
    whole = logits_bytes(PROGRAM, clean, IDS)
    least, _ = experts_of(clean)
    outs = [t + '/two-%d.npy' % i for i in range(2)]
    both = [subprocess.Popen([PROGRAM, 'logits', clean, '--ids', ','.join(map(str, IDS)), '-o', out,
                              '--expert-cache', str(3 * least)], stdin=subprocess.DEVNULL) for out in outs]
    good = [p.wait(300) == 0 for p in both]
    with open(outs[0], 'rb') as a, open(outs[1], 'rb') as b:
        x, y = a.read(), b.read()
    count.check(all(good) and x == y and x.endswith(whole[2]), 'two processes share a packed model')


def check_profile(t, clean):
    """What the profile says adds up, and the list of hot experts is taken again."""
    least, most = experts_of(clean)
    whole = logits_bytes(PROGRAM, clean, IDS)
    last = None
    for i in range(2):
        x = logits_bytes(PROGRAM, clean, IDS, '-b', '1', '--expert-cache', str(most), '--profile-json',
                         t + '/p.json', '--hot-experts', t + '/hot.json')
        with open(t + '/p.json') as f:
            p = json.load(f)
        with open(t + '/hot.json') as f:
            hot = json.load(f)['experts']
        uses = sum(l['uses'] for l in p['layers'])
        hits = sum(l['hits'] for l in p['layers'])
        count.check(x == whole and p['steps'] == len(IDS) and uses == sum(h[2] for h in hot) and
                    hot == sorted(hot, key=lambda h: (-h[2], h[0], h[1])), 'profile: %d uses' % uses)
        missed = uses - hits
        if last is not None:
            count.check(missed == 0 < last, 'warm start: %d misses, %d when cold' % (missed, last))
        last = missed
    r = run('logits', clean, '--ids', '1', '-o', t + '/x.npy', '--expert-cache', str(most), '--profile-json', '/dev/full',
            '--hot-experts', t + '/kept.json')
    count.check(r.returncode == 1 and '/dev/full' in r.stderr and os.path.exists(t + '/kept.json'),
                'a full disk for the profile leaves the list: ' + r.stderr)
    with open(t + '/kept.json', 'w') as f:
        f.write('old')
    r = run('logits', clean, '--ids', '1', '--expert-cache', str(most), '--profile-json', t + '/kept.json',
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64)))
    with open(t + '/kept.json') as f:
        count.check(r.returncode == 1 and 'kept.json' in r.stderr and f.read() == 'old' and not glob.glob(t + '/kept.json.*'),
                    'a profile that has no room leaves the one before: ' + r.stderr)
    with open(t + '/hot.json', 'w') as f:
        f.write('{"experts": [[0, 1, 5], [99, 0, 1], [0, 77, 1]]}')
    count.check(logits_bytes(PROGRAM, clean, IDS, '--expert-cache', str(least), '--hot-experts',
                             t + '/hot.json') == whole, 'hot experts that there are not are passed over')
    with open(t + '/other.json', 'w') as f:
        f.write('{"experts": [[99, 0, 1], [0, 77, 1]]}')
    r = run('logits', clean, '--ids', '1', '--expert-cache', str(most), '--hot-experts', t + '/other.json')
    count.check(r.returncode == 1 and 'other.json' in r.stderr and "is another's" in r.stderr, r.stderr)
    with open(t + '/hot.json') as f:
        text = f.read()
    count.check('"of": [' in text, 'a list says of which model it is: ' + text[:80])
    with open(t + '/other.json', 'w') as f:
        f.write(text.replace('"of": [', '"of": [1'))
    r = run('logits', clean, '--ids', '1', '--expert-cache', str(most), '--hot-experts', t + '/other.json')
    with open(t + '/other.json') as f:
        kept = f.read() == text.replace('"of": [', '"of": [1')
    count.check(r.returncode == 1 and 'other.json' in r.stderr and "is another's" in r.stderr and kept,
                'a list of a model of another shape: ' + r.stderr)
    for bad in '{"of": 3, "experts": []}', '{"of": [-1, 2], "experts": []}', '{"experts": 3}', '{"experts": [[1]]}', '{"experts": [[-1, 2, 3]]}', '[', '{}':
        with open(t + '/bad.json', 'w') as f:
            f.write(bad)
        r = run('logits', clean, '--ids', '1', '--expert-cache', str(most), '--hot-experts', t + '/bad.json')
        count.check(r.returncode == 1 and 'bad.json' in r.stderr, bad + ': ' + r.stderr)


def check_steps(t, clean):
    """A line for each step, which add up to the whole; the slowest of them are named."""
    least, _ = experts_of(clean)
    for more in ['-b', '1'], ['-b', '7'], ['-b', '1', '--no-prefetch']:
        logits_bytes(PROGRAM, clean, IDS, '--expert-cache', str(3 * least), '--profile-json', t + '/p.json',
                     '--profile-tokens', t + '/steps.json', *more)
        with open(t + '/p.json') as f:
            p = json.load(f)
        with open(t + '/steps.json') as f:
            steps = [json.loads(line) for line in f]
        what, batch = ' '.join(more) + ': ', int(more[1])
        count.check([s['step'] for s in steps] == list(range(1, 1 + p['steps'])) and
                    [s['position'] for s in steps] == list(range(0, len(IDS), batch)) and
                    sum(s['tokens'] for s in steps) == p['tokens'] == len(IDS), what + '%d steps' % len(steps))
        for key in 'uses', 'hits', 'guessed', 'bytes', 'guesses', 'seconds', 'waited':
            # what is read when the last step ends arrives in none
            late = key in ('bytes', 'guesses')
            sums = [sum(s['layers'][l][key] for s in steps) for l in range(len(p['layers']))]
            count.check(len(sums) > 1 and all(a <= b[key] if late else abs(a - b[key]) < 1e-4
                                              for a, b in zip(sums, p['layers'])), what + '%s of %s' % (sums, key))
            count.check(key == 'seconds' or all(
                abs(sum(l[key] for l in s['layers']) - s[key]) < 1e-4 for s in steps), what + key + ' of a step')
        count.check(abs(sum(s['seconds'] for s in steps) - p['seconds']) < 1e-4 < p['seconds'] and
                    sum(s['uses'] for s in steps) > 0, what + 'times')
        single = [s for s in steps if s['tokens'] == 1]
        slowest = sorted((s['seconds'] for s in single), reverse=True)[:8]
        count.check([s['seconds'] for s in p['single']['slowest']] == slowest and
                    p['single']['steps'] == len(single), what + 'the slowest %s' % slowest)
    r = run('logits', clean, '--ids', '1,2,3', '-b', '1', '--expert-cache', str(3 * least), '--profile')
    count.check('3 steps of one token' in r.stderr and 'longest in' in r.stderr, r.stderr)
    r = run('logits', clean, '--ids', '1', '--profile-tokens', t + '/no/such/file')
    count.check(r.returncode == 1 and 'no/such/file' in r.stderr, r.stderr)
    r = run('logits', clean, '--ids', '1', '--profile-tokens', '/dev/full')
    count.check(r.returncode == 1 and '/dev/full' in r.stderr, r.stderr)


def main():
    with tempfile.TemporaryDirectory() as t:
        check_sources(t)
        source, clean = os.path.join(TESTS, 'data', 'arch/qwen3_moe/model.gguf'), t + '/clean'
        count.check(pack(source, clean).returncode == 0, 'pack')
        check_faults(t, source, clean)
        check_restarts(t)
        check_places(t, source)
        check_damage(t, clean)
        check_sharing(t, clean)
        check_profile(t, clean)
        check_steps(t, clean)
        r = run('pack', clean, '-o', t + '/again')
        count.check(r.returncode == 1 and 'packed already' in r.stderr, r.stderr)
        r = run('pack', source)
        count.check(r.returncode == 2 and 'where to' in r.stderr, r.stderr)
    count.end()


main()
