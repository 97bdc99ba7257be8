#!/usr/bin/env python3
"""serve_load.py URL [--clients 1,8] [--seconds 20] [--prompt-words 60] [--tokens 64] [--key KEY] [--json]

Loads an OpenAI-compatible server with streams: each client asks, reads its answer to the end, asks again.
For each number of clients it prints

    goodput    tokens of whole answers per second
    TTFT       percentiles of the time from a request to its first text
    gap        percentiles of the time between two pieces of text of a stream
    refused    replies 429 and 503 (the client waits as long as Retry-After says, at most a second)

and at the end the goodput of the most clients over that of one.  Prompts differ from request to request
(--same: all begin alike, as an agent's do).  Python 3's own library; one thread a client, which at some
hundreds of tokens a second is far from being the limit."""
import argparse
import http.client
import json
import random
import threading
import time
import urllib.parse

WORDS = ('time river stone light paper green seven under garden winter music small table letter bridge '
         'window answer summer yellow market').split()


def percentile(values, p):
    values = sorted(values)
    return values[min(len(values) - 1, int(p / 100 * len(values)))] if values else float('nan')


class Load:
    def __init__(self, options):
        self.o = options
        url = urllib.parse.urlsplit(options.url if '//' in options.url else '//' + options.url)
        self.host, self.port = url.hostname, url.port or 80
        self.first, self.gaps, self.tokens, self.refused, self.failed = [], [], 0, 0, 0
        self.lock = threading.Lock()

    def body(self, rng):
        words = [rng.choice(WORDS) for _ in range(self.o.prompt_words)]
        if self.o.same:
            words[:-5] = (WORDS * self.o.prompt_words)[:max(0, self.o.prompt_words - 5)]
        return json.dumps({'messages': [{'role': 'user', 'content': ' '.join(words)}], 'stream': True,
                           'max_tokens': self.o.tokens, 'ignore_eos': True, 'seed': rng.randrange(1 << 30),
                           'stream_options': {'include_usage': True}})

    def one(self, rng, end):
        c = http.client.HTTPConnection(self.host, self.port, timeout=600)
        headers = {'Content-Type': 'application/json'}
        if self.o.key:
            headers['Authorization'] = 'Bearer ' + self.o.key
        start = last = time.monotonic()
        c.request('POST', '/v1/chat/completions', self.body(rng), headers)
        r = c.getresponse()
        first, gaps, tokens = None, [], 0
        if r.status == 200:
            for line in r:
                if not line.startswith(b'data: {'):
                    continue
                event = json.loads(line[6:])
                now = time.monotonic()
                delta = event['choices'][0]['delta'] if event.get('choices') else {}
                if delta.get('content') or delta.get('reasoning_content'):
                    if first is None:
                        first = now - start
                    else:
                        gaps.append(now - last)
                    last = now
                if event.get('usage'):
                    tokens = event['usage']['completion_tokens']
        else:
            r.read()
        c.close()
        with self.lock:
            if r.status in (429, 503):
                self.refused += 1
            elif r.status != 200 or not tokens:
                self.failed += 1
            elif time.monotonic() < end:
                self.tokens += tokens
            if first is not None:
                self.first.append(first)
                self.gaps += gaps
        if r.status in (429, 503):
            time.sleep(min(1, float(r.getheader('Retry-After') or 1)))

    def run(self, clients):
        self.first, self.gaps, self.tokens, self.refused, self.failed = [], [], 0, 0, 0
        end = time.monotonic() + self.o.seconds

        def client(i):
            rng = random.Random(self.o.seed * 1000 + i)
            while time.monotonic() < end:
                self.one(rng, end)

        threads = [threading.Thread(target=client, args=(i,)) for i in range(clients)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        ms = lambda values, p: round(percentile(values, p) * 1e3, 1)
        return {'clients': clients, 'goodput': round(self.tokens / self.o.seconds, 1),
                'requests': len(self.first), 'refused': self.refused, 'failed': self.failed,
                'ttft_ms': {p: ms(self.first, p) for p in (50, 90, 99)},
                'gap_ms': {p: ms(self.gaps, p) for p in (50, 90, 99)}}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('url')
    p.add_argument('--clients', default='1,8')
    p.add_argument('--seconds', type=float, default=20)
    p.add_argument('--prompt-words', type=int, default=60)
    p.add_argument('--tokens', type=int, default=64)
    p.add_argument('--key')
    p.add_argument('--seed', type=int, default=1)
    p.add_argument('--same', action='store_true')
    p.add_argument('--json', action='store_true')
    load = Load(p.parse_args())
    rows = []
    for n in (int(x) for x in load.o.clients.split(',')):
        row = load.run(n)
        rows.append(row)
        if load.o.json:
            print(json.dumps(row), flush=True)
        else:
            print('%4d clients: %7.1f tokens/s, %d requests, %d refused, %d failed; TTFT p50 %s p90 %s p99 %s ms; '
                  'gap p50 %s p90 %s p99 %s ms'
                  % (n, row['goodput'], row['requests'], row['refused'], row['failed'],
                     *row['ttft_ms'].values(), *row['gap_ms'].values()), flush=True)
    one = [r for r in rows if r['clients'] == 1]
    if one and one[0]['goodput'] and len(rows) > 1:
        print('goodput of %d clients / of 1: %.2f' % (rows[-1]['clients'], rows[-1]['goodput'] / one[0]['goodput']))


if __name__ == '__main__':
    main()
