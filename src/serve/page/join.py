#!/usr/bin/env python3
"""join.py OUT.h PAGE.html FILE...: the page's sources as one file, as a C header.

The style sheets take the place of @STYLE@, the scripts, in the order given and within one function, that
of @SCRIPT@.  The header holds the file's bytes and the hashes of its style and script, which are the only
ones that the page's Content-Security-Policy lets run.
"""
import base64
import hashlib
import sys


def read(path):
    with open(path, encoding='utf-8') as f:
        return f.read()


def digest(text):
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def main():
    out, page, *parts = sys.argv[1:]
    style = '\n' + ''.join(read(p) for p in parts if p.endswith('.css'))
    script = "\n(() => {\n'use strict';\n" + ''.join(read(p) for p in parts if p.endswith('.js')) + '})();\n'
    if '</style' in style or '</script' in script or '<!--' in script:
        sys.exit('join.py: a source would end its own element')
    html = read(page)
    for mark, text in (('@STYLE@', style), ('@SCRIPT@', script)):
        if html.count(mark) != 1:
            sys.exit('join.py: %s must stand once in %s' % (mark, page))
        html = html.replace(mark, text)
    data = html.encode()
    with open(out, 'w') as f:
        f.write('/* Made by join.py. */\n#include <stddef.h>\n')
        f.write('#define PAGE_STYLE_HASH "%s"\n#define PAGE_SCRIPT_HASH "%s"\n' % (digest(style), digest(script)))
        f.write('static const char page_data[] = {\n')
        for i in range(0, len(data), 24):
            f.write(''.join('%d,' % (b - 256 if b > 127 else b) for b in data[i:i + 24]) + '\n')
        f.write('};\nstatic const size_t page_data_len = sizeof page_data;\n')


main()
