#!/usr/bin/env python3
"""serve_cache.py LODE: what a server keeps of prompts and answers: found again when a client sends an
answer back in other spacing, by the choices of one prompt, and after a restart or a kill."""
import json
import os
import shutil
import signal
import sys
import tempfile

from lodeserver import Server, need_server
from lodetest import Count

LONG = ' '.join('Sentence %d is about a cat called Tom.' % i for i in range(40))


def cached(reply):
    return reply['usage']['prompt_tokens_details']['cached_tokens']


def chat(s, messages, **more):
    return s.post('/v1/chat/completions', dict(messages=messages, seed=5, temperature=0, **more))[1]


def check_answers_come_back(count, s):
    first = chat(s, [{'role': 'user', 'content': 'Tell me about a dog.'}], max_tokens=400)
    choice = first['choices'][0]
    count.check(choice['finish_reason'] == 'stop', 'the model ends its answer')
    # in other spacing, and with thinking that was never there
    text = '<think>\nHm.\n</think>\n\n  ' + choice['message']['content'] + ' \n'
    talk = [{'role': 'user', 'content': 'Tell me about a dog.'}, {'role': 'assistant', 'content': text},
            {'role': 'user', 'content': 'And a cat?'}]
    second = chat(s, talk, max_tokens=8)
    count.check(cached(second) == first['usage']['total_tokens'],
                'an answer that comes back in other spacing is the tokens that were sampled')
    talk[1]['content'] = choice['message']['content']
    plain = chat(s, talk, max_tokens=8)
    count.check(plain['choices'][0]['message'] == second['choices'][0]['message'],
                'as if it were the same text')
    again = [dict(m) for m in talk]
    again[1]['content'] = text
    talk[1]['content'] = 'Woof. ' + talk[1]['content']
    count.check(cached(chat(s, talk, max_tokens=2)) < first['usage']['total_tokens'],
                'another text is another answer')
    return again, second


def check_calls_come_back(count, s):
    tools = [{'type': 'function', 'function': {'name': 'find', 'parameters': {
        'type': 'object', 'properties': {'what': {'enum': ['cat', 'dog']}, 'near': {'type': 'boolean'}},
        'required': ['what', 'near'], 'additionalProperties': False}}}]
    talk = [{'role': 'user', 'content': 'Where is the cat?'}]
    first = chat(s, talk, tools=tools, tool_choice='required', max_tokens=200)
    choice = first['choices'][0]
    count.check(choice['finish_reason'] == 'tool_calls', 'a call')
    call = choice['message']['tool_calls'][0]
    arguments = json.loads(call['function']['arguments'])
    other = json.dumps(dict(reversed(arguments.items())), indent=3)  # other order, other spaces
    talk += [{'role': 'assistant', 'tool_calls': [{'id': 'mine', 'type': 'function', 'function': {
        'name': 'find', 'arguments': other}}]}, {'role': 'tool', 'tool_call_id': 'mine', 'content': 'Here.'}]
    second = chat(s, talk, tools=tools, max_tokens=4)
    count.check(cached(second) == first['usage']['total_tokens'],
                'a call that comes back in other spacing and order is the tokens that were sampled')


def check_choices(count, s):
    body = dict(messages=[{'role': 'user', 'content': LONG + ' Who?'}], max_tokens=12, seed=9)
    one = [s.post('/v1/chat/completions', dict(body, seed=9 + i))[1]['choices'][0]['message']
           for i in range(3)]
    s.post('/v1/chat/completions', body)
    three = s.post('/v1/chat/completions', dict(body, n=3))[1]
    count.check([c['message'] for c in three['choices']] == one, 'n choices are what each is alone')


def main():
    count = Count()
    need_server(count, sys.argv[1])
    folder = tempfile.mkdtemp()
    flags = ('--cache-dir', os.path.join(folder, 'cache'), '--cache-dir-size', '64M')
    try:
        s = Server(sys.argv[1], *flags)
        again, second = check_answers_come_back(count, s)
        check_calls_come_back(count, s)
        check_choices(count, s)
        talk = [{'role': 'user', 'content': LONG}]
        before = chat(s, talk, max_tokens=8)
        s.p.send_signal(signal.SIGTERM)
        s.p.wait()
        s = Server(sys.argv[1], *flags)
        after = chat(s, talk, max_tokens=8)
        n = before['usage']['prompt_tokens']
        count.check(after['choices'] == before['choices'], 'the same answer after a restart')
        count.check(n - 65 < cached(after) < n, 'and its prompt was there but for a page at most')
        third = chat(s, again, max_tokens=8)
        count.check(third['choices'] == second['choices'] and
                    third['usage']['prompt_tokens'] == second['usage']['prompt_tokens'],
                    'answers come back after a restart too')
        count.check(cached(chat(s, [{'role': 'user', 'content': 'x' + LONG}], max_tokens=1)) < 64,
                    'another prompt was not')
        s.p.kill()
        s.p.wait()
        s = Server(sys.argv[1], *flags)
        count.check(chat(s, talk, max_tokens=8)['choices'] == before['choices'], 'and after a kill')
        s.p.kill()
        s.p.wait()
        s = Server(sys.argv[1], '--no-cache-prompt')
        count.check([cached(chat(s, talk, max_tokens=1)) for _ in range(2)] == [0, 0],
                    '--no-cache-prompt keeps nothing')
        s.p.kill()
        s.p.wait()
    finally:
        shutil.rmtree(folder)
    count.end()


main()
