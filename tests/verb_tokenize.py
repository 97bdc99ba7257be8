#!/usr/bin/env python3
"""`lode tokenize` and `lode detokenize`: the reference data through the program, and its manners.

    tests/verb_tokenize.py PROGRAM
"""
import glob
import json
import os
import subprocess
import sys
import tempfile

from lodetest import SHARED, TESTS

PROGRAM = sys.argv[1]
passed = failed = skipped = 0


def check(name, ok, detail=''):
    global passed, failed
    passed += bool(ok)
    failed += not ok
    if not ok:
        print('FAILED %s %s' % (name, detail))


def run(verb, *args, given=b''):
    return subprocess.run([PROGRAM, verb, *args], input=given, timeout=120, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE)


def lines(values):
    return b''.join(json.dumps(v).encode() + b'\n' for v in values)


def jsonl(verb, source, values, *args):
    r = run(verb, source, '--jsonl', *args, given=lines(values))
    if r.returncode:
        return r.stderr.decode(errors='replace')
    return [json.loads(line) for line in r.stdout.splitlines()]


def reference(folder):
    """All cases of a folder from each of its tokenizers."""
    cases = [json.loads(line) for line in open(folder + '/cases.jsonl', encoding='utf-8')]
    for file in 'tokenizer.json', 'tokenizer.model', 'vocab.gguf':
        source = folder + '/' + file
        name = os.path.basename(folder) + '/' + file
        spm_gguf = file == 'vocab.gguf' and '/spm_' in folder
        if not os.path.exists(source) or (spm_gguf and 'unigram_bf' in folder):
            continue
        use = cases
        if file == 'vocab.gguf':  # what GGUF cannot say: how added tokens treat what is around them
            odd = '<|ls|>', '<|rs|>', '<|both|>', 'WORD'
            use = [c for c in cases if not any(o in c['text'] for o in odd)]
        texts = [c['text'] for c in use]
        # to sentencepiece special tokens written in a text are text
        plain = ['--no-parse-special'] if spm_gguf else []
        ids = [c['ids'] for c in use]
        special = [c['ids'] if c['ids_special'] is None else c['ids_special'] for c in use]
        check(name + ' --no-bos', jsonl('tokenize', source, texts, '--no-bos', *plain) == ids)
        check(name, jsonl('tokenize', source, texts, *plain) == special)
        if not spm_gguf:
            decoded = [c['text'] if c['decoded'] is None else c['decoded'] for c in use]
            left = [d if c['decoded_skip_special'] is None else c['decoded_skip_special']
                    for c, d in zip(use, decoded)]
            check(name + ' back', jsonl('detokenize', source, ids) == decoded)
            check(name + ' --skip-special', jsonl('detokenize', source, ids, '--skip-special') == left)


def manners():
    model = TESTS + '/data/tokenizers/bpe_qwen2/vocab.gguf'
    text = 'Hello <|sp|>, it is\n\n12 o\'clock\tnow é 😀'.encode()
    r = run('tokenize', model, given=text)
    rows = [row.split(b'\t') for row in r.stdout.splitlines()]
    check('rows', r.returncode == 0 and all(len(row) == 2 and row[0].isdigit() for row in rows))
    check('special piece', any(row[1] == b'<|sp|>' for row in rows))
    check('round trip', run('detokenize', model, given=r.stdout).stdout == text)
    listed = json.loads(run('tokenize', model, '--ids', given=text).stdout)
    check('--ids', listed == [int(row[0]) for row in rows])
    check('-p', run('tokenize', model, '-p', text.decode()).stdout == r.stdout)
    with tempfile.NamedTemporaryFile() as f:
        f.write(text)
        f.flush()
        check('-f', run('tokenize', model, '-f', f.name).stdout == r.stdout)
    count = run('tokenize', model, '--ids', '--show-count', given=text).stdout.splitlines()[-1]
    check('--show-count', count == b'Total number of tokens: %d' % len(listed))
    plain = run('tokenize', model, '--no-special', '-p', '<|sp|>').stdout
    check('--no-special', len(plain.splitlines()) > 1)
    check('detokenize --ids', run('detokenize', model, '--ids', ','.join(map(str, listed))).stdout == text)
    check('no ids', run('detokenize', model).stdout == b'')
    check('no text', run('tokenize', model).stdout == b'')
    for what, r in (
            ('no model', run('tokenize')),
            ('missing file', run('tokenize', '/nowhere', given=b'x')),
            ('two texts', run('tokenize', model, '-p', 'a', '-f', 'b')),
            ('id beyond', run('detokenize', model, '--ids', '999999')),
            ('no number', run('detokenize', model, given=b'one two')),
            ('no JSON', run('tokenize', model, '--jsonl', given=b'"a"\nb\n')),
            ('no ids in JSON', run('detokenize', model, '--jsonl', given=b'["a"]\n')),
            ('directory without', run('tokenize', TESTS, given=b'x'))):
        said = r.stderr.decode(errors='replace').strip()
        check(what, r.returncode > 0 and said.startswith('lode'), repr(said))
    check('line is named', b'line 2' in run('tokenize', model, '--jsonl', given=b'"a"\nb\n').stderr)


manners()
roots = [TESTS + '/data/tokenizers', SHARED + '/ref/tokenizers']
for root in roots:
    folders = sorted(os.path.dirname(f) for f in glob.glob(root + '/*/cases.jsonl'))
    if not folders:
        print('skipped: %s is not there' % root)
        skipped += 1
    for folder in folders:
        reference(folder)
print('%d passed, %d failed, %d skipped' % (passed, failed, skipped))
sys.exit(failed > 0)
