#!/usr/bin/env python3
"""lost_device.py LODE FOLDER FOLDER: the program with the CUDA driver that stands in, and the library of exchanges
(fake_cuda.h, fake_nccl.h: in these folders).

What is said of devices, where there are some, where the driver shows none, and where their memory is short;
and a server whose device is lost while it answers: requests fail, each with its error, the server goes on,
and when the device works again so do requests, by a model that is loaded anew where the context was lost with
the device.  Skipped where the program was built without CUDA's host side.
"""
import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile
import time

from lodeserver import Server, need_server
from lodetest import Count, TESTS

MODEL = TESTS + '/data/arch/llama/model.gguf'


def run(program, *args, settings=''):
    r = subprocess.run([program, *args], capture_output=True, text=True, stdin=subprocess.DEVNULL,
                       env=dict(os.environ, FAKE_CUDA=settings))
    return r.returncode, r.stdout, r.stderr


def check_what_is_said(count, program):
    code, out, said = run(program, '--list-devices', settings='n_devices=2')
    count.check(code == 0 and out.count('cuda:') == 2 and 'cuda:1\tStand-in 1, 4096 MiB' in out, 'devices are listed')
    code, out, said = run(program, '--list-devices', settings='n_devices=0')
    count.check(code == 0 and 'cuda' not in out and 'cuInit says 100' in said, 'a driver without a device is named')
    code, out, said = run(program, 'doctor', '--no-disk')
    count.check(code == 0 and 'cuda:0 reads' in out and ' copies ' in out and 'Models run there' in out, 'doctor measures them')
    code, out, said = run(program, 'doctor', '--no-disk', settings='lack_at=9')
    count.check(code == 0 and 'cuda:0 is not used' in out and 'Models run on the CPU.' in out,
                'doctor says that one cannot be used')
    ask = ['run', '-m', MODEL, '--raw', '-p', 'Hello', '-n', '3', '-c', '128']
    code, out, said = run(program, *ask, '--device', 'cuda:7')
    count.check(code == 1 and 'no CUDA device 7' in said, 'a device that is not there is an error')
    code, out, said = run(program, *ask, '--device', 'cuda', settings='memory=60000000')
    count.check(code == 0 and 'no layer fits' in said and '60.0 MB' in said,
                'where nothing fits into its memory all runs on the CPU, and that is said with numbers')
    code, out, said = run(program, *ask, '--device', 'cuda', '-ngl', '99', settings='memory=60000000')
    count.check(code == 1 and 'MiB' in said and "of the GPU's memory are needed" in said, 'what -ngl asks for and does not fit is an error')
    quantised = TESTS + '/data/quant/llama-256-Q4_K_M/model.gguf'
    code, out, said = run(program, 'run', '-m', quantised, '--raw', '-p', 'Hello', '-n', '3', '--float-act')
    count.check(code == 0 and 'note: layers run on the CPU: float activations' in said,
                'what a device cannot run goes to the CPU, and is named')
    ask[ask.index('-n') + 1] = '100' # more calls than it takes to load, on however many cores
    code, out, said = run(program, *ask, '--ignore-eos', '--device', 'cuda', settings='lose_at=600')
    count.check(code == 1 and 'CUDA_ERROR_LAUNCH_FAILED' in said, 'a lost device ends lode run with its error')


def check_rows(count, program, folders, temporary):
    """A model by rows over two devices; where the library that they need is not there, or not whole."""
    def ask(settings, nccl, *args):
        os.environ['LD_LIBRARY_PATH'] = folders[0] + ':' + nccl
        return run(program, 'run', '-m', MODEL, '--raw', '-p', 'Hello', '-n', '3', '-c', '128', *args, settings=settings)

    two = 'n_devices=2'
    code, out, said = ask(two, folders[1], '-sm', 'row')
    count.check(code == 0 and 'note' not in said, 'auto with -sm row takes all devices, without a word')
    code, out, said = ask('n_devices=1', folders[1], '-sm', 'row')
    count.check(code == 0 and 'not split by rows: there is one GPU' in said, 'of one device that is said')
    code, out, said = ask('n_devices=3', folders[1], '-sm', 'row')
    count.check(code == 0 and 'attention of some layers' in said, 'what cannot be shared out equally is said')
    code, out, said = ask(two, folders[1], '-sm', 'row', '-ngl', '1')
    count.check(code == 1 and 'equal part' in said, 'layers on the CPU do not go with it')
    code, out, said = ask(two + ',fail_exchange_at=9', folders[1], '-sm', 'row')
    count.check(code == 1 and 'nccl' in said and 'unhandled cuda error' in said, 'an exchange that fails is an error')
    code, out, said = ask(two, folders[1], '-sm', 'none')
    count.check(code == 0, 'none is one device')
    os.symlink(folders[0] + '/libcuda.so.1', temporary + '/libnccl.so.2') # which has nothing of what is looked for
    code, out, said = ask(two, temporary, '-sm', 'row')
    count.check(code == 0 and 'not split by rows but by layers: libnccl.so.2 lacks ncclGetVersion' in said,
                'without the library layers are split, and that is said')
    os.environ['LD_LIBRARY_PATH'] = folders[0] + ':' + folders[1]
    r = subprocess.run([program, 'plan', MODEL, '-c', '128', '--device', 'cuda:0,cuda:1', '-sm', 'row', '--no-bandwidth',
                        '--json'], capture_output=True, text=True, env=dict(os.environ, FAKE_CUDA=two))
    p = json.loads(r.stdout)
    count.check(len(p['gpus']) == 2 and p['gpus'][0] == p['gpus'][1] and p['gpus'][0]['size'] * 2 == p['vram']['size'] and
                p['exchanges'] > 0, 'plan counts each device\'s share')


def check_server(count, program, mark):
    def ask(i):
        return s.post('/v1/completions', {'prompt': 'Once upon a time, %d' % i, 'max_tokens': 40, 'seed': i})

    s = Server(program, '-m', MODEL, '-c', '256', '--device', 'cuda', '--parallel', '4', model=None)
    try:
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            count.check(all(r[0] == 200 for r in pool.map(ask, range(8))), 'requests are answered')
            running = [pool.submit(ask, 100 + i) for i in range(8)]
            open(mark, 'w').close()
            done = [f.result() for f in running]
        count.check(all(code == 200 or code >= 500 and reply['error']['message'] for code, reply in done),
                    'those that are under way when the device is lost end, with an error')
        done = [ask(1) for _ in range(3)]
        count.check(all(code >= 500 and reply['error']['message'] for code, reply in done), 'as do those after it')
        code, reply = done[-1]
        count.check(code == 503 and 'was lost' in reply['error']['message'],
                    'and are told that the model cannot be loaded again: %s' % reply)
        count.check(s.ask('GET', '/health')[0] == 200 and s.ask('GET', '/v1/models')[0] == 200, 'the server goes on')
        os.remove(mark)
        end = time.monotonic() + 30
        while ask(2)[0] != 200 and time.monotonic() < end:
            time.sleep(0.2)  # between attempts to load it
        count.check(ask(3)[0] == 200, 'and so do requests when the device works again')
        count.check(time.monotonic() < end - 20, 'soon')
    finally:
        if os.path.exists(mark):
            os.remove(mark)
        s.p.terminate()
        said = s.p.stderr.read().decode()
        count.check(s.p.wait(60) == 0, 'it ends as ever' + ('' if s.p.returncode == 0 else ': ' + said[-500:]))


def main():
    program = os.path.abspath(sys.argv[1])
    count = Count()
    folders = [os.path.abspath(folder) for folder in sys.argv[2:4]]
    os.environ['LD_LIBRARY_PATH'] = ':'.join(folders + [os.environ.get('LD_LIBRARY_PATH', '')])
    if 'Stand-in' not in run(program, '--list-devices')[1]:
        count.skip('all: this build has no CUDA')
        print('0 passed, 0 failed, 1 skipped')
        return
    check_what_is_said(count, program)
    with tempfile.TemporaryDirectory() as folder:
        check_rows(count, program, folders, folder)
    os.environ['LD_LIBRARY_PATH'] = ':'.join(folders)
    need_server(count, program)
    with tempfile.TemporaryDirectory() as folder:
        os.environ['FAKE_CUDA_LOST'] = folder + '/lost'
        check_server(count, program, folder + '/lost')
        os.environ['FAKE_CUDA'] = 'sticky=1'  # what had the device is lost with it, for good
        check_server(count, program, folder + '/lost')
    count.end()


main()
