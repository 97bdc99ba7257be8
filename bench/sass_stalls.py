#!/usr/bin/env python3
"""Says where a GPU kernel waits, from what Nsight Compute sampled of each of its instructions.

    ncu --clock-control none --section SourceCounters --import-source no -k regex:KERNEL \\
        --launch-skip 40 --launch-count 4 -o R PROGRAM ..
    ncu -i R.ncu-rep --page source --csv > R.csv
    bench/sass_stalls.py R.csv                     all launches, code grouped by how often it ran
    bench/sass_stalls.py R.csv --launch 3 --least 20   .. and the instructions of one with 20 samples and more

Code that ran equally often is a loop's body or stands in a row: so the groups are a kernel's parts, with their instructions,
samples, what those waited for and which operations they are.
"""
import argparse
import collections
import csv
import sys


def number(text):
    return int(float(text or 0))


class Launch:
    """One launch: its name and (instruction, samples, times executed, reasons) in the order of the code."""

    def __init__(self, name, table):
        self.name = name
        head = table[0]
        column = {title: i for i, title in enumerate(head)}
        reasons = [t for t in head if t.startswith('stall_') and 'Not Issued' not in t]
        self.rows = [(row[column['Source']], number(row[column['# Samples']]), number(row[column['Instructions Executed']]),
                      collections.Counter({t[len('stall_'):]: number(row[column[t]]) for t in reasons if number(row[column[t]])}))
                     for row in table[1:] if len(row) >= len(head)]
        self.samples = sum(r[1] for r in self.rows)

    def groups(self):
        found = {}
        for source, samples, executed, reasons in self.rows:
            g = found.setdefault(executed, [0, 0, collections.Counter(), collections.Counter()])
            g[0] += samples
            g[1] += 1
            g[2] += reasons
            g[3][operation(source)] += 1
        return sorted(found.items(), key=lambda item: -item[1][0])


def operation(source):
    words = [w for w in source.split() if not w.startswith('@')]
    return words[0].split('.')[0] if words else '?'


def launches(path):
    """ncu writes a line with the kernel's name before each launch's table."""
    name, table = None, []
    with open(path, newline='') as f:
        for row in csv.reader(f):
            if len(row) > 1 and row[0] == 'Kernel Name':
                if table:
                    yield Launch(name, table)
                name, table = row[1], []
            elif row and name is not None and (table or 'Source' in row):
                table.append(row)
    if table:
        yield Launch(name, table)


def most(counter, n):
    return ', '.join('%s %d' % item for item in counter.most_common(n))


def main():
    ap = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    ap.add_argument('csv')
    ap.add_argument('--launch', type=int, help='only the n-th, from 0 on')
    ap.add_argument('--groups', type=int, default=8, help='how many (8)')
    ap.add_argument('--least', type=int, help='list instructions of so many samples')
    args = ap.parse_args()
    n = 0
    for i, launch in enumerate(launches(args.csv)):
        if args.launch not in (None, i):
            continue
        n += 1
        total = sum((r[3] for r in launch.rows), collections.Counter())
        print('%d %s: %d instructions, %d executed, %d samples (%s)' % (
            i, launch.name, len(launch.rows), sum(r[2] for r in launch.rows), launch.samples, most(total, 6)))
        for executed, (samples, size, reasons, operations) in launch.groups()[:args.groups]:
            print('  %9d times: %4d instructions, %5.1f %% of samples  %-52s  %s' % (
                executed, size, 100 * samples / max(launch.samples, 1), most(reasons, 4), most(operations, 5)))
        for at, (source, samples, executed, reasons) in enumerate(launch.rows):
            if args.least is not None and samples >= args.least:
                print('  %5d %6d %9d  %-72s %s' % (at, samples, executed, source.strip()[:72], most(reasons, 3)))
    if not n:
        sys.exit('%s has no such launch: `ncu -i R.ncu-rep --page source --csv` writes what is read here' % args.csv)


if __name__ == '__main__':
    main()
