#!/usr/bin/env python3
"""device.py LODE [DEVICE [DIR|FILE...]]: a GPU says what the CPU says, bit for bit.

Every model of tests/data/arch and .../quant, where they are present of LODE_SHARED/ref/arch and
.../quant_models, and one made of each type and quantised layout that those lack, is run over a prompt of three KV pages on the CPU and on DEVICE (cuda), where the prompt is also cut in
other ways (the kernels for one row, for a few and for many all take part) and kept in other formats.
The logits of all positions must be the same bytes.  A model that the device refuses is skipped and
counted, with the reason.  Skipped as a whole where there is no such device.  That is --numerics exact; with tensor, as
is usual, and fast the device must give the same bytes for each cut.

Then answers, which a device may give the largest logits for alone: the same texts for samplers that want few
of them, many, or all, one after the other and many at once, log-probabilities included.  PARTS in the environment
(exact, fast, deep, draws, with commas between): these alone.
"""
import concurrent.futures
import glob
import json
import os
import sys
import tempfile

import quant_dirs
import retype
from lodetest import Count, SHARED, TESTS, lode, logits_bytes

WAYS = [[], ['-b', '1'], ['-b', '3'], ['-b', '12'], ['-b', '27'], ['-b', '70'], ['-ctk', 'f32', '-ctv', 'bf16'],
        ['-ctk', 'q8_0', '-ctv', 'q8_0', '-b', '33']]
LENGTHS = (150, 60, 20)
DEEP = 2150  # 34 pages: more than decode_merge takes
EXACT = ['--numerics', 'exact']
FAST_WAYS = [['-b', n] for n in ('1', '3', '12', '27', '33', '70')]


def models(given):
    found = []
    for g in given or [TESTS + '/data/arch', TESTS + '/data/quant', SHARED + '/ref/arch',
                       SHARED + '/ref/quant_models']:
        found += [g] if g.endswith('.gguf') else sorted(glob.glob(g + '/**/*.gguf', recursive=True))
    return found


def make_models(folder):
    """Types without a file of theirs; of experts too where there is a mixture to change."""
    made = []
    for kind in retype.TYPES:
        for source in (TESTS + '/data/quant/llama-256-Q4_K_M',
                       SHARED + '/ref/quant_models/qwen3_moe-256-Q4_K_M'):
            if os.path.isdir(source):
                made.append('%s/%s-%s.gguf' % (folder, os.path.basename(source).split('-')[0], kind))
                retype.retype(source + '/model.gguf', made[-1], kind)
    # products side by side that no one fused kernel knows, of one kind of x
    made.append(folder + '/mixed.gguf')
    retype.retype(TESTS + '/data/quant/qwen3-256-Q5_0/model.gguf', made[-1], 'NVFP4,-,Q1_0,Q2_0,-')
    for label, (pack, config) in quant_dirs.CASES.items():
        made.append('%s/%s' % (folder, label.replace(' ', '_')))
        quant_dirs.write(made[-1], quant_dirs.make(pack)[0], {**quant_dirs.CONFIG, **config})
    return made


def compare(program, device, path):
    """-> list of (result, what); result: True, False or None for skipped."""
    name = os.path.basename(os.path.dirname(path)) + '/' + os.path.basename(path)
    out = []
    for n in LENGTHS:
        ids = [(i * i * 7 + i * 37 + 11) % 37 for i in range(n)]
        try:
            logits_bytes(program, path, ids, '--device', 'cpu')
            break
        except RuntimeError as e:
            why = str(e)
    else:
        return [(None, '%s: the CPU refuses it: %s' % (name, why))]
    for way in WAYS:
        kv = [x for i, x in enumerate(way) if way[max(0, i - i % 2)].startswith('-ct')]
        what = '%s: %s' % (name, ' '.join(way) or 'as it is')
        try:
            want = logits_bytes(program, path, ids, '--all', '--device', 'cpu', *kv)
        except RuntimeError as e:
            out.append((None, '%s: %s' % (what, e)))
            continue
        try:
            got = logits_bytes(program, path, ids, '--all', '--device', device, *EXACT, *way)
        except RuntimeError as e:
            refused = 'no CUDA kernel' in str(e) or 'CPU only' in str(e) or 'shared memory' in str(e)
            out.append((None if refused else False, '%s: %s' % (what, e)))
            if refused:
                break
            continue
        if got != want:
            a, b = memoryview(want[2]).cast('f'), memoryview(got[2]).cast('f')
            rows, width = len(a) // want[0][-1], want[0][-1]
            bad = [r for r in range(rows) if a[r * width:(r + 1) * width] != b[r * width:(r + 1) * width]]
            most = max((abs(x - y) for x, y in zip(a, b)), default=0)
            what += ' (%d of %d rows differ, the first is %d, by %g at most)' % (
                len(bad), rows, bad[0] if bad else -1, most)
        out.append((got == want, what))
    return out


def compare_fast(program, device, path):
    """--numerics tensor and fast have bits of their own, the same for every cut of the prompt: the kernels for one row,
    for up to 8, 16 and 32, and for many, of products and of attention."""
    name = os.path.basename(os.path.dirname(path)) + '/' + os.path.basename(path)
    ids = [(i * i * 7 + i * 37 + 11) % 37 for i in range(LENGTHS[0])]
    seen = []
    for kind in 'exact', 'tensor', 'fast':
        flags = ['--all', '--device', device, '--numerics', kind]
        try:
            want = logits_bytes(program, path, ids, *flags)
        except RuntimeError as e:
            yield None, '%s, %s: %s' % (name, kind, e)
            return
        if want in seen:
            yield None, '%s, %s: nothing here is made otherwise' % (name, kind)
            continue
        for way in FAST_WAYS if seen else []:
            yield logits_bytes(program, path, ids, *flags, *way) == want, '%s, %s: %s' % (name, kind, ' '.join(way))
        seen.append(want)


def compare_deep(program, device, path):
    """So many pages that decode walks them and decode_join merges them; then prompts in pieces over them."""
    name = os.path.basename(os.path.dirname(path)) + '/' + os.path.basename(path)
    ids = [(i * i * 7 + i * 37 + 11) % 37 for i in range(DEEP)]
    for kind in 'f16', 'bf16', 'q8_0':
        kv = ['-ctk', kind, '-ctv', kind, '-c', str(DEEP + 64)]
        want = logits_bytes(program, path, ids, '--device', 'cpu', *kv)
        for cut in '1', '500':
            what = '%s: %d tokens, %s -b %s' % (name, DEEP, ' '.join(kv[:4]), cut)
            try:
                yield logits_bytes(program, path, ids, '--device', device, '-b', cut, *EXACT, *kv) == want, what
            except RuntimeError as e:
                yield None, '%s: %s' % (what, e)


def compare_fast_deep(program, device, path):
    """Attention of --numerics tensor over many pages: a row at a time, tiles of rows page by page, and pages walked by
    tiles that are as many as multiprocessors."""
    name = os.path.basename(os.path.dirname(path)) + '/' + os.path.basename(path)
    ids = [(i * i * 7 + i * 37 + 11) % 37 for i in range(DEEP)]
    for kind in 'f16', 'bf16', 'q8_0':
        fast = ['--all', '--device', device, '--numerics', 'tensor', '-ctk', kind, '-ctv', kind, '-c', str(DEEP + 64)]
        want = logits_bytes(program, path, ids, *fast, '-b', '1')
        for cut in '3', '64', '300', str(DEEP):
            yield (logits_bytes(program, path, ids, *fast, '-b', cut) == want,
                   '%s, tensor: %d tokens, %s -b %s' % (name, DEEP, kind, cut))


CHAINS = [['--temp', '0'], [], ['--top-k', '48', '--temp', '1.5'], ['--top-k', '9', '--top-p', '1', '--min-p', '0.3', '--temp', '3'],
          ['--samplers', 'top_k;min_p;top_p;temperature', '--top-k', '33', '--top-p', '0.6', '--temp', '1.2'],
          ['--min-keep', '20', '--top-k', '30', '--temp', '2'], ['--top-k', '1'], ['--top-k', '256', '--top-p', '1', '--min-p', '0', '--temp', '1.5'],
          ['--top-k', '257', '--temp', '1.5'], ['--top-k', '0', '--temp', '1.2'],
          ['--top-k', '20', '--repeat-penalty', '1.3', '--temp', '1.5'], ['--temp', '0', '--repeat-penalty', '1.3'],
          ['--top-k', '50', '--repeat-penalty', '0.9'], ['--temp', '0', '--dry-multiplier', '0.8'],
          ['--top-nsigma', '1'], ['--mirostat', '2'], ['--top-k', '5', '--logit-bias', '20-100', '--logit-bias', '21+3'],
          ['--top-k', '30', '--min-keep', '100', '--temp', '2']]


def requests():
    """Answers side by side that want few logits, all, and all for their log-probabilities."""
    for i in range(24):
        body = {'model': 'm', 'prompt': 'Once upon a time, number %d' % (i // 2), 'max_tokens': 20 + i, 'seed': i,
                'temperature': (i % 4) * 0.5, 'top_k': (40, 0, 1, 200, 7)[i % 5]}
        if i % 6 == 1:
            body['logprobs'] = 3
        if i % 6 == 4:
            body['presence_penalty'] = 0.7
        if i % 8 == 7:
            body['n'] = 2
        yield json.dumps({'custom_id': str(i), 'method': 'POST', 'url': '/v1/completions', 'body': body}) + '\n'


def answers(program, path, *args):
    with tempfile.TemporaryDirectory() as t:
        with open(t + '/in.jsonl', 'w') as f:
            f.writelines(requests())
        lode(program, 'batch', t + '/in.jsonl', '-o', t + '/out.jsonl', '-m', path, '-c', '512', *args)
        return [json.loads(line)['response']['body'].get('choices') for line in open(t + '/out.jsonl')]


def draws(program, device, path):
    name = os.path.basename(os.path.dirname(path)) + '/' + os.path.basename(path)
    for chain in CHAINS:
        args = ['run', '-m', path, '--raw', '-p', 'Once upon a time', '-n', '60', '-s', '7', '-c', '256', *chain]
        want, got = (lode(program, *args, *EXACT, '--device', d) for d in ('cpu', device))
        yield want == got, '%s: an answer with %s' % (name, ' '.join(chain) or 'the usual sampler')
    want, got = (answers(program, path, *EXACT, '--device', d) for d in ('cpu', device))
    yield None not in want and want == got, '%s: %d answers at once' % (name, len(want))
    want, got = (answers(program, path, '--device', device, '-np', n) for n in ('1', '8'))
    yield None not in want and want == got, '%s: one answer after the other, and eight at once' % name


def main():
    program = os.path.abspath(sys.argv[1])
    device = sys.argv[2] if len(sys.argv) > 2 else 'cuda'
    count = Count()
    try:
        lode(program, 'logits', models(sys.argv[3:])[0], '--ids', '1', '--device', device)
    except RuntimeError as e:
        if 'no CUDA kernel' not in str(e):
            count.skip('all: %s' % e)
            print('0 passed, 0 failed, 1 skipped')
            return
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get('LODE_JOBS', '1'))) as pool, \
            tempfile.TemporaryDirectory() as folder:
        todo = models(sys.argv[3:]) + ([] if sys.argv[3:] else make_models(folder))
        parts = os.environ.get('PARTS', 'exact,fast,deep,draws').split(',')
        for part, function in ('exact', compare), ('fast', compare_fast):
            for results in pool.map(lambda p: list(function(program, device, p)), todo if part in parts else []):
                for good, what in results:
                    count.skip(what) if good is None else count.check(good, what)
        for path in [p for p in todo if p.endswith('/llama/model.gguf') and 'deep' in parts][:1]:
            for good, what in (*compare_deep(program, device, path), *compare_fast_deep(program, device, path)):
                count.skip(what) if good is None else count.check(good, what)
    for path in sys.argv[3:] or [TESTS + '/data/arch/%s/model.gguf' % n for n in ('llama', 'gemma3', 'qwen3_moe')] + \
            glob.glob(SHARED + '/models/demo/demo-Q4_K_M.gguf'):
        for good, what in draws(program, device, path) if path.endswith('.gguf') and 'draws' in parts else []:
            count.check(good, what)
    count.end()


main()
