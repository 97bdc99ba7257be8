#!/usr/bin/env python3
"""verb_serve.py LODE: `lode serve` over HTTP: shapes of replies and streams, errors that name the field,
the same bytes under load, clients that go away, keys, and the end by SIGTERM."""
import json
import re
import signal
import socket
import sys
import threading
import time

from lodeserver import PATIENCE, Server, need_server
from lodetest import Count


def user(text):
    return [{'role': 'user', 'content': text}]


HELLO = {'messages': user('Tell me about a cat.'), 'seed': 3, 'max_tokens': 20}


def check_small(count, s):
    count.check('curl http://127.0.0.1:%d/v1/chat/completions' % s.port in s.said, 'a line to try')
    count.check(s.ask('GET', '/health')[:2] == (200, '{"status":"ok"}'), 'health')
    models = json.loads(s.ask('GET', '/v1/models')[1])['data']
    one = json.loads(s.ask('GET', '/v1/models/' + models[0]['id'])[1])
    count.check(one == models[0] and one['id'] == 'demo.gguf', 'models, and one of them')
    count.check(json.loads(s.ask('GET', '/props')[1])['default_generation_settings']['n_ctx'] == 2048,
                'props')
    ids = s.post('/tokenize', {'content': 'Héllo, world'})[1]['tokens']
    count.check(s.post('/detokenize', {'tokens': ids})[1]['content'] == 'Héllo, world',
                'tokens there and back')
    count.check('a cat' in s.post('/apply-template', HELLO)[1]['prompt'], 'template')
    types = re.findall(r'^# TYPE (\S+) (?:counter|gauge)$', s.ask('GET', '/metrics')[1], re.M)
    count.check(len(types) == len(set(types)) > 10, 'metrics')


def check_chat(count, s):
    status, r = s.post('/v1/chat/completions', HELLO)
    c = r['choices'][0]
    count.check(status == 200 and r['object'] == 'chat.completion' and c['message']['content']
                and c['message']['role'] == 'assistant', 'a chat answered')
    count.check(r['usage']['total_tokens'] == r['usage']['prompt_tokens']
                + r['usage']['completion_tokens'] and r['usage']['completion_tokens'] <= 20, 'usage')
    events = s.stream('/v1/chat/completions', dict(HELLO, stream_options={'include_usage': True}))
    count.check(events[-1] == '[DONE]', 'a stream ends in [DONE]')
    chunks = [json.loads(e) for e in events[:-1]]
    count.check(chunks[0]['choices'][0]['delta'].get('role') == 'assistant', 'the role comes first')
    count.check(chunks[-1]['choices'] == [] and chunks[-1]['usage']['completion_tokens']
                == r['usage']['completion_tokens'], 'the usage comes last')
    last = chunks[-2]['choices'][0]
    count.check(last['delta'] == {} and last['finish_reason'] == c['finish_reason'],
                'before it the reason to finish')
    text = ''.join(x['choices'][0]['delta'].get('content') or '' for x in chunks[:-1])
    count.check(text == c['message']['content'], 'the stream has the same text')
    count.check(s.post('/v1/chat/completions', HELLO)[1]['usage']['prompt_tokens_details']
                ['cached_tokens'] == r['usage']['prompt_tokens'] - 1, 'a repeated prompt is reused')
    parts = dict(HELLO, messages=[{'role': 'user', 'content': [
        {'type': 'text', 'text': 'Tell me '}, {'type': 'text', 'text': 'about a cat.'}]}])
    count.check(s.post('/v1/chat/completions', parts)[1]['choices'][0]['message'] == c['message'],
                'text in parts is text')
    r = s.post('/v1/chat/completions', dict(HELLO, n=2, logprobs=True, top_logprobs=3))[1]
    count.check([x['index'] for x in r['choices']] == [0, 1]
                and r['choices'][0]['message'] == c['message'], 'two choices')
    probs = r['choices'][0]['logprobs']['content']
    count.check(all(len(p['top_logprobs']) == 3 and p['logprob'] <= 0 for p in probs)
                and b''.join(bytes(p['bytes']) for p in probs).decode() .startswith(text[:5]),
                'log-probabilities of each token')


def check_completions(count, s):
    body = {'prompt': 'Once upon a time', 'max_tokens': 30, 'temperature': 0}
    whole = s.post('/v1/completions', body)[1]['choices'][0]
    count.check(whole['finish_reason'] in ('length', 'stop') and len(whole['text']) > 20, 'a completion')
    ids = s.post('/tokenize', {'content': body['prompt'], 'add_special': True})[1]['tokens']
    count.check(s.post('/v1/completions', dict(body, prompt=ids))[1]['choices'][0] == whole,
                'the same from token ids')
    stop = whole['text'][9:14]
    cut = s.post('/v1/completions', dict(body, stop=[stop]))[1]['choices'][0]
    count.check(cut['text'] == whole['text'][:whole['text'].index(stop)]
                and cut['finish_reason'] == 'stop', 'a stop text across tokens')
    streamed = s.stream('/v1/completions', dict(body, stop=[stop]))
    count.check(''.join(json.loads(e)['choices'][0]['text'] for e in streamed[:-1]) == cut['text'],
                'in a stream too')
    count.check(s.idle(), 'stopped requests hold no slot')
    both = s.post('/v1/completions', dict(body, prompt=[body['prompt'], ids, 'A dog'], echo=True))[1]
    count.check([c['index'] for c in both['choices']] == [0, 1, 2]
                and all(c['text'] == body['prompt'] + whole['text'] for c in both['choices'][:2])
                and both['choices'][2]['text'].startswith('A dog'), 'several prompts, echoed')
    warm = dict(body, temperature=1, seed=5, logprobs=0, max_tokens=8)
    every = s.post('/v1/completions', dict(warm, n=4))[1]['choices']
    best = max(every, key=lambda c: sum(c['logprobs']['token_logprobs']) / len(c['logprobs']['tokens']))
    count.check(s.post('/v1/completions', dict(warm, best_of=4))[1]['choices'][0]['text']
                == best['text'], 'the best of four')


def check_tools(count, s):
    tools = [{'type': 'function', 'function': {
        'name': 'weather', 'description': 'The weather of a city.', 'parameters': {
            'type': 'object', 'properties': {'city': {'type': 'string'}}, 'required': ['city']}}}]
    body = {'messages': user('What is the weather in Paris?'), 'tools': tools, 'temperature': 0,
            'max_tokens': 60, 'seed': 1}
    c = s.post('/v1/chat/completions', body)[1]['choices'][0]
    calls = c['message'].get('tool_calls') or [{'id': '', 'function': {'name': '', 'arguments': '0'}}]
    count.check(c['finish_reason'] == 'tool_calls' and calls[0]['function']['name'] == 'weather'
                and json.loads(calls[0]['function']['arguments']) == {'city': 'Paris'}, 'a tool called')
    chunks = [json.loads(e)['choices'][0] for e in s.stream('/v1/chat/completions', body)[:-1]]
    sent = [x for k in chunks for x in k['delta'].get('tool_calls', [])]
    whole = dict(calls[0], index=0)
    whole['function'] = dict(whole['function'], arguments='')
    count.check(sent[0] == whole and all(set(x) == {'index', 'function'} for x in sent[1:])
                and chunks[-1]['finish_reason'] == 'tool_calls', 'in a stream its name comes once')
    count.check(''.join(x['function']['arguments'] for x in sent)
                == calls[0]['function']['arguments'], 'and its arguments in pieces')
    more = body['messages'] + [c['message'], {'role': 'tool', 'content': 'sunny, 20 degrees',
                                              'tool_call_id': calls[0]['id']}]
    r = s.post('/v1/chat/completions', dict(body, messages=more))[1]['choices'][0]
    count.check('sunny' in r['message']['content'], 'and its result read')
    r = s.post('/v1/chat/completions', dict(body, tool_choice='none'))[1]['choices'][0]
    count.check('tool_calls' not in r['message'], 'not with tool_choice none')


PERSON = {'type': 'object', 'properties': {'name': {'type': 'string', 'maxLength': 20},
                                           'age': {'type': 'integer', 'minimum': 0, 'maximum': 150}},
          'required': ['name', 'age'], 'additionalProperties': False}


def check_forms(count, s):
    """Answers held to a form, calls that must come, whatever the model would like to say."""
    def say(**more):
        return s.post('/v1/chat/completions', dict(HELLO, max_tokens=100, **more))[1]['choices'][0]

    strict = {'type': 'json_schema', 'json_schema': {'name': 'p', 'strict': True, 'schema': PERSON}}
    for seed in range(3):
        c = s.post('/v1/chat/completions', dict(HELLO, seed=seed, max_tokens=100,
                                                response_format=strict))[1]['choices'][0]
        got = json.loads(c['message']['content'])
        count.check(c['finish_reason'] == 'stop' and sorted(got) == ['age', 'name']
                    and 0 <= got['age'] <= 150, 'a schema')
    count.check(re.fullmatch('[a-c]{3}-[0-9]{2}', say(regex='[a-c]{3}-[0-9]{2}')['message']['content']),
                'a regular expression')
    count.check(say(grammar='root ::= "yes" | "no"')['message']['content'] in ('yes', 'no'), 'a grammar')
    status, r = s.post('/v1/chat/completions', dict(HELLO, json_schema={
        'properties': {'a': {'uniqueItems': True}}}))
    count.check(status == 400 and '#/properties/a/uniqueItems' in r['error']['param'],
                'what cannot be held is refused by its path')
    deep = '{"not":' * 20000 + '{}' + '}' * 20000
    status, r = s.post('/v1/chat/completions', ('{"messages":[{"role":"user","content":"x"}],"json_schema":'
                                                + deep + '}').encode())
    count.check(status == 400, 'a schema 20,000 deep is refused')
    tools = [{'type': 'function', 'function': {'name': 'first', 'parameters': PERSON}},
             {'type': 'function', 'function': {'name': 'first_of_all', 'parameters': {
                 'type': 'object', 'properties': {'unit': {'enum': ['C', 'F']}},
                 'required': ['unit'], 'additionalProperties': False}}}]
    for choice in ('required', {'type': 'function', 'function': {'name': 'first_of_all'}}):
        c = say(tools=tools, tool_choice=choice, temperature=1.5, parallel_tool_calls=False)
        calls = c['message']['tool_calls']
        args = json.loads(calls[0]['function']['arguments'])
        count.check(len(calls) == 1 and c['finish_reason'] == 'tool_calls'
                    and (sorted(args) == ['age', 'name'] if calls[0]['function']['name'] == 'first'
                         else args in ({'unit': 'C'}, {'unit': 'F'})), 'a call that must come')
        count.check(choice == 'required' or calls[0]['function']['name'] == 'first_of_all', 'by name')
    loose = {'type': 'object', 'additionalProperties': False, 'required': ['n/a', 'tags'], 'properties': {
        'n/a': {'type': 'integer', 'minimum': 3, 'maximum': 5},
        'tags': {'type': 'array', 'uniqueItems': True, 'maxItems': 2, 'items': {'enum': ['x', 'y']}},
        '~p': {'allOf': [{'pattern': '(?=a)b'}, {'type': 'null'}]}}}
    tools = [{'type': 'function', 'function': {'name': 'f', 'parameters': loose}}]
    c = s.post('/v1/chat/completions', dict(HELLO, tools=tools, tool_choice='required', max_tokens=400,
                                            parallel_tool_calls=False))[1]['choices'][0]
    args = json.loads(c['message']['tool_calls'][0]['function']['arguments'])
    count.check(args['n/a'] in (3, 4, 5) and len(args['tags']) < 3 and set(args['tags']) <= {'x', 'y'}
                and args.get('~p') is None, 'what can be held beside what cannot')
    tools[0]['function']['strict'] = True
    status, r = s.post('/v1/chat/completions', dict(HELLO, tools=tools))
    count.check(status == 400 and 'properties' in r['error']['param'], 'unless it is strict')


REFUSED = [  # what is wrong, and the field that the error names
    ({'messages': 'hi'}, 'messages'), ({'messages': []}, 'messages'), ({}, 'messages'),
    ({'messages': [{'content': 'x'}]}, 'messages[0]'), ({'messages': [1]}, 'messages[0]'),
    (dict(HELLO, temperature='hot'), 'temperature'), (dict(HELLO, temperature=-1), 'temperature'),
    (dict(HELLO, max_tokens=-2), 'max_tokens'), (dict(HELLO, max_tokens=1.5), 'max_tokens'),
    (dict(HELLO, stream='yes'), 'stream'), (dict(HELLO, n=0), 'n'), (dict(HELLO, seed='x'), 'seed'),
    (dict(HELLO, stop=[1]), 'stop'), (dict(HELLO, stop=['']), 'stop'),
    (dict(HELLO, logit_bias={'x': 1}), 'logit_bias'), (dict(HELLO, tools={}), 'tools'),
    (dict(HELLO, top_logprobs=2), 'top_logprobs'), (dict(HELLO, model=1), 'model'),
    (dict(HELLO, response_format={'type': 'xml'}), 'response_format'),
    (dict(HELLO, grammar='root ::= "'), 'grammar'),
    (dict(HELLO, tool_choice='required'), 'tool_choice'),
    ({'messages': [{'role': 'user', 'content': [{'type': 'image_url'}]}]}, 'messages[0].content'),
    ({'messages': user('word ' * 4000)}, 'context'),
]


def check_errors(count, s):
    for body, field in REFUSED:
        status, r = s.post('/v1/chat/completions', body)
        e = r['error']
        count.check(status == 400 and e['param'] == field and e['type'] == 'invalid_request_error'
                    and field in e['message'], 'refused: %s' % field)
    for bad in (b'', b'{', b'[]', b'"x"', b'\xff', b'{"a":1,"a":2}', b'[' * 100000):
        status, r = s.post('/v1/chat/completions', bad)
        count.check(status == 400 and r['error']['message'], 'no JSON object: %r' % bad[:12])
    count.check(s.post('/v1/chat/completions', dict(HELLO, unknown={'x': 1}))[0] == 200,
                'unknown fields are ignored')
    count.check(s.ask('GET', '/nothing')[0] == 404, 'no such route')
    count.check(s.ask('GET', '/v1/chat/completions')[0] == 405, 'no such method')
    count.check(s.ask('GET', '/health', headers={'Host': 'evil.example'})[0] == 403,
                'another name than localhost')
    count.check(s.ask('POST', '/tokenize', b'', {'Content-Length': str(1 << 40)})[0] == 413,
                'a body too large')


def check_place(count, s):
    """timeout and priority, in every API."""
    for path, body in (('/v1/chat/completions', HELLO), ('/v1/messages', dict(HELLO, max_tokens=4)),
                       ('/v1/completions', {'prompt': 'Hi', 'max_tokens': 4}), ('/v1/responses', {'input': 'Hi'}),
                       ('/api/chat', {'messages': HELLO['messages'], 'stream': False})):
        for bad in ({'timeout': -1}, {'timeout': 1e308}, {'priority': 'high'}, {'priority': 1e6}):
            status, text, _ = s.ask('POST', path, dict(body, **bad))
            count.check(status == 400 and list(bad)[0] in text, '%s: %r is refused' % (path, bad))
    before = s.metric('lode:requests_expired_total')
    long = dict(HELLO, max_tokens=-1, ignore_eos=True, timeout=0.05)
    status, text, _ = s.ask('POST', '/v1/chat/completions', long)
    count.check(status == 408 and 'deadline' in text, 'who may take 50 ms is told so: %d' % status)
    events = s.stream('/v1/chat/completions', long)
    count.check('error' in json.loads(events[-1]) or 'error' in json.loads(events[-2]), 'within a stream too')
    count.check(s.idle() and s.metric('lode:requests_expired_total') == before + 2, 'and counted')
    count.check(s.post('/v1/chat/completions', dict(HELLO, timeout=600, priority=-1))[0] == 200, 'a minute is enough')


def check_load(count, s):
    """Many at once, each of the same few requests: one output each."""
    bodies = [dict(HELLO, messages=user(t), seed=i, max_tokens=12 + i, temperature=i % 3 * 0.5)
              for i, t in enumerate(['Why is the sky blue?', 'Count to ten. ' * 20, 'Sing!', 'A cat ' * 60])]
    alone = [s.post('/v1/chat/completions', b)[1]['choices'] for b in bodies]
    wrong = []

    def client(k):
        for i in range(6):
            which = (k * 7 + i * 3) % len(bodies)
            if s.post('/v1/chat/completions', bodies[which])[1].get('choices') != alone[which]:
                wrong.append(which)

    threads = [threading.Thread(target=client, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    count.check(not wrong, 'the same bytes alone and under load')


def check_leaving(count, s):
    """A client that goes away, in its prompt or its answer, streaming or not, frees its slot."""
    before = s.metric('lode:requests_cancelled_total')
    for stream in (False, True):
        for started in (False, True):
            body = json.dumps(dict(HELLO, messages=user('word ' * 1200), stream=stream,
                                   max_tokens=-1, ignore_eos=True)).encode()
            c = socket.create_connection(('127.0.0.1', s.port), PATIENCE)
            c.sendall(b'POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n'
                      % len(body) + body)
            end = time.monotonic() + PATIENCE
            while started and not s.metric('llamacpp:requests_processing') and time.monotonic() < end:
                time.sleep(0.01)
            c.close()
            if started:
                count.check(s.idle(), 'its slot is free again')
    count.check(s.metric('lode:requests_cancelled_total') >= before + 2, 'and the metrics tell')


def check_end(count, program):
    s = Server(program, '--api-key', 'secret', '--parallel', '1', '--queue', '1',
               '--drain', str(PATIENCE))
    count.check(s.ask('GET', '/v1/models')[0] == 401, 'no key')
    count.check(s.ask('GET', '/v1/models', headers={'Authorization': 'Bearer wrong!'})[0] == 401,
                'the wrong key')
    key = {'Authorization': 'Bearer secret'}
    count.check(s.ask('GET', '/v1/models', headers=key)[0] == 200
                and s.ask('GET', '/v1/models', headers={'x-api-key': 'secret'})[0] == 200, 'the key')
    # One request runs, one waits, the third is told to come again; SIGTERM lets both finish.
    got = {}

    def slow(k, n):
        body = dict(HELLO, ignore_eos=True, max_tokens=n)
        got[k] = s.ask('POST', '/v1/chat/completions', body, key)[:2]

    def waits(name, n):
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            text = s.ask('GET', '/metrics', headers=key)[1]
            if float(re.search('^%s (.*)$' % name, text, re.M).group(1)) >= n:
                return
            time.sleep(0.01)

    begun = time.monotonic()
    slow(0, 50)
    most = int(min(1500, max(100, 50 * 3 / (time.monotonic() - begun))))  # of some seconds, at any speed
    threads = [threading.Thread(target=slow, args=(k, n)) for k, n in ((0, most), (1, 10))]
    threads[0].start()
    waits('llamacpp:requests_processing', 1)
    threads[1].start()
    waits('llamacpp:requests_deferred', 1)
    status, text, r = s.ask('POST', '/v1/chat/completions', HELLO, key)
    count.check(status == 503 and r.getheader('Retry-After') and 'run' in text, 'a full queue')
    s.p.send_signal(signal.SIGTERM)
    for t in threads:
        t.join()
    count.check(all(got[k][0] == 200 for k in got)
                and json.loads(got[0][1])['usage']['completion_tokens'] == most, 'SIGTERM drains')
    count.check(s.stop() == 0, 'and ends the server')


def main():
    program = sys.argv[1]
    count = Count()
    need_server(count, program)
    s = Server(program)
    try:
        check_small(count, s)
        check_chat(count, s)
        check_completions(count, s)
        check_tools(count, s)
        check_forms(count, s)
        check_errors(count, s)
        check_place(count, s)
        check_load(count, s)
        check_leaving(count, s)
    finally:
        status = s.stop()
    count.check(status == 0, 'SIGTERM ends it')
    check_end(count, program)
    count.end()


if __name__ == '__main__':
    main()
