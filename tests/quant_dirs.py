#!/usr/bin/env python3
"""quant_dirs.py LODE: quantised Hugging Face and MLX directories, packed here, through the program.

Each is a tiny llama with random weights in one of the layouts, and beside it a directory with the
same weights, as that layout defines them, in F32.  With --float-act a quantised weight is widened
and multiplied as F32 in the order of F32 weights, so the logits must be the same bits.  As they run
by default, they must not depend on threads, on the cut of the prompt, on the instruction set or on
how the file is read.

So for a mixture whose experts are streamed, and converted on their way.

Where LODE_SHARED has them, reference models are brought into the form that mlx-lm gives them when it
converts (experts apart, latent attention cut), and must give the bits of their GGUF files; and models
whose matrices are stacked, fused or cut get new weights in some of the layouts.
"""
import array
import json
import os
import random
import struct
import sys
import tempfile

from lodetest import Count, SHARED, lode, logits_bytes

HIDDEN, FF, HEAD, HEADS, VOCAB = 128, 192, 64, 2, 40
CONFIG = {'model_type': 'llama', 'hidden_size': HIDDEN, 'intermediate_size': FF,
          'num_hidden_layers': 1, 'num_attention_heads': HEADS, 'num_key_value_heads': 1,
          'head_dim': HEAD, 'vocab_size': VOCAB, 'max_position_embeddings': 128,
          'rms_norm_eps': 1e-5, 'tie_word_embeddings': False, 'hidden_act': 'silu'}
LAYER = 'model.layers.0.'
LINEARS = {LAYER + 'self_attn.q_proj': (HEADS * HEAD, HIDDEN),
           LAYER + 'self_attn.k_proj': (HEAD, HIDDEN),
           LAYER + 'self_attn.v_proj': (HEAD, HIDDEN),
           LAYER + 'self_attn.o_proj': (HIDDEN, HEADS * HEAD),
           LAYER + 'mlp.gate_proj': (FF, HIDDEN), LAYER + 'mlp.up_proj': (FF, HIDDEN),
           LAYER + 'mlp.down_proj': (HIDDEN, FF)}
OTHERS = {'model.embed_tokens': (VOCAB, HIDDEN), 'lm_head': (VOCAB, HIDDEN),
          LAYER + 'input_layernorm': (HIDDEN,), LAYER + 'post_attention_layernorm': (HIDDEN,),
          'model.norm': (HIDDEN,)}
IDS = [random.Random(3).randrange(VOCAB) for _ in range(40)]

rng = random.Random(1)


def f32(x):
    return struct.unpack('<f', struct.pack('<f', x))[0]


def bf16(x):
    return struct.unpack('<f', struct.pack('<I', struct.unpack('<I', struct.pack('<f', x))[0]
                                           & 0xffff0000))[0]


def f16(x):
    return struct.unpack('<e', struct.pack('<e', x))[0]


ROUND = {'F32': f32, 'BF16': bf16, 'F16': f16}


def numbers(kind, values):
    """Values that are exact in the type, as bytes."""
    if kind == 'BF16':
        return b''.join(struct.pack('<f', v)[2:] for v in values)
    return struct.pack('<%d%s' % (len(values), {'F32': 'f', 'F16': 'e', 'I32': 'I', 'U32': 'I',
                                                'I64': 'q', 'I8': 'b', 'U8': 'B',
                                                'F8_E4M3': 'B'}[kind]), *values)


def bit_stream(codes, bits):
    """Codes one after another, lowest bits first."""
    value = 0
    for i, c in enumerate(codes):
        value |= c << i * bits
    return value.to_bytes(len(codes) * bits // 8, 'little')


def write(folder, tensors, config):
    """tensors: name -> (dtype, shape, bytes)"""
    os.mkdir(folder)
    header, at = {}, 0
    for name, (kind, shape, data) in tensors.items():
        header[name] = {'dtype': kind, 'shape': shape, 'data_offsets': [at, at + len(data)]}
        at += len(data)
    head = json.dumps(header).encode()
    head += b' ' * (-len(head) % 8)
    with open(folder + '/model.safetensors', 'wb') as f:
        f.write(struct.pack('<Q', len(head)) + head)
        for _, _, data in tensors.values():
            f.write(data)
    with open(folder + '/config.json', 'w') as f:
        json.dump(config, f)


def groups_of(cols, group, kind, spread):
    return [ROUND[kind](spread * (0.5 + rng.random())) for _ in range(cols // group)]


# Each layout: name, rows, cols -> ({name of a part: (dtype, shape, bytes)}, the weights (rows, cols))

def mlx(bits, group, kind='BF16'):
    def pack(name, rows, cols):
        parts, weights, words, scales, biases = {}, [], b'', [], []
        for _ in range(rows):
            d = groups_of(cols, group, kind, 0.4 / 2 ** bits)
            m = [ROUND[kind](-x * 2 ** bits * 0.5) for x in d]
            q = [rng.randrange(2 ** bits) for _ in range(cols)]
            words += bit_stream(q, bits)
            scales += d
            biases += m
            weights += [f32(f32(d[i // group] * q[i]) + m[i // group]) for i in range(cols)]
        parts[name + '.weight'] = ('U32', [rows, cols * bits // 32], words)
        parts[name + '.scales'] = (kind, [rows, cols // group], numbers(kind, scales))
        parts[name + '.biases'] = (kind, [rows, cols // group], numbers(kind, biases))
        return parts, weights
    return pack


def gptq(bits, group, desc_act=()):
    """desc_act: the matrices whose columns' groups are shuffled."""
    def pack(name, rows, cols):
        n, per = cols // group, 32 // bits
        order = list(range(cols))
        if name.endswith(desc_act):
            random.Random(cols + (name.endswith('v_proj'))).shuffle(order)  # q and k share theirs
        g_idx = [order[i] // group for i in range(cols)]
        d = [f16(0.4 / 2 ** bits * (0.5 + rng.random())) for _ in range(n * rows)]
        z = [rng.randrange(2 ** bits) for _ in range(n * rows)]  # as stored: less one
        q = [rng.randrange(2 ** bits) for _ in range(cols * rows)]  # (cols, rows)
        words = [sum(q[(i * per + k) * rows + r] << k * bits for k in range(per))
                 for i in range(cols // per) for r in range(rows)]
        weights = [f32(d[g_idx[c] * rows + r] * (q[c * rows + r] - z[g_idx[c] * rows + r] - 1))
                   for r in range(rows) for c in range(cols)]
        return {name + '.qweight': ('I32', [cols // per, rows], numbers('I32', words)),
                name + '.qzeros': ('I32', [n, rows // per], bit_stream(z, bits)),
                name + '.scales': ('F16', [n, rows], numbers('F16', d)),
                name + '.g_idx': ('I32', [cols], numbers('I32', g_idx))}, weights
    return pack


def awq(group):
    order = [0, 2, 4, 6, 1, 3, 5, 7]

    def words(values):  # (n, rows) -> nibbles in AWQ's order
        return bit_stream([values[i - i % 8 + order[i % 8]] for i in range(len(values))], 4)

    def pack(name, rows, cols):
        n = cols // group
        d = [f16(0.02 * (0.5 + rng.random())) for _ in range(n * rows)]
        z = [rng.randrange(16) for _ in range(n * rows)]
        q = [rng.randrange(16) for _ in range(cols * rows)]
        weights = [f32(d[c // group * rows + r] * (q[c * rows + r] - z[c // group * rows + r]))
                   for r in range(rows) for c in range(cols)]
        return {name + '.qweight': ('I32', [cols, rows // 8], words(q)),
                name + '.qzeros': ('I32', [n, rows // 8], words(z)),
                name + '.scales': ('F16', [n, rows], numbers('F16', d))}, weights
    return pack


def compressed(bits, group, kind='BF16', packed=True):
    def pack(name, rows, cols):
        group_ = group or cols
        d = [ROUND[kind](0.4 / 2 ** bits * (0.5 + rng.random())) for _ in range(rows * cols // group_)]
        q = [rng.randrange(2 ** bits) for _ in range(rows * cols)]
        middle = 2 ** (bits - 1)
        weights = [f32(d[i // group_] * (q[i] - middle)) for i in range(rows * cols)]
        scales = (kind, [rows, cols // group_], numbers(kind, d))
        if not packed:
            return {name + '.weight': ('I8', [rows, cols], numbers('I8', [c - middle for c in q])),
                    name + '.weight_scale': scales}, weights
        return {name + '.weight_packed': ('I32', [rows, cols * bits // 32], bit_stream(q, bits)),
                name + '.weight_scale': scales,
                name + '.weight_shape': ('I64', [2], numbers('I64', [rows, cols]))}, weights
    return pack


def e4m3(code):
    e, m = code >> 3 & 15, code & 7
    size = (8 + m) * 2.0 ** (e - 10) if e else m * 2.0 ** -9
    return -size if code & 128 else size


def e2m1(code):
    size = [0, 0.5, 1, 1.5, 2, 3, 4, 6][code & 7]
    return -size if code & 8 else size


def fp8(block):
    def pack(name, rows, cols):
        across, down = (cols + block - 1) // block, (rows + block - 1) // block
        d = [f32(0.001 * (0.5 + rng.random())) for _ in range(across * down)]
        q = [rng.randrange(0x60) | rng.randrange(2) << 7 for _ in range(rows * cols)]
        weights = [f32(d[i // cols // block * across + i % cols // block] * e4m3(q[i]))
                   for i in range(rows * cols)]
        return {name + '.weight': ('F8_E4M3', [rows, cols], bytes(q)),
                name + '.weight_scale_inv': ('F32', [down, across], numbers('F32', d))}, weights
    return pack


def nvfp4(name, rows, cols):
    by = f32(70 + rng.random())
    d = [0x30 + rng.randrange(16) for _ in range(rows * cols // 16)]
    q = [rng.randrange(16) for _ in range(rows * cols)]
    weights = [f32(f32(e4m3(d[i // 16]) / by) * e2m1(q[i])) for i in range(rows * cols)]
    return {name + '.weight_packed': ('U8', [rows, cols // 2], bit_stream(q, 4)),
            name + '.weight_scale': ('F8_E4M3', [rows, cols // 16], bytes(d)),
            name + '.weight_global_scale': ('F32', [1], numbers('F32', [by]))}, weights


def mlx_fp(mode):
    bits, group = {'mxfp4': (4, 32), 'mxfp8': (8, 32), 'nvfp4': (4, 16)}[mode]

    def pack(name, rows, cols):
        q = [rng.randrange(2 ** bits) & ~(bits == 8 and 0x70) for _ in range(rows * cols)]
        s = [rng.randrange(16) + (0x20 if mode == 'nvfp4' else 118 if bits == 8 else 112)
             for _ in range(rows * cols // group)]
        scale = [e4m3(x) * 0.125 ** 0 if mode == 'nvfp4' else 2.0 ** (x - 127) for x in s]
        weights = [f32(scale[i // group] * (e2m1(q[i]) if bits == 4 else e4m3(q[i])))
                   for i in range(rows * cols)]
        return {name + '.weight': ('U32', [rows, cols * bits // 32], bit_stream(q, bits)),
                name + '.scales': ('U8', [rows, cols // group], bytes(s))}, weights
    return pack


def by(method, **more):
    return {'quantization_config': {'quant_method': method, **more}}


def of_mlx(bits, group, mode='affine'):
    return {'quantization': {'group_size': group, 'bits': bits, 'mode': mode}}


CASES = {
    'MLX affine 2-bit g64': (mlx(2, 64), of_mlx(2, 64)),
    'MLX affine 3-bit g64': (mlx(3, 64), of_mlx(3, 64)),
    'MLX affine 4-bit g64': (mlx(4, 64, 'F16'), of_mlx(4, 64)),
    'MLX affine 4-bit g32': (mlx(4, 32), of_mlx(4, 32)),
    'MLX affine 4-bit g16': (mlx(4, 16), of_mlx(4, 16)),  # no block has such groups
    'MLX affine 5-bit g64': (mlx(5, 64), of_mlx(5, 64)),
    'MLX affine 6-bit g64': (mlx(6, 64), of_mlx(6, 64)),
    'MLX affine 8-bit g32': (mlx(8, 32, 'F32'), of_mlx(8, 32)),
    'MLX mxfp4': (mlx_fp('mxfp4'), of_mlx(4, 32, 'mxfp4')),
    'MLX mxfp8': (mlx_fp('mxfp8'), of_mlx(8, 32, 'mxfp8')),
    'MLX nvfp4': (mlx_fp('nvfp4'), of_mlx(4, 16, 'nvfp4')),
    'GPTQ 4-bit g64': (gptq(4, 64), by('gptq', bits=4, group_size=64)),
    'GPTQ 8-bit g32': (gptq(8, 32), by('gptq', bits=8, group_size=32)),
    'GPTQ 4-bit g32 desc_act': (gptq(4, 32, ('down_proj',)),
                                by('gptq', bits=4, group_size=32, desc_act=True)),
    'GPTQ 8-bit g64 desc_act': (gptq(8, 64, ('_proj',)),
                                by('gptq', bits=8, group_size=64, desc_act=True)),
    'AWQ 4-bit g64': (awq(64), by('awq', bits=4, group_size=64, version='gemm')),
    'compressed-tensors int4 g32': (compressed(4, 32), by('compressed-tensors')),
    'compressed-tensors int8': (compressed(8, 0, packed=False), by('compressed-tensors')),
    'compressed-tensors nvfp4': (nvfp4, by('compressed-tensors')),
    'FP8 E4M3 32x32': (fp8(32), by('fp8', weight_block_size=[32, 32])),
}


def sort_down(plain, g_idx):
    """down_proj is multiplied in its groups' order: the same as if the columns lay so, and with them
    the rows of gate_proj and up_proj that make their inputs.  Those do not notice."""
    groups = struct.unpack('<%dI' % FF, g_idx)
    order = sorted(range(FF), key=lambda i: groups[i])
    for part in ('mlp.gate_proj', 'mlp.up_proj', 'mlp.down_proj'):
        name = LAYER + part + '.weight'
        kind, (rows, cols), data = plain[name]
        old, new = array.array('f', data), array.array('f')
        if part == 'mlp.down_proj':
            for r in range(rows):
                new.extend(old[r * cols + i] for i in order)
        else:
            for i in order:
                new.extend(old[i * cols:(i + 1) * cols])
        plain[name] = (kind, [rows, cols], new.tobytes())


def make(pack):
    """-> the tensors of a model: in a layout, and as that defines them in F32"""
    plain, packed = {}, {}
    for name, shape in OTHERS.items():
        n = shape[0] * (shape[1] if len(shape) > 1 else 1)
        values = [bf16(1 + 0.2 * rng.gauss(0, 1) if len(shape) == 1 else 0.3 * rng.gauss(0, 1))
                  for _ in range(n)]
        plain[name + '.weight'] = ('BF16', list(shape), numbers('BF16', values))
    packed.update(plain)
    for name, shape in LINEARS.items():
        parts, weights = pack(name, *shape)
        packed.update(parts)
        plain[name + '.weight'] = ('F32', list(shape), array.array('f', weights).tobytes())
    return packed, plain


def check(count, program, folder, label, pack, config):
    packed, plain = make(pack)
    if 'desc_act' in label:
        write(folder + '/columns', plain, CONFIG)
        sort_down(plain, packed[LAYER + 'mlp.down_proj.g_idx'][2])
    write(folder + '/packed', packed, {**CONFIG, **config})
    write(folder + '/plain', plain, CONFIG)
    a, b = (logits_bytes(program, folder + '/' + d, IDS, '--all', '--float-act')
            for d in ('packed', 'plain'))
    x, y = (array.array('f', t[2]) for t in (a, b))
    finite = all(abs(v) < 1e30 for v in x)
    if config == CASES['GPTQ 8-bit g64 desc_act'][1]:
        # Other products are summed in the groups' order too.  A sum of n <= 192 products errs by
        # (n / 16 + 5) 2^-24 of the sum of magnitudes, which is about sqrt(n) times the result; seven
        # matrices, both ways: 7 * 2 * 17 * 14 * 2^-24 < 2^-12.  A wrong order is off by everything.
        worst = max(abs(v - w) for v, w in zip(x, y)) / max(map(abs, y))
        count.check(finite and worst < 2 ** -12, '%s: %.1e from the same weights in F32, 2^-12 at '
                    'most' % (label, worst))
    else:
        count.check(a == b and finite, label + ': the bits of the same weights in F32')
    if 'desc_act' in label:  # in a GGUF file columns are where they belong
        lode(program, 'convert', folder + '/packed', '--type', 'F32', '-o', folder + '/x.gguf')
        a, b = (logits_bytes(program, folder + '/' + m, IDS, '--all') for m in ('x.gguf', 'columns'))
        count.check(a == b, label + ': as a GGUF file of F32 the bits of the same weights')
    first = logits_bytes(program, folder + '/packed', IDS, '--all', '-t', '1')
    for way in (['-t', '3', '-b', '7'], ['--isa', 'scalar', '--no-mmap', '-b', '1']):
        count.check(first == logits_bytes(program, folder + '/packed', IDS, '--all', *way),
                    '%s: %s changes nothing' % (label, ' '.join(way)))
    shown = lode(program, 'inspect', folder + '/packed')
    count.check('"' + label.replace(' desc_act', '') in shown, label + ': inspect says so')
    if 'g16' in label:
        count.check('widened to F32' in shown, label + ': inspect says that it is widened')


def read(folder):
    """-> (tensors as write() takes them, config)"""
    with open(folder + '/model.safetensors', 'rb') as f:
        header = json.loads(f.read(struct.unpack('<Q', f.read(8))[0]))
        data = f.read()
    with open(folder + '/config.json') as f:
        return {name: (t['dtype'], t['shape'], data[slice(*t['data_offsets'])])
                for name, t in header.items() if name != '__metadata__'}, json.load(f)


def every_other(t, first, axis_size, unit):
    """Of runs of `unit` bytes: those first, first + 2, ...; the tensor's shape as given."""
    data = t[2]
    return (t[0], axis_size, b''.join(data[i:i + unit]
                                      for i in range(first * unit, len(data), 2 * unit)))


def mlx_gpt_oss(tensors):
    out = {}
    for name, t in tensors.items():
        kind, shape, data = t
        if 'experts' not in name:
            out[name] = t
            continue
        stem, end = name.replace('_blocks', '.weight').replace('_scales', '.scales') \
            .replace('_proj_bias', '_proj.bias').rsplit('.', 1)
        if end == 'weight':  # sixteen bytes to a block are four words
            kind, shape = 'U32', shape[:2] + [shape[2] * 4]
        if not stem.endswith('gate_up_proj'):
            out['%s.%s' % (stem, end)] = (kind, shape, data)
            continue
        unit = len(data) // (shape[0] * shape[1])
        for i, part in enumerate(('gate_proj', 'up_proj')):
            out['%s.%s' % (stem.replace('gate_up_proj', part), end)] = every_other(
                (kind, None, data), i, [shape[0], shape[1] // 2] + shape[2:], unit)
    return out, {'quantization': {'group_size': 32, 'bits': 4, 'mode': 'mxfp4'}}


def mlx_latent(config):
    heads, plain, v, rank = (config[k] for k in ('num_attention_heads', 'qk_nope_head_dim',
                                                 'v_head_dim', 'kv_lora_rank'))

    def change(tensors):
        out = {}
        for name, t in tensors.items():
            stem = name.replace('.kv_b_proj.weight', '')
            if stem == name:
                out[name] = t
                continue
            both = array.array('H', t[2])  # (heads, plain + v, rank)
            k, values = array.array('H'), array.array('H')
            for h in range(heads):
                at = h * (plain + v) * rank
                for r in range(rank):
                    k.extend(both[at + r:at + plain * rank:rank])
                values.extend(both[at + plain * rank:at + (plain + v) * rank])
            out[stem + '.embed_q.weight'] = ('BF16', [heads, rank, plain], k.tobytes())
            out[stem + '.unembed_out.weight'] = ('BF16', [heads, v, rank], values.tobytes())
        return out, {}
    return change


def check_mlx_forms(count, program):
    folders = [SHARED + '/ref/quant_models/gpt_oss_trunc-hf-mxfp4', SHARED + '/ref/arch/deepseek_v3']
    for source in folders:
        if not os.path.isdir(source):
            count.skip(source.split('/')[-1] + ' as mlx-lm converts it: set LODE_SHARED')
            continue
        tensors, config = read(source + '/hf')
        change = mlx_gpt_oss if 'gpt_oss' in source else mlx_latent(config)
        tensors, more = change(tensors)
        config.pop('quantization_config', None)
        with tempfile.TemporaryDirectory() as folder:
            write(folder + '/mlx', tensors, {**config, **more})
            a, b = (logits_bytes(program, m, IDS, '--all')
                    for m in (folder + '/mlx', source + '/model.gguf'))
            count.check(a == b, source.split('/')[-1] + ' as mlx-lm converts it: the bits of its GGUF')


def check_cut(count, program):
    for model, label in (('deepseek_v3', 'FP8 E4M3 32x32'), ('qwen3_moe', 'GPTQ 8-bit g32'),
                         ('phi3', 'MLX affine 4-bit g32')):
        source = SHARED + '/ref/arch/' + model
        if not os.path.isdir(source):
            count.skip(model + ' in a quantised layout: set LODE_SHARED')
            continue
        (pack, more), (tensors, config) = CASES[label], read(source + '/hf')
        packed, plain = {}, {}
        for name, t in tensors.items():
            shape = t[1]
            if name.endswith('_proj.weight') and shape[1] % 32 == 0 and shape[0] % 16 == 0:
                parts, weights = pack(name[:-len('.weight')], *shape)
                packed.update(parts)
                plain[name] = ('F32', shape, array.array('f', weights).tobytes())
            else:
                packed[name] = plain[name] = t
        with tempfile.TemporaryDirectory() as folder:
            write(folder + '/packed', packed, {**config, **more})
            write(folder + '/plain', plain, config)
            a, b = (logits_bytes(program, folder + '/' + d, IDS, '--all', '--float-act')
                    for d in ('packed', 'plain'))
            count.check(a == b, '%s, %s: the bits of the same weights in F32' % (model, label))


STREAMED = ('MLX affine 4-bit g64', 'MLX affine 3-bit g64', 'MLX nvfp4', 'GPTQ 4-bit g64', 'AWQ 4-bit g64',
            'compressed-tensors int4 g32', 'compressed-tensors nvfp4', 'FP8 E4M3 32x32')
MOE = {**CONFIG, 'model_type': 'qwen3_moe', 'num_hidden_layers': 2, 'num_experts': 8,
       'num_experts_per_tok': 2, 'moe_intermediate_size': 128, 'norm_topk_prob': True,
       'decoder_sparse_step': 1, 'mlp_only_layers': []}


def moe(pack):
    """A mixture whose experts are in a layout."""
    tensors = {}

    def plain(name, *shape):
        n = shape[0] * (shape[1] if len(shape) > 1 else 1)
        values = [bf16((1 if len(shape) == 1 else 0) + 0.3 * rng.gauss(0, 1)) for _ in range(n)]
        tensors[name] = ('BF16', list(shape), numbers('BF16', values))

    plain('model.embed_tokens.weight', VOCAB, HIDDEN)
    plain('lm_head.weight', VOCAB, HIDDEN)
    plain('model.norm.weight', HIDDEN)
    for layer in 'model.layers.0.', 'model.layers.1.':
        for name in 'input_layernorm', 'post_attention_layernorm':
            plain(layer + name + '.weight', HIDDEN)
        for name in 'q_norm', 'k_norm':
            plain(layer + 'self_attn.%s.weight' % name, HEAD)
        for name, shape in LINEARS.items():
            if 'self_attn' in name:
                plain(name.replace(LAYER, layer) + '.weight', *shape)
        plain(layer + 'mlp.gate.weight', 8, HIDDEN)
        for e in range(8):
            for part, shape in ('gate', (128, HIDDEN)), ('up', (128, HIDDEN)), ('down', (HIDDEN, 128)):
                tensors.update(pack('%smlp.experts.%d.%s_proj' % (layer, e, part), *shape)[0])
    return tensors


def check_streamed(count, program, folder, label):
    """Experts that are converted while they are streamed, from stretches that are read past the page cache
    where there is memory for these, and by plain reads where there is none: the bits of those in memory."""
    pack, more = CASES[label]
    write(folder + '/moe', moe(pack), {**MOE, **more})
    first = logits_bytes(program, folder + '/moe', IDS, '--all')
    for room, way in (4 << 20, 'converted'), (1 << 20, 'converted'), (0, 'put together'):
        if not room:  # one expert's
            try:
                lode(program, 'logits', folder + '/moe', '--ids', '1', '-o', folder + '/x.npy', '--expert-cache', '4096')
            except RuntimeError as e:
                room = int(float(str(e).split('one takes ')[1].split()[0]) * (1 << 20)) + 8192
        for batch in '1', '7':
            got = logits_bytes(program, folder + '/moe', IDS, '--all', '-b', batch, '--expert-cache', str(room),
                               '--profile-json', folder + '/p.json')
            with open(folder + '/p.json') as f:
                reader = json.load(f)['reader']
            count.check(got == first and way in reader,
                        '%s, %d bytes for experts, %s at once: %s' % (label, room, batch, reader))
    lode(program, 'pack', folder + '/moe', '-o', folder + '/packed')
    for more in [], ['--expert-cache', '1M'], ['--layer-cache', '1M'], ['--direct']:
        count.check(logits_bytes(program, folder + '/packed', IDS, '--all', *more) == first,
                    '%s, packed %s' % (label, ' '.join(more)))


def main():
    program, count = os.path.abspath(sys.argv[1]), Count()
    for label, (pack, config) in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            try:
                check(count, program, folder, label, pack, config)
            except RuntimeError as e:
                count.check(False, '%s: %s' % (label, e))
    for label in STREAMED:
        with tempfile.TemporaryDirectory() as folder:
            check_streamed(count, program, folder, label)
    check_mlx_forms(count, program)
    check_cut(count, program)
    count.end()


if __name__ == '__main__':
    main()
