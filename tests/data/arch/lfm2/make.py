#!/usr/bin/env python3
"""Makes this folder: a tiny LFM2 with random weights, and what transformers computes from it.

    python3 make.py [OUT]          (torch, transformers, safetensors, gguf, numpy)

The goldens are float64 from end to end: transformers casts to float32 inside norms and softmax, so
torch.float32 is made to mean float64 before it is imported.  Their distance from a float32 run is
measured in a second process (`make.py --float32 OUT`).
"""
import json
import os
import subprocess
import sys

import numpy as np
import torch

FLOAT32 = sys.argv[1:2] == ['--float32']
if not FLOAT32:
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double
    torch.set_default_dtype(torch.float64)
import transformers
from transformers import Lfm2Config, Lfm2ForCausalLM

OUT = sys.argv[-1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
D, FF, HEADS, KV, VOCAB, TAPS = 48, 64, 3, 1, 256, 3
LAYERS = ['conv', 'conv', 'full_attention', 'conv', 'full_attention']
CONFIG = Lfm2Config(
    vocab_size=VOCAB, hidden_size=D, intermediate_size=FF, num_hidden_layers=len(LAYERS),
    num_attention_heads=HEADS, num_key_value_heads=KV, max_position_embeddings=512,
    conv_L_cache=TAPS, block_auto_adjust_ff_dim=False, layer_types=LAYERS,
    rope_parameters={'rope_type': 'default', 'rope_theta': 1e6}, bos_token_id=1, eos_token_id=2,
    pad_token_id=0, tie_word_embeddings=True)


def weights():
    """Rounded to bf16; N(0, 1.2 / sqrt(inputs)), the tied embedding N(0, 1.5 / sqrt(D)) with a final
    norm around 2, so that the model does not repeat its input; norms 1 + N(0, 0.2)."""
    rng = np.random.default_rng(100)
    out = {}
    for name, p in Lfm2ForCausalLM(CONFIG).named_parameters():
        shape = tuple(p.shape)
        x = rng.standard_normal(shape)
        if name.endswith('embedding_norm.weight'):
            x = 2 + 0.2 * x
        elif 'norm' in name:
            x = 1 + 0.2 * x
        elif 'embed_tokens' in name:
            x *= 1.5 / np.sqrt(D)
        else:
            x *= 1.2 / np.sqrt(shape[-1])
        out[name] = torch.from_numpy(x).to(torch.bfloat16)
    return out


def write_gguf(w, path):
    """As llama.cpp's converter does: matrices bf16, vectors and convolutions F32."""
    import gguf
    g = gguf.GGUFWriter(path, 'lfm2')
    g.add_context_length(512)
    g.add_embedding_length(D)
    g.add_block_count(len(LAYERS))
    g.add_feed_forward_length(FF)
    g.add_head_count(HEADS)
    g.add_head_count_kv([KV if t == 'full_attention' else 0 for t in LAYERS])
    g.add_layer_norm_rms_eps(CONFIG.norm_eps)
    g.add_rope_freq_base(1e6)
    g.add_vocab_size(VOCAB)
    g.add_uint32('lfm2.shortconv.l_cache', TAPS)
    g.add_file_type(32)
    stems = {'operator_norm': 'attn_norm', 'ffn_norm': 'ffn_norm', 'feed_forward.w1': 'ffn_gate',
             'feed_forward.w2': 'ffn_down', 'feed_forward.w3': 'ffn_up',
             'conv.conv': 'shortconv.conv', 'conv.in_proj': 'shortconv.in_proj',
             'conv.out_proj': 'shortconv.out_proj', 'self_attn.q_proj': 'attn_q',
             'self_attn.k_proj': 'attn_k', 'self_attn.v_proj': 'attn_v',
             'self_attn.out_proj': 'attn_output', 'self_attn.q_layernorm': 'attn_q_norm',
             'self_attn.k_layernorm': 'attn_k_norm'}
    for name, x in w.items():
        name = name[len('model.'):-len('.weight')]
        if name.startswith('layers.'):
            _, l, stem = name.split('.', 2)
            name = 'blk.%s.%s' % (l, stems[stem])
        else:
            name = {'embed_tokens': 'token_embd', 'embedding_norm': 'token_embd_norm'}[name]
        if 'conv.conv' in name:
            x = x.squeeze(1)
        if x.dim() < 2 or 'conv.conv' in name:
            g.add_tensor(name + '.weight', x.to(torch.float64).numpy().astype(np.float32))
        else:
            bits = x.contiguous().view(torch.int16).numpy().view(np.uint16)
            g.add_tensor(name + '.weight', bits, raw_dtype=gguf.GGMLQuantizationType.BF16)
    g.write_header_to_file()
    g.write_kv_data_to_file()
    g.write_tensors_to_file()
    g.close()


def run(model, ids):
    """-> logits (n, VOCAB), hidden (layers + 1, n, D): the input of layer 0, then each output."""
    hidden, hooks = [], []
    for layer in model.model.layers:
        hooks.append(layer.register_forward_pre_hook(
            lambda _, args: hidden.append(args[0][0]) if not hidden else None))
        hooks.append(layer.register_forward_hook(
            lambda _, args, out: hidden.append((out[0] if isinstance(out, tuple) else out)[0])))
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0]
    for h in hooks:
        h.remove()
    return logits.numpy(), torch.stack(hidden).numpy()


def main():
    rng = np.random.default_rng(7)
    prompts = [rng.integers(3, VOCAB, n).tolist() for n in (7, 64, 200)]
    w = weights()
    model = Lfm2ForCausalLM(CONFIG).eval()
    model.load_state_dict({k: v.to(torch.float32) for k, v in w.items()}, strict=False)
    model.tie_weights()
    if FLOAT32:
        np.savez(OUT, *[run(model, ids)[0] for ids in prompts])
        return
    os.makedirs(OUT + '/golden', exist_ok=True)
    os.makedirs(OUT + '/hf', exist_ok=True)
    subprocess.check_call([sys.executable, __file__, '--float32', '/tmp/lfm2-float32.npz'])
    single = np.load('/tmp/lfm2-float32.npz')
    meta = {'arch': 'lfm2', 'layers': len(LAYERS), 'seed': 100,
            'versions': {'torch': torch.__version__, 'transformers': transformers.__version__,
                         'numpy': np.__version__},
            'prompts': [], 'logit_rms': [],
            'vs_float64': {'float32': {'max_abs': [], 'mean_abs': []}}}
    for i, ids in enumerate(prompts):
        logits, hidden = run(model, ids)
        error = abs(single['arr_%d' % i].astype(np.float64) - logits)
        meta['vs_float64']['float32']['max_abs'].append(float(error.max()))
        meta['vs_float64']['float32']['mean_abs'].append(float(error.mean()))
        meta['logit_rms'].append(float(np.sqrt((logits ** 2).mean())))
        first = max(0, len(ids) - 8)
        np.save('%s/golden/p%d.logits.npy' % (OUT, i), logits[first:].astype(np.float32))
        if i == 0:
            np.save(OUT + '/golden/p0.hidden.npy', hidden.astype(np.float32))
        greedy, margins, seen = [], [], list(ids)
        for _ in range(32):
            top = np.sort(run(model, seen)[0][-1])
            greedy.append(int(run(model, seen)[0][-1].argmax()))
            margins.append(float(top[-1] - top[-2]))
            seen.append(greedy[-1])
        meta['prompts'].append({'ids': ids, 'logits': 'p%d.logits.npy' % i,
                                'logits_first_pos': first, 'greedy': greedy,
                                'greedy_margins': margins})
    with open(OUT + '/golden/meta.json', 'w') as f:
        json.dump(meta, f)
    write_gguf(w, OUT + '/model.gguf')
    from safetensors.torch import save_file
    save_file(w, OUT + '/hf/model.safetensors')
    config = json.loads(CONFIG.to_json_string(use_diff=False))
    config.update(architectures=['Lfm2ForCausalLM'], dtype='bfloat16')
    with open(OUT + '/hf/config.json', 'w') as f:
        json.dump(config, f, indent=1, sort_keys=True)


main()
