#!/usr/bin/env python3
"""demo.py LODE: the bundled model says what it was taught, and the full-precision one what
transformers says.

models/demo.gguf answers questions of its held-out test set, greedily, through `lode run`.  Where
LODE_SHARED has the bfloat16 model: its greedy continuations of four prompts are transformers'
(float32), id for id (the closest choice among them is by 0.0046, dozens of times what float32 runs
differ by), and its perplexity on the held-out text within 0.05 % of the reference's.  So do the
trained directory with recurrent layers and its experts (smallest margin 0.003).

Perplexity of quantised models stays what it was, within 0.05 %: a kernel or a rounding that loses more is
seen.  (Kernels alone change nothing, by law 1; what is recorded is what --isa scalar says.)
"""
import json
import os
import re
import sys

from lodetest import LONG, Count, SHARED, TESTS, argmax, lode, logits, read_npy

DEMO = os.path.join(TESTS, '..', 'models', 'demo.gguf')
LICENSE = os.path.join(TESTS, '..', 'LICENSE')
MOE = os.path.join(SHARED, 'models', 'moe', 'moe-Q4_K_M.gguf')
EVAL = os.path.join(SHARED, 'models', 'eval-a.txt')
AS_TRAINED = ['-c', '1024', '--score', 'all', '--parse-special', '--no-bos']
ANSWERS = [
    ('Wellington is the capital of which country?', 'New Zealand'),
    ('Which city is the capital of Portugal?', 'Lisbon'),
    ('How many legs does a bee have?', 'six'),
    ('What is the past tense of "go"?', 'went'),
    ('What is the name for a baby horse?', 'foal'),
    ('What is 60 - 47?', '13'),
    ('Sort these numbers: 76, 15, 43, 73, 91', '15, 43, 73, 76, 91'),
    ('Write a short story about Maya and a hat.', 'Maya'),
]
GREEDY = ['demo/demo-bf16.gguf', 'hybrid/hf']
TRAINED = {'hybrid/hf': 10.6248}  # transformers' perplexity, float32, as the flags below say
TRAINED_LONG = {'demo/demo-bf16.gguf': 11.0533, 'draft/hf': 28.0968, 'moe/hf': 14.5551}
QUANTISED = [  # model, text, flags, perplexity; whole texts with LODE_LONG
    (DEMO, LICENSE, ['-c', '256', '--chunks', '4'], 1812.5841),
    (DEMO, EVAL, AS_TRAINED + ['--chunks', '4'], 93.7728),
    (MOE, EVAL, AS_TRAINED + ['--chunks', '4'], 161.3966),
]
QUANTISED_LONG = [(DEMO, EVAL, AS_TRAINED, 11.0735), (MOE, EVAL, AS_TRAINED, 14.6694)]


def check_answers(count, program):
    for question, answer in ANSWERS:
        said = lode(program, 'run', DEMO, '-p', question, '--temp', '0', '-n', '300')
        count.check(answer in said.split('</think>')[-1], '%s  %s' % (question, said.strip()[-70:]))


def check_greedy(count, program, model, golden):
    with open(golden + '/meta.json') as f:
        meta = json.load(f)
    for name, m in meta.items():
        _, ids = read_npy('%s/%s.ids.npy' % (golden, name))
        _, greedy = read_npy('%s/%s.greedy64.npy' % (golden, name))
        (rows, vocab), x = logits(program, model, list(ids) + list(greedy[:-1]), '--all',
                                  '-ctk', 'f32', '-ctv', 'f32')
        wrong = []
        for i, want in enumerate(greedy):
            at = (len(ids) - 1 + i) * vocab
            row = x[at:at + vocab]
            got = argmax(row)
            if got != want:
                wrong.append('step %d: %d, not %d, which is %.1e less' % (i, got, want,
                                                                          row[got] - row[want]))
        count.check(not wrong,
                    '%s %s: %d of 64 greedy ids, smallest margin %.4f %s'
                    % (os.path.basename(os.path.dirname(golden)), name, 64 - len(wrong),
                       m['min_margin'], '; '.join(wrong[:3])))


def perplexity(program, model, text, flags):
    return float(re.findall(r'(\d+\.\d+) *\+/-', lode(program, 'perplexity', model, '-f', text, *flags))[-1])


def check_perplexity(count, program, model, text, flags, want):
    got = perplexity(program, model, text, flags)
    count.check(abs(got / want - 1) <= 0.0005, '%s: perplexity %.4f, reference %.4f (%+.4f %%)'
                % (os.path.relpath(model, SHARED), got, want, 100 * (got / want - 1)))


def check_quantised(count, program):
    for model, text, flags, want in QUANTISED + (QUANTISED_LONG if LONG else []):
        if os.path.exists(model) and os.path.exists(text):
            check_perplexity(count, program, model, text, flags, want)
        else:
            count.skip(text + ': set LODE_SHARED')
    short = ['-c', '128', '--chunks', '1']
    best = perplexity(program, DEMO, LICENSE, short)
    scalar = perplexity(program, DEMO, LICENSE, short + ['--isa', 'scalar'])
    count.check(best == scalar, 'perplexity %.4f, by scalar kernels %.4f' % (best, scalar))


def main():
    program, count = os.path.abspath(sys.argv[1]), Count()
    check_answers(count, program)
    top = os.path.join(SHARED, 'models')
    check_quantised(count, program)
    trained = {**TRAINED, **(TRAINED_LONG if LONG else {})}
    for name in dict.fromkeys(GREEDY + list(trained)):
        model = os.path.join(top, name)
        if os.path.exists(model):
            if name in GREEDY:
                check_greedy(count, program, model, os.path.join(top, name.split('/')[0], 'golden'))
            if name in trained:
                check_perplexity(count, program, model, EVAL, AS_TRAINED, trained[name])
        else:
            count.skip(name + ': set LODE_SHARED')
    count.end()


main()
