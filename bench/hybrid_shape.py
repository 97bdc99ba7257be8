#!/usr/bin/env python3
"""hybrid_shape.py OUT.gguf [LAYERS]: Qwen3-Next's shapes in fewer layers (8) and with fewer experts
(32 of 512, 8 of 10 used), Q4_K with random blocks: for measuring; what it says is noise.

Needs gguf and numpy."""
import sys

import gguf
import numpy as np

D, V, HEADS, KV, DIM = 2048, 32000, 16, 2, 256
NK, NV, DK, TAPS = 16, 32, 128, 4
EXPERTS, USED, FF = 32, 8, 512
layers = int(sys.argv[2]) if len(sys.argv) > 2 else 8
rng = np.random.default_rng(1)
g = gguf.GGUFWriter(sys.argv[1], 'qwen3next')
for key, value in {
        'block_count': layers, 'context_length': 32768, 'embedding_length': D,
        'feed_forward_length': FF, 'attention.head_count': HEADS, 'attention.head_count_kv': KV,
        'attention.key_length': DIM, 'attention.value_length': DIM, 'rope.dimension_count': DIM // 4,
        'expert_count': EXPERTS, 'expert_used_count': USED, 'expert_feed_forward_length': FF,
        'expert_shared_feed_forward_length': FF, 'ssm.conv_kernel': TAPS, 'ssm.state_size': DK,
        'ssm.group_count': NK, 'ssm.time_step_rank': NV, 'ssm.inner_size': NV * DK,
        'full_attention_interval': 4}.items():
    g.add_uint32('qwen3next.' + key, value)
g.add_float32('qwen3next.rope.freq_base', 1e7)
g.add_float32('qwen3next.attention.layer_norm_rms_epsilon', 1e-6)
g.add_file_type(15)


def matrix(name, rows, cols, count=1):
    """Q4_K: d, dmin, 12 bytes of scales, 128 of quants, for weights of 1 / sqrt(cols)."""
    blocks = rng.integers(0, 256, (count * rows * cols // 256, 144), dtype=np.uint8)
    std = 1 / np.sqrt(cols) / 32 / 4.6
    blocks[:, 0:2] = np.frombuffer(np.float16(std).tobytes(), np.uint8)
    blocks[:, 2:4] = np.frombuffer(np.float16(std * 7.5).tobytes(), np.uint8)
    shape = (rows, cols // 256 * 144)
    g.add_tensor(name, blocks.reshape((count, *shape) if count > 1 else shape),
                 raw_dtype=gguf.GGMLQuantizationType.Q4_K)


def floats(name, *shape, scale=1.0, mean=0.0):
    g.add_tensor(name, (mean + scale * rng.standard_normal(shape)).astype(np.float32))


matrix('token_embd.weight', V, D)
floats('output_norm.weight', D, scale=0, mean=1)
for l in range(layers):
    b = 'blk.%d.' % l
    for name in ('attn_norm', 'post_attention_norm'):
        floats(b + name + '.weight', D, scale=0, mean=1)
    if (l + 1) % 4:
        matrix(b + 'attn_qkv.weight', 2 * NK * DK + NV * DK, D)
        matrix(b + 'attn_gate.weight', NV * DK, D)
        matrix(b + 'ssm_ba.weight', 2 * NV, D)
        matrix(b + 'ssm_out.weight', D, NV * DK)
        floats(b + 'ssm_conv1d.weight', 2 * NK * DK + NV * DK, TAPS, scale=0.5)
        floats(b + 'ssm_a', NV, scale=0.1, mean=-1)
        floats(b + 'ssm_dt.bias', NV, scale=0.5, mean=-1)
        floats(b + 'ssm_norm.weight', DK, scale=0, mean=1)
    else:
        matrix(b + 'attn_q.weight', 2 * HEADS * DIM, D)
        for name in ('attn_k', 'attn_v'):
            matrix(b + name + '.weight', KV * DIM, D)
        matrix(b + 'attn_output.weight', D, HEADS * DIM)
        for name in ('attn_q_norm', 'attn_k_norm'):
            floats(b + name + '.weight', DIM, scale=0, mean=1)
    floats(b + 'ffn_gate_inp.weight', EXPERTS, D, scale=D ** -0.5)
    floats(b + 'ffn_gate_inp_shexp.weight', D, scale=D ** -0.5)
    for kind, n in (('exps', EXPERTS), ('shexp', 1)):
        matrix(b + 'ffn_gate_%s.weight' % kind, FF, D, n)
        matrix(b + 'ffn_up_%s.weight' % kind, FF, D, n)
        matrix(b + 'ffn_down_%s.weight' % kind, D, FF, n)
g.write_header_to_file()
g.write_kv_data_to_file()
g.write_tensors_to_file()
g.close()
