#!/usr/bin/env python3
"""demo.py LODE: the bundled model says what it was taught, and the full-precision one what
transformers says.

models/demo.gguf answers questions of its held-out test set, greedily, through `lode run`.  Where
LODE_SHARED has the bfloat16 model: its greedy continuations of four prompts are transformers'
(float32), id for id (the closest choice among them is by 0.0046, dozens of times what float32 runs
differ by), and its perplexity on the held-out text within 0.1 % of the reference's.  So do the
trained directory with recurrent layers and its experts (smallest margin 0.003).
"""
import json
import os
import re
import sys

from lodetest import Count, SHARED, TESTS, argmax, lode, logits, read_npy

DEMO = os.path.join(TESTS, '..', 'models', 'demo.gguf')
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
TRAINED = {  # transformers' perplexity, float32, as the flags below say
    'demo/demo-bf16.gguf': 11.0533,
    'hybrid/hf': 10.6248,
}


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


def check_perplexity(count, program, model, text, want):
    out = lode(program, 'perplexity', model, '-f', text, '-c', '1024', '--score', 'all',
               '--parse-special', '--no-bos')
    got = float(re.findall(r'(\d+\.\d+) *\+/-', out)[-1])
    count.check(abs(got / want - 1) <= 0.001, 'perplexity %.4f, reference %.4f (%+.3f %%)'
                % (got, want, 100 * (got / want - 1)))


def main():
    program, count = os.path.abspath(sys.argv[1]), Count()
    check_answers(count, program)
    top = os.path.join(SHARED, 'models')
    for name, perplexity in TRAINED.items():
        model = os.path.join(top, name)
        if os.path.exists(model):
            check_greedy(count, program, model, os.path.join(top, name.split('/')[0], 'golden'))
            check_perplexity(count, program, model, os.path.join(top, 'eval-a.txt'), perplexity)
        else:
            count.skip(name + ': set LODE_SHARED')
    count.end()


main()
