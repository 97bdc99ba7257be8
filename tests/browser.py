"""A headless Chromium driven through its DevTools protocol: enough of a WebSocket client, and a tab.

    with Browser() as b:
        tab = b.tab(width=1280, height=800)
        tab.go('http://127.0.0.1:8080/')
        tab.wait("document.title == 'lode'")
        print(tab.js('document.title'))

Without Chromium, BROWSER is None.
"""
import base64
import json
import os
import shutil
import socket
import struct
import subprocess
import tempfile
import time
import urllib.request

BROWSER = next(filter(None, map(shutil.which, ('chromium', 'chromium-browser', 'google-chrome'))), None)
PATIENCE = 30


class Socket:
    """A WebSocket's client end, as far as DevTools uses it: text, whole or in fragments, and pings."""

    def __init__(self, url):
        host, path = url[len('ws://'):].split('/', 1)
        name, port = host.split(':')
        self.s = socket.create_connection((name, int(port)), PATIENCE)
        self.buf = b''
        self.s.sendall(('GET /%s HTTP/1.1\r\nHost: %s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n'
                        'Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\n\r\n'
                        % (path, host, base64.b64encode(os.urandom(16)).decode())).encode())
        while b'\r\n\r\n' not in self.buf:
            self.more()
        head, self.buf = self.buf.split(b'\r\n\r\n', 1)
        if b' 101 ' not in head.split(b'\r\n')[0]:
            raise RuntimeError('no WebSocket: %r' % head)

    def more(self):
        data = self.s.recv(1 << 16)
        if not data:
            raise EOFError('the browser went away')
        self.buf += data

    def take(self, n):
        while len(self.buf) < n:
            self.more()
        out, self.buf = self.buf[:n], self.buf[n:]
        return out

    def send(self, text, kind=1):
        data, mask = text.encode(), os.urandom(4)
        n = len(data)
        head = bytes([0x80 | kind]) + (bytes([0x80 | n]) if n < 126 else
                                       struct.pack('>BH', 0xfe, n) if n < 1 << 16 else struct.pack('>BQ', 0xff, n))
        whole = (mask * (n // 4 + 1))[:n]
        self.s.sendall(head + mask + (int.from_bytes(data, 'big') ^ int.from_bytes(whole, 'big')).to_bytes(n, 'big'))

    def receive(self):
        text = b''
        while True:
            first, n = self.take(2)
            n &= 0x7f
            n = struct.unpack('>H', self.take(2))[0] if n == 126 else struct.unpack('>Q', self.take(8))[0] if n == 127 else n
            data = self.take(n)
            if first & 15 in (0, 1):
                text += data
                if first & 0x80:
                    return text.decode()
            elif first & 15 == 8:
                raise EOFError('the browser closed the connection')


class Failed(RuntimeError):
    pass


class Tab:
    """One page.  What the page complains about (errors, the policy's refusals) gathers in said."""

    def __init__(self, url):
        self.ws = Socket(url)
        self.n = 0
        self.said = []
        self.events = []
        self.waiting = {}
        for domain in ('Page', 'Runtime', 'Log', 'Network'):
            self.call(domain + '.enable')

    def call(self, method, **params):
        self.n += 1
        n = self.n
        self.ws.send(json.dumps({'id': n, 'method': method, 'params': params}))
        while True:
            r = json.loads(self.ws.receive())
            if r.get('id') == n:
                if 'error' in r:
                    raise Failed('%s: %s' % (method, r['error']['message']))
                return r['result']
            if 'method' in r:
                self.note(r['method'], r['params'])

    def note(self, method, p):
        if method == 'Runtime.exceptionThrown':
            d = p['exceptionDetails']
            self.said.append(d.get('exception', {}).get('description') or d['text'])
        elif method == 'Log.entryAdded' and p['entry']['level'] == 'error' and p['entry']['source'] != 'network':
            self.said.append(p['entry']['text'])
        elif method == 'Network.requestWillBeSent':
            self.events.append(p['request']['url'])

    def js(self, text):
        """The value of an expression, of what it promises if it is a promise."""
        r = self.call('Runtime.evaluate', expression=text, returnByValue=True, awaitPromise=True,
                      userGesture=True)
        if 'exceptionDetails' in r:
            d = r['exceptionDetails']
            raise Failed(d.get('exception', {}).get('description') or d['text'])
        return r['result'].get('value')

    def wait(self, text, seconds=PATIENCE):
        """Until it is true; returns it."""
        end = time.monotonic() + seconds
        while True:
            try:
                v = self.js(text)
                if v or v == {}: # an element comes as {}
                    return v
            except Failed:
                if time.monotonic() > end:
                    raise
            if time.monotonic() > end:
                raise Failed('not within %d s: %s' % (seconds, text))
            time.sleep(0.03)

    def go(self, url):
        self.call('Page.navigate', url=url)
        self.wait("document.readyState == 'complete'")

    def reload(self):
        self.js('window.old = true')
        self.call('Page.reload')
        self.wait("!window.old && document.readyState == 'complete'")

    def size(self, width, height, phone=False):
        self.call('Emulation.setDeviceMetricsOverride', width=width, height=height, mobile=phone,
                  deviceScaleFactor=2 if phone else 1)
        self.call('Emulation.setTouchEmulationEnabled', enabled=phone)

    def dark(self, on):
        self.call('Emulation.setEmulatedMedia',
                  features=[{'name': 'prefers-color-scheme', 'value': 'dark' if on else 'light'}])

    def type(self, text):
        self.call('Input.insertText', text=text)

    def key(self, name, modifiers=0):
        """A key by its name; modifiers: 1 Alt, 2 Ctrl, 8 Shift."""
        codes = {'Enter': 13, 'Escape': 27, 'Tab': 9, 'ArrowDown': 40, 'ArrowUp': 38, 'ArrowLeft': 37,
                 'ArrowRight': 39, 'Delete': 46, 'F2': 113, ' ': 32}
        code = codes.get(name) or ord(name.upper())
        p = dict(key=name, modifiers=modifiers, windowsVirtualKeyCode=code,
                 code=name if len(name) > 1 else 'Space' if name == ' ' else 'Key' + name.upper())
        text = '\r' if name == 'Enter' else name if len(name) == 1 and not modifiers & 3 else ''
        self.call('Input.dispatchKeyEvent', type='keyDown' if text else 'rawKeyDown', text=text, **p)
        self.call('Input.dispatchKeyEvent', type='keyUp', **p)

    def click(self, selector):
        """As a pointer does: where the element is, and only if nothing lies over it."""
        box = self.wait("""(() => {
            const e = document.querySelector(%s);
            if (!e || e.disabled) return null;
            e.scrollIntoView({block: 'nearest'});
            const r = e.getBoundingClientRect(), x = r.x + r.width / 2, y = r.y + r.height / 2;
            const top = document.elementFromPoint(x, y);
            return top && (e === top || e.contains(top)) && r.width ? [x, y] : null;
        })()""" % json.dumps(selector), 10)
        for kind in ('mouseMoved', 'mousePressed', 'mouseReleased'):
            self.call('Input.dispatchMouseEvent', type=kind, x=box[0], y=box[1],
                      button='none' if kind == 'mouseMoved' else 'left', clickCount=int(kind != 'mouseMoved'))

    def shot(self, path):
        data = self.call('Page.captureScreenshot', format='png')['data']
        with open(path, 'wb') as f:
            f.write(base64.b64decode(data))


class NoStart(RuntimeError):
    """Chromium is there and does not run, as where its sandbox is forbidden."""


class Browser:
    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix='lode-browser-', ignore_cleanup_errors=True)
        flags = ['--headless=new', '--no-first-run', '--disable-gpu', '--disable-extensions', '--mute-audio',
                 '--disable-background-networking', '--disable-component-update', '--disable-sync',
                 '--disable-dev-shm-usage', '--hide-scrollbars', '--remote-debugging-port=0',
                 '--user-data-dir=' + self.folder.name]
        if os.geteuid() == 0:  # its sandbox refuses root; what is shown is our own page
            flags.append('--no-sandbox')
        self.p = subprocess.Popen([BROWSER, *flags, 'about:blank'], stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL, start_new_session=True,
                                  env={**os.environ, 'HOME': self.folder.name})
        port = os.path.join(self.folder.name, 'DevToolsActivePort')
        end = time.monotonic() + 60
        while not (os.path.exists(port) and open(port).read().count('\n')):
            if self.p.poll() is not None or time.monotonic() > end:
                raise NoStart('%s does not start' % BROWSER)
            time.sleep(0.05)
        self.port = int(open(port).read().split('\n')[0])
        return self

    def tab(self, width=1280, height=800):
        r = urllib.request.Request('http://127.0.0.1:%d/json/new?about:blank' % self.port, method='PUT')
        with urllib.request.urlopen(r, timeout=PATIENCE) as answer:
            tab = Tab(json.load(answer)['webSocketDebuggerUrl'])
        tab.size(width, height)
        tab.dark(False)
        return tab

    def __exit__(self, *_):
        os.killpg(self.p.pid, 15)
        try:
            self.p.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self.p.pid, 9)
            self.p.wait()
        self.folder.cleanup()
