"""What the tests of the whole program share: calling it, reading .npy files, counting."""
import array
import ast
import os
import struct
import subprocess
import sys
import tempfile

TESTS = os.path.dirname(os.path.abspath(__file__))
SHARED = os.environ.get('LODE_SHARED') or os.path.join(TESTS, '..', '..', 'shared')
LONG = bool(os.environ.get('LODE_LONG'))
TYPES = {'<f4': 'f', '<i4': 'i', '<i2': 'h', '<f8': 'd', '<i8': 'q'}


def split_npy(data, path='it'):
    """The bytes of a .npy file -> (shape, type, the bytes of its numbers), C order only."""
    if data[:6] != b'\x93NUMPY':
        raise ValueError(path + ' is no .npy file')
    start = 10 if data[6] == 1 else 12
    n = struct.unpack('<H' if data[6] == 1 else '<I', data[8:start])[0]
    head = ast.literal_eval(data[start:start + n].decode())
    if head['fortran_order']:
        raise ValueError(path + ' is in Fortran order')
    return head['shape'], head['descr'], data[start + n:]


def read_npy(path):
    """-> (shape, array of its numbers)."""
    with open(path, 'rb') as f:
        shape, descr, body = split_npy(f.read(), path)
    numbers = array.array(TYPES[descr])
    numbers.frombytes(body)
    return shape, numbers


def lode(program, *args, **more):
    """Runs it and returns what it printed; raises with its complaint when it fails.

    program: a path, or a list that begins with an emulator."""
    program = [program] if isinstance(program, str) else program
    r = subprocess.run([*program, *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                       stderr=subprocess.PIPE, timeout=900, **more)
    if r.returncode:
        lines = r.stderr.decode(errors='replace').strip().splitlines()
        raise RuntimeError('%s: %s' % (' '.join(args[:2]),
                                       lines[-1] if lines else 'exit %d' % r.returncode))
    return r.stdout.decode()


def logits_bytes(program, model, ids, *args):
    """-> (shape, type, bytes) of the .npy file that `lode logits` writes."""
    with tempfile.TemporaryDirectory() as t:
        # Through a file: a prompt may be longer than a command line.
        with open(t + '/ids', 'w') as f:
            f.write(','.join(map(str, ids)))
        lode(program, 'logits', model, '--ids', '@' + t + '/ids', '-o', t + '/x.npy', *args)
        with open(t + '/x.npy', 'rb') as f:
            return split_npy(f.read())


def logits(program, model, ids, *args):
    """-> (shape, array)"""
    shape, descr, body = logits_bytes(program, model, ids, *args)
    return shape, array.array(TYPES[descr], body)


def argmax(row):
    return row.index(max(row))


def code_pages(pid):
    """Bytes that a process has of the files of its program and libraries: those that it maps to run.

    Which of their pages those are the system decides, by where they lie and what it has read of them: a fault maps
    many around the one that is wanted.  From run to run, and more from machine to machine with other kernels, a
    tenth of them comes and goes, which is a percent of a small model and nothing of a large one."""
    sizes, runs, path = {}, set(), ''
    with open('/proc/%d/smaps' % pid) as f:
        for line in f:
            words = line.split(None, 5)
            if '-' in words[0]:
                path = words[5].strip() if len(words) == 6 else ''
                if 'x' in words[1]:
                    runs.add(path)
            elif words[0] == 'Rss:':
                sizes[path] = sizes.get(path, 0) + 1024 * int(words[1])
    return sum(size for path, size in sizes.items() if path in runs and path.startswith('/'))


class Count:
    """Prints what happens and sums it up as tests/run.py wants it."""

    def __init__(self):
        self.passed = self.failed = self.skipped = 0

    def check(self, good, what):
        self.passed += bool(good)
        self.failed += not good
        print('%s  %s' % ('ok  ' if good else 'FAIL', what), flush=True)
        return good

    def skip(self, what):
        self.skipped += 1
        print('skip  ' + what, flush=True)

    def end(self):
        print('%d passed, %d failed' % (self.passed, self.failed)
              + (', %d skipped' % self.skipped if self.skipped else ''))
        sys.exit(1 if self.failed or not self.passed else 0)
