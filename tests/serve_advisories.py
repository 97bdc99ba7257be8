#!/usr/bin/env python3
"""serve_advisories.py LODE [CHECK...]: what has been reported against other servers, tried on ours (the rows of B2 in
performance-reliability that a request can reach), every numeric field with every odd value, JSON that is none.

The server must answer each of these with a status below 500 that says what is wrong, in bounded time and memory,
and then answer an ordinary request with the bytes that it gave before."""
import gzip
import itertools
import json
import random
import re
import sys
import threading
import time

from lodeserver import Server, need_server
from lodetest import LONG, Count

CHAT = '/v1/chat/completions'
HELLO = {'messages': [{'role': 'user', 'content': 'Tell me about a cat.'}], 'seed': 3, 'max_tokens': 8}
SHORT = {'messages': [{'role': 'user', 'content': 'Hi'}], 'max_tokens': 1, 'seed': 1}


def ask(s, path, body):
    start = time.monotonic()
    data = body if isinstance(body, bytes) else json.dumps(body)
    code, text, _ = s.ask('POST', path, data.encode() if isinstance(data, str) else data)
    return code, text, time.monotonic() - start


def refused(count, s, what, body, path=CHAT, codes=(400,)):
    code, text, taken = ask(s, path, body)
    count.check(code in codes and taken < 10, '%s: %d after %.2f s%s' % (what, code, taken,
                                                                        '' if code in codes else ' ' + text[:200]))
    return text


def nested(depth, inner):
    return '{"items":' * depth + inner + '}' * depth


def check_forms(count, s):
    """Row 8: grammars, patterns and schemas that killed their compilers, or were ignored."""
    deep = '(' * 60000 + '"a"' + ')' * 60000
    refused(count, s, 'a grammar of 60,000 brackets', dict(SHORT, grammar='root ::= ' + deep))
    refused(count, s, 'a grammar that calls itself first', dict(SHORT, grammar='root ::= root "a"'))
    refused(count, s, 'repeated nothing', dict(SHORT, grammar='root ::= ("" | "")* ("" )+ root'))
    refused(count, s, 'a grammar that is none', dict(SHORT, grammar='this is no grammar'))
    refused(count, s, 'a grammar without root', dict(SHORT, grammar='a ::= "a"'))
    body = json.dumps(dict(SHORT, response_format={'type': 'json_schema', 'json_schema': {'name': 'x', 'schema': 7}}))
    refused(count, s, 'a schema 20,000 deep', body.replace('7}}', nested(20000, '{}') + '}}').encode())
    for pattern in ('(' * 20000 + ')' * 20000, '(((a*)*)*)*b', 'a{1000}{1000}{1000}', '[', '(?<=x)y', '\\1'):
        code, text, taken = ask(s, CHAT, dict(SHORT, response_format={'type': 'json_schema', 'json_schema': {
            'name': 'x', 'schema': {'type': 'string', 'pattern': pattern}}}))
        count.check(code in (200, 400) and taken < 10, 'a pattern: %r: %d after %.2f s' % (pattern[:20], code, taken))
    refused(count, s, 'a reference to itself',
            dict(SHORT, response_format={'type': 'json_schema', 'json_schema': {
                'name': 'x', 'schema': {'$ref': '#'}}}), codes=(200, 400))


def check_one_request(count, s):
    """Rows 5, 6, 9, 10, 14: what one request may ask for."""
    for n in (0, -1, 1000000000, 2 ** 63):
        refused(count, s, 'n of %d' % n, dict(SHORT, n=n))
    refused(count, s, 'a negative n_discard changes nothing', dict(SHORT, n_discard=-2 ** 31, n_keep=-5), codes=(200, 400))
    refused(count, s, 'an empty prompt', {'prompt': '', 'max_tokens': 1}, '/v1/completions', (200, 400))
    refused(count, s, 'no tokens', {'prompt': [], 'max_tokens': 1}, '/v1/completions', (200, 400))
    for bad in ([-1], [2 ** 31], [2 ** 62], [1.5], [10 ** 6], ['x', 1]):
        refused(count, s, 'token ids %r' % bad, {'prompt': bad, 'max_tokens': 1}, '/v1/completions')
        if bad != ['x', 1]:
            refused(count, s, 'detokenized', {'tokens': bad}, '/detokenize')
    refused(count, s, 'a logit_bias of no token', dict(SHORT, logit_bias={'99999999': 1}))
    code = '{{ "".__class__.__mro__ }}{% for x in range(1000000000) %}{{ x }}{% endfor %}'
    refused(count, s, 'a template of the client\'s is not run', dict(SHORT, chat_template=code), codes=(200, 400))
    refused(count, s, 'its variables are data', dict(SHORT, chat_template_kwargs={'messages': code, 'a' * 1000: code}),
            codes=(200, 400))
    refused(count, s, 'drafts and penalties at once', dict(SHORT, prompt_embeds='AAAA', repeat_penalty=1.5, logprobs=True,
                                                           top_logprobs=20, presence_penalty=2), codes=(200, 400))
    refused(count, s, 'more stops than anybody needs', dict(SHORT, stop=['a'] * 10000))
    for url in ('http://169.254.169.254/', 'file:///etc/passwd', 'data:image/png;base64,' + 'A' * 100000):
        text = refused(count, s, 'a picture at ' + url[:30], {'messages': [{'role': 'user', 'content': [
            {'type': 'image_url', 'image_url': {'url': url}}]}]})
        count.check('root:' not in text, 'is not fetched')
    for path in ('/v1/../../../../etc/passwd', '/v1/responses/..%2f..%2fetc%2fpasswd', '/v1/models//etc/passwd',
                 '/lode/chats/../../etc/passwd'):
        code, text, _ = s.ask('GET', path)
        count.check(code in (400, 404, 501) and 'root:' not in text, 'no path leads out')
    for name in ('/etc/passwd', '../../models/other.gguf', 'hf.co/a/b', 'x' * 100000):
        refused(count, s, 'a model by its path is not opened', dict(SHORT, model=name), codes=(200, 404))
    bomb = gzip.compress(json.dumps(dict(SHORT, user='a' * (64 << 20))).encode())
    code, text, _ = s.ask('POST', CHAT, bomb, {'Content-Encoding': 'gzip'})
    count.check(code == 415 and 'Content-Encoding' in text, 'a bomb of gzip is not opened')


def check_json(count, s):
    """N4, and row 13: what an error tells."""
    bad = {'a million keys': '{' + ','.join('"%d":0' % i for i in range(10 ** 6)) + '}',
           'a million deep': '[' * 10 ** 6, 'a million deep, closed': '{"a":' + '[' * 10 ** 6 + ']' * 10 ** 6 + '}',
           'half a surrogate': '{"messages":"\\ud800"}', 'a NUL': '{"messages":"\\u0000"}',
           'not a number': '{"temperature":NaN}', 'too large a number': '{"temperature":1e999}',
           'a long integer': '{"seed":' + '9' * 5000 + '}', 'the same key twice': '{"n":1,"n":2}',
           'an end too many': '{}}', 'a comma too many': '{"a":1,}', 'single quotes': "{'a':1}", 'nothing': ''}
    for what, body in bad.items():
        text = refused(count, s, what, body.encode())
        count.check(not re.search(r'0x[0-9a-f]{6,}', text) and len(text) < 2000, 'an error without addresses')
    for what, body in (('overlong UTF-8', b'{"messages":"\xc0\xaf"}'), ('cut UTF-8', b'{"messages":"\xe2\x82"}'),
                       ('a NUL in the text', b'{"mess\x00ages":1}')):
        refused(count, s, what, body)


ODD = (-2 ** 63, -1, 0, 1, 2 ** 31, 1e308, -0.0, 'x', None, [], {}, True, 0.5)
FIELDS = {
    CHAT: (SHORT, ('temperature', 'top_p', 'top_k', 'min_p', 'typical_p', 'max_tokens', 'max_completion_tokens', 'seed', 'n',
                   'presence_penalty', 'frequency_penalty', 'repeat_penalty', 'repeat_last_n', 'top_logprobs',
                   'dry_multiplier', 'xtc_probability', 'mirostat', 'timeout', 'priority')),
    '/v1/completions': ({'prompt': 'Hi', 'max_tokens': 1}, ('max_tokens', 'logprobs', 'best_of', 'n', 'n_predict', 'seed')),
    '/v1/messages': ({'messages': [{'role': 'user', 'content': 'Hi'}], 'max_tokens': 1},
                     ('max_tokens', 'temperature', 'top_k', 'top_p')),
    '/v1/embeddings': ({'input': 'Hi'}, ('dimensions', 'encoding_format', 'pooling')),
    '/v1/rerank': ({'query': 'Hi', 'documents': ['a']}, ('top_n', 'return_documents')),
    '/v1/classify': ({'input': 'Hi', 'labels': ['a', 'b']}, ('labels', 'input')),
    '/v1/score': ({'query': 'Hi', 'items': ['a'], 'label_token_ids': [1]},
                  ('label_token_ids', 'apply_softmax', 'item_first', 'items', 'query')),
    '/completions': ({'prompt': 'Hi', 'max_tokens': 1, 'use_beam_search': True}, ('n', 'best_of', 'length_penalty')),
    '/v1/responses': ({'input': 'Hi', 'max_output_tokens': 1}, ('max_output_tokens', 'temperature', 'top_p', 'top_logprobs')),
}


def check_numbers(count, s):
    """N5: all pairs of fields, with odd values.  Limits on tokens stay, where both may be odd."""
    seed = 7
    rng = random.Random(seed)
    for path, (base, fields) in FIELDS.items():
        pairs = list(itertools.combinations(fields, 2))
        wrong, n = [], 0
        for a, b in pairs:
            for va, vb in itertools.product(ODD, ODD) if LONG else [(rng.choice(ODD), rng.choice(ODD)) for _ in range(2)]:
                body = dict(base, **{a: va, b: vb})
                # -1, null and large values mean "no limit": an answer of 2048 tokens each is not the point
                # (of two such fields one counts, so both must be small).
                if not all(isinstance(v, int) and v in (0, 1) for k, v in body.items()
                           if k in ('max_tokens', 'max_completion_tokens', 'max_output_tokens', 'n_predict')):
                    body['stop'] = body['stop_sequences'] = list('abcdeinorst ')
                    body.setdefault('timeout', 5)  # where the API has no stops: 408
                n += 1
                try:
                    code, text, taken = ask(s, path, body)
                except OSError as e:
                    wrong.append((body, repr(e)))
                    continue
                named = a in text or b in text or code in (200, 404, 408)
                if code >= 500 or not named or taken > 30:
                    wrong.append((body, code, text[:200]))
        count.check(not wrong, '%s: %d pairs of odd numbers%s' % (path, n, ' %r' % wrong[:2] if wrong else ''))


def check_isolation(count, s):
    """S4, row 13: what one says is in nobody else's answer, error or metrics, with shared prefixes, under load."""
    secret = 'Zq7-Kx9-secret-%06d'
    found, lock = [], threading.Lock()

    def client(k):
        for i in range(40 if LONG else 4):
            mine = secret % (k * 1000 + i)
            for body in (dict(HELLO, messages=[{'role': 'user', 'content': 'Remember %s. Say it.' % mine}]),
                         dict(HELLO, temperature=mine), {'messages': mine}, dict(HELLO, tools=[{'type': mine}])):
                text = ask(s, CHAT, body)[1]
                others = set(re.findall(r'Zq7-Kx9-secret-\d{6}', text)) - {mine}
                if others:
                    with lock:
                        found.append((mine, others))

    threads = [threading.Thread(target=client, args=(k,)) for k in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    rest = s.ask('GET', '/metrics')[1] + s.ask('GET', '/slots')[1] + s.ask('GET', '/props')[1] + s.ask('GET', '/lode/status')[1]
    count.check(not found and 'Zq7' not in rest, 'nobody learns what another said')


def main():
    program = sys.argv[1]
    count = Count()
    need_server(count, program)
    s = Server(program)
    try:
        wanted = s.post(CHAT, HELLO)[1]['choices']
        before = s.rss()
        for check in (check_forms, check_one_request, check_json, check_numbers, check_isolation):
            if len(sys.argv) > 2 and check.__name__ not in sys.argv:
                continue
            check(count, s)
            count.check(s.idle() and s.post(CHAT, HELLO)[1]['choices'] == wanted, 'and then an ordinary request')
        # the largest body, read and parsed, in each of a few arenas of malloc
        count.check(s.rss() - before < 1 << 30, 'memory grew by %.0f MiB' % ((s.rss() - before) / 2 ** 20))
    finally:
        ended = s.stop()
    count.check(ended == 0, 'SIGTERM ends it')
    count.end()


main()
