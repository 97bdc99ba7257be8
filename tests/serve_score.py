#!/usr/bin/env python3
"""serve_score.py LODE: texts weighed over HTTP: log-probabilities of an echoed prompt, text around a gap,
beams, /v1/classify and /v1/score. What one way says must be what another way of asking says."""
import json
import math
import os
import struct
import sys
import tempfile
import time

from lodeserver import MODEL, PATIENCE, Server, need_server
from lodetest import Count, TESTS

TEXT = 'Once upon a time there was'
GAP = ['<fim_prefix>', '<fim_suffix>', '<fim_middle>']


def complete(s, **body):
    return s.post('/v1/completions', dict({'prompt': TEXT, 'max_tokens': 0, 'temperature': 0}, **body))[1]


def check_echo(count, s):
    ids = s.post('/tokenize', {'content': TEXT, 'add_special': True})[1]['tokens']
    whole = complete(s, echo=True, logprobs=2, max_tokens=5)['choices'][0]
    p = whole['logprobs']
    count.check(''.join(p['tokens']) == whole['text'] and whole['text'].startswith(TEXT)
                and p['text_offset'] == [len(''.join(p['tokens'][:i])) for i in range(len(p['tokens']))],
                'echo: the prompt is among the tokens')
    count.check(p['token_logprobs'][0] is None and p['top_logprobs'][0] is None
                and all(x <= 0 for x in p['token_logprobs'][1:]) and all(len(x) == 2 for x in p['top_logprobs'][1:]),
                'echo: all but the first weigh something')
    for n in range(1, len(ids)):  # each as it weighs when it comes next
        one = complete(s, prompt=ids[:n], max_tokens=1, logprobs=1, logit_bias={str(ids[n]): 100})
        if one['choices'][0]['logprobs']['token_logprobs'][0] != p['token_logprobs'][n]:
            break
    count.check(n == len(ids) - 1, 'echo: what a token weighs when it is generated')
    only = complete(s, echo=True, logprobs=2, n=2)
    count.check(all(c['logprobs']['token_logprobs'] == p['token_logprobs'][:len(ids)] and c['text'] == TEXT
                    and c['finish_reason'] == 'length' for c in only['choices'])
                and only['usage']['completion_tokens'] == 0, 'echo: nothing generated, for each choice')
    chunks = [json.loads(e)['choices'][0] for e in s.stream('/v1/completions', {
        'prompt': TEXT, 'echo': True, 'logprobs': 2, 'max_tokens': 5, 'temperature': 0})[:-1]]
    count.check(chunks[0]['text'] == TEXT and ''.join(c['text'] for c in chunks) == whole['text']
                and sum((c['logprobs']['token_logprobs'] for c in chunks), []) == p['token_logprobs']
                and [c['finish_reason'] for c in chunks] == [None] * (len(chunks) - 1) + ['length'],
                'echo: streamed')


def with_gap_tokens(path):
    """The model, three of whose unused tokens are called as those around a gap are."""
    with open(MODEL, 'rb') as f:
        data = f.read()
    for i, name in enumerate(GAP):
        old = b'<|unused_%d|>' % i
        assert len(old) == len(name) and data.count(struct.pack('<Q', len(old)) + old) == 1
        data = data.replace(struct.pack('<Q', len(old)) + old, struct.pack('<Q', len(old)) + name.encode())
    with open(path, 'wb') as f:
        f.write(data)


def check_gap(count, program, s):
    r = s.post('/v1/completions', {'prompt': TEXT, 'suffix': ' The end.'})
    count.check(r[0] == 400 and r[1]['error']['param'] == 'suffix', 'suffix: not with this model')
    with tempfile.TemporaryDirectory() as folder:
        with_gap_tokens(os.path.join(folder, 'gap.gguf'))
        g = Server(program, '-c', '512', model=os.path.join(folder, 'gap.gguf'))
        before, behind = (g.post('/tokenize', {'content': t, 'parse_special': False})[1]['tokens']
                          for t in (TEXT, '<think> The end.'))
        marks = g.post('/tokenize', {'content': ''.join(GAP)})[1]['tokens']
        count.check(len(marks) == 3, 'suffix: a model with the tokens for it')
        ask = {'max_tokens': 12, 'temperature': 0}
        want = g.post('/v1/completions', dict(ask, prompt=marks[:1] + before + marks[1:2] + behind + marks[2:]))[1]
        got = g.post('/v1/completions', dict(ask, prompt=TEXT, suffix='<think> The end.'))[1]
        count.check(got['choices'] == want['choices'] and got['usage']['prompt_tokens']
                    == want['usage']['prompt_tokens'], 'suffix: the tokens around a gap')
        got = g.post('/api/generate', {'prompt': TEXT, 'suffix': '<think> The end.', 'stream': False, 'options': {
            'num_predict': 12, 'temperature': 0}})[1]
        count.check(got['response'] == want['choices'][0]['text'], 'suffix: of Ollama\'s')
        g.stop()


def check_beams(count, s):
    ask = dict(use_beam_search=True, max_tokens=6)
    best = complete(s, n=4, **ask)['choices']
    count.check([c['index'] for c in best] == [0, 1, 2, 3] and len({c['text'] for c in best}) == 4
                and [c['score'] for c in best] == sorted((c['score'] for c in best), reverse=True), 'beams')
    for c in best[:2]:  # what it says it weighs is what the text weighs
        n = len(s.post('/tokenize', {'content': TEXT, 'add_special': True})[1]['tokens'])
        p = complete(s, prompt=TEXT + c['text'], echo=True, logprobs=0)['choices'][0]['logprobs']['token_logprobs']
        count.check(len(p) != n + 6 or abs(sum(p[n:]) - c['cumulative_logprob']) < 1e-4, 'beams: their weight')
    greedy = complete(s, max_tokens=6, logprobs=0)['choices'][0]
    count.check(complete(s, **ask)['choices'][0]['text'] == greedy['text'], 'beams: one beam is the likeliest token')
    count.check(best[0]['cumulative_logprob'] >= sum(greedy['logprobs']['token_logprobs']) - 1e-6,
                'beams: several find nothing worse')
    for bad, field in (({'stream': True}, 'stream'), ({'n': 100}, 'n'), ({'prompt': ['a', 'b']}, 'prompt'),
                       ({'length_penalty': -1}, 'length_penalty'), ({'logprobs': 1}, 'logprobs')):
        e = complete(s, **dict(ask, **bad))['error']
        count.check(e['param'] == field, 'beams: refused: %s' % field)
    body = {'messages': [{'role': 'user', 'content': 'Hi'}], 'use_beam_search': True}
    count.check(s.post('/v1/chat/completions', body)[1]['error']['param'] == 'use_beam_search', 'beams: not of chats')


def check_labels(count, s):
    labels = [' time', ' house', ' time ago']
    inputs = ['Once upon a', 'In the garden stood a']
    r = s.post('/v1/classify', {'input': inputs, 'labels': labels})[1]
    good = True
    for text, d in zip(inputs, r['data']):
        n = len(s.post('/tokenize', {'content': text, 'add_special': True})[1]['tokens'])
        want = [sum(complete(s, prompt=text + x, echo=True, logprobs=0)['choices'][0]['logprobs']
                    ['token_logprobs'][n:]) for x in labels]
        good = good and all(abs(a - b) < 1e-5 for a, b in zip(d['logprobs'], want))
        good = good and abs(sum(d['probs']) - 1) < 1e-9 and d['label'] == labels[want.index(max(want))]
    count.check(good and r['data'][0]['label'] == ' time' and r['data'][1]['num_classes'] == 3,
                'classify: labels weighed as the texts with them')
    count.check(s.post('/classify', {'input': inputs[0], 'labels': labels})[1]['data'] == r['data'][:1],
                'classify: one text')
    ids = [s.post('/tokenize', {'content': x})[1]['tokens'][0] for x in labels[:2]]
    r = s.post('/v1/score', {'query': 'Once upon', 'items': [' a', ' the'], 'label_token_ids': ids})[1]
    want = s.post('/v1/classify', {'input': 'Once upon a', 'labels': labels[:2]})[1]['data'][0]
    count.check(len(r['scores']) == 2 and all(abs(p - math.exp(x)) < 1e-9
                                              for p, x in zip(r['scores'][0], want['logprobs'])), 'score: tokens')
    r = s.post('/v1/score', {'query': 'Once upon', 'items': ' a', 'label_token_ids': ids, 'apply_softmax': True})[1]
    count.check(all(abs(a - b) < 1e-12 for a, b in zip(r['scores'][0], want['probs'])), 'score: as shares')
    for path, bad, field in (
            ('classify', {'input': 'x'}, 'labels'), ('classify', {'labels': labels}, 'input'),
            ('classify', {'input': ['x', 1], 'labels': labels}, 'input'),
            ('classify', {'input': 'x', 'labels': ['a', '']}, 'labels'),
            ('classify', {'input': 'x ' * 4000, 'labels': labels}, 'context'),
            ('score', {}, 'text_1'), ('score', {'text_1': 'a', 'text_2': []}, 'text_2'),
            ('score', {'text_1': ['a', 'b'], 'text_2': ['a', 'b', 'c']}, 'text_2'),
            ('score', {'query': 'a', 'items': ['b']}, 'label_token_ids'),
            ('score', {'query': 'a', 'items': [[1]], 'label_token_ids': [1]}, 'items'),
            ('score', {'query': 'a', 'items': ['b'], 'label_token_ids': [1 << 30]}, 'continuations')):
        status, e = s.post('/v1/' + path, bad)
        count.check(status == 400 and e['error']['param'] == field, '%s: refused: %s' % (path, field))
    body = json.dumps({'input': ['word ' * 1000 + str(i) for i in range(400)], 'labels': labels}).encode()
    with s.connect(b'POST /v1/classify HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n' % len(body) + body):
        time.sleep(0.5)
    end = time.monotonic() + PATIENCE
    while s.metric('lode:http_requests_in_flight') and time.monotonic() < end:
        time.sleep(0.02)
    count.check(time.monotonic() < end, 'classify: a client that leaves ends its request')


def check_pairs(count, s, program):
    texts = ['a cat', 'the dog', 'a cat']
    r = s.post('/v1/score', {'text_1': 'a cat', 'text_2': texts})[1]['data']
    vectors = [d['embedding'] for d in s.post('/v1/embeddings', {'input': texts})[1]['data']]
    want = [sum(a * b for a, b in zip(vectors[0], v)) for v in vectors]
    count.check(all(abs(d['score'] - w) < 1e-6 for d, w in zip(r, want)) and r[1]['score'] < r[0]['score'],
                'score: the cosine of vectors')
    e = Server(program, '-c', '0', model=os.path.join(TESTS, 'data', 'encoders', 'bert_rank'))
    pairs = e.post('/v1/score', {'text_1': 'hello', 'text_2': texts})[1]['data']
    rank = {x['index']: x['relevance_score']
            for x in e.post('/v1/rerank', {'query': 'hello', 'documents': texts})[1]['results']}
    count.check([d['score'] for d in pairs] == [rank[i] for i in range(3)], 'score: a cross-encoder')
    both = e.post('/v1/score', {'text_1': ['hello', 'a', 'b'], 'text_2': texts})[1]['data']
    count.check(both[0]['score'] == pairs[0]['score'] and len(both) == 3, 'score: pairs')
    d = e.post('/v1/classify', {'input': texts})[1]['data']
    count.check(len(d) == 3 and d[0]['probs'] == d[2]['probs'] and 0 < d[0]['probs'][0] < 1
                and d[0]['label'] == 'LABEL_0', 'classify: a classifier')
    e.stop()


def main():
    program, count = sys.argv[1], Count()
    need_server(count, program)
    s = Server(program)
    try:
        check_echo(count, s)
        check_gap(count, program, s)
        check_beams(count, s)
        check_labels(count, s)
        check_pairs(count, s, program)
    finally:
        status = s.stop()
    count.check(status == 0, 'SIGTERM ends it')
    count.end()


main()
