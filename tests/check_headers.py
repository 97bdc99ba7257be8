#!/usr/bin/env python3
"""Every public header compiles alone, as C17 and as C++17, without a warning, in gcc and clang."""
import os
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FLAGS = ['-fsyntax-only', '-Wall', '-Wextra', '-Wpedantic', '-Werror',
         '-I', os.path.join(ROOT, 'include')]
# compiler, the program it needs for the language, its flags
WAYS = [(cc, need, ['-x', lang, '-std=' + std])
        for cc, cxx in (('gcc', 'g++'), ('clang', 'clang'))
        for lang, std, need in (('c', 'c17', cc), ('c++', 'c++17', cxx))]


def main():
    passed = failed = skipped = 0
    for header in sorted(os.listdir(os.path.join(ROOT, 'include/lode'))):
        for cc, need, way in WAYS:
            if not shutil.which(cc) or not shutil.which(need):
                skipped += 1
                continue
            r = subprocess.run([cc] + FLAGS + way + ['-'], text=True, capture_output=True,
                               input='#include "lode/%s"\n#include "lode/%s"\n' % (header, header))
            if r.returncode:
                print('%s with %s %s:\n%s' % (header, cc, ' '.join(way), r.stderr))
            failed += r.returncode != 0
            passed += r.returncode == 0
    print('%d passed, %d failed, %d skipped' % (passed, failed, skipped))
    return 1 if failed or not passed else 0


sys.exit(main())
