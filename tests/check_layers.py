#!/usr/bin/env python3
"""Proves that includes point only down.

LEVELS is the stack of src/, lowest first: a folder may include its own headers, the public ones
(lode/*.h) and those of every lower level, but not its neighbours'.  tools/ is a stranger to the
library: it sees its own headers and the public ones alone, as any program would.
"""
import os
import re
import sys

LEVELS = [
    ['base'],
    ['tensor'],
    ['kern', 'format'],
    ['graph', 'text'],
    ['store', 'quant'],
    ['backend'],
    ['runtime'],
    ['model'],
    ['engine', 'convert'],
    ['serve'],
]
STRANGERS = ['tools']
# What strangers see besides: the program's own server.
SHOWN = ['serve/serve.h', 'serve/flow.h', 'serve/guard.h', 'serve/log.h']

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LEVEL = {folder: i for i, level in enumerate(LEVELS) for folder in level}
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]', re.M)


def allowed(folder, path, quoted):
    """Whether a file of src/FOLDER ('' for include/lode) may include PATH."""
    top = path.split('/')[0] if '/' in path else ''
    if top == 'lode':
        return os.path.exists(os.path.join(ROOT, 'include', path))
    if not quoted:
        return top not in LEVEL and top not in STRANGERS
    if folder == '':
        return False
    if top in ('', folder):
        return True
    if folder in STRANGERS and path in SHOWN:
        return True
    if folder in STRANGERS or top not in LEVEL:
        return False
    return LEVEL[top] < LEVEL[folder]


def main():
    passed = failed = 0
    for base in ('include/lode', 'src'):
        for where, _, files in sorted(os.walk(os.path.join(ROOT, base))):
            for name in sorted(files):
                if not name.endswith(('.c', '.h', '.inc')):
                    continue
                path = os.path.relpath(os.path.join(where, name), ROOT)
                folder = path.split('/')[1] if base == 'src' else ''
                text = open(os.path.join(ROOT, path), encoding='utf-8').read()
                bad = [p for q, p in INCLUDE.findall(text) if not allowed(folder, p, q == '"')]
                if folder and folder not in LEVEL and folder not in STRANGERS:
                    bad.append('(the folder itself: src/%s is not in LEVELS)' % folder)
                for b in bad:
                    print('%s: must not include %s' % (path, b))
                failed += bool(bad)
                passed += not bad
    print('%d passed, %d failed' % (passed, failed))
    return 1 if failed or not passed else 0


sys.exit(main())
