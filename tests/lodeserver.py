"""A `lode serve` of its own for a test, and how to ask it."""
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import time

from lodetest import LONG, TESTS

MODEL = os.path.join(TESTS, '..', 'models', 'demo.gguf')
# of a client; long forms share the machine with others for an hour, and some of their builds are slow
PATIENCE = int(os.environ.get('LODE_PATIENCE') or (600 if LONG else 60))


def read_all(c):
    """Until the other side closes."""
    got = b''
    while True:
        try:
            more = c.recv(65536)
        except ConnectionResetError:
            return got
        if not more:
            return got
        got += more


def need_server(count, program):
    """Ends the test where the program was built without a server, and says so."""
    r = subprocess.run([program, 'serve', MODEL, '--ssl-key-file', '/nowhere'], capture_output=True)
    if b'libmicrohttpd' in r.stderr:
        count.check(True, 'this build has no server, and says so')
        count.end()


class Server:
    def __init__(self, program, *flags, model=MODEL, key=None):
        self.key = key
        env = {k: v for k, v in os.environ.items() if not k.startswith('LODE_')}
        self.p = subprocess.Popen([program, 'serve', *([model, '-c', '2048'] if model else []), '--port', '0',
                                   *([] if '--chats' in flags else ['--no-chats']), *flags],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
        self.said = ''
        for line in self.p.stdout:
            self.said += line.decode()
            found = re.search(r'https?://127.0.0.1:(\d+)\n(?s:.*)-d ', self.said)
            if found:  # the line to try is the last
                self.port = int(found.group(1))
                return
        raise RuntimeError('no server: ' + self.p.stderr.read().decode())

    def ask(self, method, path, body=None, headers=()):
        c = http.client.HTTPConnection('127.0.0.1', self.port, timeout=PATIENCE)
        data = body if isinstance(body, (bytes, type(None))) else json.dumps(body)
        headers = dict(headers)
        if self.key:
            headers.setdefault('Authorization', 'Bearer ' + self.key)
        c.request(method, path, data, headers)
        r = c.getresponse()
        text = r.read().decode()
        c.close()
        return r.status, text, r

    def post(self, path, body):
        status, text, _ = self.ask('POST', path, body)
        return status, json.loads(text)

    def stream(self, path, body):
        status, text, r = self.ask('POST', path, dict(body, stream=True))
        assert status == 200 and r.getheader('Content-Type').startswith('text/event-stream'), text
        events = [e for e in text.split('\n\n') if e and not e.startswith(':')]
        assert all(e.startswith('data: ') for e in events)
        return [e[6:] for e in events]

    def metric(self, name):
        """Of the one model, where it is told for each."""
        text = self.ask('GET', '/metrics')[1]
        return float(re.search('^' + re.escape(name) + r'(?:\{model_name="[^"]*"\})? (.*)$', text, re.M).group(1))

    def kept_pages(self):
        """Of an idle server: pages that somebody holds, and the bytes that prefixes do."""
        self.idle()
        return self.metric('lode:kv_pages') - self.metric('lode:kv_pages_free'), self.metric('lode:prefix_cache_bytes')

    def leaked_pages(self, before):
        """Pages that neither prefixes hold nor anybody may take; before: kept_pages() when none was lost."""
        (pages, size), (pages_before, size_before) = self.kept_pages(), before
        return pages - (size * pages_before / size_before if size_before else 0)

    def connect(self, sent=b''):
        """A socket of one's own, with so much already sent."""
        c = socket.create_connection(('127.0.0.1', self.port), PATIENCE)
        if sent:
            c.sendall(sent)
        return c

    def raw(self, sent):
        """What comes back for these bytes until the server closes."""
        with self.connect(sent) as c:
            return read_all(c)

    def first_token(self, body, headers=()):
        """Seconds until a stream's first text."""
        c = http.client.HTTPConnection('127.0.0.1', self.port, timeout=PATIENCE)
        start = time.monotonic()
        c.request('POST', '/v1/chat/completions', json.dumps(dict(body, stream=True)), dict(headers))
        r = c.getresponse()
        while True:
            line = r.readline()
            if not line or b'"content":"' in line:
                taken = time.monotonic() - start
                r.read()
                c.close()
                return taken

    def rss(self):
        """Bytes of memory that it has."""
        with open('/proc/%d/status' % self.p.pid) as f:
            return int(re.search(r'VmRSS:\s+(\d+)', f.read()).group(1)) * 1024

    def fds(self):
        return len(os.listdir('/proc/%d/fd' % self.p.pid))

    def idle(self):
        end = time.monotonic() + PATIENCE
        while self.metric('llamacpp:requests_processing') or self.metric('llamacpp:requests_deferred'):
            if time.monotonic() > end:
                return False
            time.sleep(0.05)
        return True

    def stop(self):
        self.p.send_signal(signal.SIGTERM)
        status = self.p.wait(PATIENCE)
        self.p.stdout.close()
        self.p.stderr.close()
        return status
