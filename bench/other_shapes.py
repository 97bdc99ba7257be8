#!/usr/bin/env python3
"""other_shapes.py NAME OUT.gguf [LAYERS]: a model of some other kind in fewer layers and with a vocabulary of 32,000, random blocks: for
measuring; what it says is noise.

    qwen3-next   gated delta rule and, each fourth layer, heads of 256 numbers; 32 of its 512 experts, 8 used
    glm-flash    latent attention (GLM 4.7 Flash): 20 heads over rows of 576 numbers
    deepseek-v3  the same by 128 heads; 16 of its 256 experts
    gpt-oss      sinks, a window each second layer, heads of 64, experts in MXFP4
    gemma3       five of six layers with a window, heads of 256, a dense model

Needs gguf and numpy."""
import sys

import gguf
import numpy as np

V = 32000
Q = gguf.GGMLQuantizationType
rng = np.random.default_rng(1)


def half(v):
    return np.frombuffer(np.float16(v).tobytes(), np.uint8)


def blocks_of(kind, n, cols):
    """n random blocks, for weights of 1 / sqrt(cols)."""
    std = 1 / np.sqrt(cols)
    blocks = rng.integers(0, 256, (n, gguf.GGML_QUANT_SIZES[kind][1]), dtype=np.uint8)
    if kind == Q.Q4_K:  # d, dmin, 12 bytes of scales, 128 of quants
        blocks[:, 0:2], blocks[:, 2:4] = half(std / 32 / 4.6), half(std / 32 / 4.6 * 7.5)
    elif kind == Q.Q8_0:
        blocks[:, 0:2] = half(std / 74)
    else:  # MXFP4: an exponent, 16 bytes of pairs
        blocks[:, 0] = 128 + round(np.log2(std / 6.3))
    return blocks


class Model:
    def __init__(self, arch, **keys):
        self.g, self.kind = gguf.GGUFWriter(sys.argv[2], arch), Q.Q4_K
        for key, value in keys.items():
            key = arch + '.' + key.replace('__', '.')
            if isinstance(value, bool):
                self.g.add_bool(key, value)
            elif isinstance(value, float):
                self.g.add_float32(key, value)
            else:
                self.g.add_uint32(key, value)
        self.g.add_file_type(15)

    def matrix(self, name, rows, cols, count=1, kind=None):
        kind = kind or (self.kind if cols % 256 == 0 else Q.Q8_0)
        numbers, size = gguf.GGML_QUANT_SIZES[kind]
        shape = (rows, cols // numbers * size)
        self.g.add_tensor(name + '.weight', blocks_of(kind, count * rows * cols // numbers, cols).reshape((count, *shape) if count > 1 else shape),
                          raw_dtype=kind)

    def floats(self, name, *shape, scale=1.0, mean=0.0):
        self.g.add_tensor(name, (mean + scale * rng.standard_normal(shape)).astype(np.float32))

    def norms(self, prefix, n, *names):
        for name in names:
            self.floats(prefix + name + '.weight', n, scale=0, mean=1)

    def dense(self, b, d, ff, suffix='', count=1, kind=None):
        self.matrix(b + 'ffn_gate' + suffix, ff, d, count, kind)
        self.matrix(b + 'ffn_up' + suffix, ff, d, count, kind)
        self.matrix(b + 'ffn_down' + suffix, d, ff, count, kind)

    def ends(self, d, tied=False):
        self.matrix('token_embd', V, d)
        self.floats('output_norm.weight', d, scale=0, mean=1)
        if not tied:
            self.matrix('output', V, d)

    def write(self):
        self.g.write_header_to_file()
        self.g.write_kv_data_to_file()
        self.g.write_tensors_to_file()
        self.g.close()


def qwen3_next(layers):
    d, heads, kv, dim, nk, nv, dk, taps, experts, used, ff = 2048, 16, 2, 256, 16, 32, 128, 4, 32, 8, 512
    m = Model('qwen3next', block_count=layers, context_length=65536, embedding_length=d, feed_forward_length=ff, attention__head_count=heads,
              attention__head_count_kv=kv, attention__key_length=dim, attention__value_length=dim, rope__dimension_count=dim // 4,
              expert_count=experts, expert_used_count=used, expert_feed_forward_length=ff, expert_shared_feed_forward_length=ff,
              ssm__conv_kernel=taps, ssm__state_size=dk, ssm__group_count=nk, ssm__time_step_rank=nv, ssm__inner_size=nv * dk,
              full_attention_interval=4, rope__freq_base=1e7, attention__layer_norm_rms_epsilon=1e-6)
    m.ends(d)
    for l in range(layers):
        b = 'blk.%d.' % l
        m.norms(b, d, 'attn_norm', 'post_attention_norm')
        if (l + 1) % 4:
            m.matrix(b + 'attn_qkv', 2 * nk * dk + nv * dk, d)
            m.matrix(b + 'attn_gate', nv * dk, d)
            m.matrix(b + 'ssm_ba', 2 * nv, d)
            m.matrix(b + 'ssm_out', d, nv * dk)
            m.floats(b + 'ssm_conv1d.weight', 2 * nk * dk + nv * dk, taps, scale=0.5)
            m.floats(b + 'ssm_a', nv, scale=0.1, mean=-1)
            m.floats(b + 'ssm_dt.bias', nv, scale=0.5, mean=-1)
            m.norms(b, dk, 'ssm_norm')
        else:
            m.matrix(b + 'attn_q', 2 * heads * dim, d)
            m.matrix(b + 'attn_k', kv * dim, d)
            m.matrix(b + 'attn_v', kv * dim, d)
            m.matrix(b + 'attn_output', d, heads * dim)
            m.norms(b, dim, 'attn_q_norm', 'attn_k_norm')
        m.floats(b + 'ffn_gate_inp.weight', experts, d, scale=d ** -0.5)
        m.floats(b + 'ffn_gate_inp_shexp.weight', d, scale=d ** -0.5)
        m.dense(b, d, ff, '_exps', experts)
        m.dense(b, d, ff, '_shexp')
    return m


def latent(layers, d, heads, q_rank, plain, dim_v, dense, experts, used, ff, wide_ff):
    rank, rope = 512, 64
    m = Model('deepseek2', block_count=layers, context_length=65536, embedding_length=d, feed_forward_length=wide_ff, attention__head_count=heads,
              attention__head_count_kv=1, rope__freq_base=1e6, attention__layer_norm_rms_epsilon=1e-5, expert_count=experts,
              expert_used_count=used, expert_group_count=1, expert_group_used_count=1, expert_gating_func=2, leading_dense_block_count=dense,
              vocab_size=V, attention__q_lora_rank=q_rank, attention__kv_lora_rank=rank, attention__key_length=rank + rope,
              attention__value_length=rank, attention__key_length_mla=plain + rope, attention__value_length_mla=dim_v,
              expert_feed_forward_length=ff, expert_shared_count=1, expert_weights_scale=1.8, expert_weights_norm=True,
              rope__dimension_count=rope)
    m.ends(d)
    for l in range(layers):
        b = 'blk.%d.' % l
        m.norms(b, d, 'attn_norm', 'ffn_norm')
        m.norms(b, rank, 'attn_kv_a_norm')
        m.norms(b, q_rank, 'attn_q_a_norm')
        m.matrix(b + 'attn_kv_a_mqa', rank + rope, d)
        m.matrix(b + 'attn_k_b', rank, plain, heads)
        m.matrix(b + 'attn_v_b', dim_v, rank, heads)
        m.matrix(b + 'attn_output', d, heads * dim_v)
        m.matrix(b + 'attn_q_a', q_rank, d)
        m.matrix(b + 'attn_q_b', heads * (plain + rope), q_rank)
        if l < dense:
            m.dense(b, d, wide_ff)
            continue
        m.floats(b + 'exp_probs_b.bias', experts, scale=0.1)
        m.floats(b + 'ffn_gate_inp.weight', experts, d, scale=d ** -0.5)
        m.dense(b, d, ff, '_exps', experts)
        m.dense(b, d, ff, '_shexp')
    return m


def gpt_oss(layers):
    d, heads, kv, dim, experts, used, ff = 2880, 64, 8, 64, 32, 4, 2880
    m = Model('gpt-oss', block_count=layers, context_length=131072, embedding_length=d, feed_forward_length=ff, attention__head_count=heads,
              attention__head_count_kv=kv, rope__freq_base=150000.0, attention__layer_norm_rms_epsilon=1e-5, expert_count=experts,
              expert_used_count=used, attention__key_length=dim, attention__value_length=dim, attention__sliding_window=128,
              expert_feed_forward_length=ff)
    m.ends(d)
    for l in range(layers):
        b = 'blk.%d.' % l
        m.norms(b, d, 'attn_norm', 'post_attention_norm')
        for name, rows, cols in (('q', heads * dim, d), ('k', kv * dim, d), ('v', kv * dim, d), ('output', d, heads * dim)):
            m.matrix(b + 'attn_' + name, rows, cols, kind=Q.Q8_0)
            m.floats(b + 'attn_%s.bias' % name, rows, scale=0.1)
        m.floats(b + 'attn_sinks.weight', heads)
        m.floats(b + 'ffn_gate_inp.weight', experts, d, scale=d ** -0.5)
        m.floats(b + 'ffn_gate_inp.bias', experts, scale=0.1)
        m.dense(b, d, ff, '_exps', experts, Q.MXFP4)
        for name, n in (('gate', ff), ('up', ff), ('down', d)):
            m.floats(b + 'ffn_%s_exps.bias' % name, experts, n, scale=0.1)
    return m


def gemma3(layers):
    d, heads, kv, dim, ff = 3840, 16, 8, 256, 15360
    m = Model('gemma3', block_count=layers, context_length=131072, embedding_length=d, feed_forward_length=ff, attention__head_count=heads,
              attention__head_count_kv=kv, rope__freq_base=1e6, rope__freq_base_swa=1e4, attention__layer_norm_rms_epsilon=1e-6,
              attention__key_length=dim, attention__value_length=dim, attention__sliding_window=1024)
    m.ends(d, tied=True)
    for l in range(layers):
        b = 'blk.%d.' % l
        m.norms(b, d, 'attn_norm', 'ffn_norm', 'post_attention_norm', 'post_ffw_norm')
        m.norms(b, dim, 'attn_q_norm', 'attn_k_norm')
        for name, rows, cols in (('q', heads * dim, d), ('k', kv * dim, d), ('v', kv * dim, d), ('output', d, heads * dim)):
            m.matrix(b + 'attn_' + name, rows, cols)
        m.dense(b, d, ff)
    return m


SHAPES = {
    'qwen3-next': (8, qwen3_next),
    'glm-flash': (8, lambda n: latent(n, 2048, 20, 768, 192, 256, 1, 64, 4, 1536, 10240)),
    'deepseek-v3': (4, lambda n: latent(n, 7168, 128, 1536, 128, 128, 1, 16, 8, 2048, 18432)),
    'gpt-oss': (8, gpt_oss),
    'gemma3': (12, gemma3),
}
if len(sys.argv) < 3 or sys.argv[1] not in SHAPES:
    sys.exit(__doc__)
few, make = SHAPES[sys.argv[1]]
make(int(sys.argv[3]) if len(sys.argv) > 3 else few).write()
