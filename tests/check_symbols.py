#!/usr/bin/env python3
"""check_symbols.py LIBLODE_SO: exports lode_ symbols alone, and all that the headers declare."""
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def declared():
    names = set()
    folder = os.path.join(ROOT, 'include/lode')
    for header in os.listdir(folder):
        text = re.sub(r'/\*.*?\*/', ' ', open(os.path.join(folder, header)).read(), flags=re.S)
        for d in re.findall(r'^\s*LODE_API\b([^;{]*);', text, re.M):
            names.add(re.search(r'\b(lode_\w+)\s*(?:\(|$|\[)', d).group(1))
    return names


def main():
    out = subprocess.run(['nm', '-D', '--defined-only', sys.argv[1]], text=True, check=True,
                         capture_output=True).stdout
    exported = {line.split()[-1] for line in out.splitlines() if line.split()[-2] != 'A'}
    wanted = declared()
    stray = sorted(s for s in exported if not s.startswith('lode_'))
    absent = sorted(wanted - exported)
    secret = sorted(s for s in exported - wanted if s.startswith('lode_'))
    for names, what in ((stray, 'exported, and not ours'), (absent, 'declared, not exported'),
                        (secret, 'exported, in no public header')):
        for n in names:
            print('%s: %s' % (n, what))
    failed = len(stray) + len(absent) + len(secret)
    print('%d passed, %d failed' % (len(wanted & exported), failed))
    return 1 if failed or not wanted else 0


sys.exit(main())
