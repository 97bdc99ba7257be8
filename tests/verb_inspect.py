#!/usr/bin/env python3
"""`lode inspect`: its JSON against a reader of GGUF headers of its own, its table, its complaints.

    tests/verb_inspect.py PROGRAM
"""
import glob
import json
import math
import os
import pty
import struct
import subprocess
import sys
import tempfile

from lodetest import SHARED, TESTS

PROGRAM = sys.argv[1]
NUMBERS = {0: 'B', 1: 'b', 2: 'H', 3: 'h', 4: 'I', 5: 'i', 6: 'f', 7: '?', 10: 'Q', 11: 'q', 12: 'd'}
NAMES = ['u8', 'i8', 'u16', 'i16', 'u32', 'i32', 'f32', 'bool', 'str', 'array', 'u64', 'i64', 'f64']
passed = failed = 0


def check(name, ok, detail=''):
    global passed, failed
    passed += bool(ok)
    failed += not ok
    if not ok:
        print('FAILED %s %s' % (name, detail))


def run(*args, **more):
    return subprocess.run([PROGRAM, 'inspect', *args], stdin=subprocess.DEVNULL, timeout=60,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)


class Header:
    """Metadata and tensors of a GGUF file, the plain way."""

    def __init__(self, path):
        with open(path, 'rb') as f:
            self.data, self.pos = f.read(), 4
        version, n_tensors, n_keys = self.take('I'), self.take('Q'), self.take('Q')
        self.version, self.align, self.metadata, self.tensors = version, 32, {}, []
        for _ in range(n_keys):
            key, kind = self.string(), self.take('I')
            self.metadata[key] = self.value(kind)
        self.align = self.metadata.get('general.alignment', ('u32', 32))[1]
        for _ in range(n_tensors):
            name, n_dims = self.string(), self.take('I')
            shape = [self.take('Q') for _ in range(n_dims)]
            kind, offset = self.take('I'), self.take('Q')
            self.tensors.append((name, shape, kind, offset))
        self.start = -(-self.pos // self.align) * self.align

    def take(self, code):
        v = struct.unpack_from('<' + code, self.data, self.pos)[0]
        self.pos += struct.calcsize('<' + code)
        return v

    def string(self):
        n = self.take('Q')
        self.pos += n
        return self.data[self.pos - n:self.pos].decode(errors='replace')

    def one(self, kind):
        return self.string() if kind == 8 else self.take(NUMBERS[kind])

    def value(self, kind):
        if kind != 9:
            return NAMES[kind], self.one(kind)
        kind, n = self.take('I'), self.take('Q')
        return '[%s]' % NAMES[kind], [self.one(kind) for _ in range(n)]


def same(kind, a, b):
    if isinstance(b, list):
        return len(a) == len(b) and all(same(kind, x, y) for x, y in zip(a, b))
    if isinstance(b, float) and math.isfinite(b):
        if 'f32' in kind:  # the shortest decimal that gives the same float back
            return struct.pack('<f', a) == struct.pack('<f', b)
        return a == b
    if isinstance(b, float):
        return a == {'nan': 'NaN', 'inf': 'Infinity', '-inf': '-Infinity'}[str(b)]
    return a == b and type(a) is type(b)


def check_model(path):
    name = os.path.relpath(path, TESTS)
    r = run(path, '--json')
    check(name + ' exits 0', r.returncode == 0 and not r.stderr, r.stderr)
    if r.returncode:
        return
    j, h = json.loads(r.stdout), Header(path)
    check(name + ' frame', (j['file'], j['format'], j['size'], j['shards']) ==
          (path, 'GGUF v%d' % h.version, len(h.data), 1))
    check(name + ' keys', list(j['metadata']) == list(h.metadata))
    for key, (kind, value) in h.metadata.items():
        got = j['metadata'][key]
        check('%s %s' % (name, key), got['type'] == kind and same(kind, got['value'], value),
              str(got)[:200])
    check(name + ' tensors', [(t['name'], t['shape'], t['offset']) for t in j['tensors']] ==
          [(n, s, o + h.start) for n, s, _, o in h.tensors])
    check(name + ' architecture', j['architecture'] == h.metadata['general.architecture'][1])
    check(name + ' parameters', j['parameters'] == sum(math.prod(s) for _, s, _, _ in h.tensors))
    arch = h.metadata['general.architecture'][1]
    vocabulary = h.metadata.get(arch + '.vocab_size') or h.metadata.get('tokenizer.ggml.tokens')
    check(name + ' vocabulary', (j['vocabulary'] > 0) == (vocabulary is not None))
    check(name + ' types', sum(t['size'] for t in j['types'].values()) ==
          sum(t['size'] for t in j['tensors']) and
          sum(t['tensors'] for t in j['types'].values()) == len(h.tensors))

    r = run(path)
    text = r.stdout.decode()
    check(name + ' table', r.returncode == 0 and not r.stderr and '\x1b' not in text)
    check(name + ' table is complete', all(k in text for k in h.metadata) and
          all(t[0] in text for t in h.tensors))
    check(name + ' table fits', max(map(len, text.splitlines())) < 180)


def check_terminal(path):
    """Colours appear on a terminal, unless NO_COLOR says otherwise."""
    for no_color in ('', '1'):
        master, slave = pty.openpty()
        p = subprocess.Popen([PROGRAM, 'inspect', path], stdout=slave, stdin=subprocess.DEVNULL,
                             env=dict(os.environ, TERM='xterm', NO_COLOR=no_color))
        os.close(slave)
        out = b''
        try:
            while True:
                out += os.read(master, 65536)
        except OSError:
            pass
        os.close(master)
        check('colours, NO_COLOR=' + no_color, p.wait() == 0 and (b'\x1b[1m' in out) != bool(no_color))


def check_complaint(name, words, *args, status=1):
    r = run(*args)
    text = r.stderr.decode()
    check(name, r.returncode == status and not r.stdout and words in text and
          (status == 2 or text.count('\n') == 1), (r.returncode, text))


def check_bad_files(model):
    with tempfile.TemporaryDirectory() as t:
        def file(name, data):
            with open(os.path.join(t, name), 'wb') as f:
                f.write(data)
            return f.name
        with open(model, 'rb') as f:
            data = f.read()
        check_complaint('missing', 'there is no such file', t + '/none.gguf')
        check_complaint('directory', 'the directory has no config.json', t)
        check_complaint('empty', 'the file is empty', file('empty.gguf', b''))
        check_complaint('magic', 'not a GGUF file', file('x.gguf', b'hello, world'))
        check_complaint('lfs', 'git lfs pull', file('p', b'version https://git-lfs.github.com/spec/v1'))
        check_complaint('truncated', 'the file is truncated: %d bytes expected, %d present'
                        % (len(data), len(data) - 1), file('cut.gguf', data[:-1]))
        check_complaint('header cut', 'the file is truncated', file('cut.gguf', data[:1000]))
        check_complaint('big-endian', 'big-endian', file('b', data[:4] + data[7:3:-1] + data[8:]))
        check_complaint('no file', 'lode inspect --help', status=2)
        check_complaint('two files', 'lode inspect --help', model, model, status=2)
        read_end, write_end = os.pipe()
        os.close(read_end)
        for form in ([], ['--json']):
            r = subprocess.run([PROGRAM, 'inspect', model, *form], stdout=write_end,
                               stderr=subprocess.PIPE)
            check('closed pipe', r.returncode == 1 and r.stderr.count(b'\n') == 1, r)
        os.close(write_end)


def main():
    models = sorted(glob.glob(TESTS + '/data/arch/*/model.gguf'))
    more = sorted(glob.glob(SHARED + '/ref/tokenizers/*/vocab.gguf') +
                  glob.glob(SHARED + '/models/*/*Q4_K_M.gguf'))
    for path in models + more:
        check_model(path)
    check_terminal(models[0])
    check_bad_files(models[0])
    print('%d passed, %d failed, %d skipped' % (passed, failed, 0 if more else 1))
    sys.exit(failed > 0)


main()
