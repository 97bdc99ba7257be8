#!/usr/bin/env python3
"""clients.py LODE: real clients from PyPI against `lode serve`: openai, anthropic, ollama, litellm,
langchain-openai. Streaming, tools over several turns, structured output through Pydantic, Responses,
cancellation, parallel requests. Clients that are not installed are skipped, and counted:

    python3 -m venv ENV && ENV/bin/pip install openai anthropic ollama litellm langchain-openai
    ENV/bin/python tests/clients.py build/lode
"""
import concurrent.futures
import importlib
import json
import os
import sys
import time

from lodeserver import PATIENCE, Server, need_server
from lodetest import Count

ASK = 'What is the weather in Paris?'
RESULT = 'sunny, 20 degrees'
CITY = {'type': 'object', 'properties': {'city': {'type': 'string'}}, 'required': ['city'],
        'additionalProperties': False}
TOOL = {'type': 'function', 'function': {'name': 'weather', 'description': 'The weather of a city.',
                                         'parameters': CITY}}


def user(text):
    return [{'role': 'user', 'content': text}]


def person():
    from pydantic import BaseModel, ConfigDict, Field

    class Person(BaseModel):
        model_config = ConfigDict(extra='forbid')  # a small model would add members for ever
        name: str = Field(max_length=20)
        age: int = Field(ge=0, le=150)
    return Person


def openai_chat(count, s, openai):
    c = openai.OpenAI(base_url='http://127.0.0.1:%d/v1' % s.port, api_key='none', max_retries=0)
    count.check([m.id for m in c.models.list()] == ['demo.gguf'], 'openai: models')
    ask = dict(model='demo', messages=user(ASK), tools=[TOOL], temperature=0, max_tokens=60)
    r = c.chat.completions.create(**ask)
    m = r.choices[0].message
    count.check(json.loads(m.tool_calls[0].function.arguments) == {'city': 'Paris'}, 'openai: a call')
    turns = ask['messages'] + [m, {'role': 'tool', 'content': RESULT, 'tool_call_id': m.tool_calls[0].id}]
    r = c.chat.completions.create(**dict(ask, messages=turns))
    count.check('sunny' in r.choices[0].message.content, 'openai: its result read')
    with c.chat.completions.stream(**dict(ask, messages=turns)) as stream:
        final = stream.get_final_completion()
    count.check(final.choices[0].message.content == r.choices[0].message.content, 'openai: streamed')
    with c.chat.completions.stream(**ask) as stream:
        final = stream.get_final_completion()
    count.check(final.choices[0].message.tool_calls[0].function.arguments
                == m.tool_calls[0].function.arguments, 'openai: a call streamed')
    Person = person()
    r = c.chat.completions.parse(model='demo', messages=user('Who?'), response_format=Person, max_tokens=200)
    count.check(isinstance(r.choices[0].message.parsed, Person), 'openai: structured output by Pydantic')
    tool = openai.pydantic_function_tool(Person, name='person')
    r = c.chat.completions.parse(model='demo', messages=user('Who?'), tools=[tool], tool_choice='required',
                                 parallel_tool_calls=False, max_tokens=200)
    count.check(isinstance(r.choices[0].message.tool_calls[0].function.parsed_arguments, Person),
                'openai: a strict tool by Pydantic')
    r = c.completions.create(model='demo', prompt='Once upon a time', max_tokens=8, logprobs=2)
    count.check(len(r.choices[0].logprobs.tokens) == r.usage.completion_tokens, 'openai: completions')
    r = c.embeddings.create(model='demo', input=['a cat', 'a dog'])
    count.check(len(r.data) == 2 and len(r.data[0].embedding) > 8, 'openai: embeddings')
    try:
        c.chat.completions.create(model='demo', messages=user('x'), temperature=-1)
        count.check(False, 'openai: an error')
    except openai.BadRequestError as e:
        count.check(e.param == 'temperature', 'openai: an error names its field')

    stream = c.chat.completions.create(model='demo', messages=user('Count.'), max_tokens=1900, stream=True,
                                       extra_body={'ignore_eos': True})
    for _ in zip(range(5), stream):
        pass
    stream.close()
    count.check(s.idle(), 'openai: a stream closed ends its request')
    try:
        c.with_options(timeout=0.3).chat.completions.create(
            model='demo', messages=user('Count.'), max_tokens=1900, extra_body={'ignore_eos': True})
        count.check(False, 'openai: a timeout')
    except openai.APITimeoutError:
        count.check(s.idle(), 'openai: a timeout ends its request')

    def one(i):
        return c.chat.completions.create(model='demo', messages=user('Tell me about number %d.' % (i % 4)),
                                         seed=i % 4, max_tokens=24).choices[0].message.content
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        said = list(pool.map(one, range(16)))
    count.check(all(said[i] == said[i % 4] for i in range(16)), 'openai: the same in parallel')


def openai_responses(count, s, openai):
    c = openai.OpenAI(base_url='http://127.0.0.1:%d/v1' % s.port, api_key='none', max_retries=0)
    tool = {'type': 'function', 'name': 'weather', 'description': 'The weather of a city.',
            'parameters': CITY, 'strict': True}
    ask = dict(model='demo', input=ASK, tools=[tool], temperature=0, max_output_tokens=60)
    r = c.responses.create(**ask)
    call = r.output[-1]
    count.check(call.type == 'function_call' and json.loads(call.arguments) == {'city': 'Paris'},
                'responses: a call')
    back = [{'type': 'function_call_output', 'call_id': call.call_id, 'output': RESULT}]
    again = c.responses.create(**dict(ask, input=back, previous_response_id=r.id))
    count.check('sunny' in again.output_text, 'responses: its result read')
    with c.responses.stream(**dict(ask, input=back, previous_response_id=r.id)) as stream:
        kinds = [e.type for e in stream]
        final = stream.get_final_response()
    count.check(final.output_text == again.output_text and kinds[-1] == 'response.completed',
                'responses: streamed')
    with c.responses.stream(**ask) as stream:
        final = stream.get_final_response()
    count.check(final.output[-1].arguments == call.arguments, 'responses: a call streamed')
    Person = person()
    r = c.responses.parse(model='demo', input='Who?', text_format=Person, max_output_tokens=200)
    count.check(isinstance(r.output_parsed, Person), 'responses: structured output by Pydantic')
    count.check(c.responses.retrieve(r.id).id == r.id, 'responses: retrieved')
    c.responses.delete(r.id)
    try:
        c.responses.retrieve(r.id)
        count.check(False, 'responses: deleted')
    except openai.NotFoundError:
        count.check(True, 'responses: deleted')


def anthropic_messages(count, s, anthropic):
    c = anthropic.Anthropic(base_url='http://127.0.0.1:%d' % s.port, api_key='none', max_retries=0)
    tools = [{'name': 'weather', 'description': 'The weather of a city.', 'input_schema': CITY}]
    ask = dict(model='demo', messages=user(ASK), tools=tools, extra_body={'temperature': 0}, max_tokens=60)
    r = c.messages.create(**ask)
    call = r.content[-1]
    count.check(r.stop_reason == 'tool_use' and call.input == {'city': 'Paris'}, 'anthropic: a call')
    turns = ask['messages'] + [{'role': 'assistant', 'content': r.content}, {'role': 'user', 'content': [
        {'type': 'tool_result', 'tool_use_id': call.id, 'content': RESULT}]}]
    again = c.messages.create(**dict(ask, messages=turns))
    count.check('sunny' in again.content[-1].text, 'anthropic: its result read')
    with c.messages.stream(**dict(ask, messages=turns)) as stream:
        text = ''.join(stream.text_stream)
        final = stream.get_final_message()
    count.check(text == again.content[-1].text and final.usage.output_tokens == again.usage.output_tokens,
                'anthropic: streamed')
    with c.messages.stream(**ask) as stream:
        final = stream.get_final_message()
    count.check(final.content[-1].input == call.input, 'anthropic: a call streamed')
    n = c.messages.count_tokens(model='demo', messages=ask['messages'], tools=tools).input_tokens
    count.check(n == r.usage.input_tokens + r.usage.cache_read_input_tokens, 'anthropic: tokens counted')
    try:
        c.messages.create(model='demo', messages=user('x'), max_tokens=-5)
        count.check(False, 'anthropic: an error')
    except anthropic.BadRequestError as e:
        count.check('max_tokens' in e.message, 'anthropic: an error names its field')
    with c.messages.stream(model='demo', messages=user('Count.'), max_tokens=1900,
                           extra_body={'ignore_eos': True}) as stream:
        for _ in zip(range(5), stream):
            pass
    count.check(s.idle(), 'anthropic: a stream closed ends its request')


def ollama_all(count, s, ollama):
    c = ollama.Client(host='http://127.0.0.1:%d' % s.port)
    count.check([m.model for m in c.list().models] == ['demo.gguf'], 'ollama: list')
    count.check('tools' in c.show('demo.gguf').capabilities and c.ps().models, 'ollama: show, ps')
    opts = {'temperature': 0, 'num_predict': 60}
    r = c.chat(model='demo', messages=user(ASK), tools=[TOOL], options=opts)
    call = r.message.tool_calls[0].function
    count.check(call.name == 'weather' and call.arguments == {'city': 'Paris'}, 'ollama: a call')
    turns = user(ASK) + [r.message, {'role': 'tool', 'tool_name': 'weather', 'content': RESULT}]
    again = c.chat(model='demo', messages=turns, tools=[TOOL], options=opts)
    count.check('sunny' in again.message.content, 'ollama: its result read')
    text = ''.join(x.message.content or '' for x in c.chat(model='demo', messages=turns, tools=[TOOL],
                                                           options=opts, stream=True))
    count.check(text == again.message.content, 'ollama: streamed')
    Person = person()
    r = c.chat(model='demo', messages=user('Who?'), format=Person.model_json_schema())
    count.check(isinstance(Person.model_validate_json(r.message.content), Person),
                'ollama: structured output by Pydantic')
    count.check(c.generate(model='demo', prompt='Hello', options={'num_predict': 5}).done, 'ollama: generate')
    count.check(len(c.embed(model='demo', input=['a', 'b']).embeddings) == 2, 'ollama: embed')
    try:
        c.chat(model='demo', messages=user('x'), options={'temperature': -1.0})
        count.check(False, 'ollama: an error')
    except ollama.ResponseError as e:
        count.check('temperature' in e.error, 'ollama: an error names its field')


def litellm_all(count, s, litellm):
    base = 'http://127.0.0.1:%d' % s.port
    ask = dict(messages=user(ASK), tools=[TOOL], temperature=0, max_tokens=60, api_key='none')
    for model, url in (('openai/demo', base + '/v1'), ('anthropic/demo', base), ('ollama_chat/demo', base)):
        r = litellm.completion(model=model, api_base=url, **ask)
        call = r.choices[0].message.tool_calls[0].function
        count.check(call.name == 'weather' and json.loads(call.arguments) == {'city': 'Paris'},
                    'litellm: %s: a call' % model)
        pieces = litellm.completion(model=model, api_base=url, messages=user('Tell me about a cat.'),
                                    max_tokens=12, temperature=0, api_key='none', stream=True)
        count.check(any(p.choices[0].delta.content for p in pieces), 'litellm: %s: streamed' % model)


def langchain_all(count, s, langchain_openai):
    m = langchain_openai.ChatOpenAI(base_url='http://127.0.0.1:%d/v1' % s.port, api_key='none', model='demo',
                                    temperature=0, max_tokens=200)
    r = m.bind_tools([TOOL]).invoke(ASK)
    count.check([(x['name'], x['args']) for x in r.tool_calls] == [('weather', {'city': 'Paris'})],
                'langchain: a call')
    Person = person()
    got = m.with_structured_output(Person, method='json_schema').invoke('Who?')
    count.check(isinstance(got, Person), 'langchain: structured output')
    got = m.with_structured_output(Person, method='function_calling').invoke('Who?')
    count.check(isinstance(got, Person), 'langchain: structured output by a call')
    count.check(''.join(x.content for x in m.stream('Tell me about a cat.')), 'langchain: streamed')


def main():
    count = Count()
    os.environ['LITELLM_LOCAL_MODEL_COST_MAP'] = 'True'  # nothing is fetched
    wanted = (('openai', openai_chat), ('openai', openai_responses), ('anthropic', anthropic_messages),
              ('ollama', ollama_all), ('litellm', litellm_all), ('langchain_openai', langchain_all))
    need_server(count, sys.argv[1])
    s, skipped = None, 0
    for name, check in wanted:
        try:
            module = importlib.import_module(name)
        except ImportError:
            print('skip  %s: %s is not installed' % (check.__name__, name))
            skipped += 1
            continue
        if not s:
            s = Server(sys.argv[1])
        start = time.monotonic()
        check(count, s, module)
        count.check(time.monotonic() - start < 10 * PATIENCE, '%s: in time' % check.__name__)
    if s:
        count.check(s.stop() == 0, 'SIGTERM ends it')
    if skipped:
        print('%d skipped' % skipped)
    if skipped == len(wanted):
        sys.exit(77)
    count.end()


main()
