#!/usr/bin/env python3
"""retype.py IN.gguf OUT.gguf TYPE[,TYPE...]: the model with all matrices that TYPE fits as random blocks of it, or
each as those of the next type; of those of type '-' as they are.

For types that nothing here writes.  Scales are such that numbers are about as large as weights are.
"""
import math
import random
import struct
import sys

# type: (id in files, numbers of a block, bytes, where its scale, a half, is; None: see scale())
TYPES = {'IQ2_XXS': (16, 256, 66, 0), 'IQ2_XS': (17, 256, 74, 0), 'IQ3_XXS': (18, 256, 98, 0),
         'IQ1_S': (19, 256, 50, 0), 'IQ3_S': (21, 256, 110, 0), 'IQ2_S': (22, 256, 82, 0),
         'IQ1_M': (29, 256, 56, None), 'TQ1_0': (34, 256, 54, 52), 'TQ2_0': (35, 256, 66, 64),
         'NVFP4': (40, 64, 36, None), 'Q1_0': (41, 128, 18, 0), 'Q2_0': (42, 64, 18, 0)}
LARGEST = {'IQ2_XXS': 160, 'IQ2_XS': 160, 'IQ2_S': 160, 'IQ3_XXS': 480, 'IQ3_S': 465, 'IQ1_S': 17,
           'IQ1_M': 17}  # numbers with a scale of 1


def scale(kind, block, at):
    half = struct.pack('<e', 0.3 / LARGEST.get(kind, 1))
    if at is not None:
        block[at:at + 2] = half
    elif kind == 'IQ1_M':  # the top nibbles of four words
        bits = struct.unpack('<H', half)[0]
        for i in range(4):
            block[49 + 2 * i] = block[49 + 2 * i] & 15 | (bits >> (4 * i) & 15) << 4
    else:  # NVFP4: four E4M3 numbers about 1/16
        for i in range(4):
            block[i] = 0x14 + block[i] % 12


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 8

    def take(self, code):
        v = struct.unpack_from('<' + code, self.data, self.at)[0]
        self.at += struct.calcsize('<' + code)
        return v

    def string(self):
        n = self.take('Q')
        self.at += n
        return self.data[self.at - n:self.at]

    def skip_value(self, kind):
        if kind == 8:
            self.string()
        elif kind == 9:
            of, n = self.take('I'), self.take('Q')
            for _ in range(n):
                self.skip_value(of)
        else:
            self.at += (1, 1, 2, 2, 4, 4, 4, 1, None, None, 8, 8, 8)[kind]


def random_blocks(rng, kind, n):
    _, numbers, size, at = TYPES[kind]
    blocks = bytearray(rng.randbytes(n // numbers * size))
    for i in range(0, len(blocks), size):
        block = blocks[i:i + size]
        scale(kind, block, at)
        blocks[i:i + size] = block
    return bytes(blocks)


def retype(source, out, kind):
    """-> how many matrices there are that could change"""
    with open(source, 'rb') as f:
        r = Reader(f.read())
    kinds = kind.split(',')
    rng = random.Random(5)
    n_tensors, n_keys = r.take('Q'), r.take('Q')
    for _ in range(n_keys):
        r.string()
        r.skip_value(r.take('I'))
    head, infos = r.data[:r.at], []
    for _ in range(n_tensors):
        name = r.string()
        dims = [r.take('Q') for _ in range(r.take('I'))]
        infos.append([name, dims, r.take('I'), r.take('Q')])
    start, changed, data = -(-r.at // 32) * 32, 0, b''
    ends = sorted(i[3] for i in infos) + [len(r.data) - start]
    for info in infos:
        name, dims, old, offset = info
        tensor = r.data[start + offset:start + ends[ends.index(offset) + 1]]
        kind = kinds[changed % len(kinds)]
        fits = kind == '-' or dims[0] % TYPES[kind][1] == 0
        if len(dims) > 1 and fits and b'norm' not in name and b'gate_inp' not in name:
            changed += 1
            if kind != '-':
                tensor, info[2] = random_blocks(rng, kind, math.prod(dims)), TYPES[kind][0]
        info[3] = len(data)
        data += tensor + bytes(-len(tensor) % 32)
    for name, dims, now, offset in infos:
        head += struct.pack('<Q', len(name)) + name + struct.pack('<I', len(dims))
        head += b''.join(struct.pack('<Q', d) for d in dims) + struct.pack('<IQ', now, offset)
    with open(out, 'wb') as f:
        f.write(head + bytes(-len(head) % 32) + data)
    return changed


if __name__ == '__main__':
    print('%d matrices' % retype(*sys.argv[1:4]))
