#!/usr/bin/env python3
"""page_units.py: the page's parts that need no browser, by node; skipped where there is none (the
browser's test, page.py, meets them too)."""
import os
import shutil
import sys

from lodetest import Count, TESTS

node = shutil.which('node') or shutil.which('nodejs')
if not node:
    count = Count()
    count.skip('no node')
    print('0 passed, 0 failed, 1 skipped')
    sys.exit(77)
os.execv(node, [node, os.path.join(TESTS, 'page_units.js'), os.path.join(TESTS, '..', 'src', 'serve', 'page')])
