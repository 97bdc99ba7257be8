#!/usr/bin/env python3
"""Verbs in a control group whose memory is limited: each ends well, and none is killed.

    tests/verb_group.py PROGRAM

What is measured (the memory's speed, a token's time) takes memory too, which has to be the group's and not the
machine's.  In a group of version 2 or 1, whichever may be made here; skipped where none may.  Sanitizers have memory
of their own: with LODE_SANITIZED set the test is skipped.
"""
import os
import subprocess
import sys

from lodetest import Count

PROGRAM = sys.argv[1]
MODEL = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'models', 'demo.gguf')
GROUPS = '/sys/fs/cgroup'
MB = 1 << 20


def read(*path):
    with open(os.path.join(*path)) as f:
        return f.read()


def write(text, *path):
    with open(os.path.join(*path), 'w') as f:
        f.write(text)


class Group:
    """A control group of its own, beside this program's."""

    def __init__(self):
        if os.path.isdir(GROUPS + '/memory'):
            top, controller = GROUPS + '/memory', 'memory'
            self.limit, self.events = 'limit_in_bytes', 'oom_control'
        else:
            top, controller = GROUPS, ''
            self.limit, self.events = 'max', 'events'
            if 'memory' not in read(top, 'cgroup.subtree_control').split():
                write('+memory', top, 'cgroup.subtree_control')
        lines = (line.split(':', 2) for line in read('/proc/self/cgroup').splitlines())
        parents = [top + os.path.dirname(path) for _, names, path in lines if controller in names.split(',')]
        parent = next((p for p in parents if os.path.isdir(p)), top)  # in a container the path may be the host's
        self.path = os.path.join(parent, 'lode-test-%d' % os.getpid())
        os.mkdir(self.path)
        try:
            self.file(self.limit)
        except OSError:  # there is no such controller here
            self.remove()
            raise

    def file(self, name):
        return read(self.path, 'memory.' + name)

    def set_limit(self, size):
        write(str(size), self.path, 'memory.' + self.limit)

    def kills(self):
        return next((int(line.split()[1]) for line in self.file(self.events).splitlines()
                     if line.startswith('oom_kill ')), 0)

    def enter(self):
        write(str(os.getpid()), self.path, 'cgroup.procs')

    def remove(self):
        os.rmdir(self.path)


def call(group, *args):
    return subprocess.run([PROGRAM, *args], stdin=subprocess.DEVNULL, capture_output=True, timeout=300,
                          preexec_fn=group.enter if group else None)


def check(count, group, name, *args, expected=None):
    before = group.kills()
    r = call(group, *args)
    why = ''
    if group.kills() != before:
        why = ': killed for memory'
    elif r.returncode:
        why = ': exit status %d: %s' % (r.returncode, r.stderr.decode(errors='replace')[-300:])
    elif expected is not None and r.stdout != expected:
        why = ': another answer'
    count.check(not why, name + why)


def all_verbs(count, group):
    on_cpu = MODEL, '--device', 'cpu'
    answer = 'run', *on_cpu, '-p', 'Who are you?', '-n', '24', '--temp', '0'
    expected = call(None, *answer).stdout
    count.check(expected, 'an answer without a limit')
    for size in (192, 48):
        group.set_limit(size * MB)
        check(count, group, 'doctor under %d MiB' % size, 'doctor')
        check(count, group, 'plan under %d MiB' % size, 'plan', *on_cpu)
        check(count, group, 'run --stats under %d MiB' % size, *answer, '--stats', expected=expected)
        check(count, group, 'bench under %d MiB' % size, 'bench', *on_cpu, '-p', '32', '-n', '8', '-r', '1')
    group.set_limit(96 * MB)
    check(count, group, 'bench --roofline under 96 MiB', 'bench', '--roofline')


def main():
    if os.environ.get('LODE_SANITIZED'):
        print('skipped: sanitizers have memory of their own')
        sys.exit(77)
    try:
        group = Group()
    except OSError as e:
        print('skipped: no control group may be made here: %s' % e)
        sys.exit(77)
    count = Count()
    try:
        all_verbs(count, group)
    finally:
        group.remove()
    count.end()


main()
