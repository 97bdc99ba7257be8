#!/usr/bin/env python3
"""`lode template`: the reference cases through the program, the built-in templates, its manners.

    tests/verb_template.py PROGRAM
"""
import json
import os
import subprocess
import sys
import tempfile

from lodetest import SHARED, TESTS, Count

PROGRAM = sys.argv[1]
NOW = '2026-01-15T12:34:56'
count = Count()


def run(*args, given=b''):
    return subprocess.run([PROGRAM, 'template', *args], input=given, timeout=300,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def jsonl(source, inputs):
    given = b''.join(json.dumps(i).encode() + b'\n' for i in inputs)
    out = run(source, '--jsonl', '--now', NOW, given=given).stdout
    return [json.loads(line) for line in out.splitlines()]


def agrees(case, got):
    """What is printed for a case is what transformers made of it; of errors, only what a template
    itself says (raise_exception) is compared."""
    if 'expected' in case:
        return got == case['expected']
    said = case['error'].split('TemplateError: ')
    return isinstance(got, dict) and got['error'] and (len(said) < 2 or got['error'] == said[1])


def reference():
    folder = SHARED + '/ref/chat'
    if not os.path.exists(folder + '/cases.jsonl'):
        count.skip('no ref/chat in LODE_SHARED')
        return
    cases = {}
    for line in open(folder + '/cases.jsonl', encoding='utf-8'):
        case = json.loads(line)
        cases.setdefault(case['template'], []).append(case)
    for template, some in sorted(cases.items()):
        source = '%s/templates/%s' % (folder, template)
        got = jsonl(source, [c['input'] for c in some])
        bad = [c['case'] for c, g in zip(some, got) if not agrees(c, g)]
        count.check(len(got) == len(some) and not bad, '%s: %d cases %s' % (template, len(some), bad))
    # one case without --jsonl: the same bytes, nothing around them
    case = next(c for c in some if 'expected' in c)
    one = run(source, '--messages', '-', '--now', NOW, given=json.dumps(case['input']).encode())
    count.check(one.returncode == 0 and one.stdout.decode() == case['expected'], 'plain output')


TALK = [{'role': 'system', 'content': 'Be kind.'}, {'role': 'user', 'content': 'Hello'},
        {'role': 'assistant', 'content': ' Hi there '}, {'role': 'user', 'content': 'Who?'}]
# What each built-in makes of TALK and a generation prompt: the formats as their models know them.
BUILTINS = {
    'bailing': '<role>SYSTEM</role>Be kind.<role>HUMAN</role>Hello<role>ASSISTANT</role> Hi there '
               '<role>HUMAN</role>Who?<role>ASSISTANT</role>',
    'chatglm3': '[gMASK]sop<|system|>\n Be kind.<|user|>\n Hello<|assistant|>\n  Hi there <|user|>\n '
                'Who?<|assistant|>',
    'chatglm4': '[gMASK]<sop><|system|>\nBe kind.<|user|>\nHello<|assistant|>\n Hi there <|user|>\n'
                'Who?<|assistant|>\n',
    'chatml': '<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n'
              '<|im_start|>assistant\n Hi there <|im_end|>\n<|im_start|>user\nWho?<|im_end|>\n'
              '<|im_start|>assistant\n',
    'command-r': '<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>Be kind.<|END_OF_TURN_TOKEN|>'
                 '<|START_OF_TURN_TOKEN|><|USER_TOKEN|>Hello<|END_OF_TURN_TOKEN|>'
                 '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>Hi there<|END_OF_TURN_TOKEN|>'
                 '<|START_OF_TURN_TOKEN|><|USER_TOKEN|>Who?<|END_OF_TURN_TOKEN|>'
                 '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>',
    'deepseek': 'Be kind.### Instruction:\nHello\n### Response:\n Hi there \n<|EOT|>\n'
                '### Instruction:\nWho?\n### Response:\n',
    'deepseek2': 'Be kind.\n\nUser: Hello\n\nAssistant:  Hi there <｜end▁of▁sentence｜>User: Who?\n\n'
                 'Assistant:',
    'deepseek3': 'Be kind.\n\n<｜User｜>Hello<｜Assistant｜> Hi there <｜end▁of▁sentence｜><｜User｜>Who?'
                 '<｜Assistant｜>',
    'exaone3': '[|system|]Be kind.[|endofturn|]\n[|user|]Hello\n[|assistant|]Hi there[|endofturn|]\n'
               '[|user|]Who?\n[|assistant|]',
    'exaone4': '[|system|]Be kind.[|endofturn|]\n[|user|]Hello\n[|assistant|]Hi there[|endofturn|]\n'
               '[|user|]Who?\n[|assistant|]',
    'falcon3': '<|system|>\nBe kind.\n<|user|>\nHello\n<|assistant|>\n Hi there \n<|user|>\nWho?\n'
               '<|assistant|>\n',
    'gemma': '<start_of_turn>user\nBe kind.\n\nHello<end_of_turn>\n<start_of_turn>model\nHi there'
             '<end_of_turn>\n<start_of_turn>user\nWho?<end_of_turn>\n<start_of_turn>model\n',
    'glmedge': '<|system|>\nBe kind.<|user|>\nHello<|assistant|>\n Hi there <|user|>\nWho?<|assistant|>',
    'gpt-oss': '<|start|>developer<|message|># Instructions\n\nBe kind.<|end|><|start|>user<|message|>'
               'Hello<|end|><|start|>assistant<|channel|>final<|message|> Hi there <|end|>'
               '<|start|>user<|message|>Who?<|end|><|start|>assistant',
    'granite': '<|start_of_role|>system<|end_of_role|>Be kind.<|end_of_text|>\n'
               '<|start_of_role|>user<|end_of_role|>Hello<|end_of_text|>\n'
               '<|start_of_role|>assistant<|end_of_role|> Hi there <|end_of_text|>\n'
               '<|start_of_role|>user<|end_of_role|>Who?<|end_of_text|>\n'
               '<|start_of_role|>assistant<|end_of_role|>',
    'grok-2': 'System: Be kind.<|separator|>\n\nHuman: Hello<|separator|>\n\nAssistant:  Hi there '
              '<|separator|>\n\nHuman: Who?<|separator|>\n\nAssistant:',
    'hunyuan-dense': 'Be kind.<｜hy_place▁holder▁no▁3｜><｜hy_User｜>Hello<｜hy_Assistant｜> Hi there '
                     '<｜hy_place▁holder▁no▁2｜><｜hy_User｜>Who?<｜hy_Assistant｜>',
    'hunyuan-moe': '<|startoftext|>Be kind.<|extra_4|><|startoftext|>Hello<|extra_0|> Hi there <|eos|>'
                   '<|startoftext|>Who?<|extra_0|>',
    'kimi-k2': '<|im_system|>system<|im_middle|>Be kind.<|im_end|><|im_user|>user<|im_middle|>Hello'
               '<|im_end|><|im_assistant|>assistant<|im_middle|> Hi there <|im_end|>'
               '<|im_user|>user<|im_middle|>Who?<|im_end|><|im_assistant|>assistant<|im_middle|>',
    'llama2': '[INST] Be kind.\nHello [/INST] Hi there </s>[INST] Who? [/INST]',
    'llama2-sys': '[INST] <<SYS>>\nBe kind.\n<</SYS>>\n\nHello [/INST] Hi there </s>[INST] Who? [/INST]',
    'llama2-sys-bos': '[INST] <<SYS>>\nBe kind.\n<</SYS>>\n\nHello [/INST] Hi there </s><s>[INST] '
                      'Who? [/INST]',
    'llama2-sys-strip': '[INST] <<SYS>>\nBe kind.\n<</SYS>>\n\nHello [/INST]Hi there</s>[INST] Who? '
                        '[/INST]',
    'llama3': '<|start_header_id|>system<|end_header_id|>\n\nBe kind.<|eot_id|>'
              '<|start_header_id|>user<|end_header_id|>\n\nHello<|eot_id|>'
              '<|start_header_id|>assistant<|end_header_id|>\n\nHi there<|eot_id|>'
              '<|start_header_id|>user<|end_header_id|>\n\nWho?<|eot_id|>'
              '<|start_header_id|>assistant<|end_header_id|>\n\n',
    'llama4': '<|header_start|>system<|header_end|>\n\nBe kind.<|eot|><|header_start|>user<|header_end|>'
              '\n\nHello<|eot|><|header_start|>assistant<|header_end|>\n\nHi there<|eot|>'
              '<|header_start|>user<|header_end|>\n\nWho?<|eot|>'
              '<|header_start|>assistant<|header_end|>\n\n',
    'megrez': '<|role_start|>system<|role_end|>Be kind.<|turn_end|><|role_start|>user<|role_end|>Hello'
              '<|turn_end|><|role_start|>assistant<|role_end|> Hi there <|turn_end|>'
              '<|role_start|>user<|role_end|>Who?<|turn_end|><|role_start|>assistant<|role_end|>',
    'minicpm': 'Be kind.<用户>Hello<AI>Hi there<用户>Who?<AI>',
    'mistral-v1': ' [INST] Be kind.\n\nHello [/INST]  Hi there </s> [INST] Who? [/INST]',
    'mistral-v3': '[INST] Be kind.\n\nHello[/INST] Hi there</s>[INST] Who?[/INST]',
    'mistral-v3-tekken': '[INST]Be kind.\n\nHello[/INST] Hi there </s>[INST]Who?[/INST]',
    'mistral-v7': '[SYSTEM_PROMPT] Be kind.[/SYSTEM_PROMPT][INST] Hello[/INST]  Hi there </s>'
                  '[INST] Who?[/INST]',
    'mistral-v7-tekken': '[SYSTEM_PROMPT]Be kind.[/SYSTEM_PROMPT][INST]Hello[/INST] Hi there </s>'
                         '[INST]Who?[/INST]',
    'monarch': 'system\nBe kind.</s>\n<s>user\nHello</s>\n<s>assistant\n Hi there </s>\n<s>user\nWho?'
               '</s>\n<s>assistant\n',
    'openchat': 'Be kind.<|end_of_turn|>GPT4 Correct User: Hello<|end_of_turn|>GPT4 Correct Assistant:  '
                'Hi there <|end_of_turn|>GPT4 Correct User: Who?<|end_of_turn|>GPT4 Correct Assistant:',
    'orion': 'Human: Be kind.\n\nHello\n\nAssistant: </s> Hi there </s>Human: Who?\n\nAssistant: </s>',
    'phi3': '<|system|>\nBe kind.<|end|>\n<|user|>\nHello<|end|>\n<|assistant|>\n Hi there <|end|>\n'
            '<|user|>\nWho?<|end|>\n<|assistant|>\n',
    'phi4': '<|im_start|>system<|im_sep|>Be kind.<|im_end|><|im_start|>user<|im_sep|>Hello<|im_end|>'
            '<|im_start|>assistant<|im_sep|> Hi there <|im_end|><|im_start|>user<|im_sep|>Who?<|im_end|>'
            '<|im_start|>assistant<|im_sep|>',
    'rwkv-world': 'System: Be kind.\n\nUser: Hello\n\nAssistant: Hi there\n\nUser: Who?\n\nAssistant:',
    'seed_oss': '<seed:bos>system\nBe kind.<seed:eos><seed:bos>user\nHello<seed:eos><seed:bos>assistant\n'
                ' Hi there <seed:eos><seed:bos>user\nWho?<seed:eos><seed:bos>assistant\n',
    'smolvlm': '<|im_start|>Be kind.\n\nUser: Hello<end_of_utterance>\nAssistant:  Hi there '
               '<end_of_utterance>\nUser: Who?<end_of_utterance>\nAssistant:',
    'vicuna': 'Be kind.\n\nUSER: Hello\nASSISTANT:  Hi there </s>\nUSER: Who?\nASSISTANT:',
    'vicuna-orca': 'SYSTEM: Be kind.\nUSER: Hello\nASSISTANT:  Hi there </s>\nUSER: Who?\nASSISTANT:',
    'yandex': 'Be kind.\n\n Пользователь: Hello\n\n Ассистент:  Hi there \n\n Пользователь: Who?\n\n'
              ' Ассистент:[SEP]',
    'zephyr': '<|system|>\nBe kind.<|endoftext|>\n<|user|>\nHello<|endoftext|>\n<|assistant|>\n Hi there '
              '<|endoftext|>\n<|user|>\nWho?<|endoftext|>\n<|assistant|>\n',
}
CHATML_TOOLS = (
    '<|im_start|>system\nBe kind.\n\n# Tools\n\nYou may call one or more functions. Their signatures are '
    'within <tools></tools> tags:\n<tools>\n{"type": "function", "function": {"name": "f"}}\n</tools>\n\n'
    'For each call, answer with a JSON object of the function\'s name and arguments within '
    '<tool_call></tool_call> tags:\n<tool_call>\n{"name": <function-name>, "arguments": '
    '<args-json-object>}\n</tool_call><|im_end|>\n<|im_start|>user\nGo<|im_end|>\n<|im_start|>assistant\n'
    '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>\n<tool_call>\n{"name": "f", '
    '"arguments": {}}\n</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\none\n</tool_response>\n'
    '<tool_response>\ntwo\n</tool_response><|im_end|>\n<|im_start|>assistant\n')


def way_back():
    with tempfile.TemporaryDirectory() as folder:
        def parse(text, *args):
            with open(folder + '/answer', 'w', encoding='utf-8') as f:
                f.write(text)
            r = run('chatml', '--parse', folder + '/answer', *args)
            return json.loads(r.stdout) if r.returncode == 0 else r
        got = parse('<think>\nhm\n</think>\n\nOne moment.\n<tool_call>\n{"name": "f", "arguments": {"a": "é"}}\n'
                    '</tool_call>')
        call = got['tool_calls'][0]
        count.check(got['content'] == 'One moment.' and got['reasoning_content'] == 'hm' and len(call['id']) == 9
                    and call['function'] == {'name': 'f', 'arguments': '{"a": "é"}'}, '--parse %s' % got)
        got = parse('<tool_call>\n{"name": f}\n</tool_call>')
        count.check('tool_calls' not in got and got['content'] == got['malformed'][0]['text'] and
                    got['malformed'][0]['reason'] == 'bad_json', '--parse of a malformed call %s' % got)
        with open(folder + '/opens.jinja', 'w') as f:  # the prompt opens the thinking
            f.write('{{ messages[0].content }}{% if add_generation_prompt %}<think>\n{% endif %}')
        with open(folder + '/answer', 'w', encoding='utf-8') as f:
            f.write('hm</think>yes')
        got = json.loads(run(folder + '/opens.jinja', '--parse', folder + '/answer').stdout)
        count.check(got == {'role': 'assistant', 'content': 'yes', 'reasoning_content': 'hm'},
                    '--parse where the prompt thinks %s' % got)
    model = TESTS + '/../models/demo.gguf'
    if os.path.exists(model):  # it was taught to call tools
        chat = {'messages': [{'role': 'user', 'content': 'What is the weather in Paris?'}],
                'tools': [{'type': 'function', 'function': {
                    'name': 'get_weather', 'description': 'd', 'parameters': {
                        'type': 'object', 'properties': {'city': {'type': 'string'}}}}}]}
        r = subprocess.run([PROGRAM, 'run', model, '--messages', '-', '--temp', '0', '-n', '60'], timeout=300,
                           input=json.dumps(chat).encode(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        count.check(r.stdout == b'-> get_weather({"city": "Paris"})\n', 'a call of lode run %r' % r)
        count.check(run(model, '--formats').stdout == b'hermes, thinking in <think>\n', '--formats of a model')
    count.check(run('chatml', '--formats').stdout == b'hermes, thinking in <think>\n', '--formats of a template')
    count.check(len(run('--formats').stdout.splitlines()) > 20, '--formats')


def builtins():
    named = run('--list').stdout.decode().split()
    count.check(named == sorted(BUILTINS), 'each built-in is tested %s' %
                (set(named) ^ set(BUILTINS)))
    for name, expected in BUILTINS.items():
        got = jsonl(name, [{'messages': TALK, 'add_generation_prompt': True}])
        count.check(got == [expected], 'built-in %s%s' % (name, '' if got == [expected] else ' %r' % got))
    parts = [{'role': 'user', 'content': [{'type': 'text', 'text': 'a'}, {'type': 'text', 'text': 'b'}]},
             {'role': 'assistant', 'content': None}]
    count.check(jsonl('phi3', [parts]) == ['<|user|>\nab<|end|>\n<|assistant|>\n<|end|>\n'],
                'parts and null as content')
    tools = [TALK[0], {'role': 'user', 'content': 'Go'},
             {'role': 'assistant', 'content': None, 'tool_calls': [
                 {'function': {'name': 'f', 'arguments': {'a': 1}}},
                 {'function': {'name': 'f', 'arguments': '{}'}}]},
             {'role': 'tool', 'content': 'one'}, {'role': 'tool', 'content': 'two'}]
    got = jsonl('chatml', [{'messages': tools, 'add_generation_prompt': True,
                            'tools': [{'type': 'function', 'function': {'name': 'f'}}]}])
    count.check(got == [CHATML_TOOLS], 'chatml with tools %r' % got)


def fails(what, r, *said):
    text = r.stderr.decode(errors='replace')
    count.check(r.returncode in (1, 2) and text.startswith('lode') and all(s in text for s in said),
                '%s: %r' % (what, text if len(text) < 300 else text[:300]))


def manners():
    chat = json.dumps(TALK[:2]).encode()
    with tempfile.TemporaryDirectory() as folder:
        path = folder + '/a.jinja'

        def template(text):
            with open(path, 'w', encoding='utf-8') as f:
                f.write(text)
            return path
        template('{{ messages|length }}{{ tools is none }}{{ documents is none }}'
                 '{{ add_generation_prompt }}{{ bos_token }}|{{ x }}{{ y }}{{ strftime_now("%Y %H:%M:%S") }}')
        r = run(path, '--now', NOW, given=chat)
        count.check(r.stdout == b'2TrueTrueFalse|2026 12:34:56', 'an array: %r' % r)
        whole = {'messages': [], 'tools': [], 'documents': [], 'add_generation_prompt': True,
                 'kwargs': {'x': 18446744073709551617}, 'special_tokens': {'bos_token': '<s>'}, 'y': 0.1}
        r = run(path, '-', '--now', NOW, given=json.dumps(whole).encode())
        count.check(r.stdout == b'0FalseFalseTrue<s>|184467440737095516170.12026 12:34:56', 'an object: %r' % r)
        r = run(path, '--now', NOW, '--chat-template-kwargs', '{"x": 1, "y": 2}',
                given=b'{"messages": [], "chat_template_kwargs": {"y": 3}}')
        count.check(r.stdout == b'0TrueTrueFalse|132026 12:34:56', 'kwargs, the input first: %r' % r)
        with open(folder + '/chat.json', 'wb') as f:
            f.write(chat)
        r = run('chatml', '--messages', folder + '/chat.json')
        count.check(r.stdout.startswith(b'<|im_start|>system'), '--messages FILE')
        fails('a template that raises', run(template('a\n\n{{ raise_exception("no " ~ 1) }}'), given=chat),
              'line 3', 'no 1')
        fails('a template that is none', run(template('a\n{% if %}'), given=chat), 'line 2')
        fails('an undefined value', run(template('\n{{ a.b }}'), given=chat), 'line 2', "'a' is undefined")
        fails('no JSON', run('chatml', given=b'{'), 'JSON')
        fails('no messages', run('chatml', given=b'{"tools": []}'), 'messages')
        fails('no such file', run(folder + '/nothing.jinja', given=chat), 'nothing.jinja')
        fails('no such name', run('chatlm', given=chat), 'chatlm', '--list')
        fails('no template', run(), 'which')
        fails('bad time', run('chatml', '--now', 'noon', given=chat), '--now')
        fails('bad kwargs', run('chatml', '--chat-template-kwargs', '[]', given=chat), 'JSON object')
        got = jsonl(template('{{ 1 // messages|length }}'), [TALK, [], {'messages': 1}, 7])
        count.check(got[0] == '0' and all(set(g) == {'error', 'where'} for g in got[1:]), 'errors as lines %s' % got)
        got = jsonl(template('\n{% endif %}'), [TALK, TALK])
        count.check(len(got) == 2 and got[0]['where'].endswith('line 2'), 'a broken template, each line')
    model = TESTS + '/../models/demo.gguf'
    if os.path.exists(model):
        r = run(model, given=json.dumps({'messages': TALK, 'add_generation_prompt': True}).encode())
        count.check(b'Be kind.' in r.stdout and r.stdout.rstrip().endswith(b'assistant'), 'a GGUF: %r' % r)
        count.check(run(model, '--source').stdout.startswith(b'{'), '--source')
        r = run(model, '--chat-template', '{{ eos_token }}|{{ messages|length }}', given=chat)
        count.check(r.stdout == b'<|im_end|>|2', "another template with the model's tokens: %r" % r)
    directory = SHARED + '/models/demo/hf'
    if os.path.isdir(directory):
        both = [run(m, given=chat).stdout for m in (directory, model)]
        count.check(both[0] and both[0] == both[1], 'a directory gives what its GGUF gives')
    else:
        count.skip('no models/demo in LODE_SHARED')


manners()
way_back()
builtins()
reference()
count.end()
