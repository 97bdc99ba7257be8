#!/usr/bin/env python3
"""Builds lode in every way that is tested, runs everything, and sums up.

    tests/run.py                  bounded forms (make check)
    tests/run.py --long           full forms (make check-long); sets LODE_LONG=1 for every test
    tests/run.py --only 'asan*'   pieces whose name matches; -l lists the names
    tests/run.py --long --resume  goes on where the last run of this commit was cut off (make check-long RESUME=1)
    tests/run.py --build DIR      where the builds and logs go (build/check)

A piece is one build or one program.  What a program counts is read from its output, by the last of
its lines "N passed, N failed[, N skipped]" or else cmocka's summary; a program that says neither
counts as one test, passed with exit status 0 and skipped with 77.  A non-zero exit status is always
at least one failure.  The last line printed here is the sum, and the exit status is 1 if anything
failed.  Python 3's own library is all that is needed.
"""
import argparse
import concurrent.futures
import fnmatch
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CORES = len(os.sched_getaffinity(0))


def quick_kernels():
    """What makes compilers quick, at the cost of what they make, where nothing can run that."""
    quick = ['-Dkern_quick_others=true']
    if not os.path.exists('/dev/nvidiactl') and shutil.which('nvcc'):
        text = subprocess.run(['nvcc', '--help'], stdout=subprocess.PIPE, text=True).stdout
        quick += ['-Dgpu_flags=-Ofc=max'] if '-Ofc' in text else []
    return quick


# Every way to build lode.  cc: the compiler; meson: options; bounded: more of them where it is not the
# long form; kernels: in that form AVX2's are the plain build's, which are what this one's would be but that the thread
# sanitizer would look into them (two files of half a minute each); targets: what of it (all; of_tests: what its tests run); tests: the meson suites run from it, bounded and long; needs:
# programs without which it is skipped; slow: tests that take a minute or more so, in the long form alone; without:
# tests (patterns) that would take minutes so, for what other builds, or others of this one, show: whole models run every op that
# opcheck has, what a driver is asked for is the same whatever compiled the asking.
# -Dwerror lies on the two plain builds: sanitizers make compilers warn about what is fine.
# The plain build compiles CUDA for one kind of GPU where nvcc is, quickly where nothing can run that, as kernels of
# instruction sets that the processor lacks; its `device` suite runs where there is a GPU.  Its host's side is in builds that look closer, for a driver that stands in
# (tests/fake_cuda).
# Of the kernels, half of what there is to compile, sanitizers have in bounded form what any x86-64 machine runs, and
# quick scalar ones; kerncheck compares all of them with their definitions in the plain build, as they are shipped.
# Of debugging, what is built for tests keeps lines for messages, and not what a debugger wants: less to write and to link.
LINES = ['-Dc_args=-g1']
HOST_OF_CUDA = ['-Dcuda=enabled', '-Dgpu_targets=[]', '-Dgpu_ptx=']
BUILDS = {
    'gcc': dict(cc='gcc', tests=['*'], long=['*'], bounded=quick_kernels(),
                meson=['-Dwerror=true', '-Dcuda=auto', '-Dgpu_targets=90a', '-Dgpu_ptx='] + LINES),
    'asan': dict(cc='gcc', tests=['unit', 'soak', 'cli', 'hold'],
                 long=['unit', 'soak', 'cli', 'model'], bounded=['-Dkern_isa=avx2', '-Dkern_quick_scalar=true'],
                 without=['opcheck', 'opcheck_fast'],
                 slow=['serve_soak', 'convert', 'test_schedules', 'test_tokenizer', 'plan', 'page_units'], kernels=True, targets='of_tests',
                 meson=['-Db_sanitize=address,undefined', '-Doptimization=1'] + LINES + HOST_OF_CUDA),
    'tsan': dict(cc='gcc', tests=['threads', 'soak'], long=['threads', 'soak', 'model', 'server'],
                 bounded=['-Dkern_isa=avx2', '-Dkern_quick_scalar=true'],
                 slow=['test_schedules', 'test_session', 'test_stream_faults', 'test_cuda', 'test_cuda_experts', 'test_convert'],
                 without=['opcheck*', 'launches_*'], kernels=True, targets='of_tests',
                 meson=['-Db_sanitize=thread', '-Doptimization=1'] + LINES + HOST_OF_CUDA),
    # clang's warnings, and everything once without optimisation
    'clang-O0': dict(cc='clang', tests=['unit', 'kern'], long=['unit', 'kern', 'model'], without=['launches_*'],
                     slow=['test_serve', 'test_schedules', 'test_scheduler', 'test_bodies', 'test_nomem', 'test_session',
                           'test_stream', 'test_stream_faults', 'test_flight', 'test_tokenizer', 'kerncheck', 'kerncheck_tiles',
                           'test_cuda', 'test_cuda_experts', 'test_cuda_brought'],
                     meson=['-Dwerror=true', '-Doptimization=0'] + LINES + HOST_OF_CUDA),
    'clang': dict(cc='clang', tests=None, long=['unit', 'kern', 'cli', 'model', 'trained'], without=['launches_*'], meson=[]),
    'fuzz': dict(cc='clang', targets=['fuzz'], tests=[], long=[], kernels=True,
                 # A fuzzer of whole requests runs a model, which scalar kernels make wait for ten seconds and more.
                 meson=['-Dfuzz=true', '-Db_sanitize=address,undefined', '-Db_lundef=false', '-Dkern_isa=avx2',
                        '-Dkern_quick_scalar=true', '-Doptimization=1'] + LINES),
    'aarch64': dict(cc=None, targets=['tests/kerncheck/kerncheck'], tests=[], long=[],
                    needs=['aarch64-linux-gnu-gcc', 'qemu-aarch64'],
                    meson=['-Dkern_only=true', '--cross-file',
                           os.path.join(ROOT, 'tests/cross/aarch64.ini')]),
    # The whole program, where the distribution's arm64 libraries are installed:
    #   dpkg --add-architecture arm64; apt-get install NAME:arm64 for the libraries of packages.sh
    'arm64': dict(cc=None, targets=['lode'], tests=None, long=[],
                  needs=['aarch64-linux-gnu-gcc', 'qemu-aarch64']
                  + ['/usr/lib/aarch64-linux-gnu/lib%s.so' % n
                     for n in ('pcre2-8', 'utf8proc', 'jansson', 'xxhash', 'edit')],
                  meson=['-Dtests=false', '--cross-file',
                         os.path.join(ROOT, 'tests/cross/arm64.ini')]),
}

# In bounded form these check half of their sizes, others each time.
SOME = ['kerncheck', 'kerncheck_tiles']

# Of these most of the time is that of clocks and of clients that are slow or idle.
WAITS = ['serve_soak', 'serve_hold']

SANITIZER_ENV = {
    'ASAN_OPTIONS': 'detect_leaks=1:detect_stack_use_after_return=1:strict_string_checks=1:'
                    'allocator_may_return_null=1',
    'UBSAN_OPTIONS': 'halt_on_error=1:print_stacktrace=1',
    'TSAN_OPTIONS': 'halt_on_error=1:second_deadlock_stack=1',
}

running = set()  # processes to end when we are interrupted
stop = False
ledger = None  # of what passed
say = threading.Lock()


class Piece:
    """One build or program: name, command line, and what became of it."""

    def __init__(self, name, cmd, timeout, env=None, count=None, needs=(), cwd=ROOT):
        self.name, self.cmd, self.cwd = name, cmd, cwd
        self.timeout, self.env = timeout, env or {}
        self.count = count or count_tests
        self.needs = [n for n in needs if not (os.path.exists(n) or shutil.which(n))]
        self.passed = self.failed = self.skipped = 0
        self.seconds, self.note = 0.0, ''

    def run(self, logs):
        """Runs it.  What goes wrong in here is a failure of this piece, and the others still run."""
        if stop:
            return self
        try:
            self.run_counted(logs)
        except Exception as e:  # a full disk, no process to be had, ...
            self.failed, self.note = self.failed or 1, '%s: %s' % (type(e).__name__, e)
            with say:
                print('FAIL  %-34s %s' % (self.name, self.note), flush=True)
        return self

    def run_counted(self, logs):
        start = time.monotonic()
        log_path = os.path.join(logs, self.name.replace('/', '.') + '.log')
        if self.needs:
            self.skipped, self.note, out = 1, 'needs ' + ', '.join(self.needs), ''
        else:
            with open(log_path, 'wb') as log:
                log.write((' '.join(self.cmd) + '\n').encode())
                log.flush()
                status = self.call(log)
            with open(log_path, errors='replace') as log:
                out = log.read()
            self.count(self, status, out)
            if status is None:
                self.note = 'no end after %d s' % self.timeout
            elif status < 0:
                self.note = 'killed by ' + signal.Signals(-status).name
            if (status is None or status not in (0, 77)) and not self.failed:
                self.failed = 1
        self.seconds = time.monotonic() - start
        self.say(out, log_path)
        if not self.failed:
            ledger.add(self)

    def call(self, log):
        p = subprocess.Popen(self.cmd, cwd=self.cwd, stdin=subprocess.DEVNULL, stdout=log,
                             stderr=subprocess.STDOUT, env={**os.environ, **self.env},
                             start_new_session=True)
        running.add(p)
        try:
            return p.wait(self.timeout)
        except subprocess.TimeoutExpired:
            return None
        finally:
            if p.poll() is None:
                end(p)
            running.discard(p)

    def say(self, out, log_path):
        counts = '%d passed' % self.passed
        if self.failed:
            counts += ', %d failed' % self.failed
        if self.skipped:
            counts += ', %d skipped' % self.skipped
        word = 'FAIL' if self.failed else 'ok  ' if self.passed else 'skip'
        with say:
            print('%s  %-34s %-32s %7.1f s  %s' % (word, self.name, counts, self.seconds, self.note),
                  flush=True)
            if self.failed:
                for line in out.splitlines()[-30:]:
                    print('      | ' + line)
                print('      whole log: ' + os.path.relpath(log_path), flush=True)


class Ledger:
    """What passed, a line a piece, of one commit in one form: what a run that is cut off need not do again."""

    def __init__(self, args, logs):
        git = subprocess.run(['git', '-C', ROOT, 'describe', '--always', '--dirty=+', '--abbrev=40'],
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout.strip()
        self.of = '%s %s' % (git, 'long' if args.long else 'bounded')
        self.path = os.path.join(logs, 'passed.txt')
        self.known = {}
        head, *lines = open(self.path).read().splitlines() if args.resume and os.path.exists(self.path) else ['']
        if head == self.of and not git.endswith('+'):  # changes that are not committed have no name to know them by
            for name, *counts in map(str.split, lines):
                self.known[name] = [float(c) for c in counts]
        else:
            with open(self.path, 'w') as f:
                f.write(self.of + '\n')

    def add(self, piece):
        with say, open(self.path, 'a') as f:
            f.write('%s %d %d %.1f\n' % (piece.name, piece.passed, piece.skipped, piece.seconds))

    def take(self, piece):
        """True, and its counts filled in, if the piece need not run."""
        if piece.name in self.known:
            piece.passed, piece.skipped = map(int, self.known[piece.name][:2])
            piece.seconds = self.known[piece.name][2]
        return piece.name in self.known


def end(p):
    try:
        os.killpg(p.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    p.wait()


def count_tests(piece, status, out):
    """By the summary the program printed, as this file's head says."""
    own = re.findall(r'^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?\s*$', out, re.M)
    cmocka = {k: sum(int(n) for n in re.findall(r'^\[  %s *\] (\d+) test' % k, out, re.M))
              for k in ('PASSED', 'FAILED', 'SKIPPED')}
    if own:
        piece.passed, piece.failed, piece.skipped = (int(n or 0) for n in own[-1])
    elif any(cmocka.values()):
        piece.passed, piece.failed, piece.skipped = cmocka.values()
    elif status == 77:
        piece.skipped = 1
    elif status == 0:
        piece.passed = 1


def count_fuzz(piece, status, out):
    done = re.findall(r'^stat::number_of_executed_units: *(\d+)', out, re.M)
    if status == 0:
        piece.passed = 1
        piece.note = '%s executions' % (done[-1] if done else '?')


def count_build(piece, status, out):
    piece.passed = int(status == 0)


# The kernels for AVX2 as the plain build compiles them.
AVX2 = 'src/kern/libkern_avx2.a'


def quoted(words):
    return ' '.join("'%s'" % w for w in words)


def has_plain_kernels(name, args):
    return BUILDS[name].get('kernels') and not args.long and platform.machine() == 'x86_64'


def setup_script(name, args):
    """Configures a build's folder, again only where another version of this file has."""
    b = BUILDS[name]
    folder = os.path.join(args.build, name)
    options = b['meson'] + ([] if args.long else b.get('bounded', []))
    if has_plain_kernels(name, args):
        options = options + ['-Dkern_avx2_objects=' + os.path.join(args.build, 'gcc', AVX2 + '.p')]
    line = json.dumps([b['cc'], options])
    stamp = os.path.join(folder, 'lode-options.json')
    ccache = 'ccache ' if shutil.which('ccache') else ''
    cc = "CC='%s%s' " % (ccache, b['cc']) if b['cc'] else ''
    return "{ [ \"$(cat '%s' 2>/dev/null)\" = '%s' ] || { rm -rf '%s' && %s%s && printf %%s '%s' >'%s'; }; }" % (
        stamp, line, folder, cc, quoted(['meson', 'setup', folder] + options), line, stamp)


def build_piece(name, args):
    b = BUILDS[name]
    folder = os.path.join(args.build, name)
    steps = [setup_script(name, args)]
    if has_plain_kernels(name, args):
        steps = [setup_script('gcc', args), quoted(['ninja', '-C', os.path.join(args.build, 'gcc'), AVX2])] + steps
    if b.get('targets') == 'of_tests':  # which are known when it is configured
        ask = [sys.executable, os.path.abspath(__file__), '--build', args.build] + ['--long'] * args.long
        targets = '$(%s)' % quoted(ask + ['--programs', name])
    else:
        targets = quoted(b.get('targets', []))
    steps.append("ninja -C '%s' %s" % (folder, targets))
    return Piece('build/' + name, ['sh', '-c', ' && '.join(steps)], 3600, {}, count_build,
                 b.get('needs', [b['cc']] if b['cc'] else []))


def programs(name, suites, args):
    """What of a build its tests run and need, as ninja calls it."""
    folder = os.path.join(args.build, name)
    info = os.path.join(folder, 'meson-info', 'intro-')
    files = {t['id']: t['filename'] for t in json.load(open(info + 'targets.json'))}
    paths = [f for t in chosen_tests(name, suites, args) for d in t['depends'] for f in files[d]]
    return sorted({os.path.relpath(p, folder) for p in paths})


def chosen_tests(name, suites, args):
    """The programs that a build registers with meson, of these suites."""
    info = os.path.join(args.build, name, 'meson-info', 'intro-tests.json')
    leave = list(BUILDS[name].get('without', ())) + ([] if args.long else list(BUILDS[name].get('slow', ())))
    return [t for t in json.load(open(info)) if not any(fnmatch.fnmatch(t['name'], n) for n in leave) and
            (suites == ['*'] or set(suites) & {s.split(':')[-1] for s in t['suite']})]


def meson_tests(name, suites, args, prefix):
    pieces = []
    for t in chosen_tests(name, suites, args):
        mine = [s.split(':')[-1] for s in t['suite']]
        env = {**SANITIZER_ENV, **t['env']}
        env['LODE_SHARED'] = os.environ.get('LODE_SHARED', env.get('LODE_SHARED', ''))
        # At length in the plain build; under the address sanitizer all but whole models, which would
        # say no more in ten times the time; elsewhere the soak alone.
        if args.long and (name == 'gcc' or 'soak' in mine or name == 'asan' and 'model' not in mine):
            env['LODE_LONG'] = '1'
        if args.long:
            env['LODE_PATIENCE'] = '600'
        timeout = (t['timeout'] or 600) * (30 if args.long else 1) * (4 if name != 'gcc' else 1)
        program, *rest = t['cmd']
        some = ['--some'] if t['name'] in SOME and not args.long else []
        pieces.append(Piece('%s/%s' % (name, t['name']), prefix + [program] + some + rest, timeout, env,
                            cwd=t['workdir'] or os.path.join(args.build, name)))
    return pieces


def fuzz_pieces(args, prefix):
    seconds = args.fuzz_seconds or (60 if args.long else 3)
    folder = os.path.join(args.build, 'fuzz')
    pieces = []
    for f in sorted(os.listdir(os.path.join(ROOT, 'tests/fuzz'))):
        m = re.fullmatch(r'fuzz_(\w+)\.c', f)
        if not m:
            continue
        name = m.group(1)
        corpus = os.path.join(folder, 'corpus', name)  # grows here, not in the repository
        seeds = os.path.join(ROOT, 'tests/fuzz/corpus', name)
        crashes = os.path.join(folder, 'crashes', name)
        for d in (corpus, crashes):
            os.makedirs(d, exist_ok=True)
        cmd = prefix + [os.path.join(folder, 'tests/fuzz/fuzz_' + name), '-max_total_time=%d' % seconds,
                        '-timeout=10', '-rss_limit_mb=2048', '-malloc_limit_mb=1024',
                        '-error_exitcode=1',  # its own, 77, is how our programs say: skipped
                        '-print_final_stats=1', '-artifact_prefix=%s/' % crashes, corpus]
        if os.path.isdir(seeds):
            cmd.append(seeds)
        # A crash leaves its input in crashes/NAME; the same program repeats it, given that file.
        pieces.append(Piece('fuzz/' + name, cmd, seconds + 120, SANITIZER_ENV, count_fuzz))
    return pieces


def emulated_pieces(args):
    native = os.path.join(args.build, 'gcc/tests/kerncheck/kerncheck')
    arm = os.path.join(args.build, 'aarch64/tests/kerncheck/kerncheck')
    env = {'LODE_LONG': '1'} if args.long else {}
    # In bounded form the scalar kernels, whose double precision emulation is slow, are held to what they mean by gcc's alone.
    some = [] if args.long else ['--some', '--isa', 'neon']
    pieces = [Piece('emulated/kerncheck-neon', ['qemu-aarch64', arm, *some], 3600, env,
                    needs=BUILDS['aarch64']['needs'])]
    if args.long:
        # qemu's "max" knows AVX2 and no AVX-512: what is chosen must follow from CPUID alone.  Its
        # vmaskmovps (7.2) faults for lanes that are masked off, which a processor's does not: a
        # register's width of slack before the guard pages, which the native runs have without.  Few of
        # the sizes: all of them are what native runs have, and took over an hour so, half of them 40 minutes.
        pieces.append(Piece('emulated/kerncheck-avx2',
                            ['qemu-x86_64', '-cpu', 'max', native, '--slack', '64', '--few'], 7200,
                            needs=['qemu-x86_64']))
        emulator = 'qemu-aarch64 -L / ' + os.path.join(args.build, 'arm64/lode')
        pieces.append(Piece('emulated/model-neon',
                            ['python3', os.path.join(ROOT, 'tests/invariance.py'),
                             os.path.join(args.build, 'gcc/lode'), '--also', emulator], 7200,
                            needs=BUILDS['arm64']['needs']))
    return pieces


def sanitizer_prefix():
    """Sanitizers place their shadow at fixed addresses, which strong randomisation of the address
    space sometimes occupies: run them without it where that is allowed."""
    try:
        if subprocess.run(['setarch', '-R', 'true'], stderr=subprocess.DEVNULL).returncode == 0:
            return ['setarch', '-R']
    except FileNotFoundError:
        pass
    return []


def run_all(pieces, args, logs):
    """One piece a core, and beside them, one by one, those that mostly wait.  What took longest the last time
    begins first, so that no core is left alone with it at the end."""
    stamp = os.path.join(args.build, 'seconds.json')
    try:
        took = json.load(open(stamp))
    except (OSError, ValueError):
        took = {}
    pieces = sorted((p for p in pieces if fnmatch.fnmatch(p.name, args.only)), key=lambda p: -took.get(p.name, 0))
    with concurrent.futures.ThreadPoolExecutor(CORES) as busy, concurrent.futures.ThreadPoolExecutor(1) as waiting:
        for f in [(waiting if p.name.split('/')[1] in WAITS else busy).submit(p.run, logs)
                  for p in pieces if not ledger.take(p)]:
            f.result()
    took.update((p.name, round(p.seconds, 1)) for p in pieces if p.seconds)
    with open(stamp, 'w') as f:
        json.dump(took, f)
    return pieces


def interrupted(signum, frame):
    global stop
    stop = True
    for p in list(running):
        end(p)
    os._exit(130)


def main():
    ap = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    ap.add_argument('--build', default=os.path.join(ROOT, 'build/check'))
    ap.add_argument('--long', action='store_true')
    ap.add_argument('--only', default='*')
    ap.add_argument('--fuzz-seconds', type=int)
    ap.add_argument('--resume', action='store_true')
    ap.add_argument('-l', '--list', action='store_true')
    ap.add_argument('--programs', metavar='BUILD', help='what of a build its tests need, and no more (this program asks itself)')
    args = ap.parse_args()
    args.build = os.path.abspath(args.build)
    logs = os.path.join(args.build, 'logs')
    os.makedirs(logs, exist_ok=True)
    sys.stdout.reconfigure(errors='backslashreplace')  # what a failing program printed may be anything
    signal.signal(signal.SIGINT, interrupted)
    signal.signal(signal.SIGTERM, interrupted)
    start = time.monotonic()

    suites = {n: b['long'] if args.long else b['tests'] for n, b in BUILDS.items()}
    if args.programs:
        print(*programs(args.programs, suites[args.programs], args))
        return 0
    builds = [n for n in BUILDS if suites[n] is not None]
    if args.only != '*':  # only the builds that the chosen pieces come from
        kind = args.only.split('/')[0]
        first = [n for n in builds if fnmatch.fnmatch(n, kind) or fnmatch.fnmatch(kind, n)]
        if fnmatch.fnmatch('emulated', kind):
            first += ['aarch64', 'gcc', 'arm64']
        builds = [n for n in builds if n in first] or builds
    made = {n: build_piece(n, args) for n in builds}
    if not args.list:  # one after the other: each uses all cores
        global ledger
        ledger = Ledger(args, logs)
        for p in made.values():
            p.run(logs)
    good = [n for n in builds if args.list or made[n].passed]

    prefix = sanitizer_prefix()
    pieces = emulated_pieces(args) if 'aarch64' in good else []  # the longest first
    for n in good:
        if os.path.exists(os.path.join(args.build, n, 'meson-info', 'intro-tests.json')):
            pieces += meson_tests(n, suites[n], args, prefix if n in ('asan', 'tsan') else [])
    if 'fuzz' in good:
        pieces += fuzz_pieces(args, prefix)
    if args.list:
        print('\n'.join(p.name for p in pieces))
        return 0
    done = list(made.values()) + run_all(pieces, args, logs)

    total = [sum(getattr(p, k) for p in done) for k in ('passed', 'failed', 'skipped')]
    kept = [p for p in pieces if p.name in ledger.known]
    if kept:
        print('%d of these pieces passed in a run before, in %d s' % (len(kept), sum(p.seconds for p in kept)))
    print('%d s on %d cores; logs in %s' % (time.monotonic() - start, CORES, os.path.relpath(logs)))
    print('%d passed, %d failed' % tuple(total[:2]) + (', %d skipped' % total[2] if total[2] else ''))
    return 1 if total[1] or not total[0] else 0


if __name__ == '__main__':
    sys.exit(main())
