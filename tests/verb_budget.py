#!/usr/bin/env python3
"""Budgets over time: a server that streams its experts under --ram, many requests at once, and what it
holds meanwhile, looked at again and again.

    tests/verb_budget.py PROGRAM

What it holds are its own pages (Rss of smaps_rollup, those of mapped files included) and what the page
cache has of the model's files besides: of weights nothing is to be there, as they are read past it.
It is at most the budget and 2 %.  The answers are those that the model gives in memory.  In a few seconds;
with --long (LODE_LONG) for two minutes.  Sanitizers have memory of their own: with LODE_SANITIZED set
the test is skipped.
"""
import ctypes
import mmap
import os
import shutil
import sys
import tempfile
import threading
import time

from lodeserver import Server, need_server
from lodetest import LONG, SHARED, Count

PROGRAM = sys.argv[1]
MODELS = os.path.join(SHARED, 'models')
SECONDS = 60 if LONG else 2
PAGE = mmap.PAGESIZE
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


class File:
    """A file and what of it the page cache has."""

    def __init__(self, path):
        self.size = os.path.getsize(path)
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        self.at = libc.mmap(None, self.size, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
        os.close(fd)
        self.pages = (ctypes.c_char * -(-self.size // PAGE))()
        self.kept = 0
        self.kept = self.cached()  # what the system has nowhere else (tmpfs), or is not to be dropped

    def cached(self):
        libc.mincore(self.at, self.size, self.pages)
        return PAGE * (len(self.pages) - self.pages.raw.count(b'\0')) - self.kept

    def close(self):
        libc.munmap(self.at, self.size)


def resident(pid):
    with open('/proc/%d/smaps_rollup' % pid) as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith('Rss:'))


class Watch(threading.Thread):
    """The most that the server held, and the page cache had of the files."""

    def __init__(self, pid, files):
        super().__init__()
        self.pid, self.files, self.stop = pid, files, threading.Event()
        self.resident = self.cached = self.most = self.looks = 0

    def run(self):
        while not self.stop.wait(0.02):
            r, c = resident(self.pid), sum(f.cached() for f in self.files)
            self.resident, self.cached = max(self.resident, r), max(self.cached, c)
            self.most, self.looks = max(self.most, r + c), self.looks + 1


def body(i):
    return {'prompt': ('Once upon a time %d ' % i) * (1 + i % 7 * 4), 'max_tokens': 20 + i % 3 * 20, 'seed': i,
            'temperature': i % 2, 'ignore_eos': True}


def text(s, i):
    status, r = s.post('/v1/completions', body(i))
    return r['choices'][0]['text'] if status == 200 else r


def ask_until(s, end, first, answers):
    i = first
    while time.monotonic() < end:
        answers.append((i % 16, text(s, i % 16)))
        i += 1


def under(count, name, model, budget, flags, expected):
    files = [File(os.path.join(model, f)) for f in os.listdir(model) if f.endswith('.safetensors')]
    s = Server(PROGRAM, '--ram', str(budget), '--device', 'cpu', '-t', '2', '-np', '2', *flags, model=model)
    watch = Watch(s.p.pid, files)
    watch.start()
    answers, end = [], time.monotonic() + SECONDS
    clients = [threading.Thread(target=ask_until, args=(s, end, 5 * k, answers)) for k in range(3)]
    for c in clients:
        c.start()
    for c in clients:
        c.join()
    watch.stop.set()
    watch.join()
    s.stop()
    for f in files:
        f.close()
    what = '%s: ' % ' '.join((name, '--ram %.1f MB' % (budget / 1e6), *flags))
    count.check(answers and all(t == expected[i] for i, t in answers), what + 'the answers of the whole model')
    count.check(watch.looks > 10 and watch.most <= 1.02 * budget,
                what + '%.1f MB at most, of which %.1f MB in the page cache; %d looks, %d answers' % (
                    watch.most / 1e6, watch.cached / 1e6, watch.looks, len(answers)))


def main():
    count = Count()
    if os.environ.get('LODE_SANITIZED') or not os.path.isdir(MODELS):
        print('skipped: %s' % ('sanitizers have memory of their own' if os.path.isdir(MODELS) else 'no ' + MODELS))
        sys.exit(77)
    need_server(count, PROGRAM)
    for name, budget in (('moe/hf', 44 << 20), ('hybrid/hf', 44 << 20)):
        s = Server(PROGRAM, '--device', 'cpu', '-t', '2', '-np', '2', model=os.path.join(MODELS, name))
        expected = [text(s, i) for i in range(16)]
        s.stop()
        with tempfile.TemporaryDirectory(dir=os.path.dirname(PROGRAM)) as t:  # which nobody else reads
            model = shutil.copytree(os.path.join(MODELS, name), os.path.join(t, 'model'), copy_function=shutil.copyfile)
            for flags in (), ('--direct',):
                under(count, name, model, budget, flags, expected)
    count.end()


main()
