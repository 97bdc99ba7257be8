#!/usr/bin/env python3
"""serve_wire.py LODE: the other APIs of `lode serve` on the wire: Anthropic's Messages, OpenAI's Responses
and embeddings, rerank, Ollama's; the order of their events, tools over several turns, errors in their own
shapes."""
import base64
import concurrent.futures
import json
import math
import os
import re
import struct
import sys
import time

from lodeserver import PATIENCE, Server, need_server
from lodetest import Count, TESTS

CITY = {'type': 'object', 'properties': {'city': {'type': 'string'}}, 'required': ['city'],
        'additionalProperties': False}
ASK = 'What is the weather in Paris?'
RESULT = 'sunny, 20 degrees'


def user(text):
    return [{'role': 'user', 'content': text}]


def events(s, path, body):
    """[(event, data)] of a stream that names its events."""
    status, text, r = s.ask('POST', path, dict(body, stream=True))
    assert status == 200 and r.getheader('Content-Type').startswith('text/event-stream'), text
    out = []
    for block in text.split('\n\n'):
        if block and not block.startswith(':'):
            name, data = block.split('\n')
            assert name.startswith('event: ') and data.startswith('data: '), block
            out.append((name[7:], json.loads(data[6:])))
            assert out[-1][1]['type'] == out[-1][0]
    return out


def check_messages(count, s):
    tools = [{'name': 'weather', 'description': 'The weather of a city.', 'input_schema': CITY},
             {'type': 'web_search_20250305', 'name': 'web_search'}]
    body = {'messages': user(ASK), 'tools': tools, 'temperature': 0, 'max_tokens': 60}
    status, r = s.post('/v1/messages', body)
    call = r['content'][-1]
    count.check(status == 200 and r['type'] == 'message' and r['stop_reason'] == 'tool_use'
                and call['type'] == 'tool_use' and call['input'] == {'city': 'Paris'}, 'messages: a call')
    turns = body['messages'] + [{'role': 'assistant', 'content': r['content']},
                                {'role': 'user', 'content': [{'type': 'tool_result', 'content': [
                                    {'type': 'text', 'text': RESULT}], 'tool_use_id': call['id']}]}]
    again = s.post('/v1/messages', dict(body, messages=turns))[1]
    count.check('sunny' in again['content'][0]['text'] and again['stop_reason'] == 'end_turn',
                'messages: its result read')
    count.check(again['usage']['cache_read_input_tokens'] >= r['usage']['input_tokens'],
                'messages: what was cached is told')
    n = s.post('/v1/messages/count_tokens', {'messages': body['messages'], 'tools': tools})[1]
    total = r['usage']['input_tokens'] + r['usage']['cache_read_input_tokens']
    count.check(n == {'input_tokens': total}, 'messages: tokens counted')

    got = events(s, '/v1/messages', body)
    names = [e for e, _ in got if e != 'ping']
    inner = [e for e in names if e.startswith('content_block')]
    count.check(names[0] == 'message_start' and names[-2:] == ['message_delta', 'message_stop']
                and inner[0] == 'content_block_start' and inner[-1] == 'content_block_stop'
                and names[1:-2] == inner, 'messages: the order of events')
    text = ''.join(d['delta']['partial_json'] for e, d in got if e == 'content_block_delta')
    count.check(json.loads(text) == {'city': 'Paris'}, 'messages: input_json_delta')
    usage = [d for e, d in got if e == 'message_delta'][0]['usage']
    count.check(usage['output_tokens'] == r['usage']['output_tokens'], 'messages: usage at the end')

    def cached(header):
        system = [{'type': 'text', 'text': 'x-anthropic-billing-header: cc=1; cch=' + header},
                  {'type': 'text', 'text': 'You are a careful helper of cats.',
                   'cache_control': {'type': 'ephemeral'}}]
        return s.post('/v1/messages', {'messages': user('Hello'), 'system': system,
                                       'max_tokens': 1})[1]['usage']
    first, second = cached('1f3a9'), cached('77b20')
    count.check(second['input_tokens'] == 1 and second['cache_read_input_tokens']
                == first['input_tokens'] + first['cache_read_input_tokens'] - 1,
                'messages: the changing header breaks no prefix')
    stop = s.post('/v1/messages', {'messages': user('Tell me about a cat.'), 'max_tokens': 40,
                                   'temperature': 0, 'stop_sequences': [' ']})[1]
    count.check(stop['stop_reason'] == 'stop_sequence' and stop['stop_sequence'] == ' ',
                'messages: a stop sequence')
    forced = s.post('/v1/messages', dict(body, messages=user('Hi'), temperature=1,
                                         seed=1, max_tokens=300,
                                         tool_choice={'type': 'tool', 'name': 'weather'}))[1]
    count.check(forced['content'][-1]['name'] == 'weather'
                and list(forced['content'][-1]['input']) == ['city'], 'messages: a call that must come')
    for bad, field in ((dict(body, messages='x'), 'messages'), (dict(body, max_tokens=-2), 'max_tokens'),
                       ({'messages': user('x')}, 'max_tokens'), (dict(body, tools=[{}]), 'tools.0'),
                       (dict(body, messages=[{'role': 'x', 'content': ''}]), 'messages.0.role'),
                       (dict(body, messages=[{'role': 'user', 'content': [{'type': 'image'}]}]),
                        'messages.0.content'), (dict(body, thinking={'type': 1}), 'thinking.type'),
                       (dict(body, tool_choice={'type': 'auto', 'disable_parallel_tool_use': 1}),
                        'disable_parallel_tool_use'),
                       (dict(body, messages=[{'role': 'assistant', 'content': [
                           {'type': 'tool_use', 'id': 1, 'name': 'f', 'input': {}}]}]), 'messages.0.content.id')):
        status, e = s.post('/v1/messages', bad)
        count.check(status == 400 and e['type'] == 'error' and e['error']['type']
                    == 'invalid_request_error' and field in e['error']['message'],
                    'messages: refused: %s' % field)


def check_responses(count, s):
    tools = [{'type': 'function', 'name': 'weather', 'description': 'The weather of a city.',
              'parameters': CITY}, {'type': 'web_search'}, {'type': 'local_shell'},
             {'type': 'image_generation'}]
    body = {'input': ASK, 'tools': tools, 'temperature': 0, 'max_output_tokens': 60}
    status, r = s.post('/v1/responses', body)
    call = r['output'][-1]
    count.check(status == 200 and r['status'] == 'completed' and call['type'] == 'function_call'
                and json.loads(call['arguments']) == {'city': 'Paris'}, 'responses: a call')
    result = {'type': 'function_call_output', 'call_id': call['call_id'], 'output': RESULT}
    stored = s.post('/v1/responses', dict(body, input=[result], previous_response_id=r['id']))[1]
    sent = s.post('/v1/responses', dict(body, input=[
        {'type': 'message', 'role': 'user', 'content': [{'type': 'input_text', 'text': ASK}]},
        call, result]))[1]
    texts = [x['output'][0]['content'][0]['text'] for x in (stored, sent)]
    count.check('sunny' in texts[0] and texts[0] == texts[1], 'responses: stored or sent again')
    count.check(stored['usage']['input_tokens_details']['cached_tokens'] > 0, 'responses: cached')
    got = json.loads(s.ask('GET', '/v1/responses/' + r['id'])[1])
    count.check(got == r, 'responses: asked for later')
    count.check(json.loads(s.ask('DELETE', '/v1/responses/' + r['id'])[1])['deleted'] is True
                and s.ask('GET', '/v1/responses/' + r['id'])[0] == 404, 'responses: deleted')
    status, e = s.post('/v1/responses', dict(body, previous_response_id=r['id']))
    count.check(status == 400 and e['error']['param'] == 'previous_response_id', 'responses: gone')
    off = s.post('/v1/responses', dict(body, store=False))[1]
    count.check(s.ask('GET', '/v1/responses/' + off['id'])[0] == 404, 'responses: not stored')
    n = s.post('/v1/responses/input_tokens', body)[1]
    count.check(n == {'object': 'response.input_tokens', 'input_tokens': r['usage']['input_tokens']},
                'responses: tokens counted')

    ev = events(s, '/v1/responses', body)
    count.check([d['sequence_number'] for _, d in ev] == list(range(len(ev))), 'responses: numbered')
    names = [e for e, _ in ev]
    count.check(names[:3] == ['response.created', 'response.in_progress', 'response.output_item.added']
                and names[-3:] == ['response.function_call_arguments.done', 'response.output_item.done',
                                   'response.completed']
                and set(names[3:-3]) == {'response.function_call_arguments.delta'},
                'responses: the order of a call\'s events')
    count.check(''.join(d['delta'] for e, d in ev if e.endswith('.delta')) == call['arguments'],
                'responses: its arguments')
    ev = events(s, '/v1/responses', {'input': 'Tell me about a cat.', 'max_output_tokens': 20, 'seed': 3})
    names = [e for e, _ in ev]
    tail = ['response.output_text.done', 'response.content_part.done', 'response.output_item.done']
    last = ev[-1][1]['response']
    count.check(names[-4:-1] == tail and 'response.content_part.added' in names, 'responses: a text')
    count.check(names[-1] == 'response.' + last['status']
                and ''.join(d['delta'] for e, d in ev if e == 'response.output_text.delta')
                == last['output'][-1]['content'][0]['text'], 'responses: the same text at the end')
    schema = {'type': 'object', 'properties': {'yes': {'type': 'boolean'}}, 'required': ['yes'],
              'additionalProperties': False}
    r = s.post('/v1/responses', {'input': 'Is it?', 'seed': 1, 'text': {'format': {
        'type': 'json_schema', 'name': 'x', 'schema': schema, 'strict': True}}})[1]
    count.check(isinstance(json.loads(r['output'][-1]['content'][0]['text'])['yes'], bool),
                'responses: a schema')
    custom = {'type': 'custom', 'name': 'apply_patch', 'description': 'Patch a file.'}
    space = {'type': 'namespace', 'name': 'mcp__files', 'tools': [
        {'type': 'function', 'name': 'read', 'parameters': CITY}]}
    r = s.post('/v1/responses', {'input': 'Go', 'tools': [custom, space], 'max_output_tokens': 300,
                                 'tool_choice': {'type': 'custom', 'name': 'apply_patch'}, 'seed': 1})[1]
    item = r['output'][-1]
    count.check(item['type'] == 'custom_tool_call' and item['name'] == 'apply_patch'
                and isinstance(item['input'], str), 'responses: a custom tool')
    count.check(s.post('/v1/responses', {'input': 'Go', 'tools': [space], 'max_output_tokens': 300,
                                         'tool_choice': 'required', 'seed': 1})[1]['output'][-1].get('namespace')
                == 'mcp__files', 'responses: a tool within a namespace')
    for bad, field in (({'input': 1}, 'input'), (dict(body, max_output_tokens='x'), 'max_output_tokens'),
                       ({'input': [{'type': 'message', 'role': 'user', 'content': [
                           {'type': 'input_image'}]}]}, 'input[0].content'), ({}, 'input'),
                       ({'input': [{'type': 1}]}, 'input[0].type'), ({'input': [{}]}, 'input[0]'),
                       ({'input': [{'type': 'function_call', 'name': 1}]}, 'input[0].name'),
                       ({'input': [{'type': 'function_call_output', 'output': 1}]}, 'input[0].output'),
                       ({'input': [{'type': 'reasoning', 'summary': 'x'}]}, 'input[0].summary'),
                       ({'input': 'x', 'tools': [{'name': 'f'}]}, 'tools[0].type'),
                       ({'input': 'x', 'tools': [{'type': 'function', 'name': 'f', 'parameters': 1}]},
                        'tools[0].parameters')):
        status, e = s.post('/v1/responses', bad)
        count.check(status == 400 and e['error']['param'] == field, 'responses: refused: %s' % field)


def check_custom(count, s, chat):
    """Tools whose call is a text, in chats; and those that nobody here can run."""
    def tool(**more):
        return {'type': 'custom', 'custom': dict({'name': 'patch', 'description': 'Patch a file.'}, **more)}
    held = tool(format={'type': 'grammar', 'grammar': {'syntax': 'regex', 'definition': '[a-c]{2,5}'}})
    ask = {'messages': user('Go'), 'max_tokens': 300, 'seed': 2, 'tools': [{'type': 'web_search'}, held],
           'tool_choice': {'type': 'custom', 'custom': {'name': 'patch'}}, 'enable_thinking': False}
    choice = chat(**ask)[1]['choices'][0]
    call = choice['message']['tool_calls'][0]
    count.check(call['type'] == 'custom' and call['custom']['name'] == 'patch' and choice['finish_reason']
                == 'tool_calls' and re.fullmatch('[a-c]{2,5}', call['custom']['input']), 'a custom tool: its call')
    pieces = [json.loads(e)['choices'][0]['delta'].get('tool_calls') for e in
              s.stream('/v1/chat/completions', dict(ask, temperature=0))[:-1]]
    pieces = [p[0] for p in pieces if p]
    count.check(pieces[0]['type'] == 'custom' and pieces[0]['id'] and pieces[0]['custom']['name'] == 'patch'
                and re.fullmatch('[a-c]{2,5}', ''.join(p['custom']['input'] for p in pieces)),
                'a custom tool: in a stream')
    turns = user('Go') + [dict(choice['message'], tool_calls=[call]),
                          {'role': 'tool', 'tool_call_id': call['id'], 'content': 'xyzzy'}]
    prompt = s.post('/apply-template', {'messages': turns, 'tools': [held, {'type': 'web_search'}]})[1]['prompt']
    count.check(call['custom']['input'] in prompt and 'xyzzy' in prompt and 'Patch a file.' in prompt
                and 'web_search' not in prompt, 'a custom tool: its call and result come back')
    lark = tool(format={'type': 'grammar', 'grammar': {'syntax': 'lark', 'definition': 'start: "qwertz"'}})
    prompt = s.post('/apply-template', {'messages': user('Go'), 'tools': [lark]})[1]['prompt']
    count.check('qwertz' in prompt, 'a custom tool: its grammar is shown')
    for bad, field in ((tool(format={'type': 'x'}), 'tools[0].custom.format'), (tool(name=1), 'tools[0].custom.name'),
                       ({'type': 'custom', 'custom': 1}, 'tools[0].custom'), ({'type': 1}, 'tools[0].type'),
                       (tool(description=[]), 'tools[0].custom.description'), ({}, 'tools[0]'),
                       ({'type': 'function', 'function': {'name': 'f', 'strict': 'x'}}, 'tools[0].function.strict'),
                       ({'type': 'function', 'function': {'name': 'f', 'parameters': []}},
                        'tools[0].function.parameters')):
        status, e = chat(tools=[bad])
        count.check(status == 400 and e['error']['param'] == field, 'refused: %s' % field)
    for bad, field in (({'tool_calls': 1}, 'tool_calls'), ({'tool_calls': [1]}, 'tool_calls[0]'),
                       ({'tool_calls': [{'function': {'name': 1}}]}, 'tool_calls[0].function.name'),
                       ({'tool_calls': [{'function': {'name': 'f', 'arguments': 1}}]},
                        'tool_calls[0].function.arguments'), ({'content': 1}, 'content'),
                       ({'content': '', 'reasoning_content': 1}, 'reasoning_content'),
                       ({'content': '', 'role': 1}, 'role'), ({'content': '', 'tool_call_id': 1}, 'tool_call_id')):
        status, e = chat(messages=[dict({'role': 'assistant'}, **bad)])
        count.check(status == 400 and e['error']['param'] == 'messages[0].' + field, 'refused: messages[0].' + field)


def check_long_integers(count, s):
    """JSON has no largest integer: schemas name that of 64 bits, tools are called with longer ones."""
    whole = {'type': 'object', 'properties': {'id': {'type': 'integer', 'minimum': 0, 'maximum': 2 ** 64 - 1}},
             'required': ['id'], 'additionalProperties': False}
    form = {'type': 'json_schema', 'json_schema': {'name': 'x', 'strict': True, 'schema': whole}}
    status, r = s.post('/v1/chat/completions', {'messages': user('An id?'), 'max_tokens': 60, 'response_format': form})
    count.check(status == 200 and 0 <= json.loads(r['choices'][0]['message']['content'])['id'] < 2 ** 64,
                'integers: a bound of 2^64 - 1')
    call = {'role': 'assistant', 'content': None, 'tool_calls': [{'id': 'c1', 'type': 'function', 'function': {
        'name': 'weather', 'arguments': '{"city": 123456789012345678901234567890}'}}]}
    status, r = s.post('/v1/chat/completions', {'messages': user(ASK) + [call, {
        'role': 'tool', 'tool_call_id': 'c1', 'content': RESULT}], 'max_tokens': 4})
    count.check(status == 200, 'integers: arguments with a long one')
    status, r = s.post('/v1/chat/completions', {'messages': user('Hi'), 'seed': 2 ** 64})
    count.check(status == 400 and r['error']['param'] == 'seed', 'integers: a field that wants fewer bits')


def check_corners(count, s):
    """What clients send now and then."""
    def chat(**more):
        return s.post('/v1/chat/completions', dict({'messages': user(ASK), 'max_tokens': 60, 'temperature': 0},
                                                   **more))
    said = user('Hi') + [{'role': 'assistant', 'content': [{'type': 'refusal', 'refusal': 'No, xyzzy.'}]}]
    prompt = s.post('/apply-template', {'messages': said + user('Why?')})[1]['prompt']
    count.check('No, xyzzy.' in prompt, 'a refusal is text')
    tools = [{'type': 'function', 'function': {'name': n, 'parameters': CITY}} for n in ('weather', 'time')]
    only = {'type': 'allowed_tools', 'allowed_tools': {'mode': 'required', 'tools': [
        {'type': 'function', 'function': {'name': 'time'}}]}}
    m = chat(tools=tools, tool_choice=only, parallel_tool_calls=False)[1]['choices'][0]['message']
    count.check([c['function']['name'] for c in m['tool_calls']] == ['time'], 'allowed tools: no other is called')
    flat = [dict(x['function'], type='function') for x in tools]
    r = s.post('/v1/responses', {'input': ASK, 'tools': flat, 'max_output_tokens': 60, 'tool_choice': {
        'type': 'allowed_tools', 'mode': 'required', 'tools': [{'type': 'function', 'name': 'time'}]}})[1]
    count.check(r['output'][-1]['name'] == 'time', 'allowed tools: of Responses')
    check_custom(count, s, chat)
    check_long_integers(count, s)
    for field in ('messages', 'tools'):
        status, e = chat(chat_template_kwargs={field: []})
        count.check(status == 400 and e['error']['param'] == 'chat_template_kwargs.' + field,
                    'refused: a variable of the template that is the request\'s own: ' + field)
    status, _, r = s.ask('GET', '/v1/chat/completions')
    count.check(status == 405 and r.getheader('Allow') == 'POST', '405 says what is allowed')
    for field in ('conversation', 'prompt'):
        status, e = s.post('/v1/responses', {'input': 'Hi', field: {'id': 'x'}})
        count.check(status == 400 and e['error']['param'] == field, 'responses: refused: %s' % field)

    begun = user('Tell me about a cat.') + [{'role': 'assistant', 'content': 'A cat is '}]
    whole = s.post('/apply-template', {'messages': begun[:1]})[1]['prompt'] + 'A cat is'
    count.check(s.post('/apply-template', {'messages': begun, 'continue_final_message': True})[1]['prompt'] == whole,
                'an answer goes on: its prompt')
    ask = {'messages': begun, 'max_tokens': 8, 'temperature': 0}
    want = s.post('/v1/completions', {'prompt': whole, 'max_tokens': 8, 'temperature': 0})[1]['choices'][0]['text']
    count.check(chat(continue_final_message=True, **ask)[1]['choices'][0]['message']['content'] == want
                and s.post('/v1/messages', ask)[1]['content'][0]['text'] == want, 'an answer goes on')
    status, e = chat(continue_final_message=True)
    count.check(status == 400 and e['error']['param'] == 'continue_final_message', 'an answer goes on: there is none')
    count.check(isinstance(s.post('/api/nothing', {})[1]['error'], str), 'errors of Ollama\'s are texts everywhere')
    r = s.ask('POST', '/v1/messages', {'messages': user('x'), 'max_tokens': 1})[2]
    count.check(r.getheader('request-id') == r.getheader('X-Request-Id'), 'a request has its id in the reply')


def check_vectors(count, s):
    texts = ['A cat sleeps.', 'The dog barks at night.']
    status, r = s.post('/v1/embeddings', {'input': texts})
    count.check(status == 200 and [d['index'] for d in r['data']] == [0, 1], 'embeddings')
    v = r['data'][0]['embedding']
    count.check(abs(math.hypot(*v) - 1) < 1e-5, 'embeddings: of length 1')
    b = s.post('/v1/embeddings', {'input': texts[0], 'encoding_format': 'base64'})[1]['data'][0]['embedding']
    raw = base64.b64decode(b)
    count.check(list(struct.unpack('<%df' % (len(raw) // 4), raw)) == v, 'embeddings: base64, the same bits')
    ids = s.post('/tokenize', {'content': texts[0], 'add_special': True})[1]['tokens']
    count.check(s.post('/v1/embeddings', {'input': [ids]})[1]['data'][0]['embedding'] == v,
                'embeddings: from token ids')
    short = s.post('/v1/embeddings', {'input': texts[0], 'dimensions': 8})[1]['data'][0]['embedding']
    norm = math.hypot(*v[:8])
    count.check(len(short) == 8 and all(abs(a - x / norm) < 1e-5 for a, x in zip(short, v)),
                'embeddings: fewer dimensions')
    for bad, field in (({'input': ''}, 'input'), ({'input': {}}, 'input'), ({}, 'input'),
                       ({'input': 'x', 'encoding_format': 'x'}, 'encoding_format'),
                       ({'input': 'x', 'dimensions': 1 << 20}, 'dimensions'),
                       ({'input': 'x', 'pooling': 'most'}, 'pooling'),
                       ({'input': 'x', 'pooling': 'rank'}, 'pooling'),
                       ({'input': [[1 << 30]]}, 'tokens'), ({'input': 'word ' * 4000}, 'context')):
        status, e = s.post('/v1/embeddings', bad)
        count.check(status == 400 and e['error']['param'] == field, 'embeddings: refused: %s' % field)
    o = s.post('/api/embed', {'model': 'demo', 'input': texts})[1]
    count.check(o['embeddings'][0] == v and o['prompt_eval_count'] > 0, 'ollama: embed')
    count.check(s.post('/api/embeddings', {'prompt': texts[0]})[1]['embedding'] == v, 'ollama: embeddings')

    docs = ['The dog barks at night.', 'A cat sleeps.', {'text': 'Rain falls on the river.'}]
    r = s.post('/v1/rerank', {'query': 'A cat sleeps.', 'documents': docs, 'top_n': 2,
                              'return_documents': True})[1]
    scores = [x['relevance_score'] for x in r['results']]
    count.check(r['results'][0]['index'] == 1 and abs(scores[0] - 1) < 1e-5 and len(scores) == 2
                and scores == sorted(scores, reverse=True)
                and r['results'][0]['document'] == {'text': 'A cat sleeps.'}, 'rerank')
    for bad, field in (({'documents': docs}, 'query'), ({'query': 'x'}, 'documents'),
                       ({'query': 'x', 'documents': [1]}, 'documents')):
        status, e = s.post('/v1/rerank', bad)
        count.check(status == 400 and e['error']['param'] == field, 'rerank: refused: %s' % field)


def check_encoders(count, program):
    """Models that give vectors only, and those that score pairs."""
    folder = os.path.join(TESTS, 'data', 'encoders')
    s = Server(program, '-c', '64', model=os.path.join(folder, 'bert', 'model.gguf'))
    count.check('/v1/embeddings -H' in s.said and '"input"' in s.said, 'an encoder: a line to try')
    v = s.post('/v1/embeddings', {'input': ['hello', 'bye']})[1]['data'][0]['embedding']
    count.check(abs(math.hypot(*v) - 1) < 1e-5, 'an encoder: embeddings')
    status, e = s.post('/v1/chat/completions', {'messages': user('x')})
    count.check(status == 400 and 'vectors' in e['error']['message'], 'an encoder: no chats')
    count.check(json.loads(s.ask('GET', '/slots')[1]) == [] and s.ask('GET', '/props')[0] == 200
                and s.ask('GET', '/metrics')[0] == 200, 'an encoder: the small routes')
    count.check(s.stop() == 0, 'an encoder: ends')
    path = os.path.join(folder, 'bert_rank', 'model.gguf')
    s = Server(program, '-c', '64', model=path)
    pairs = [('hello', 'hello'), ('hello', 'bye')]
    r = s.post('/v1/rerank', {'query': 'hello', 'documents': [d for _, d in pairs]})[1]['results']
    one = [s.post('/v1/rerank', {'query': q, 'documents': [d]})[1]['results'][0]['relevance_score']
           for q, d in pairs]
    count.check([x['relevance_score'] for x in r] == sorted(one, reverse=True), 'a cross-encoder: scores')
    count.check(s.post('/v1/embeddings', {'input': 'x'})[0] == 400, 'a cross-encoder: no vectors')
    count.check(s.stop() == 0, 'a cross-encoder: ends')


def check_plain_template(count, program):
    """A template that knows nothing of tools: they are described in words, and calls are calls all the same."""
    s = Server(program, '--chat-template', '{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}'
               '<|im_end|>\n{% endfor %}<|im_start|>assistant\n')
    tool = {'type': 'function', 'function': {'name': 'weather', 'parameters': CITY}}
    body = {'messages': user(ASK), 'tools': [tool], 'temperature': 0, 'max_tokens': 60}
    m = s.post('/v1/chat/completions', dict(body, tool_choice='required', parallel_tool_calls=False))[1]
    m = m['choices'][0]['message']
    count.check(list(json.loads(m['tool_calls'][0]['function']['arguments'])) == ['city'],
                'a plain template: a call')
    turns = body['messages'] + [m, {'role': 'tool', 'tool_call_id': m['tool_calls'][0]['id'], 'content': RESULT}]
    prompt = s.post('/apply-template', dict(body, messages=turns))[1]['prompt']
    count.check('"name":"weather"' in prompt and '<tool_call>\n{"name":"weather"' in prompt
                and '<tool_response>\n' + RESULT in prompt, 'a plain template: tools, calls, results as text')
    count.check(s.stop() == 0, 'a plain template: ends')


def lines(s, path, body):
    status, text, r = s.ask('POST', path, body)
    assert status == 200 and r.getheader('Content-Type') == 'application/x-ndjson', text
    return [json.loads(x) for x in text.splitlines()]


def check_vectors_together(count, s):
    """Texts of several requests share steps: no vector depends on it.  Who leaves, leaves the next step."""
    texts = ['A cat ' * (i % 7 + 1) + str(i) for i in range(40)] + ['A long text. ' * 150]
    alone = [s.post('/v1/embeddings', {'input': t})[1]['data'][0]['embedding'] for t in texts]

    def some(k):
        mine = range(k, len(texts), 4)
        r = s.post('/v1/embeddings', {'input': [texts[i] for i in mine]})[1]
        return all(d['embedding'] == alone[i] for d, i in zip(r['data'], mine))
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        same = list(pool.map(some, [0, 1, 2, 3] * 3))
    count.check(all(same), 'embeddings: the same bits alone and together')
    ids = s.post('/tokenize', {'content': 'A cat sleeps.', 'add_special': True})[1]['tokens']
    last, mean = ([d['embedding'] for d in s.post('/v1/embeddings', {'input': [ids, ids[:1]], 'pooling': p})[1]['data']]
                  for p in ('last', 'mean'))
    count.check(last[1] == mean[1] and last[0] != mean[0], 'embeddings: by the last token, or the mean')
    body = json.dumps({'input': ['word ' * 1500] * 400}).encode()
    start = time.monotonic()
    s.post('/v1/embeddings', {'input': 'word ' * 1500})
    one = time.monotonic() - start
    with s.connect(b'POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n' % len(body) + body):
        time.sleep(max(0.5, 2 * one))
        count.check(s.post('/v1/embeddings', {'input': texts[0]})[1]['data'][0]['embedding'] == alone[0],
                    'embeddings: a small one is not held up by 400')
    end = time.monotonic() + PATIENCE
    while s.metric('lode:http_requests_in_flight') and time.monotonic() < end:
        time.sleep(0.02)
    count.check(time.monotonic() < end, 'embeddings: a client that leaves ends its request')


def check_ollama(count, s):
    count.check(json.loads(s.ask('GET', '/api/version')[1])['version'], 'ollama: version')
    tag = json.loads(s.ask('GET', '/api/tags')[1])['models'][0]
    count.check(tag['name'] == 'demo.gguf' and tag['size'] > 0 and len(tag['digest']) == 64, 'ollama: tags')
    count.check(json.loads(s.ask('GET', '/api/ps')[1])['models'][0]['context_length'] == 2048, 'ollama: ps')
    shown = s.post('/api/show', {'model': 'demo.gguf'})[1]
    count.check('tools' in shown['capabilities'] and shown['model_info']['general.architecture']
                and shown['template'], 'ollama: show')
    tools = [{'type': 'function', 'function': {'name': 'weather', 'description': 'The weather of a city.',
                                               'parameters': CITY}}]
    body = {'model': 'demo', 'messages': user(ASK), 'tools': tools, 'options': {
        'temperature': 0, 'num_predict': 60}}
    got = lines(s, '/api/chat', body)
    calls = [c for x in got for c in x['message'].get('tool_calls', [])]
    count.check([c['function'] for c in calls] == [{'name': 'weather', 'arguments': {'city': 'Paris'}}],
                'ollama: a call')
    count.check([x['done'] for x in got] == [False] * (len(got) - 1) + [True]
                and got[-1]['done_reason'] == 'stop' and got[-1]['eval_count'] > 0, 'ollama: lines')
    turns = body['messages'] + [{'role': 'assistant', 'content': '', 'tool_calls': calls},
                                {'role': 'tool', 'tool_name': 'weather', 'content': RESULT}]
    whole = s.post('/api/chat', dict(body, messages=turns, stream=False))[1]
    count.check('sunny' in whole['message']['content'] and whole['done'] is True, 'ollama: its result read')
    text = ''.join(x['message']['content'] for x in lines(s, '/api/chat', dict(body, messages=turns)))
    count.check(text == whole['message']['content'], 'ollama: the same in lines')
    gen = s.post('/api/generate', {'model': 'demo', 'prompt': 'Once upon a time', 'raw': True, 'stream': False,
                                   'options': {'temperature': 0, 'num_predict': 20}})[1]
    plain = s.post('/v1/completions', {'prompt': 'Once upon a time', 'temperature': 0, 'max_tokens': 20})[1]
    count.check(gen['response'] == plain['choices'][0]['text'] and gen['done_reason'] == 'length',
                'ollama: generate')
    form = s.post('/api/generate', {'model': 'demo', 'prompt': 'Hello', 'stream': False, 'format': CITY,
                                    'options': {'seed': 1}})[1]
    count.check(list(json.loads(form['response'])) == ['city'], 'ollama: a schema')
    count.check(s.post('/api/generate', {'model': 'demo'})[1]['done_reason'] == 'load', 'ollama: load')
    status, e = s.post('/api/chat', dict(body, options={'temperature': 'hot'}))
    count.check(status == 400 and 'temperature' in e['error'], 'ollama: an error in its shape')
    slots = json.loads(s.ask('GET', '/slots')[1])
    count.check(slots and all(x['n_ctx'] == 2048 for x in slots), 'slots')


def main():
    count = Count()
    need_server(count, sys.argv[1])
    s = Server(sys.argv[1])
    try:
        check_messages(count, s)
        check_responses(count, s)
        check_corners(count, s)
        check_vectors(count, s)
        check_vectors_together(count, s)
        check_ollama(count, s)
    finally:
        status = s.stop()
    count.check(status == 0, 'SIGTERM ends it')
    check_encoders(count, sys.argv[1])
    check_plain_template(count, sys.argv[1])
    count.end()


main()
