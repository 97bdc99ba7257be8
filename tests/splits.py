#!/usr/bin/env python3
"""splits.py LODE [NAME|DIR...]: a model laid over several places gives the bits that it gives on one.

Where no GPU is, the CPU stands in for one (`--device cpu,cpu`): a backend with buffers, pages and states
of its own, to which values are copied as to a device.  Each model is cut at every boundary between its
layers, its experts and single tensors are put on the other side, and layers are shared out among three.
In small batches, so that pages, states and sequences' ends are met at all positions of a step.

With --device LIST in front of the names the other places are real: `--device cuda`.  Then a cache of experts in
the GPU's memory is among the ways, from 5 % of them to all.
"""
import concurrent.futures
import json
import os
import sys

from lodetest import Count, SHARED, TESTS, lode, logits_bytes

LAYERS, KV, Q8 = '-ngl', ('-ctk', 'f32', '-ctv', 'f32'), ('-ctk', 'q8_0', '-ctv', 'q8_0')


def cases(folders):
    """(name, path, ids): the tiny models, the bundled one; the trained ones where they are."""
    folder = os.path.join(TESTS, 'data', 'arch')
    folders = folders or [os.path.join(folder, name) for name in sorted(os.listdir(folder))]
    for path in folders:
        if os.path.exists(path + '/golden/meta.json'):
            with open(path + '/golden/meta.json') as f:
                yield (os.path.basename(path), path + '/model.gguf',
                       json.load(f)['prompts'][-1]['ids'][:40])
    ids = [(i * i * 31 + 7) % 1000 for i in range(150)]
    yield 'demo', os.path.join(TESTS, '..', 'models', 'demo.gguf'), ids
    for name in 'moe', 'hybrid':
        path = os.path.join(SHARED, 'models', name, 'hf')
        if os.path.exists(path):
            yield name, path, ids
        else:
            print('skip  %s: %s is not there' % (name, path))


def shape(program, path):
    """-> layers, bytes of experts, of the least with which layers are streamed."""
    j = json.loads(lode(program, 'plan', path, '--device', 'cpu', '--no-bandwidth', '--json'))
    return j['n_layers'], j['experts_size'], j['layer_cache_least']


def beside(n_layers, experts, device):
    """The GPU computes experts of the CPU's: from what its cache has, brought one by one (mapped memory) or copied
    by threads (--no-mmap), all of a batch or some, for caches of 5 % of the experts to all."""
    for percent in 5, 25, 50, 75, 100:
        base = ['--device', device, LAYERS, '99', '--cpu-moe', '--vram-experts', str(max(experts * percent // 100, 1))]
        for more in ('-b', '1'), ('-b', '7'), ('-b', '1', '--no-mmap'), ('-b', '30', '--bring-rows', '8'), \
                ('-b', '64', '--bring-rows', '1', '--no-mmap'):
            yield base + list(more)
    yield ['--device', device, LAYERS, '99', '--n-cpu-moe', '1', '--vram-experts', '1M', '-b', '9', '--bring-rows', '4']
    yield ['--device', device, LAYERS, str(n_layers), '--expert-cache', '1M', '--vram-experts', '200K', '-b', '1']
    yield ['--device', device, LAYERS, str(n_layers), '--expert-cache', '1M', '--vram-experts', '200K', '-b', '40',
           '--bring-rows', '9']


def ways(n_layers, experts, layer_cache, device):
    two, three = ['--device', device], ['--device', device + ',cpu']
    for n in range(1, n_layers + 2):
        yield two + [LAYERS, str(n), '-b', '7']
    # of steps of many rows, the host's layers are the device's, but for what lies with them
    for n in range(1, n_layers) if 'cuda' in device else {1, n_layers // 2}:
        yield two + [LAYERS, str(n), '-b', '7', '--bring-rows', '4']
    if layer_cache:
        yield two + [LAYERS, '1', '-b', '20', '--bring-rows', '1', '--layer-cache', str(layer_cache)]
    yield two + [LAYERS, '1', '-b', '33', '--bring-rows', '17', '--no-mmap', *KV]
    yield two + [LAYERS, '1', '-b', '20', '--bring-rows', '2', *Q8]
    yield two + [LAYERS, '99', '-b', '7', *KV]
    yield two + [LAYERS, '99', '-ot', 'attn=CPU']
    yield two + [LAYERS, '99', '-ot', 'attn=CPU', '-b', '20', '--bring-rows', '2']
    yield two + [LAYERS, '99', '-b', '3', '-ot', 'blk\\.[02468]\\.=CPU,output=CPU']
    yield three + [LAYERS, '99', '-b', '7', '-ts', '1,2']
    for n in range(1, n_layers if layer_cache else 0): # the host's layers are streamed
        yield two + [LAYERS, str(n), '-b', '7', '--layer-cache', str(layer_cache)]
    if device == 'cpu,cpu': # ranks that have parts of the rows, and exchange their results
        for n in 2, 3, 4:
            rows = ['--device', ','.join(['cpu'] * (n + 1)), '--split-mode', 'row']
            yield rows + ['-b', '7']
            yield rows + ['-b', '3', '--split-least', '1', *KV]
    if experts:
        yield two + [LAYERS, '99', '--cpu-moe', '-b', '7']
        yield two + [LAYERS, '99', '--n-cpu-moe', '1']
        yield two + [LAYERS, '1', '--cpu-moe', '-b', '20', '--bring-rows', '2']
        yield two + [LAYERS, '1', '--expert-cache', '1M', '-b', '20', '--bring-rows', '2']
        yield two + [LAYERS, str(n_layers), '--expert-cache', '1M', '-b', '1']
        if 'cuda' in device:
            yield from beside(n_layers, experts, device)


def main():
    args, count = sys.argv[1:], Count()
    program, device = os.path.abspath(args.pop(0)), 'cpu,cpu'
    pool = concurrent.futures.ThreadPoolExecutor(int(os.environ.get('LODE_JOBS', '1')))
    if args[:1] == ['--device']:
        device, args = args[1], args[2:]
    folders = [os.path.abspath(a) for a in args if '/' in a]
    chosen = [a for a in args if '/' not in a]
    for name, path, ids in cases(folders):
        if chosen and name not in chosen:
            continue
        base = {}
        for kv in (), KV, Q8:
            try:
                base[kv] = logits_bytes(program, path, ids, '--all', '--device', 'cpu', *kv)
            except RuntimeError as e: # heads that are no whole blocks
                if kv != Q8 or 'blocks of 32' not in str(e):
                    raise

        def compare(way):
            kv = Q8 if 'q8_0' in way else KV if '-ctk' in way else ()
            try:
                return logits_bytes(program, path, ids, '--all', '--numerics', 'exact', *way) == base[kv], ''
            except RuntimeError as e:
                return False, ': %s' % e
        all_ways = [w for w in ways(*shape(program, path), device) if Q8 in base or 'q8_0' not in w]
        for way, (same, why) in zip(all_ways, pool.map(compare, all_ways)):
            count.check(same, '%s: %s%s' % (name, ' '.join(way), why))
    count.end()


main()
