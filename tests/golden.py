#!/usr/bin/env python3
"""golden.py LODE [DIR...]: `lode logits` against what transformers computed in float64.

DIR holds model.gguf (or mlx/, a directory as MLX writes them) and golden/ (meta.json, p*.logits.npy, p0.hidden.npy); the default is every
model of tests/data and, where they are present, of LODE_SHARED/ref/arch and .../quant_models.
All with float32 KV, which the goldens assume.

How far may a result lie from the golden?

Float weights (and quantised weights that meet float activations, --float-act, against goldens on
the dequantised weights).  To first order the error of a logit is sum J_i d_i over all roundings i
of the run, with |d_i| <= 2^-24 |x_i|; J, the sensitivities, and x, the values, belong to the model
and the prompt, not to the implementation.  transformers' own float32 run has the same x and J and
d_i of the same size, and its measured distance D = max |error| is in meta.json.  What can differ is
(1) the order of each sum: a rounding of a partial sum counts once for each addition on the way, and
    our sixteen lanes round k/16 + 4 times where BLAS kernels round k/8 (plain AVX2 lanes) to k/64
    times (several vectors in flight): at most 4 times as many roundings as the luckiest order, so a
    factor of sqrt(4) = 2 in standard deviation;
(2) luck: D and our own maximum are maxima over the same few thousand logits, whose errors hang
    together through the same residual stream.  The maximum of n normal numbers, n = 640 (one
    independent position) to 41,000, lies within [2.3, 5.4] standard deviations for all but 1 in
    1000 draws: a ratio of 5.4 / 2.3 < 2.4;
(3) functions (exp, tanh, sine, square root): ours err by up to 1.5 ulp where a correctly rounded one
    errs by 0.5; were they a fifth of all roundings that matter: sqrt(0.8 + 0.2 * 9) = 1.6.
Together 2 * 2.4 * 1.6 < 8.
Hence |error| <= 8 D + 1e-5, the latter for logits whose D is less than their own last bit (|logit|
< 16, half an ulp 4.8e-7) through a final norm and scale of up to 20.

The norm of the residual stream after each layer (the first prompt, last position) may err by the
same share: (8 D + 1e-5) / rms(logits), the head being linear in the normalised stream.

Greedy ids: one call on prompt + golden continuation gives every step's arg-max (prefill equals
decode, which invariance.py proves); it must be the golden id wherever the golden's margin is larger
than twice the bound, closer calls being beyond float32.

--numerics fast (float weights; F16 and BF16 ones meet activations rounded to BF16): d_i of a product's
input is 2^-9 |x_i|, where float32 has its own rounding of the same number, 2^-24 |x_i|, with the same
J.  So what D says of these roundings holds 2^15 times: |error| <= 2^15 8 D.  It measures 0.2 to 0.4 of
2^15 D, and 1.4 where an expert is chosen differently.  transformers' own bfloat16 run rounds the same
numbers, and all others too, so that our mean error must stay below its.  On a GPU (where there is one) the
same bound holds: BF16 weights meet the same roundings, F16 weights smaller ones (2^-12), and what the tensor
cores cut off is little beside them: sixteen times a slice of 256 numbers, at most 18 * 2^-23 of the sum of
magnitudes S, 2^-15 S, all of one sign, where 256 numbers rounded by up to 2^-9 err by 2^-9 S / sqrt(256) / 3
= 2^-14.6 S in the mean square.  Measured, 512 numbers lose 2^-22 S.

Quantised weights on a GPU that multiplies them as halves (Hopper, backend/cuda/kernels/products/fast_items.cuh): a product errs by
2^-11 of its magnitude for x and by at most three times as much for the weight (two roundings of what it is made of and
its own), together 2^-9; the same bound, then.  And by mean less than exact products, which round activations to 8 bits.

Quantised weights as they run by default: activations are rounded to 8 bits, as in llama.cpp, whose
own mean error against the same golden is in meta.json.  Ours must be within 1.2 of it on each
prompt and not above it in the geometric mean over all.  For MLX's directories the peer is mlx-lm as
it runs by default, in bfloat16.
"""
import json
import math
import os
import struct
import sys
import tempfile

from lodetest import Count, SHARED, TESTS, argmax, lode, logits, logits_bytes, read_npy

ARCHS = ('llama llama3rope mistral qwen2 qwen3 gemma2 gemma3 phi3 phi3_longrope smollm3 olmo2 '
         'granite '
         # beyond the foundation
         'qwen3_moe mixtral olmoe cohere2 stablelm exaone4 exaone4_swa glm4_moe '
         'phi falcon falcon_new gpt_neox starcoder2 nemotron gpt_oss_trunc '
         'deepseek_v2 deepseek_v2_lite deepseek_v3 glm4_moe_lite llama4_std gemma4 gpt_oss llama4 '
         'qwen3_next qwen3_5 qwen3_5_moe lfm2 '
         'glm4 seed_oss qwen2_moe gemma phimoe minimax_m2 openelm').split()
# What their GGUF files cannot say (llama.cpp has it built in) is in config.json: these are compared
# with their goldens through the directory, the others with their GGUF file, bit for bit.
ONLY_HF = 'gpt_oss llama4 llama-256 qwen3-256'.split()
F32 = ['-ctk', 'f32', '-ctv', 'f32']


def models(args):
    if args:
        yield from args
        return
    for top in (os.path.join(TESTS, 'data'), os.path.join(SHARED, 'ref')):
        for group in ('arch', 'quant', 'quant_models'):
            folder = os.path.join(top, group)
            for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
                path = os.path.join(folder, name)
                if name.split('-')[0] in ARCHS and (
                        os.path.exists(model_of(path)) or name in ONLY_HF):
                    yield path


def model_of(folder):
    return folder + ('/mlx' if os.path.isdir(folder + '/mlx') else '/model.gguf')


def context(name, n):
    """longrope picks its factors by the context: short ones for prompts that the golden ran short."""
    return ['-c', '128'] if name in ('phi3_longrope', 'phimoe') and n <= 128 else []


def distance(program, folder, prompt, greedy, flags, model=None):
    """-> (max abs, mean abs, greedy ids that differ as (step, margin))."""
    ids = prompt['ids'] + (prompt['greedy'][:-1] if greedy else [])
    name = os.path.basename(folder)
    exact = [] if '--numerics' in flags else ['--numerics', 'exact']
    shape, x = logits(program, model or model_of(folder), ids, '--all', *F32, *exact, *flags,
                      *context(name, len(ids)))
    (rows, vocab), ref = read_npy('%s/golden/%s' % (folder, prompt['logits']))
    if shape != (len(ids), vocab):
        raise RuntimeError('logits have shape %s, expected %s' % (shape, (len(ids), vocab)))
    first = prompt['logits_first_pos'] * vocab
    errors = [abs(a - b) for a, b in zip(x[first:first + rows * vocab], ref)]
    if not all(map(math.isfinite, errors)):
        return math.inf, math.inf, []
    other = []
    for i, want in enumerate(prompt['greedy'] if greedy else []):
        at = (len(prompt['ids']) - 1 + i) * vocab
        if argmax(x[at:at + vocab]) != want:
            other.append((i, prompt['greedy_margins'][i]))
    return max(errors), sum(errors) / len(errors), other


def check_float(count, program, folder, meta, flags, what, model=None):
    for i, p in enumerate(meta['prompts']):
        bound = 8 * meta['vs_float64']['float32']['max_abs'][i] + 1e-5
        worst, _, other = distance(program, folder, p, True, flags, model)
        sure = [o for o in other if o[1] > 2 * bound]
        count.check(worst <= bound and not sure,
                    '%s %s: max abs %.2e, bound %.2e (%.2f of it)%s'
                    % (what, p['logits'][:2], worst, bound, worst / bound,
                       ''.join('; greedy id %d differs, margin %g' % o for o in other)))


def check_fast(count, program, folder, meta, what, device='cpu'):
    """The first prompt; where the machine has no such instructions, this is exact and passes too."""
    p, runs = meta['prompts'][0], meta['vs_float64']
    kind = 'fast' if device == 'cpu' else 'tensor'  # of float weights the same on a GPU
    worst, mean, _ = distance(program, folder, p, False, ['--numerics', kind, '--device', device])
    bound = 2**15 * 8 * runs['float32']['max_abs'][0]
    most = runs['bfloat16']['mean_abs'][0] if 'bfloat16' in runs else math.inf
    count.check(worst <= bound and mean <= most,
                '%s --numerics %s, %s: max abs %.2e, bound %.2e; mean %.2e, transformers in bfloat16 %.2e'
                % (what, kind, device, worst, bound, mean, most))


def check_fast_packed(count, program, folder, meta, what):
    """The first prompt on a GPU; where it has no such products, or not for these weights, nothing is checked."""
    p = meta['prompts'][0]
    exact, fast = (distance(program, folder, p, False, ['--device', 'cuda', '--numerics', kind])
                   for kind in ('exact', 'fast'))
    bound = 2**15 * 8 * meta['vs_float64']['float32']['max_abs'][0]
    if fast != exact:
        count.check(fast[0] <= bound and fast[1] <= exact[1],
                    '%s --numerics fast, cuda: max abs %.2e, bound %.2e; mean %.2e, exact products %.2e'
                    % (what, fast[0], bound, fast[1], exact[1]))


def check_norms(count, program, folder, meta, what):
    path = folder + '/golden/p0.hidden.npy'
    if not os.path.exists(path):
        return
    p = meta['prompts'][0]
    out = lode(program, 'logits', folder + '/model.gguf', '--ids', ','.join(map(str, p['ids'])),
               '--trace-norms', '-o', os.devnull, *F32, *context(os.path.basename(folder), 0))
    got = [line.split('\t') for line in out.splitlines() if '\t' in line]
    (layers, n, width), h = read_npy(path)
    share = (8 * meta['vs_float64']['float32']['max_abs'][0] + 1e-5) / meta['logit_rms'][0]
    worst = math.inf if len(got) != layers else 0.0
    for i, (layer, norm) in enumerate(got[:layers]):
        row = h[(i * n + n - 1) * width:(i * n + n) * width]
        want = math.sqrt(sum(v * v for v in row))
        worst = max(worst, abs(float(norm) - want) / want if int(layer) == i else math.inf)
    count.check(worst <= share, '%s layers: %d of %d norms, worst %.2e, bound %.2e'
                % (what, len(got), layers, worst, share))


def check_rounded(count, program, folder, meta, what, ratios):
    name, peers = (('mlx-lm', meta['mlx_lm']['native']) if 'mlx_lm' in meta
                   else ('llama.cpp', meta['llama_cpp']['fa0']))
    for p, peer in zip(meta['prompts'], peers):
        _, mean, _ = distance(program, folder, p, False, [])
        ratio = mean / peer['mean_abs']
        ratios.append(ratio)
        count.check(ratio <= 1.2, '%s %s: mean abs %.2e, %s %.2e (%.2f of it)'
                    % (what, p['logits'][:2], mean, name, peer['mean_abs'], ratio))


def with_exact_decay(program, folder, place):
    """model.gguf, or of a model with ssm_a = -exp(A_log) a copy in `place` with these rounded to
    nearest, as lode does; the converter's exponential is a unit in the last place off in about one
    number of 800 (of all bfloat16 numbers up to 20, 41 of 33,600)."""
    source = folder + '/model.gguf'
    info = json.loads(lode(program, 'inspect', '--json', source))
    numbers = [t for t in info['tensors'] if t['name'].endswith('.ssm_a')]
    if not numbers:
        return source
    with open(source, 'rb') as f:
        data = bytearray(f.read())
    with open(folder + '/hf/model.safetensors', 'rb') as f:
        n = struct.unpack('<Q', f.read(8))[0]
        tensors = json.loads(f.read(n))
        body = f.read()
    exact = []
    for name, t in tensors.items():
        if name.endswith('A_log'):
            bits = body[slice(*t['data_offsets'])]
            exact += [-math.exp(struct.unpack('<f', bytes(2) + bits[i:i + 2])[0])
                      for i in range(0, len(bits), 2)]
    for t in numbers:
        for at in range(t['offset'], t['offset'] + t['size'], 4):
            was = struct.unpack_from('<f', data, at)[0]
            struct.pack_into('<f', data, at, min(exact, key=lambda x: abs(x - was)))
    with open(place + '/model.gguf', 'wb') as f:
        f.write(data)
    return place + '/model.gguf'


def check_mlx_form(count, program, folder, meta, what):
    """Directories that mlx-lm wrote have the taps of GatedDeltaNet's convolutions in the middle and
    one added to the norms already; the logits are those of the published form."""
    with open(folder + '/hf/model.safetensors', 'rb') as f:
        n = struct.unpack('<Q', f.read(8))[0]
        tensors = json.loads(f.read(n))
        data = f.read()
    if not any('linear_attn.conv1d' in name for name in tensors):
        return
    body = b''
    for name, t in tensors.items():
        if name == '__metadata__':
            continue
        now = data[slice(*t['data_offsets'])]
        if 'conv1d' in name:
            t['shape'] = [t['shape'][0], t['shape'][2], 1]
        elif name.endswith('norm.weight') and 'linear_attn' not in name:
            t['dtype'] = 'F32'
            now = b''.join(
                struct.pack('<f', 1 + struct.unpack('<f', bytes(2) + now[i:i + 2])[0])
                for i in range(0, len(now), 2))
        t['data_offsets'] = [len(body), len(body) + len(now)]
        body += now
    head = json.dumps(tensors).encode()
    with tempfile.TemporaryDirectory() as t:
        with open(t + '/model.safetensors', 'wb') as f:
            f.write(struct.pack('<Q', len(head)) + head + body)
        os.symlink(os.path.abspath(folder + '/hf/config.json'), t + '/config.json')
        ids = meta['prompts'][0]['ids']
        a, b = (logits_bytes(program, model, ids, '--all', *F32) for model in (folder + '/hf', t))
        count.check(a == b, '%s as mlx-lm writes it: the same bits' % what)


def check_directory(count, program, folder, meta, what):
    """The Hugging Face directory beside, by either form of its config.json, gives the GGUF file's
    logits bit for bit: the same numbers meet in the same order, whichever way they were stored.
    (Where the GGUF file lacks something, the golden's within the bound.)"""
    for config in ('config.json', 'config_legacy.json'):
        if not os.path.exists(folder + '/hf/' + config):
            continue
        with tempfile.TemporaryDirectory() as t:
            for name in os.listdir(folder + '/hf'):
                if not name.startswith('config'):
                    os.symlink(os.path.abspath(folder + '/hf/' + name), t + '/' + name)
            os.symlink(os.path.abspath(folder + '/hf/' + config), t + '/config.json')
            if os.path.basename(folder) in ONLY_HF:
                check_float(count, program, folder, meta, [], '%s hf/%s' % (what, config), t)
                continue
            with tempfile.TemporaryDirectory() as other:
                file = with_exact_decay(program, folder, other)
                for p in meta['prompts']:
                    flags = ['--all', *F32, *context(os.path.basename(folder), len(p['ids']))]
                    a, b = (logits_bytes(program, model, p['ids'], *flags) for model in (file, t))
                    count.check(a == b, '%s hf/%s %s: the bits of model.gguf'
                                % (what, config, p['logits'][:2]))


def has_gpu(program):
    try:
        lode(program, 'logits', TESTS + '/data/arch/llama/model.gguf', '--ids', '1', '-o', os.devnull,
             '--device', 'cuda')
        return True
    except RuntimeError:
        return False


def main():
    program, args = os.path.abspath(sys.argv[1]), sys.argv[2:]
    count, ratios = Count(), []
    gpu = has_gpu(program)
    for folder in models(args):
        with open(folder + '/golden/meta.json') as f:
            meta = json.load(f)
        what = '/'.join(folder.rstrip('/').split('/')[-2:])
        try:
            if 'llama_cpp' in meta or 'mlx_lm' in meta:
                check_rounded(count, program, folder, meta, what,
                              [] if 'mlx_lm' in meta else ratios)
                check_float(count, program, folder, meta, ['--float-act'], what + ' --float-act')
                if gpu:
                    check_fast_packed(count, program, folder, meta, what)
            elif 'quant_models' in folder:  # and no peer to compare rounded activations with
                check_float(count, program, folder, meta, ['--float-act'], what + ' --float-act')
                if os.path.exists(folder + '/hf/model.safetensors'):
                    check_directory(count, program, folder, meta, what)
            else:
                if what.split('/')[1] not in ONLY_HF:
                    check_float(count, program, folder, meta, [], what)
                    check_norms(count, program, folder, meta, what)
                    for device in ['cpu'] + ['cuda'] * gpu:
                        check_fast(count, program, folder, meta, what, device)
                if os.path.exists(folder + '/hf/model.safetensors'):
                    check_directory(count, program, folder, meta, what)
                    check_mlx_form(count, program, folder, meta, what)
        except (RuntimeError, OSError) as e:
            count.check(False, '%s: %s' % (what, e))
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        count.check(mean <= 1.0, 'error over llama.cpp, geometric mean of %d: %.3f'
                    % (len(ratios), mean))
    if not args and not os.path.isdir(os.path.join(SHARED, 'ref')):
        count.skip('the full set of reference models: set LODE_SHARED')
    count.end()


main()
