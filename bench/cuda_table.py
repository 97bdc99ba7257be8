#!/usr/bin/env python3
"""cuda_table.py CSV [BEFORE] - what cuda.sh measured, beside targets and a peer, as a table; and what is not as it was in BEFORE, another
such file: a kernel that nobody looks at can lose a third of its speed to another commit's compiler.

The peer is llama.cpp 0c1e57098 on an H200 that gave 4,574 GB/s to plain loads (-fa 1, medians of 5), whatever this one gives.
Shares are of plain loads here (read_bandwidth).
"""
import csv
import sys

# (row, test, depth, sequences): the peer's tokens/s, the ratio and the share that are wanted
TARGETS = {
    ('bf16', 'tg128', 0, 1): (203.0, 1.2, .82),
    ('q8_0', 'tg128', 0, 1): (243.7, 1.6, .70),
    ('8b', 'tg128', 0, 1): (264.9, 2, .55),
    ('30b', 'tg128', 0, 1): (313.6, 2, None),
    ('qwen3-0.6b', 'tg128', 0, 1): (771.0, 2, None),
    ('smollm2-1.7b', 'tg128', 0, 1): (668.7, 2, None),
    ('qwen3-4b', 'tg128', 0, 1): (339.3, 2, None),
    ('8b', 'tg64', 512, 8): (936, 2, None),
    ('8b', 'tg64', 512, 32): (2988, 2, None),
    ('8b', 'pp512', 0, 1): (10179, 1.8, None),
    ('8b', 'pp2048', 0, 1): (10051, 1.8, None),
    ('q8_0', 'pp512', 0, 1): (11630, 1.8, None),
    ('q8_0', 'pp2048', 0, 1): (11506, 1.8, None),
    ('bf16', 'pp512', 0, 1): (23635, 1.2, None),
    ('bf16', 'pp2048', 0, 1): (23336, 1.2, None),
    ('30b', 'pp512', 0, 1): (8916, 1.5, None),
    ('30b', 'pp2048', 0, 1): (8346, 1.5, None),
    ('8b', 'tg128', 8192, 1): (231.8, None, None),
    ('8b', 'pp512', 8192, 1): (8469, None, None),
}
NUMERICS = 'tensor', 'exact'
KV_SHARE = .80  # of reads, on top of what depth 0 takes
PASSES = {8: 1.4, 16: 1.6}  # of one row's time
TENSOR_PEAK = 874e12  # bench/wgmma_peak.cu, random numbers, an H200
TENSOR_SHARE = .50
NOISE = .03  # from one H200 to another


def test_of(r):
    return 'pp' + r['n_prompt'] if r['n_prompt'] != '0' else 'tg' + r['n_gen']


def verdict(met):
    return '' if met is None else 'met' if met else 'missed'


def line(*cells):
    print('| ' + ' | '.join(str(c) for c in cells) + ' |')


def key_of(r):
    return r['row'], r['numerics'].split()[0], test_of(r), int(r['n_depth']), int(r['n_parallel'])


def name_of(key):
    row, numerics, test, depth, sequences = key
    return row + ' ' + numerics, test + (' @ %d' % depth if depth else '') + (' x %d' % sequences if sequences > 1 else '')


def speed(r):
    return float(r['avg_ts'])


def read(path):
    with open(path) as f:
        return {key_of(r): r for r in csv.DictReader(f)}


def against_peer(found):
    line('row', 'test', 't/s', 'of llama.cpp', 'wanted', 'share of reads', 'wanted', '')
    line(*['---'] * 8)
    for key, r in found.items():
        peer, ratio, share = TARGETS.get(key[:1] + key[2:], (None, None, None))
        of_peer = speed(r) / peer if peer else None
        of_reads = float(r['bandwidth_share']) if key[2].startswith('tg') and key[4] == 1 and float(r['read_bandwidth']) else None
        met = None
        if ratio or share:
            met = (not ratio or of_peer >= ratio) and (not share or of_reads is not None and of_reads >= share)
        line(*name_of(key), '%.1f' % speed(r), '%.2f' % of_peer if of_peer else '', ratio or '',
             '%.1f %%' % (100 * of_reads) if of_reads else '', '%.0f %%' % (100 * share) if share else '', verdict(met))


def keys_and_values(found, numerics):
    first = found.get(('8b', numerics, 'tg128', 0, 1))
    for depth in 8192, 32768:
        deep = found.get(('8b', numerics, 'tg128', depth, 1))
        if first and deep and float(deep['read_bandwidth']):
            more = float(deep['bytes_per_token']) - float(first['bytes_per_token'])
            took = 1 / speed(deep) - 1 / speed(first)
            share = more / took / float(deep['read_bandwidth'])
            line('%s: keys and values at %d: of reads, on top of depth 0' % (numerics, depth), '%.0f %%' % (100 * share),
                 '%.0f %%' % (100 * KV_SHARE), verdict(share >= KV_SHARE))


def passes(found, numerics):
    for row, depth in ('8b', 0), ('q8_0', 0), ('bf16', 0), ('8b', 2048), ('8b', 8192), ('8b', 32768):
        one = found.get((row, numerics, 'pp1', depth, 1))
        for n, most in PASSES.items():
            few = found.get((row, numerics, 'pp%d' % n, depth, 1))
            if one and few:
                times = n * speed(one) / speed(few)
                line('%s %s%s: a pass of %d rows against one' % (row, numerics, ' @ %d' % depth if depth else '', n), '%.2f' % times,
                     '' if depth else most, verdict(None if depth else times <= most))


def of_tensor_cores(found):
    for n in 512, 2048, 4096:
        r = found.get(('bf16', 'tensor', 'pp%d' % n, 0, 1))
        if r:
            share = float(r['ops_per_second']) / TENSOR_PEAK
            line('bf16 tensor, prompt of %d: products, of the tensor cores' % n, '%.0f %%' % (100 * share),
                 '%.0f %%' % (100 * TENSOR_SHARE), verdict(share >= TENSOR_SHARE))


def in_host_memory(found):
    for test in 'pp512', 'tg128':
        host = found.get(('30b-cpu-moe', 'exact', test, 0, 1))
        vram = found.get(('30b-vram', 'exact', test, 0, 1))
        if host and vram:
            line('30b, VRAM of a fifth, %s: against --cpu-moe' % test,
                 '%.1f and %.1f t/s, %.2f' % (speed(vram), speed(host), speed(vram) / speed(host)), '', '')


def changed(found, before):
    line('row', 'test', 'before', 'now', '')
    line(*['---'] * 5)
    for key, r in found.items():
        if key in before:
            times = speed(r) / speed(before[key])
            if abs(times - 1) > NOISE:
                line(*name_of(key), '%.1f' % speed(before[key]), '%.1f' % speed(r), '%.2f' % times)


def main():
    found = read(sys.argv[1])
    against_peer(found)
    print()
    line('what', 'measured', 'wanted', '')
    line(*['---'] * 4)
    for numerics in NUMERICS:
        keys_and_values(found, numerics)
        passes(found, numerics)
    of_tensor_cores(found)
    in_host_memory(found)
    if len(sys.argv) > 2:
        print()
        changed(found, read(sys.argv[2]))


if __name__ == '__main__':
    main()
