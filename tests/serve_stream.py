#!/usr/bin/env python3
"""serve_stream.py LODE: `lode serve` with a model whose experts are read when they are used: several
requests through one store have the answers that each has alone with all of the model in memory, whatever
the room; clients that leave take nothing from the others; a file that is damaged costs an error and no
more."""
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading

from lodeserver import Server, need_server
from lodetest import TESTS, Count

PROGRAM = sys.argv[1]
MOE = os.path.join(TESTS, '..', 'models', 'moe.gguf')
BODIES = [{'prompt': p, 'max_tokens': n, 'temperature': t, 'seed': 7, 'logprobs': 3, 'ignore_eos': True}
          for p, n, t in (('Once upon a time there was', 40, 0), ('The captain of the ship ' * 12, 30, 0.8),
                          ('"Where is my hat?" asked', 40, 1), ('In the garden', 25, 0.5))]


def answer(s, body):
    status, r = s.post('/v1/completions', body)
    return status, r['choices'][0] if status == 200 else r


def at_once(s, bodies):
    got = [None] * len(bodies)

    def ask(i):
        got[i] = answer(s, bodies[i])

    threads = [threading.Thread(target=ask, args=[i]) for i in range(len(bodies))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return got


def leave(s, body):
    """Asks for a stream and goes away after its first bytes."""
    data = json.dumps(dict(body, stream=True, max_tokens=400)).encode()
    with socket.create_connection(('127.0.0.1', s.port)) as c:
        c.sendall(b'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n' % len(data)
                  + data)
        c.recv(200)


def check_room(count, model, room, alone):
    s = Server(PROGRAM, '--expert-cache', str(room), '-np', '4', model=model)
    name = '%s, %d kB for experts: ' % (os.path.basename(model), room / 1000)
    count.check([answer(s, b) for b in BODIES] == alone, name + 'one after the other')
    count.check(at_once(s, BODIES) == alone, name + 'all at once')
    count.check(at_once(s, BODIES[:2]) == alone[:2], name + 'two at once')
    leavers = [threading.Thread(target=leave, args=[s, b]) for b in BODIES[2:]]
    for t in leavers:
        t.start()
    count.check(at_once(s, BODIES[:2]) == alone[:2], name + 'two, while two others leave')
    for t in leavers:
        t.join()
    s.stop()


def check_damage(count, packed, alone):
    """Every record of a layer damaged while the server runs: errors, named; mended: answers."""
    with open(packed + '/manifest.json') as f:
        layer = json.load(f)['experts'][1]
    weights = packed + '/weights.bin'
    s = Server(PROGRAM, '--expert-cache', str(8 * layer['step']), model=packed)
    count.check(answer(s, BODIES[0]) == alone[0], 'whole')
    flips = [layer['at'] + e * layer['step'] + 100 for e in range(len(layer['xxh3']))]

    def flip():
        with open(weights, 'r+b') as f:
            for at in flips:
                f.seek(at)
                byte = f.read(1)[0]
                f.seek(at)
                f.write(bytes([byte ^ 4]))

    flip()
    got = at_once(s, [dict(b, prompt='x' + b['prompt']) for b in BODIES])
    count.check(all(status == 500 and 'damaged' in r['error']['message']
                    and 'of layer %d' % layer['layer'] in r['error']['message'] for status, r in got),
                'damaged: each is told, %s' % [r for _, r in got][:1])
    flip()
    count.check(at_once(s, BODIES) == alone, 'mended: all are answered')
    s.stop()


def main():
    count = Count()
    need_server(count, PROGRAM)
    s = Server(PROGRAM, model=MOE)
    alone = [answer(s, b) for b in BODIES]
    s.stop()
    count.check(all(status == 200 for status, _ in alone), 'the model in memory answers')
    with tempfile.TemporaryDirectory() as t:
        packed = t + '/packed'
        subprocess.run([PROGRAM, 'pack', MOE, '-o', packed], check=True, stdout=subprocess.DEVNULL)
        for model, room in (MOE, 1000000), (packed, 1000000), (packed, 3000000):
            check_room(count, model, room, alone)
        shutil.copytree(packed, t + '/damaged')
        check_damage(count, t + '/damaged', alone)
    count.end()


main()
