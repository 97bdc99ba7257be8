#!/usr/bin/env python3
"""lode beside other programs that have llama-bench's flags, in turns.

    bench/peers.py LODE MODEL --peer llama=PATH [--peer ik=PATH ...] [-p 512] [-n 64] [-t 2] [--rounds 7]
                   [--depth 0] [--flags "llama:-fa 1"] [--csv FILE] [--busy]

PATHs are llama-bench programs, built elsewhere.  Every round runs each program once (one repetition
after its warm-up), in an order that turns from round to round, so that a disturbance meets all of
them.  Printed: medians and ranges of tokens/s, the median of the rounds' ratios lode / peer, and the
share of its processors that each program got (CPU seconds / wall / threads, loading included: a share
well under 0.9 means that the machine was busy).  --busy: one process keeps a core busy meanwhile.
"""
import argparse, csv, json, os, shlex, statistics, subprocess, sys, time


def measure(command, threads):
    """{test: tokens/s}, CPU share"""
    before, start = os.times(), time.time()
    r = subprocess.run(command, capture_output=True, text=True)
    after, wall = os.times(), time.time() - start
    if r.returncode:
        sys.exit('%s: %s' % (command[0], r.stderr[-500:]))
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    rows = json.loads(r.stdout)
    return {('pp%d' % x['n_prompt'] if x['n_prompt'] else 'tg%d' % x['n_gen']): x['avg_ts'] for x in rows}, \
        cpu / wall / threads


def spread(values):
    return '%.1f [%.1f-%.1f]' % (statistics.median(values), min(values), max(values))


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('lode')
    ap.add_argument('model')
    ap.add_argument('--peer', action='append', default=[], metavar='NAME=PATH')
    ap.add_argument('--flags', action='append', default=[], metavar='NAME:FLAGS',
                    help='more flags for one program')
    ap.add_argument('-p', default='512')
    ap.add_argument('-n', default='64')
    ap.add_argument('-d', '--depth', default='0')
    ap.add_argument('-t', type=int, default=os.cpu_count())
    ap.add_argument('--rounds', type=int, default=7)
    ap.add_argument('--csv', help='rows are appended: model, threads, test, program, round, tokens/s, CPU share')
    ap.add_argument('--busy', action='store_true', help='keep one core busy with another process')
    a = ap.parse_args()
    programs = {'lode': a.lode, **dict(p.split('=', 1) for p in a.peer)}
    flags = {p: ['--no-bandwidth'] if p == 'lode' else ['-fa', '1'] for p in programs}
    for f in a.flags:
        name, more = f.split(':', 1)
        flags[name] += shlex.split(more)
    common = ['-m', a.model, '-p', a.p, '-n', a.n, '-t', str(a.t), '-r', '1', '-o', 'json']
    common += ['-d', a.depth] if a.depth != '0' else []
    got, shares = {p: {} for p in programs}, {p: [] for p in programs}
    log = csv.writer(open(a.csv, 'a', buffering=1), lineterminator='\n') if a.csv else None  # line by line
    busy = subprocess.Popen([sys.executable, '-c', 'while True: pass']) if a.busy else None
    try:
        for r in range(a.rounds):
            order = list(programs)
            order = order[r % len(order):] + order[:r % len(order)]
            for p in order:
                tests, share = measure([programs[p], *(['bench'] if p == 'lode' else []), *common, *flags[p]], a.t)
                shares[p].append(share)
                for test, ts in tests.items():
                    got[p].setdefault(test, []).append(ts)
                    if log:
                        log.writerow([os.path.basename(a.model), a.t, test + ('+busy' if busy else ''), p, r,
                                      '%.2f' % ts, '%.2f' % share])
    finally:
        if busy:
            busy.kill()
    for test, ours in got['lode'].items():
        line = '%s t%d %s%s: lode %s (share %.2f)' % (os.path.basename(a.model), a.t, test, ' busy' if busy else '',
                                                   spread(ours), statistics.median(shares['lode']))
        for p in list(programs)[1:]:
            ratio = statistics.median(x / y for x, y in zip(ours, got[p][test]))
            line += '; %s %s (share %.2f), ratio %.2f' % (p, spread(got[p][test]), statistics.median(shares[p]), ratio)
        print(line, flush=True)


main()
