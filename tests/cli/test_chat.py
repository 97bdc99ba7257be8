#!/usr/bin/env python3
"""test_chat.py LODE - the chat of `lode run` on a terminal of its own (a pty): Ctrl+C stops the answer
and not the program, lines are edited and remembered, several lines make one entry, thinking is dim."""
import os
import pty
import select
import signal
import subprocess
import sys
import tempfile
import termios
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MODEL = os.path.join(ROOT, 'models', 'demo.gguf')
PATIENCE = 120  # seconds: sanitizers and busy machines are slow
passed = failed = skipped = 0
edits = False  # the build has libedit


def check(good, what):
    global passed, failed
    if good:
        passed += 1
    else:
        failed += 1
        print('FAILED:', what)


class Chat:
    def __init__(self, program, *flags, **env):
        self.home = tempfile.TemporaryDirectory()
        pid, self.fd = pty.fork()
        if pid == 0:
            clean = {k: v for k, v in os.environ.items() if not k.startswith('LODE_')}
            clean.update(HOME=self.home.name, TERM='xterm', LC_ALL='C.UTF-8', **env)
            clean.pop('XDG_STATE_HOME', None)
            os.execve(program, [program, 'run', MODEL, *flags], clean)
        self.pid, self.seen, self.status = pid, '', None

    def read(self, seconds):
        ready, _, _ = select.select([self.fd], [], [], seconds)
        if not ready:
            return False
        try:
            data = os.read(self.fd, 65536)
        except OSError:  # the other end is gone
            data = b''
        self.seen += data.decode(errors='replace')
        return bool(data)

    def wait(self, text, what=None):
        """Waits for text after what was waited for before."""
        end = time.time() + PATIENCE
        while text not in self.seen and time.time() < end and self.read(1) is not None:
            if self.finished():
                while self.read(0.1):
                    pass
                break
        found = text in self.seen
        check(found, f'{what or "the chat"}: no {text!r} in {self.seen[-400:]!r}')
        before, _, self.seen = self.seen.partition(text)
        return before

    def prompt(self, what='a prompt'):
        """Waits until a line is read: then keys are keys.  Pasting is announced just before."""
        before = self.wait('\x1b[?2004h', what) if edits else ''
        before += self.wait('>>> ', what)
        # libedit takes the terminal over only after it has shown the prompt: a key that comes
        # between the two is the terminal's, and Ctrl+D is lost.
        end = time.time() + 5
        while edits and time.time() < end and termios.tcgetattr(self.fd)[3] & termios.ICANON:
            time.sleep(0.005)
        return before

    def send(self, text):
        os.write(self.fd, text.encode())

    def say(self, text):
        self.send(text + '\r')

    def finished(self):
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
        return self.status is not None

    def end(self, what, key=None):
        """Waits until the program has ended.  key is sent again now and then: one that arrives while
        the terminal changes its mode is the kernel's to drop, and a person presses it again."""
        end = time.time() + PATIENCE
        again = time.time() + 5
        while not self.finished() and time.time() < end:
            self.read(0.1)
            if key and time.time() > again and not self.finished():
                self.send(key)
                again += 5
        check(self.status == 0, f'{what}: it ended with {self.status}')
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)


def test_stop(program):
    # without the end tokens an answer lasts until the context is full
    c = Chat(program, '--ignore-eos', '-c', '2048', '--seed', '1')
    c.prompt()
    c.say('Tell me a story.')
    c.wait('Tell me a story.')
    while len(c.seen) < 40 and not c.finished():
        c.read(1)
    c.send('\x03')
    c.wait('(stopped)', 'Ctrl+C within an answer')
    c.prompt('after Ctrl+C')
    c.say('/show')
    c.wait('2 messages', 'the answer that was stopped is kept')
    c.prompt()
    c.send('abc\x03')
    c.wait('Ctrl+C again', 'Ctrl+C at the prompt')
    c.prompt()
    c.say('/clear')
    c.wait('forgotten', 'the line was cleared')
    c.prompt()
    c.send('\x03')
    c.wait('Ctrl+C again')
    c.prompt()
    c.send('\x03')
    c.end('Ctrl+C twice')


def test_thinking(program):
    for env, dim in (({}, True), ({'NO_COLOR': '1'}, False)):
        c = Chat(program, '--temp', '0', **env)
        c.prompt()
        c.say('What is 23 + 48?')
        c.wait('What is 23 + 48?')
        answer = c.wait('23 + 48 = 71.\r\n')
        check(('\x1b[2m' in answer) == dim, f'thinking with {env}: {answer!r}')
        c.prompt()
        c.say('/nothink')
        c.wait('not to think')
        c.prompt()
        c.say('What is 31 + 14?')
        c.wait('What is 31 + 14?')
        check('\x1b[2m' not in c.prompt(), 'it thinks after /nothink')
        c.send('\x04')
        c.end('Ctrl+D', '\x04')


def test_editing(program):
    c = Chat(program, '--temp', '0')
    c.prompt()
    c.send('/hep\x1b[Dl\r')  # /he|p
    c.wait('this list', 'an arrow key')
    c.prompt()
    c.send('/sh\t\r')
    c.wait('0 messages', 'Tab')
    c.prompt()
    c.send('\x1b[A\x1b[A\r')
    c.wait('this list', 'the line before the last')
    c.prompt()
    c.send('My name is \u00c4nna.\x1b[D\x1b[D\x1b[D\x1b[D\x7fA\x05\r')  # over a letter of two bytes
    c.wait('you, Anna', 'editing UTF-8')
    c.prompt()
    c.send('\x1b[200~What is the\ncapital of France?\x1b[201~')
    c.send('\r')
    c.wait('Paris', 'pasted lines')
    c.prompt()
    c.say('/show')
    c.wait('4 messages', 'pasted lines are one entry')
    c.prompt()
    c.say('"""What is the')
    c.wait('... ')
    c.say('capital of Portugal?"""')
    c.wait('Lisbon', 'quoted lines')
    c.prompt()
    c.say('/quit')
    c.end('/quit')
    history = os.path.join(c.home.name, '.local', 'state', 'lode', 'history')
    check(os.path.exists(history) and os.stat(history).st_mode & 0o077 == 0, 'history is not kept, or not private')


def main():
    global skipped, edits
    program = os.path.realpath(sys.argv[1])
    edits = 'libedit' in subprocess.run(['ldd', program], capture_output=True, text=True).stdout
    test_stop(program)
    test_thinking(program)
    if edits:
        test_editing(program)
    else:
        skipped += 1
        print('skipped: this build has no libedit')
    print(f'{passed} passed, {failed} failed, {skipped} skipped')
    return failed > 0


sys.exit(main())
