#!/usr/bin/env python3
"""No file names a package registry's host: what lode is built from comes from the distribution, and
a test that needs more must do without.  Nor does any file point into somebody's home or workplace.
Looks at every text file git knows (without git: at every one in the usual folders)."""
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Written in two halves, or this file would find itself.
WORDS = [a + b for a, b in (
    ('pypi', '.org'), ('pythonhosted', '.org'), ('npmjs', '.org'), ('crates', '.io'),
    ('deb.debian', '.org'), ('archive.ubuntu', '.com'), ('ports.ubuntu', '.com'),
    ('security.debian', '.org'), ('rubygems', '.org'), ('golang', '.org'), ('maven', '.org'),
    ('docker', '.io'), ('ghcr', '.io'), ('conda', '.org'), ('snapshot.debian', '.org'),
    (' /work', '/'), ('"/work', '/'), ('=/work', '/'), ('`/work', '/'), ('(/work', '/'))]
BAD = re.compile('|'.join(re.escape(w) for w in WORDS))


def files():
    try:
        out = subprocess.run(['git', '-C', ROOT, 'ls-files', '-z'], check=True,
                             capture_output=True).stdout.decode()
        return [os.path.join(ROOT, f) for f in out.split('\0') if f]
    except (OSError, subprocess.CalledProcessError):
        return [os.path.join(d, f) for top in ('src', 'include', 'tests', 'docs', 'bench', 'scripts')
                for d, _, fs in os.walk(os.path.join(ROOT, top)) for f in fs]


def main():
    passed = failed = 0
    for path in files():
        if not os.path.isfile(path):
            continue
        data = open(path, 'rb').read()
        if b'\0' in data:
            continue
        hits = [(n, line) for n, line in enumerate(data.decode(errors='replace').splitlines(), 1)
                if BAD.search(line)]
        for n, line in hits:
            print('%s:%d: %s' % (os.path.relpath(path, ROOT), n, line.strip()[:160]))
        failed += bool(hits)
        passed += not hits
    print('%d passed, %d failed' % (passed, failed))
    return 1 if failed or not passed else 0


sys.exit(main())
