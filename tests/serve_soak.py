#!/usr/bin/env python3
"""serve_soak.py LODE [POINTS.csv]: a server under a mixed life: streams and whole answers, cancels, bad requests,
long prompts, schemas and calls, several APIs, idle connections.  Some seconds, half an hour with
LODE_LONG=1 (LODE_SOAK_SECONDS says otherwise): half of it as the server is used, half with --no-cache-prompt.

A request that is asked again and again must give one output, whatever else goes on.  Memory is measured each
second, and written to POINTS.csv.  Three things grow: what is touched for the first time (pages of keys and values,
which requests that take them all touch before the life begins; malloc's arenas and the program's own pages, which
the first half is left out for); what is kept for others, which the server counts and bounds (remembered answers,
lode:recall_bytes; compiled schemas with their masks, lode:forms_bytes; stored responses, lode:responses_bytes); and
leaks.  The slope of the second half is printed for memory, for what is kept and for the rest, and the rest is held
to 1 MB an hour, or to what cannot be told from that, if the time is long enough to see it; and a leak goes on to the
end: the slope of the last quarter, where what settles late has settled, must be above 1 MB an hour as well.

The slope is Theil's and Sen's: the half is cut into 12 stretches, of each the median is taken, and of the slopes of
the 66 pairs of these the median.  A step up by itself, as malloc takes from the system now and then, moves it little,
a steady growth in full.  Its interval of 95 % lies between the 19th and the 48th of the 66 slopes (Sen 1968: their
ranks are (66 -+ 1.96 * sqrt(12 * 11 * 29 / 18)) / 2), and is printed.  Of 500 s it was 2.7 MB/h wide; the width of a
slope over steps of a given size falls with the time at least, which makes 3 of the 450 s of half an hour's run, where a
leak of 4 MB an hour is seen, and 1.5 of an hour's.  malloc takes and keeps more at times that nobody knows (of a life that grew by
7 MB/h so, what malloc had given out did not grow, counted by a library before it): a leak is there in the next life too, so one
that is seen is looked for again."""
import http.client
import json
import os
import random
import socket
import statistics
import sys
import threading
import time

from lodeserver import PATIENCE, Server, need_server
from lodetest import LONG, Count

CHAT = '/v1/chat/completions'
FIXED = {'messages': [{'role': 'user', 'content': 'Tell me about a cat.'}], 'seed': 3, 'max_tokens': 12}


class Life:
    def __init__(self, s, seconds, seed):
        self.s, self.end, self.seed = s, time.monotonic() + seconds, seed
        self.lock = threading.Lock()
        self.outputs, self.counts, self.wrong, self.first = set(), {}, [], []

    def note(self, what):
        with self.lock:
            self.counts[what] = self.counts.get(what, 0) + 1

    def whole(self, rng):
        code, text, _ = self.s.ask('POST', CHAT, FIXED)
        if code == 200:
            with self.lock:
                self.outputs.add(json.dumps(json.loads(text)['choices']))
        elif code != 503:
            self.wrong.append((code, text))

    def stream(self, rng):
        words = ' '.join(rng.choice('red green blue one two three'.split()) for _ in range(rng.choice((3, 40, 400))))
        body = {'messages': [{'role': 'user', 'content': words}], 'max_tokens': rng.choice((1, 10, 60)), 'ignore_eos': True}
        taken = self.s.first_token(body)
        with self.lock:
            self.first.append(taken or 0)

    def cancel(self, rng):
        body = json.dumps({'messages': [{'role': 'user', 'content': 'word ' * rng.choice((1, 300))}],
                           'stream': rng.random() < 0.5, 'ignore_eos': True}).encode()
        c = self.s.connect(b'POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n' % (CHAT.encode(), len(body))
                           + body)
        c.settimeout(0.001 + rng.random() * 0.2)
        try:
            c.recv(4096)
        except OSError:
            pass
        c.close()

    def bad(self, rng):
        code, text, _ = self.s.ask('POST', rng.choice((CHAT, '/v1/completions', '/v1/messages', '/nothing')),
                                   rng.choice((b'{', b'[]', b'{"messages":1}', b'{"temperature":"x"}')))
        if code not in (400, 404, 503):
            self.wrong.append((code, text))

    def formed(self, rng):
        """A schema and calls: compiled constraints are kept for others, up to a bound."""
        schema = {'type': 'object', 'properties': {'k%d' % rng.randrange(40): {'type': 'integer'}}, 'required': []}
        extra = rng.choice((
            {'response_format': {'type': 'json_schema', 'json_schema': {'name': 'x', 'schema': schema}}},
            {'tools': [{'type': 'function', 'function': {'name': 'f', 'parameters': schema}}],
             'tool_choice': 'required'}))
        code, text, _ = self.s.ask('POST', CHAT, dict(FIXED, max_tokens=30, **extra))
        if code not in (200, 503):
            self.wrong.append((code, text))

    def other_api(self, rng):
        path, body = rng.choice((
            ('/v1/messages', {'messages': FIXED['messages'], 'max_tokens': 5}),
            ('/v1/responses', {'input': 'Tell me about a cat.', 'max_output_tokens': 5}),
            ('/v1/completions', {'prompt': 'Once', 'max_tokens': 5, 'n': 2, 'seed': 1}),
            ('/api/chat', {'messages': FIXED['messages'], 'options': {'num_predict': 5}}),
            ('/tokenize', {'content': 'Tell me about a cat.'})))
        code, text, _ = self.s.ask('POST', path, body)
        if code not in (200, 503):
            self.wrong.append((path, code, text))

    def look(self, rng):
        for path in ('/metrics', '/v1/models', '/health', '/lode/status', '/slots'):
            code, text, _ = self.s.ask('GET', path)
            if code != 200:
                self.wrong.append((path, code, text))

    def idle_connection(self, rng):
        with self.s.connect(rng.choice((b'', b'GET / HT'))):
            time.sleep(rng.random() * 0.3)

    def client(self, k):
        rng = random.Random(self.seed * 100 + k)
        while time.monotonic() < self.end:
            act = rng.choice((self.whole, self.whole, self.stream, self.stream, self.cancel, self.cancel, self.bad,
                              self.formed, self.other_api, self.look, self.idle_connection))
            try:
                act(rng)
            except (OSError, http.client.HTTPException) as e:
                if not isinstance(e, socket.timeout):
                    self.wrong.append((act.__name__, repr(e)))
            self.note(act.__name__)


def slope(points):
    """Of (seconds, bytes): bytes an hour, and the ends of the interval of 95 %."""
    n = len(points)
    stretches = [points[i * n // 12:(i + 1) * n // 12] for i in range(12)]
    middles = [(statistics.median(t for t, _ in s), statistics.median(b for _, b in s)) for s in stretches if s]
    slopes = sorted((b - a) / (t - u) * 3600 for i, (t, b) in enumerate(middles) for u, a in middles[:i])
    if len(slopes) < 66:
        return 0, 0, 0  # too short a life
    return statistics.median(slopes), slopes[18], slopes[47]


def kept(s):
    """Bytes that the server keeps for others, as it counts them."""
    return sum(s.metric(name) for name in ('lode:recall_bytes', 'lode:forms_bytes', 'lode:responses_bytes'))


def touch_pages(s):
    """A context in every slot at once."""
    ids = [3 + i % 200 for i in range(2040)]
    threads = [threading.Thread(target=s.ask, args=('POST', '/v1/completions', {'prompt': [k] + ids, 'max_tokens': 1}))
               for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


def live(count, program, seconds, seed, points_file, *flags):
    """One life; the bytes an hour that its memory grew by, what is kept for others apart: at least (95 %) in the second
    half, and in the last quarter, the smaller one."""
    s = Server(program, '--queue', '8', *flags)
    try:
        s.post(CHAT, FIXED)
        touch_pages(s)
        fds, pages = s.fds(), s.kept_pages()
        life = Life(s, seconds, seed)
        threads = [threading.Thread(target=life.client, args=(k,)) for k in range(8)]
        for t in threads:
            t.start()
        start, points = time.monotonic(), []
        while any(t.is_alive() for t in threads):
            points.append((time.monotonic() - start, s.rss(), kept(s)))
            if points_file:
                print('%s,%.1f,%d,%d' % (' '.join(flags), *points[-1]), file=points_file, flush=True)
            time.sleep(min(1, seconds / 20))
        for t in threads:
            t.join()
        late = points[len(points) // 2:]
        rest = [(t, rss - k) for t, rss, k in late]
        grown, last = slope(rest), slope(rest[len(rest) // 2:])[0]
        print('%d s, LODE_SEED=%d: %r' % (seconds, seed, life.counts))
        print('memory: %.1f MiB at the start, %.1f at the end; kept for others %.1f and %.1f'
              % tuple(x / 2 ** 20 for x in (points[0][1], points[-1][1], points[0][2], points[-1][2])))
        print('slope of the second half, MB/h: %.3f; what is kept %.3f; the rest %.3f (%.3f to %.3f), in the last quarter %.3f'
              % tuple(x / 1e6 for x in (slope([p[:2] for p in late])[0], slope([(t, k) for t, _, k in late])[0],
                                        *grown, last)))
        count.check(not life.wrong, 'nothing goes wrong %r' % life.wrong[:3])
        count.check(len(life.outputs) == 1, 'one output of one request, asked %d times' % life.counts.get('whole', 0))
        count.check(s.idle(), 'at the end nothing runs')
        end = time.monotonic() + PATIENCE / 4
        while s.fds() > fds and time.monotonic() < end:
            time.sleep(0.05)
        count.check(s.fds() <= fds, 'and no descriptor is left open')
        count.check(s.metric('lode:kv_tokens') == 0, 'no page is held by a request')
        leaked = s.leaked_pages(pages)
        count.check(leaked == 0, 'no page is lost: %g' % leaked)
        half = len(life.first) // 2
        if half:
            a, b = statistics.median(life.first[:half]), statistics.median(life.first[half:])
            print('median time to the first token: %.1f ms in the first half, %.1f in the second' % (a * 1e3, b * 1e3))
    finally:
        ended = s.stop()
    count.check(ended == 0, 'SIGTERM ends it')
    return min(grown[1], last)


def main():
    program = sys.argv[1]
    count = Count()
    points = open(sys.argv[2], 'w') if len(sys.argv) > 2 else None
    seconds = float(os.environ.get('LODE_SOAK_SECONDS') or (1800 if LONG else 6)) / 2
    seed = int(os.environ.get('LODE_SEED') or random.randrange(1 << 20))
    need_server(count, program)
    for k, (what, flags) in enumerate((('as it is used', ()), ('without prefixes', ('--no-cache-prompt',)))):
        grown = live(count, program, seconds, seed + k, points, *flags)
        if seconds < 900:
            continue
        if grown >= 1e6:
            print('what grew is looked for in another life')
            grown = live(count, program, seconds, seed + 2 + k, points, *flags)
        count.check(grown < 1e6, '%s, memory grows by less than 1 MB an hour, or by what cannot be told from it' % what)
    count.end()


main()
