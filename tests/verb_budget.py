#!/usr/bin/env python3
"""Budgets over time: programs that stream their experts under --ram, and what they hold meanwhile, looked at
fifty times a second: a long answer, prompts in large batches, and a server with many requests at once.

    tests/verb_budget.py PROGRAM [--hours H] [MODEL BUDGET]...

What a program holds are its own pages (Rss of smaps_rollup, those of mapped files included) and what the page
cache has of the model's files besides: of weights nothing is to be there, as they are read past it.
It is at most the budget, 2 % and a tenth of the program's own files (lodetest.code_pages).  The answers are those that the model gives in memory.  In a few seconds;
with --long (LODE_LONG) for minutes.  With models named, these, and a table for bench/measured/memory.md; a model is
best one that nobody else reads meanwhile.  With --hours nothing but a server for so long, of two clients that ask
something new every four seconds each, and now and then what they asked before.  Sanitizers have memory of their own: with LODE_SANITIZED set the
test is skipped.
"""
import ctypes
import json
import mmap
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time

from lodeserver import Server, need_server
from lodetest import LONG, SHARED, Count, code_pages

PROGRAM = sys.argv[1]
MODELS = os.path.join(SHARED, 'models')
SECONDS = 60 if LONG else 2
TEXT = os.path.join(MODELS, 'eval-a.txt')
HOURS = float(sys.argv[3]) if sys.argv[2:3] == ['--hours'] else 0
GIVEN = sys.argv[4 if HOURS else 2:]
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
    """The most that a program held, and the page cache had of the files."""

    def __init__(self, pid, files, gap=0.02):
        super().__init__()
        self.pid, self.files, self.gap, self.stop = pid, files, gap, threading.Event()
        self.began, self.looks = time.monotonic(), 0
        self.resident = self.cached = self.code = self.most = 0
        self.most_of_late = 0
        self.start()

    def run(self):
        while not self.stop.wait(self.gap):
            try:
                r, code = resident(self.pid), code_pages(self.pid)
            except (OSError, StopIteration):  # it has just begun, or ended
                continue
            c = sum(f.cached() for f in self.files)
            self.resident, self.cached, self.code = max(self.resident, r), max(self.cached, c), max(self.code, code)
            self.most, self.looks = max(self.most, r + c), self.looks + 1
            self.most_of_late = max(self.most_of_late, r + c)

    def judge(self, count, budget, what, detail):
        self.stop.set()
        self.join()
        count.check(self.looks > 10 and self.most <= 1.02 * budget + 0.1 * self.code,
                    '%s: %.1f MB at most of %.1f MB, %.1f MB of them in the page cache; %d looks, %s' % (
                        what, self.most / 1e6, budget / 1e6, self.cached / 1e6, self.looks, detail))
        if GIVEN or HOURS:
            print('| %s | %.1f MB | %.1f MB | %.1f MB | %.1f %% | %.0f s, %d looks |' % (
                what, budget / 1e6, self.most / 1e6, self.cached / 1e6, 100 * self.most / budget,
                time.monotonic() - self.began, self.looks), flush=True)


def said(*args):
    return subprocess.run([PROGRAM, *args, '--device', 'cpu', '-t', '2'], stdin=subprocess.DEVNULL,
                          capture_output=True, timeout=3600).stdout


def budget_of(model, given, *args):
    """What was named, or as much as leaves half of the experts in memory."""
    if given:
        return given
    p = json.loads(said('plan', model, '--json', '--no-bandwidth', *args))
    experts = next(r['ram'] for r in p['rows'] if r['name'] == 'experts')
    return p['ram']['size'] - experts // 2


def alone(count, what, model, given, plan, *args):
    """A program without company, under a budget; plan: those of its flags that its memory depends on.  A batch is
    always named, as else a smaller one leaves room for all of so small a model."""
    budget, files = budget_of(model, given, *plan), weights(model)
    args = *args, *plan
    p = subprocess.Popen([PROGRAM, *args, '--device', 'cpu', '-t', '2', '--ram', str(budget)], stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    watch = Watch(p.pid, files)
    out, err = p.communicate()
    watch.judge(count, budget, what, '%d bytes' % len(out))
    for f in files:
        f.close()
    count.check(p.returncode == 0 and out == said(*args) and len(out) > 20 and b'are read when' in err,
                what + ': as the whole model: ' + err.decode())


def answer_and_prompts(count, name, model, budget):
    """A long answer; a text in windows of 2048 tokens and batches of as many."""
    n = 1900 if LONG else 500
    alone(count, '%s, an answer of %d tokens' % (name, n), model, budget, ('-c', '2048', '-b', '512'),
          'run', model, '--raw', '-p', 'Once upon a time', '--temp', '0', '--ignore-eos', '-n', str(n))
    for batch in '1024', '2048':
        alone(count, '%s, prompts with -b %s' % (name, batch), model, budget, ('-c', '2048', '-b', batch), 'perplexity',
              model, '-f', TEXT, '--chunks', '16' if LONG and not GIVEN else '4')


def weights(model):
    folder, names = (model, os.listdir(model)) if os.path.isdir(model) else os.path.split(model)
    names = [names] if isinstance(names, str) else [f for f in names if f.endswith('.safetensors')]
    return [File(os.path.join(folder, f)) for f in names]


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


def ask_now_and_then(s, end, first, answers):
    """Every eighth is one of the sixteen whose answers are known; the others fill what is kept of prefixes."""
    i = first
    while time.monotonic() < end:
        known = i % 8 == first
        answers.append((i // 8 % 16, text(s, i // 8 % 16)) if known else (None, text(s, 1000 + 2 * i + first)))
        i += 1
        time.sleep(4)


def for_hours(count, name, model, budget, expected):
    files = weights(model)
    s = Server(PROGRAM, '--ram', str(budget), '--device', 'cpu', '-t', '2', '-np', '2', '-b', '512', model=model)
    watch = Watch(s.p.pid, files, gap=0.1)
    answers, end, most = [], time.monotonic() + 3600 * HOURS, []
    clients = [threading.Thread(target=ask_now_and_then, args=(s, end, k, answers)) for k in range(2)]
    for c in clients:
        c.start()
    while any(c.is_alive() for c in clients):  # most held of each twelfth: whether it grows
        watch.most_of_late, until = 0, time.monotonic() + 300 * HOURS
        while time.monotonic() < until and any(c.is_alive() for c in clients):
            time.sleep(0.2)
        most.append(watch.most_of_late)
    for c in clients:
        c.join()
    known = [(i, t) for i, t in answers if i is not None]
    watch.judge(count, budget, name + ', a server with pauses', '%d answers, of which %d known; most of each twelfth: %s MB' % (
        len(answers), len(known), ', '.join('%.1f' % (m / 1e6) for m in most)))
    print(name, len(answers), 'answers; prefixes', s.metric('lode:prefix_cache_bytes') / 1e6, 'MB; most of each twelfth, MB:',
          *['%.1f' % (m / 1e6) for m in most], flush=True)
    s.stop()
    for f in files:
        f.close()
    count.check(known and all(t == expected[i] for i, t in known), name + ', for hours: the answers of the whole model')


def under(count, name, model, budget, flags, expected):
    files = weights(model)
    s = Server(PROGRAM, '--ram', str(budget), '--device', 'cpu', '-t', '2', '-np', '2', *flags, model=model)
    watch = Watch(s.p.pid, files)
    answers, end = [], time.monotonic() + SECONDS
    clients = [threading.Thread(target=ask_until, args=(s, end, 5 * k, answers)) for k in range(3)]
    for c in clients:
        c.start()
    for c in clients:
        c.join()
    what = ', '.join((name, 'a server', *flags))
    watch.judge(count, budget, what, '%d answers' % len(answers))
    s.stop()
    for f in files:
        f.close()
    count.check(answers and all(t == expected[i] for i, t in answers), what + ': the answers of the whole model')


def burst(count, name, model, expected):
    """Many more requests at once than there are seats, with the least that the plan calls enough: they wait."""
    flags = '-c', '512', '-np', '2', '-b', '512'
    least = json.loads(said('plan', model, '--json', '--no-bandwidth', '--ram', '1', *flags))['advice'].split()[1]
    s, answers = Server(PROGRAM, '--ram', least, '--device', 'cpu', '-t', '2', *flags, model=model), {}
    clients = [threading.Thread(target=lambda i=i: answers.update({i: text(s, i)})) for i in range(16)]
    for c in clients:
        c.start()
    for c in clients:
        c.join()
    s.stop()
    count.check([answers[i] for i in range(16)] == expected, '%s, sixteen at once under %s: %s' % (
        name, least, next((answers[i] for i in range(16) if answers[i] != expected[i]), 'the answers of the whole model')))


def one_model(count, name, model, budget):
    if not HOURS:
        answer_and_prompts(count, name, model, budget)
    s = Server(PROGRAM, '--device', 'cpu', '-t', '2', '-np', '2', model=model)
    expected = [text(s, i) for i in range(16)]
    s.stop()
    if HOURS:
        for_hours(count, name, model, budget_of(model, budget, '-c', '2048', '-np', '2', '-b', '512'), expected)
        return
    if not GIVEN and (name == 'moe' or LONG):
        burst(count, name, model, expected)
    for flags in (), ('--direct',):
        flags += '-b', '512'
        under(count, name, model, budget_of(model, budget, '-c', '2048', '-np', '2', '-b', '512'), flags, expected)


def main():
    count = Count()
    if os.environ.get('LODE_SANITIZED') or not os.path.isdir(MODELS):
        print('skipped: %s' % ('sanitizers have memory of their own' if os.path.isdir(MODELS) else 'no ' + MODELS))
        sys.exit(77)
    need_server(count, PROGRAM)
    for model, budget in zip(GIVEN[::2], GIVEN[1::2]):
        one_model(count, os.path.basename(model), model, int(budget) << 20)
    for name in () if GIVEN else ('moe',) if HOURS else ('moe', 'hybrid'):
        with tempfile.TemporaryDirectory(dir=os.path.dirname(PROGRAM)) as t:  # which nobody else reads
            model = shutil.copytree(os.path.join(MODELS, name, 'hf'), os.path.join(t, 'model'),
                                    copy_function=shutil.copyfile)
            one_model(count, name, model, None)
    count.end()


main()
