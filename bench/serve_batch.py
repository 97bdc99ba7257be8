#!/usr/bin/env python3
"""serve_batch.py LODE MODEL [FLAGS...]: what `lode serve` does with several requests at once.

Prints tokens/s of one stream and of eight, in turns: of the likeliest tokens, of sampled ones, and of JSON;
the longest gap of a stream alone and beside a long prompt that others send; and how long a prompt takes to be
read, and after a restart with --cache-dir.
"""
import argparse
import http.client
import json
import re
import shutil
import signal
import statistics
import subprocess
import tempfile
import threading
import time


class Server:
    def __init__(self, program, model, *flags):
        self.p = subprocess.Popen([program, 'serve', model, '--port', '0', *flags], stdout=subprocess.PIPE,
                                  text=True)
        for line in self.p.stdout:
            found = re.search(r"http://127.0.0.1:(\d+)/v1/chat", line)
            if found:
                self.port = int(found.group(1))
                return
        raise SystemExit('no server')

    def stop(self):
        self.p.send_signal(signal.SIGTERM)
        self.p.wait()

    def stream(self, prompt, n, seed=1, **more):
        """Times at which chunks came, and the usage."""
        c = http.client.HTTPConnection('127.0.0.1', self.port, timeout=3600)
        c.request('POST', '/v1/completions', json.dumps(
            {'prompt': prompt, 'max_tokens': n, 'ignore_eos': True, 'stream': True, 'seed': seed,
             'temperature': 0, 'stream_options': {'include_usage': True}, **more}))
        r, times, usage = c.getresponse(), [time.time()], None
        for line in r:
            if line.startswith(b'data: {'):
                event = json.loads(line[6:])
                usage = event.get('usage') or usage
                if event.get('choices'):
                    times.append(time.time())
        return times, usage


def ids(n, seed):
    return [3 + (i * 7919 + seed * 104729) % 200 for i in range(n)]


def rate(s, streams, n, **more):
    done = []
    threads = [threading.Thread(target=lambda k=k: done.append(s.stream(ids(16, k), n, k, **more)))
               for k in range(streams)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    first = min(x[0][1] for x in done)
    return streams * (n - 1) / (max(x[0][-1] for x in done) - first)


def gaps(times):
    return max(b - a for a, b in zip(times[2:], times[3:]))


def print_rates(s, o):
    for what, more in (('likeliest', {}), ('sampled', {'temperature': 0.8}),
                       ('JSON', {'response_format': {'type': 'json_object'}})):
        one, eight = [], []
        for _ in range(o.turns):
            one.append(rate(s, 1, o.tokens, **more))
            eight.append(rate(s, 8, o.tokens, **more))
        print('tokens/s, %s: one stream %.1f, eight %.1f: %.2f times (median of %d turns: %s)' %
              (what, statistics.median(one), statistics.median(eight),
               statistics.median(e / o for o, e in zip(one, eight)), o.turns,
               ', '.join('%.1f/%.1f' % (e, o) for o, e in zip(one, eight))), flush=True)


def print_gap(s, o):
    """Beside a long prompt no gap may be longer than twice that of the stream alone and a chunk, which
    is what a step of the prompt takes with nothing else in it."""
    alone, times = s.stream(ids(16, 50), o.tokens)[0], []
    start = time.time()
    s.stream(ids(o.prompt, 55), 1)
    chunk = (time.time() - start) / (o.prompt / 64)
    other = threading.Thread(target=lambda: s.stream(ids(o.prompt, 60), 1))
    mine = threading.Thread(target=lambda: times.extend(s.stream(ids(16, 70), o.tokens)[0]))
    mine.start()
    time.sleep(0.3)
    other.start()
    mine.join()
    other.join()
    print('longest gap: alone %.1f ms, beside a prompt of %d tokens %.1f ms (median %.1f); twice the first and a '
          'chunk of 64 tokens: %.1f ms' % (gaps(alone) * 1e3, o.prompt, gaps(times) * 1e3,
                                           statistics.median(b - a for a, b in zip(times[2:], times[3:])) * 1e3,
                                           (2 * gaps(alone) + chunk) * 1e3), flush=True)


def print_restart(o, flags, cache):
    took = []
    for _ in range(2):
        s = Server(o.program, o.model, '-np', '8', '--cache-dir', cache, *flags)
        start = time.time()
        times, usage = s.stream(ids(o.prompt, 80), 4)
        took.append(times[1] - start)
        print('first token of a prompt of %d: %.3f s, %s' %
              (o.prompt, took[-1], usage['prompt_tokens_details']), flush=True)
        s.stop()
    print('after a restart: 1/%.1f of the time' % (took[0] / took[1]))


def main():
    p = argparse.ArgumentParser()
    p.add_argument('program')
    p.add_argument('model')
    p.add_argument('--tokens', type=int, default=48)
    p.add_argument('--prompt', type=int, default=2000)
    p.add_argument('--turns', type=int, default=3)
    p.add_argument('--parts', default='rates,gap,restart')
    o, flags = p.parse_known_args()
    folder = tempfile.mkdtemp()
    try:
        if 'rates' in o.parts or 'gap' in o.parts:
            s = Server(o.program, o.model, '-np', '8', *flags)
            if 'rates' in o.parts:
                print_rates(s, o)
            if 'gap' in o.parts:
                print_gap(s, o)
            s.stop()
        if 'restart' in o.parts:
            print_restart(o, flags, folder + '/cache')
    finally:
        shutil.rmtree(folder)


main()
