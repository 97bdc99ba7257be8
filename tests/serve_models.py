#!/usr/bin/env python3
"""serve_models.py LODE: several models of one server, settings in a file, metrics as Prometheus reads them,
logs that say what happened and not what was said."""
import json
import os
import subprocess
import sys
import tempfile
import threading
import time

import exposition
from lodeserver import MODEL, PATIENCE, Server, need_server
from lodetest import Count, TESTS

MOE = os.path.join(TESTS, '..', 'models', 'moe.gguf')
HELLO = {'messages': [{'role': 'user', 'content': 'Tell me about a cat.'}], 'seed': 3, 'max_tokens': 6,
         'ignore_eos': True}


def ask(s, model, **more):
    return s.post('/v1/chat/completions', dict(HELLO, **({'model': model} if model else {}), **more))


def states(s):
    return {m['id']: m['status']['value'] for m in json.loads(s.ask('GET', '/v1/models')[1])['data']}


def until(what):
    end = time.monotonic() + PATIENCE
    while not what():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def config(folder, text):
    path = os.path.join(folder, 'server.ini')
    with open(path, 'w') as f:
        f.write(text)
    return path


def check_names(count, program, folder):
    path = config(folder, '''# two models, one after the other
version = 1
api-key = secret
sleep-idle-seconds = 2
models-max = 1

[*]
parallel = 2
ctx-size = 512

[demo]
model = "%s"
alias = default, gpt-4o
load-on-startup = true

[experts]
model = %s
ctx-size = 256
''' % (MODEL, MOE))
    s = Server(program, '--config', path, model=None, key='secret')
    count.check(states(s) == {'demo': 'loaded', 'experts': 'unloaded'}, 'one loaded, one listed')
    whole = {m['id']: m for m in json.loads(s.ask('GET', '/v1/models')[1])['data']}
    count.check(whole['demo']['meta']['n_ctx'] == 512 and whole['demo']['aliases'] == ['default', 'gpt-4o']
                and whole['experts']['meta']['size'] == os.path.getsize(MOE), 'with sizes and other names')
    count.check(json.loads(s.ask('GET', '/v1/models/gpt-4o')[1])['id'] == 'demo', 'one by its other name')
    demo = ask(s, 'demo')
    count.check(demo[0] == 200 and ask(s, 'gpt-4o')[1]['choices'] == demo[1]['choices']
                and ask(s, None)[1]['choices'] == demo[1]['choices'], 'asked by name, by alias, by none')
    code, r = ask(s, 'gpt-5')
    count.check(code == 404 and r['error']['param'] == 'model' and 'gpt-5' in r['error']['message'],
                'a model that is not there: 404')
    code, r = ask(s, 'experts')
    count.check(code == 200 and r['model'] == 'experts' and states(s)['demo'] == 'unloaded',
                'the other is loaded, and makes the first leave')
    wrong = []

    def client(model, wanted):
        for _ in range(3):
            code, r = ask(s, model)
            if code != 503 and r.get('choices') != wanted:
                wrong.append((code, r))

    threads = [threading.Thread(target=client, args=a)
               for a in (('demo', demo[1]['choices']), ('experts', r['choices'])) * 2]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    count.check(not wrong, 'both at once, in turns, with the same bytes')
    count.check(until(lambda: set(states(s).values()) == {'unloaded'}), 'who is not used sleeps')
    count.check(ask(s, 'demo')[1]['choices'] == demo[1]['choices'], 'and wakes')
    text = s.ask('GET', '/metrics')[1]
    loads = {dict(k[1])['model_name']: v for k, v in exposition.parse(text)['lode:model_loads_total'][2].items()}
    count.check(loads['demo'] >= 3 and loads['experts'] >= 1, 'the metrics count it: %r' % loads)
    count.check(s.stop() == 0, 'the end')


REFUSED = [  # a file, and what the complaint names
    ('port = 8080\nprot = 1\n[a]\nmodel = x\n', ':2', 'prot'),
    ('[a]\nmodel = x\nport = 1\n', ':3', 'port'),
    ('[a]\nmodel = x\nctx-size = many\n', ':3', 'many'),
    ('[a]\nalias = b\n', ':1', 'model'),
    ('model = x\n[a]\nmodel = y\n', ':1', 'section'),
    ('[a]\nmodel = x\n[a]\nmodel = y\n', ':3', 'twice'),
    ('[a]\nmodel = x\n[b]\nmodel = y\nalias = a\n', '', 'called "a"'),
    ('[*]\nprofile-tokens = t.json\n[a]\nmodel = x\n[b]\nmodel = y\n', '', 'both write t.json'),
    ('[a]\nmodel = x\nhot-experts = h.json\n[b]\nmodel = y\nhot-experts = h.json\n', '', 'hot-experts = FILE'),
    ('[a\n', ':1', '[NAME]'), ('[]\n', ':1', 'name'), ('hello\n', ':1', 'key'), ('= 1\n', ':1', 'key'),
    ('[a]\nmodel = "x\n', ':2', 'quote'), ('version = 2\n', ':1', 'version'), ('config = x\n', ':1', 'config'),
    ('a' * 9000, ':1', 'longer'), ('[a]\nmodel = x\x01y\n', ':2', 'control'),
]


def check_file(count, program, folder):
    for text, line, what in REFUSED:
        path = config(folder, text)
        r = subprocess.run([program, 'serve', '--config', path, '--port', '0'], stdin=subprocess.DEVNULL,
                           capture_output=True, timeout=PATIENCE)
        said = r.stderr.decode(errors='replace')
        count.check(r.returncode == 1 and path + line in said and what in said,
                    'refused with its line: %r' % text[:40])
    path = config(folder, '\ufeff; as some editors begin\r\n\r\nparallel = 3\r\nctx-size=400\r\n')
    steps = os.path.join(folder, 'steps.json')
    s = Server(program, '-c', '300', '--config', path, '--profile-tokens', steps)
    props = json.loads(s.ask('GET', '/props')[1])
    count.check(props['total_slots'] == 3 and props['default_generation_settings']['n_ctx'] == 300,
                'settings alone; the command line goes before them')
    ask(s, None)
    with open(steps) as f:
        lines = f.read().splitlines()  # while it runs; its last step may be at work
    count.check(len(lines) >= HELLO['max_tokens'] - 1 and json.loads(lines[-1])['step'] == len(lines),
                'steps can be followed: %d' % len(lines))
    count.check(s.stop() == 0, 'the end')


def check_budget(count, program, folder):
    path = config(folder, 'ctx-size = 256\nparallel = 1\n[demo]\nmodel = %s\n[experts]\nmodel = %s\n' % (MODEL, MOE))
    s = Server(program, '--config', path, '--models-memory', str(os.path.getsize(MODEL) + 12000000), model=None)
    codes = [ask(s, 'demo')[0], ask(s, 'experts')[0]]
    count.check(200 in codes and list(states(s).values()).count('loaded') <= 1, 'no more than memory has room for: %r' % codes)
    count.check(s.stop() == 0, 'the end')
    s = Server(program, '--config', path, '--models-memory', '1M', model=None)
    code, r = ask(s, 'demo')
    count.check(code == 400 and 'MiB' in r['error']['message'], 'and what never fits is refused with the numbers')
    count.check(s.stop() == 0, 'the end')


def check_metrics(count, program, folder):
    log = os.path.join(folder, 'log')
    s = Server(program, '--log-file', log, '--log-format', 'json', '--log-level', 'info', '--alias', 'a"b\\c,d')
    secret = 'xyzzy plugh'
    body = {'messages': [{'role': 'user', 'content': secret}], 'max_tokens': 9, 'ignore_eos': True}
    count.check(s.ask('POST', '/v1/chat/completions', body, {'X-Request-Id': 'mine-1'})[0] == 200, 'an answer')
    s.stream('/v1/chat/completions', dict(body, max_tokens=5))
    status, text, r = s.ask('GET', '/metrics')
    count.check(r.getheader('Content-Type').startswith('text/plain; version=0.0.4'), 'the type of the metrics')
    try:
        families = exposition.parse(text)
        count.check(True, '%d families, as the format wants them' % len(families))
    except ValueError as e:
        return count.check(False, 'the metrics: %s' % e)
    label = (('model_name', 'a\\"b\\\\c'),)

    def value(family, sample=None, labels=label):
        return families[family][2][sample or family, labels]

    for name, n in (('time_to_first_token_seconds', 2), ('inter_token_latency_seconds', 12),
                    ('request_queue_time_seconds', 2), ('e2e_request_latency_seconds', 2),
                    ('request_prompt_tokens', 2), ('request_cached_tokens', 2), ('request_generation_tokens', 2)):
        count.check(families['lode:' + name][0] == 'histogram'
                    and value('lode:' + name, 'lode:' + name + '_count') == n, 'histogram ' + name)
    count.check(value('lode:request_generation_tokens', 'lode:request_generation_tokens_sum') == 14, 'its sum')
    count.check(value('lode:request_cached_tokens', 'lode:request_cached_tokens_sum') > 0, 'tokens found again')
    count.check(value('lode:batch_requests', 'lode:batch_requests_count')
                == value('llamacpp:n_decode_total', labels=()), 'a batch for each step')
    count.check(value('llamacpp:tokens_predicted_total', labels=()) >= 14, 'llama.cpp\'s names')
    count.check({'sharpi_tokens_per_second', 'sharpi_queue_depth', 'sharpi_active_requests',
                 'lode:kv_cache_usage_ratio', 'lode:uptime_seconds'} <= set(families), 'the seeds\' names')
    count.check(s.stop() == 0, 'the end')
    with open(log) as f:
        text = f.read()
    lines = [json.loads(line) for line in text.splitlines()]
    mine = [e for e in lines if e.get('id') == 'mine-1']
    count.check(len(mine) == 1 and mine[0]['status'] == 200 and mine[0]['tokens'] == 9 and mine[0]['prompt_tokens']
                and mine[0]['path'] == '/v1/chat/completions' and 'first_token_ms' in mine[0], 'a line for a request')
    count.check(all(e['ts'].endswith('Z') and e['level'] and e['event'] for e in lines), 'each with time and level')
    count.check('xyzzy' not in text, 'and nothing of what was said')
    os.unlink(log)
    s = Server(program, '--log-file', log, '--log-level', 'info', '--log-prompts')
    s.post('/v1/chat/completions', body)
    count.check(s.stop() == 0, 'the end')
    with open(log) as f:
        text = f.read()
    count.check('xyzzy' in text and ' info request id=req-' in text, 'but where it was asked for; as text')


def main():
    program = sys.argv[1]
    count = Count()
    need_server(count, program)
    with tempfile.TemporaryDirectory() as folder:
        for check in (check_names, check_file, check_budget, check_metrics):
            if len(sys.argv) < 3 or check.__name__ in sys.argv:
                check(count, program, folder)
    count.end()


main()
