#!/usr/bin/env python3
"""verb_batch.py LODE: what uses a server or does without one: `lode batch` (restarted, killed), `lode run --url`
and --tools, `lode launch` and the files that it writes."""
import json
import os
import pty
import random
import select
import signal
import stat
import subprocess
import sys
import tempfile
import time

from lodeserver import MODEL, PATIENCE, Server, need_server
from lodetest import LONG, Count


def run(program, *args, given=None, home=None, **more):
    env = {k: v for k, v in os.environ.items() if not k.startswith(('LODE_', 'CODEX_', 'CLAUDE_', 'XDG_'))}
    if home:
        env['HOME'] = home
    r = subprocess.run([program, *args], input=given, stdin=None if given is not None else subprocess.DEVNULL,
                       capture_output=True, timeout=PATIENCE, env=env, start_new_session=True, **more)
    return r.returncode, r.stdout.decode(), r.stderr.decode()


def lines(path):
    with open(path) as f:
        return [json.loads(line) for line in f]


def write_requests(path, n):
    with open(path, 'w') as f:
        for i in range(n):
            body = {'messages': [{'role': 'user', 'content': 'Say %d' % i}], 'max_tokens': 4 + i % 9, 'seed': i}
            if i == 5:
                body['temperature'] = 'hot'
            if i == 6:
                body['stream'] = True  # means nothing here
            f.write(json.dumps({'custom_id': 'r%d' % i, 'method': 'POST', 'body': body,
                                'url': '/nothing' if i == 7 else '/v1/chat/completions'}) + '\n')


def said(row):
    r = row['response']
    return row['custom_id'], r['status_code'], r['body'].get('choices'), row['error']


def check_batch(count, program, folder):
    given, out = os.path.join(folder, 'in.jsonl'), os.path.join(folder, 'out.jsonl')
    write_requests(given, 24)
    args = ('batch', given, '-o', out, '-m', MODEL, '-c', '512')
    code, _, err = run(program, *args)
    whole = lines(out)
    count.check(code == 0 and [r['custom_id'] for r in whole] == ['r%d' % i for i in range(24)],
                'all answered, in order: ' + err.strip())
    bad = {r['custom_id']: r['error'] for r in whole if r['error']}
    count.check(set(bad) == {'r5', 'r7'} and 'temperature' in bad['r5']['message']
                and [r['response']['status_code'] for r in whole if r['error']] == [400, 404],
                'an error stops nothing and says what is wrong')
    count.check(whole[6]['response']['body']['object'] == 'chat.completion', '"stream" means nothing')
    before = os.stat(out)
    count.check(run(program, *args)[0] == 0 and os.stat(out).st_size == before.st_size, 'run again, nothing is done')
    with open(out, 'r+b') as f:  # as if it had been killed in the middle of a line
        f.truncate(before.st_size // 2)
    count.check(run(program, *args, '--parallel', '1')[0] == 0 and [said(r) for r in lines(out)] == [said(r) for r in whole],
                'cut off, it goes on, with the same answers')
    seed = int(os.environ.get('LODE_SEED') or random.randrange(1 << 30))
    rng, kills = random.Random(seed), 0
    os.unlink(out)
    while kills < (200 if LONG else 4):
        p = subprocess.Popen([program, *args], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(rng.random() * 0.3)
        p.send_signal(signal.SIGKILL if rng.random() < 0.7 else signal.SIGTERM)
        p.wait(PATIENCE)
        kills += 1
    count.check(run(program, *args)[0] == 0 and [said(r) for r in lines(out)] == [said(r) for r in whole],
                'killed %d times, still the same (LODE_SEED=%d)' % (kills, seed))
    for text, what in (('{"custom_id": "a"}\n', 'line 1'), ('{"custom_id"\n', 'line 1'), ('', 'no request'),
                       ('{"custom_id":"a","url":"/x","body":{}}\n' * 2, 'twice'), ('[]\n', 'line 1')):
        with open(given, 'w') as f:
            f.write(text)
        code, _, err = run(program, 'batch', given, '-o', os.path.join(folder, 'none'), '-m', MODEL)
        count.check(code == 1 and what in err, 'refused: %r' % text[:40])
    write_requests(given, 3)
    with open(out, 'w') as f:
        f.write('{"custom_id": "other"}\n')
    code, _, err = run(program, *args)
    count.check(code == 1 and 'line 1' in err and lines(out) == [{'custom_id': 'other'}],
                'an output of other requests is left alone')
    count.check(run(program, 'batch', given)[0] == 2 and run(program, 'batch', given, '-o', out)[0] == 2, 'what is missing')


def check_url(count, program, s):
    url = 'http://127.0.0.1:%d' % s.port
    wanted = s.post('/v1/chat/completions', {'messages': [{'role': 'user', 'content': 'Hello'}], 'seed': 4,
                                             'max_tokens': 12})[1]['choices'][0]['message']['content']
    for more in ((url,), (url + '/v1',), (url + '/',), ('127.0.0.1:%d' % s.port,)):
        code, out, err = run(program, 'run', '--url', *more, '-p', 'Hello', '--seed', '4', '-n', '12')
        count.check(code == 0 and out.strip() == wanted.strip(), 'an answer through ' + more[0].replace(str(s.port), 'PORT'))
    code, out, err = run(program, 'run', '--url', url, '--stats', '-n', '5', given=b'Hello\n')
    count.check(code == 0 and out and 'first token after' in err and 'answer 5 tokens' in err, 'with its numbers')
    code, out, err = run(program, 'run', '--url', url, '-p', 'word ' * 3000)
    count.check(code == 1 and 'context' in err and 'status 400' in err, 'the server\'s complaint')
    code, out, err = run(program, 'run', '--url', 'http://127.0.0.1:1', '-p', 'x')
    count.check(code == 1 and 'lode serve' in err, 'nobody there')
    for bad in ('https://127.0.0.1', 'http://', 'http://a:b', 'http://127.0.0.1:999999/', 'http://[::1'):
        count.check(run(program, 'run', '--url', bad, '-p', 'x')[0] == 1, 'no address: ' + bad)
    code, out, err = run(program, 'run', '--url', url, '-i', given=b'My name is Bo.\n/clear\nHello\n/quit\n')
    count.check(code == 0, 'a chat')
    check_lines(count, program, url)


def check_lines(count, program, url):
    """Lines of a chat that come by a pipe."""
    args = ('run', '--url', url, '-i', '--seed', '4', '-n', '8')
    whole = run(program, *args, given=b'Hello\nWhat is 2+2?\n')
    for pieces, what in (((b'Hel', b'lo\nWhat', b' is 2+2?\n'), 'in pieces'), ((b'Hello\r\nWhat is 2+2?\r\n',), 'with carriage returns'),
                         ((b'Hello\nWhat is 2+2?',), 'the last without its end')):
        with subprocess.Popen([program, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as p:
            for piece in pieces:
                p.stdin.write(piece)
                p.stdin.flush()
                time.sleep(0.1)
            out = p.communicate(timeout=PATIENCE)[0].decode()
        count.check(p.returncode == 0 and out and out == whole[1], 'lines ' + what)
    wanted = run(program, 'run', '--url', url, '--seed', '4', '-n', '8', '-p', 'Hello\nthere')[1]
    for given, what in ((b'"""Hello\nthere"""\n', 'in quotes'), (b'Hello\\\nthere\n', 'joined by a backslash')):
        code, out, err = run(program, *args, given=given)
        count.check(code == 0 and wanted and out.strip() == wanted.strip(), 'lines ' + what)
    with subprocess.Popen([program, *args], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as p:
        end = time.monotonic() + PATIENCE
        while p.poll() is None and time.monotonic() < end:
            time.sleep(0.2)
            p.send_signal(signal.SIGINT)
        left = p.poll()
        p.kill()
    count.check(left is not None, 'interrupts end the wait for a line, and the second the chat')


def on_terminal(program, answer, *args):
    """Runs it on a terminal of its own, answers the first question, returns what was shown."""
    pid, fd = pty.fork()
    if pid == 0:
        os.execve(program, [program, *args], {k: v for k, v in os.environ.items() if not k.startswith('LODE_')})
    shown, asked, end = b'', False, time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if not select.select([fd], [], [], 1)[0]:
            continue
        try:
            more = os.read(fd, 65536)
        except OSError:
            break
        if not more:
            break
        shown += more
        if b'[q]uit: ' in shown and not asked:
            asked = True
            os.write(fd, answer.encode())
    os.close(fd)
    os.waitpid(pid, 0)
    return shown.decode(errors='replace')


TOOL = [{'type': 'function', 'function': {
    'name': 'weather', 'description': 'The weather of a city.', 'parameters': {
        'type': 'object', 'properties': {'city': {'type': 'string'}}, 'required': ['city']}}, 'command': None}]


def check_tools(count, program, s, folder):
    tools, seen = os.path.join(folder, 'tools.json'), os.path.join(folder, 'seen')
    TOOL[0]['command'] = ['/bin/sh', '-c', 'cat >%s; echo sunny, 20 degrees' % seen]
    with open(tools, 'w') as f:
        json.dump(TOOL, f)
    ask = ('-p', 'What is the weather in Paris?', '--tools', tools, '--temp', '0', '-n', '60')
    for where in ((MODEL, '-c', '1024'), ('--url', 'http://127.0.0.1:%d' % s.port)):
        if os.path.exists(seen):
            os.unlink(seen)
        code, out, err = run(program, 'run', *where, *ask)
        count.check(code == 0 and not os.path.exists(seen), 'nothing is run without a terminal to ask on')
        code, out, err = run(program, 'run', *where, *ask, '--yes')
        with open(seen) as f:
            got = json.load(f)
        count.check(code == 0 and got == {'city': 'Paris'} and 'sunny' in out and 'weather(' in err,
                    'a tool called, and its result read (%s)' % where[0][-9:])
    for answer, wanted in (('y', True), ('n', False), ('', False), ('q', False)):
        if os.path.exists(seen):
            os.unlink(seen)
        shown = on_terminal(program, answer + '\n', 'run', MODEL, '-c', '1024', *ask)
        count.check('weather' in shown and '[y]es' in shown and os.path.exists(seen) == wanted,
                    'asked on a terminal, %r' % answer)
    for text, what in (('{}', 'list'), ('[{}]', 'tool 1'), ('[{"function":{"name":"x"},"command":[1]}]', 'tool 1')):
        with open(tools, 'w') as f:
            f.write(text)
        code, out, err = run(program, 'run', '--url', 'http://127.0.0.1:%d' % s.port, '-p', 'x', '--tools', tools)
        count.check(code == 1 and what in err, 'no tools: ' + text)


def check_launch(count, program, s, folder):
    home = os.path.join(folder, 'home')
    claude, codex = os.path.join(home, '.claude/settings.json'), os.path.join(home, '.codex/config.toml')
    url = 'http://127.0.0.1:%d' % s.port
    for agent in ('claude', 'codex', 'opencode'):
        code, out, err = run(program, 'launch', agent, '--url', url, '--print', home=home)
        count.check(code == 0 and url in out and 'demo.gguf' in out and not os.path.exists(home),
                    '%s: printed, with the server\'s model' % agent)
    os.makedirs(os.path.dirname(claude))
    with open(claude, 'w') as f:
        json.dump({'theme': 'dark', 'env': {'MINE': '1', 'ANTHROPIC_BASE_URL': 'x'}}, f)
    os.chmod(claude, 0o640)
    with open(claude) as f:
        old = f.read()
    count.check(run(program, 'launch', 'claude', '--url', url + '/v1', home=home)[0] == 0, 'claude: written')
    new = json.load(open(claude))
    count.check(new['theme'] == 'dark' and new['env']['MINE'] == '1' and new['env']['ANTHROPIC_BASE_URL'] == url
                and new['env']['ANTHROPIC_MODEL'] == 'demo.gguf'
                and new['env']['CLAUDE_CODE_ATTRIBUTION_HEADER'] == '0', 'into what was there')
    count.check(open(claude + '.before-lode').read() == old and stat.S_IMODE(os.stat(claude).st_mode) == 0o640,
                'which is kept, with its mode')
    code, out, _ = run(program, 'launch', 'claude', '--url', url, home=home)
    count.check(code == 0 and 'already' in out and not os.path.exists(claude + '.before-lode.2'), 'twice is once')
    with open(claude, 'w') as f:
        f.write('{ // mine\n}')
    code, _, err = run(program, 'launch', 'claude', '--url', url, home=home)
    count.check(code == 1 and '--print' in err and open(claude).read() == '{ // mine\n}', 'what cannot be read stays')
    os.makedirs(os.path.dirname(codex))
    with open(codex, 'w') as f:
        f.write('# mine\nmodel = "x"\napproval_policy = "never"\n\n[model_providers.lode]\nold = 1\n\n'
                '[profiles.a]\nmodel = "kept"\n')
    for _ in range(2):
        count.check(run(program, 'launch', 'codex', '--url', url, home=home)[0] == 0, 'codex: written')
    text = open(codex).read()
    count.check(text.startswith('model = "demo.gguf"\nmodel_provider = "lode"\n# mine\napproval_policy') and 'old = 1' not in text
                and '[profiles.a]\nmodel = "kept"\n' in text and text.count('[model_providers.lode]') == 1
                and 'base_url = "%s/v1"\nwire_api = "responses"' % url in text, 'into what was there, once')
    count.check(run(program, 'launch', 'emacs', home=home)[0] == 2 and run(program, 'launch', home=home)[0] == 2,
                'nobody else')


def main():
    program = sys.argv[1]
    count = Count()
    need_server(count, program)
    with tempfile.TemporaryDirectory() as folder:
        check_batch(count, program, folder)
        s = Server(program)
        try:
            check_url(count, program, s)
            check_tools(count, program, s, folder)
            check_launch(count, program, s, folder)
        finally:
            ended = s.stop()
        count.check(ended == 0, 'SIGTERM ends the server')
    count.end()


main()
