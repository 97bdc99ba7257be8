#!/usr/bin/env python3
"""`lode convert`: what it writes against what llama.cpp's converter wrote, the logits of source and
result bit by bit, killing it at random moments, full disks, and its complaints.

    tests/verb_convert.py PROGRAM [--list]     --list prints the differences in the metadata
"""
import glob
import json
import os
import random
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

from lodetest import SHARED, TESTS, Count, logits_bytes

PROGRAM = sys.argv[1]
LIST = '--list' in sys.argv
count = Count()
NUMBERS = {0: 'B', 1: 'b', 2: 'H', 3: 'h', 4: 'I', 5: 'i', 6: 'f', 7: '?', 10: 'Q', 11: 'q', 12: 'd'}
# type id: numbers of a block, bytes of a block
BLOCKS = {0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34),
          10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210),
          20: (32, 18), 23: (256, 136), 30: (1, 2), 39: (32, 17)}


class Gguf:
    """A GGUF file, the plain way: .keys {name: (type, value)}, .tensors {name: (type, dims, bytes)}."""

    def __init__(self, path):
        with open(path, 'rb') as f:
            self.data, self.pos = f.read(), 8
        assert self.data[:8] == b'GGUF\3\0\0\0'
        n_tensors, n_keys = self.take('Q'), self.take('Q')
        self.keys, self.tensors, rows = {}, {}, []
        for _ in range(n_keys):
            key, kind = self.string(), self.take('I')
            assert key not in self.keys
            self.keys[key] = self.value(kind)
        for _ in range(n_tensors):
            name, n_dims = self.string(), self.take('I')
            dims = [self.take('Q') for _ in range(n_dims)]
            rows.append((name, dims, self.take('I'), self.take('Q')))
        start, end = -(-self.pos // 32) * 32, 0
        for name, dims, kind, offset in rows:
            assert offset == end and offset % 32 == 0, name  # in order, without holes
            n = 1
            for d in dims:
                n *= d
            size = n // BLOCKS[kind][0] * BLOCKS[kind][1]
            self.tensors[name] = (kind, dims, self.data[start + offset:start + offset + size])
            end = -(-(offset + size) // 32) * 32
        self.whole = len(self.data) == start + end

    def take(self, code):
        v = struct.unpack_from('<' + code, self.data, self.pos)[0]
        self.pos += struct.calcsize('<' + code)
        return v

    def string(self):
        n = self.take('Q')
        self.pos += n
        return self.data[self.pos - n:self.pos].decode()

    def value(self, kind):
        if kind == 8:
            return 'str', self.string()
        if kind == 9:
            of, n = self.take('I'), self.take('Q')
            return '[%d]' % of, [self.value(of)[1] for _ in range(n)]
        return NUMBERS[kind], self.take(NUMBERS[kind])


def run(*args, **more):
    return subprocess.run([PROGRAM, 'convert', *map(str, args)], stdin=subprocess.DEVNULL,
                          timeout=300, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)


def last_line(r):
    lines = r.stderr.decode(errors='replace').strip().splitlines()
    return lines[-1] if lines else ''


# ------------------------------------------------------- a directory out of a GGUF file of its own

HF_NAMES = {'attn_norm': 'input_layernorm', 'ffn_norm': 'post_attention_layernorm',
            'attn_q': 'self_attn.q_proj', 'attn_k': 'self_attn.k_proj', 'attn_v': 'self_attn.v_proj',
            'attn_output': 'self_attn.o_proj', 'attn_q_norm': 'self_attn.q_norm',
            'attn_k_norm': 'self_attn.k_norm', 'ffn_gate': 'mlp.gate_proj', 'ffn_up': 'mlp.up_proj',
            'ffn_down': 'mlp.down_proj'}
TOP_NAMES = {'token_embd': 'model.embed_tokens', 'output_norm': 'model.norm', 'output': 'lm_head'}


def half_order(data, rows, head_dim):
    """Rows in pairs (2i, 2i + 1) of each head -> (i, i + n / 2)."""
    size, out = len(data) // rows, []
    for head in range(rows // head_dim):
        for i in list(range(0, head_dim, 2)) + list(range(1, head_dim, 2)):
            at = (head * head_dim + i) * size
            out.append(data[at:at + size])
    return b''.join(out)


def make_directory(gguf, into):
    """What the file would have been made from, for llama, qwen2 and qwen3."""
    g, arch = Gguf(gguf), None
    arch = g.keys['general.architecture'][1]
    key = lambda name, default=None: g.keys.get(arch + '.' + name, (None, default))[1]
    heads, width = key('attention.head_count'), key('embedding_length')
    head_dim = key('attention.key_length', width // heads)
    tensors = {}
    for name, (kind, dims, data) in g.tensors.items():
        stem, tail = name.rsplit('.', 1)
        if stem.startswith('blk.'):
            _, layer, part = stem.split('.')
            hf = 'model.layers.%s.%s.%s' % (layer, HF_NAMES[part], tail)
            if arch == 'llama' and part in ('attn_q', 'attn_k'):
                data = half_order(data, dims[-1], head_dim)
        else:
            hf = TOP_NAMES[stem] + '.' + tail
        if kind == 0:  # norms came as BF16
            data = b''.join(data[i + 2:i + 4] for i in range(0, len(data), 4))
        tensors[hf] = (dims[::-1], data)
    header, at = {}, 0
    for name, (shape, data) in tensors.items():
        header[name] = {'dtype': 'BF16', 'shape': shape, 'data_offsets': [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    with open(into + '/model.safetensors', 'wb') as f:
        f.write(struct.pack('<Q', len(text)) + text)
        for _, data in tensors.values():
            f.write(data)
    tokens, kinds = g.keys['tokenizer.ggml.tokens'][1], g.keys['tokenizer.ggml.token_type'][1]
    config = {'model_type': arch, 'hidden_size': width, 'num_attention_heads': heads,
              'num_hidden_layers': key('block_count'), 'head_dim': head_dim,
              'num_key_value_heads': key('attention.head_count_kv'), 'vocab_size': len(tokens),
              'intermediate_size': key('feed_forward_length'),
              'max_position_embeddings': key('context_length'),
              'rope_theta': key('rope.freq_base'), 'hidden_act': 'silu',
              'rms_norm_eps': round(key('attention.layer_norm_rms_epsilon'), 12),
              'tie_word_embeddings': 'output.weight' not in g.tensors}
    with open(into + '/config.json', 'w') as f:
        json.dump(config, f)
    pattern = (r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")
    special = [i for i, k in enumerate(kinds) if k == 3]
    tokenizer = {
        'added_tokens': [{'id': i, 'content': tokens[i], 'special': True} for i in special],
        'pre_tokenizer': {'type': 'Sequence', 'pretokenizers': [
            {'type': 'Split', 'pattern': {'Regex': pattern}, 'behavior': 'Isolated', 'invert': False},
            {'type': 'ByteLevel', 'add_prefix_space': False, 'use_regex': False}]},
        'decoder': {'type': 'ByteLevel'},
        'model': {'type': 'BPE', 'merges': g.keys['tokenizer.ggml.merges'][1],
                  'vocab': {t: i for i, t in enumerate(tokens) if i not in special}}}
    with open(into + '/tokenizer.json', 'w') as f:
        json.dump(tokenizer, f)
    names = {n: {'content': tokens[g.keys['tokenizer.ggml.%s_token_id' % k][1]]}
             for n, k in (('bos_token', 'bos'), ('eos_token', 'eos'), ('pad_token', 'padding'))}
    with open(into + '/tokenizer_config.json', 'w') as f:
        json.dump(names, f)
    with open(into + '/generation_config.json', 'w') as f:
        json.dump({'temperature': 0.5, 'top_k': 7}, f)


# ---------------------------------------------------------------------------- results and sources

def same_value(a, b):
    if isinstance(a, float) or isinstance(b, float):
        return abs(a - b) <= 1e-6 * abs(a)
    return a == b


# What is named after folders; and Falcon's context, which llama.cpp's converter writes as 2048
# whatever config.json says.
IGNORED = ('general.name', 'general.size_label', 'general.basename', 'general.finetune',
           'falcon.context_length')


def same_tensor(name, a, b):
    """Byte for byte; but decays are -exp(x), and torch's exp is not ours in the last place."""
    if a == b or b is None or not name.endswith('.ssm_a') or a[:2] != b[:2]:
        return a == b
    numbers = [struct.unpack('<%di' % (len(t[2]) // 4), t[2]) for t in (a, b)]
    return all(abs(x - y) <= 1 for x, y in zip(*numbers))


def compare_with(got, ref, name):
    """Tensors equal byte for byte; keys that both have equal.  Other keys are listed."""
    wrong = [n for n in ref.tensors if not same_tensor(n, ref.tensors[n], got.tensors.get(n))]
    more = [n for n in got.tensors if n not in ref.tensors]
    count.check(not wrong and not more,
                '%s: tensors as llama.cpp converts them %s' % (name, (wrong + more)[:3] or ''))
    wrong = [k for k, (t, v) in ref.keys.items() if k in got.keys and k not in IGNORED and
             (t, same_value(v, got.keys[k][1])) != (got.keys[k][0], True)]
    missing = [k for k in ref.keys if k not in got.keys and k not in IGNORED]
    count.check(not wrong, '%s: keys as llama.cpp writes them %s' %
                (name, [(k, ref.keys[k], got.keys[k]) for k in wrong[:2]] or ''))
    if LIST:
        print('   not written:', ', '.join('%s=%.40s' % (k, ref.keys[k][1]) for k in missing))
        print('   beyond:', ', '.join('%s=%.40s' % (k, got.keys[k][1]) for k in got.keys
                                      if k not in ref.keys))
    return missing


def same_logits(source, result, name, n_vocab):
    ids = [(37 * i + 11) % min(n_vocab, 600) for i in range(40)]
    a = logits_bytes(PROGRAM, source, ids, '--all')
    b = logits_bytes(PROGRAM, result, ids, '--all')
    count.check(a == b, '%s: logits of source and result, bit for bit' % name)


def check_directory(source, ref, name, t):
    out = '%s/out.gguf' % t
    r = run(source, '-o', out, '-t', '2')
    if r.returncode:
        return last_line(r)
    g = Gguf(out)
    count.check(g.whole, '%s: the file ends where it says' % name)
    if ref and os.path.exists(ref):
        compare_with(g, Gguf(ref), name)
    arch = g.keys['general.architecture'][1]
    n_vocab = g.keys.get(arch + '.vocab_size') or (0, len(g.keys['tokenizer.ggml.tokens'][1]))
    same_logits(source, out, name, n_vocab[1])
    return None


def directories(t):
    for name in ('llama', 'qwen2', 'qwen3'):
        gguf = '%s/data/arch/%s/model.gguf' % (TESTS, name)
        made = '%s/%s' % (t, name)
        os.mkdir(made)
        make_directory(gguf, made)
        problem = check_directory(made, gguf, name + ' (made here)', t)
        count.check(not problem, '%s (made here): converts %s' % (name, problem or ''))
    refused = []
    for source in sorted(glob.glob(TESTS + '/data/arch/*/hf')) + \
            sorted(glob.glob(SHARED + '/ref/arch/*/hf')) + sorted(glob.glob(SHARED + '/models/*/hf')):
        if not os.path.exists(source + '/model.safetensors'):
            continue
        folder = os.path.dirname(source)
        # beside the repository's own lie files that a script of its own made, with fewer keys
        ref = None if source.startswith(TESTS) else folder + '/model.gguf'
        problem = check_directory(source, ref, os.path.basename(folder), t)
        if problem:
            refused.append(source)
            print('--    %s: %s' % (source, problem))
    # what lode itself cannot open, it cannot convert
    for source in refused:
        r = subprocess.run([PROGRAM, 'logits', source, '--ids', '1,2'], capture_output=True)
        count.check(r.returncode != 0, '%s: refused by convert and by the engine alike' % source)


def encoders(t):
    for source in sorted(glob.glob(TESTS + '/data/encoders/*/hf')):
        name, out = source.split('/')[-2], t + '/encoder.gguf'
        r = run(source, '-o', out)
        vectors = [subprocess.run([PROGRAM, 'embed', m, '-p', 'A harbour, 12 boats.'],
                                  stdin=subprocess.DEVNULL, capture_output=True)
                   for m in (source, out)]
        count.check(r.returncode == 0 and vectors[0].returncode == 0 and
                    vectors[0].stdout == vectors[1].stdout,
                    '%s: vectors of source and result, bit for bit %s' % (name, last_line(r)))


# -------------------------------------------------------------------------------------- GGUF to GGUF

def shards(g, path, n):
    """The file in n parts, by hand."""
    names, out = list(g.tensors), []
    for i in range(n):
        part = names[i::n]
        head, offset, body = b'', 0, b''
        for name in part:
            kind, dims, data = g.tensors[name]
            head += struct.pack('<Q', len(name)) + name.encode() + struct.pack('<I', len(dims))
            head += struct.pack('<%dQ' % len(dims), *dims) + struct.pack('<IQ', kind, len(body))
            body += data + b'\0' * (-len(data) % 32)
        keys = b''
        for key, v in (('split.no', i), ('split.count', n)):
            keys += struct.pack('<Q', len(key)) + key.encode() + struct.pack('<IH', 2, v)
        n_keys = 2
        if i == 0:
            text = 'general.architecture'
            keys += struct.pack('<Q', len(text)) + text.encode() + struct.pack('<IQ', 8, 3) + b'toy'
            n_keys = 3
        file = b'GGUF' + struct.pack('<IQQ', 3, len(part), n_keys) + keys + head
        file += b'\0' * (-len(file) % 32) + body
        out.append('%s-%05d-of-%05d.gguf' % (path, i + 1, n))
        with open(out[-1], 'wb') as f:
            f.write(file)
    return out


def requantise(t):
    source = TESTS + '/data/arch/llama/model.gguf'
    g = Gguf(source)
    out = t + '/again.gguf'
    r = run(source, '-o', out)
    again = Gguf(out)
    count.check(r.returncode == 0 and again.tensors == g.tensors, 'GGUF to GGUF: the same tensors')
    count.check(all(again.keys[k] == v for k, v in g.keys.items()), 'GGUF to GGUF: the same keys')
    parts = shards(g, t + '/set', 3)
    r = run(parts[1], '-o', t + '/merged.gguf')
    merged = Gguf(t + '/merged.gguf') if r.returncode == 0 else None
    count.check(merged and merged.tensors == g.tensors and 'split.no' not in merged.keys,
                'a set of shards becomes one file %s' % last_line(r))
    outs = []
    for threads in (1, 3):
        outs.append('%s/q%d.gguf' % (t, threads))
        r = run(source, '-o', outs[-1], '--type', 'Q8_0', '--tensor-type', 'attn_v=q4_0', '-t', threads)
        count.check(r.returncode == 0 and b'KL divergence' in r.stdout,
                    'Q8_0 with %d threads, compared with its source %s' % (threads, last_line(r)))
    files = [open(p, 'rb').read() for p in outs]
    count.check(files[0] == files[1], 'any number of threads writes the same bytes')
    q = Gguf(outs[0])
    count.check(q.tensors['blk.0.attn_v.weight'][0] == 2 and q.tensors['blk.0.attn_q.weight'][0] == 8
                and q.tensors['blk.0.attn_norm.weight'] == g.tensors['blk.0.attn_norm.weight'],
                '--tensor-type, --type and norms that stay')
    r = run(source, '--type', 'Q4_K_M', '--dry-run')
    count.check(r.returncode == 0 and b'-> Q5_0' in r.stdout and not glob.glob(t + '/*.tmp*'),
                '--dry-run shows the types that fit')
    shutil.copy(source, t + '/own.gguf')
    r = run(t + '/own.gguf', '-o', t + '/own.gguf', '--type', 'Q8_0')
    os.chmod(t + '/again.gguf', 0o444)
    r2 = run(source, '-o', t + '/again.gguf', '--type', 'Q8_0')
    count.check(r.returncode == 1 and 'source itself' in last_line(r) and
                Gguf(t + '/own.gguf').tensors == g.tensors and r2.returncode == 1 and
                'write-protected' in last_line(r2) and Gguf(t + '/again.gguf').tensors == g.tensors,
                'neither the source nor a write-protected file is replaced')
    for args, words in (((source,), 'where to'), ((source, '-o', t + '/x', '--type', 'Q9'), 'no type'),
                        ((t + '/none', '-o', t + '/x'), 'no such file'),
                        ((source, '-o', t), 'directory'),
                        ((source, '-o', t + '/no/x'), 'cannot be written'),
                        ((source, '-o', t + '/x', '--tensor-type', 'a'), 'PATTERN=TYPE'),
                        ((source, '-o', t + '/x', '--tensor-type', '(=Q8_0'), ''),
                        ((source, '-o', t + '/x', '--imatrix', source), '')):
        r = run(*args)
        text = r.stderr.decode()
        count.check(r.returncode in (1, 2) and words in text and not os.path.exists(t + '/x'),
                    'refuses %s: %s' % (' '.join(map(str, args[1:])), last_line(r)))


def importance(t):
    """The same importance matrix in both forms gives the same file, another than without."""
    source = TESTS + '/data/arch/llama/model.gguf'
    g, rng = Gguf(source), random.Random(3)
    names = [n for n, v in g.tensors.items() if len(v[1]) > 1 and n != 'token_embd.weight']
    sums = {n: [rng.random() ** 8 * 50 for _ in range(g.tensors[n][1][0])] for n in names}
    dat = struct.pack('<i', len(names))
    for n in names:
        dat += struct.pack('<i', len(n)) + n.encode() + struct.pack('<ii', 5, len(sums[n]))
        dat += struct.pack('<%df' % len(sums[n]), *sums[n])
    with open(t + '/im.dat', 'wb') as f:
        f.write(dat + struct.pack('<ii', 5, 4) + b'text')
    key, head, body = 'general.type', b'', b''
    for n in names:
        for suffix, values in (('.in_sum2', sums[n]), ('.counts', [5.0])):
            name = n + suffix
            head += struct.pack('<Q', len(name)) + name.encode()
            head += struct.pack('<IQQIQ', 2, len(values), 1, 0, len(body))
            body += struct.pack('<%df' % len(values), *values)
            body += b'\0' * (-len(body) % 32)
    file = b'GGUF' + struct.pack('<IQQ', 3, 2 * len(names), 1) + struct.pack('<Q', len(key))
    file += key.encode() + struct.pack('<IQ', 8, 7) + b'imatrix' + head
    with open(t + '/im.gguf', 'wb') as f:
        f.write(file + b'\0' * (-len(file) % 32) + body)
    outs = []
    for args in ((), ('--imatrix', t + '/im.dat'), ('--imatrix', t + '/im.gguf')):
        r = run(source, '-o', t + '/im-out.gguf', '--type', 'Q4_0', '--no-kl', *args)
        outs.append(Gguf(t + '/im-out.gguf').tensors if r.returncode == 0 else last_line(r))
    count.check(outs[1] == outs[2] and outs[0] != outs[1] and isinstance(outs[1], dict),
                'an importance matrix counts, the same as .dat and as GGUF %s' %
                [o for o in outs if isinstance(o, str)])
    for bad, words in ((dat[:len(dat) // 2], 'cut short'), (b'\1\0\0\0' * 3, 'importance matrix'),
                       (dat.replace(struct.pack('<i', len(sums[names[0]])), struct.pack('<i', 1), 1),
                        '')):
        with open(t + '/bad.dat', 'wb') as f:
            f.write(bad)
        r = run(source, '-o', t + '/x', '--type', 'Q4_0', '--imatrix', t + '/bad.dat')
        count.check(r.returncode == 1 and words in last_line(r) and not os.path.exists(t + '/x'),
                    'a damaged importance matrix: %s' % last_line(r))


# ------------------------------------------------------------------------------ complete or absent

def big_source(t):
    """Large enough to be met in the middle: 24 MB of F32."""
    path, n = t + '/big.gguf', 24
    key = 'general.architecture'
    head = b'GGUF' + struct.pack('<IQQ', 3, n, 1) + struct.pack('<Q', len(key)) + key.encode()
    head += struct.pack('<IQ', 8, 3) + b'toy'
    for i in range(n):
        name = 'blk.%d.ffn_up.weight' % i
        head += struct.pack('<Q', len(name)) + name.encode()
        head += struct.pack('<IQQIQ', 2, 1024, 256, 0, i << 20)
    rng = random.Random(1)
    block = struct.pack('<262144f', *(rng.gauss(0, 1) for _ in range(1 << 18)))
    with open(path, 'wb') as f:
        f.write(head + b'\0' * (-len(head) % 32) + block * n)
    return path


def kill_it(t):
    source, out, old = big_source(t), t + '/killed.gguf', b'what was there before'
    start = time.monotonic()
    run(source, '-o', out, '--type', 'Q8_0', '--no-kl', '-t', '1')
    took = time.monotonic() - start
    whole = open(out, 'rb').read()
    rng, wrong, ended, left = random.Random(7), 0, 0, 0
    for i in range(24):
        before = None if i % 2 else old
        if before is None and os.path.exists(out):
            os.remove(out)
        elif before:
            with open(out, 'wb') as f:
                f.write(before)
        if i % 3 and os.path.exists(out + '.lode-part'):  # what SIGKILL left
            os.remove(out + '.lode-part')
        p = subprocess.Popen([PROGRAM, 'convert', source, '-o', out, '--type', 'Q8_0', '--no-kl',
                              '-t', '1'], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(rng.uniform(0, 1.1 * took))
        p.send_signal((signal.SIGKILL, signal.SIGTERM, signal.SIGINT)[i % 3])
        status = p.wait()
        now = open(out, 'rb').read() if os.path.exists(out) else None
        ended += status == 0
        wrong += now not in (before, whole) or (status == 0 and now != whole)
        if i % 3:  # it had the time to clean up
            left += os.path.exists(out + '.lode-part')
    count.check(wrong == 0, 'killed 24 times (%d had ended): the old file, none, or all of it' % ended)
    count.check(left == 0, 'SIGTERM and SIGINT leave no temporary file')
    r = run(source, '-o', out, '--type', 'Q8_0', '--no-kl')
    count.check(r.returncode == 0 and open(out, 'rb').read() == whole and
                not glob.glob(t + '/*.lode-part'), 'and the next run leaves nothing else either')


def full_disk(t):
    source, out = t + '/big.gguf', t + '/full.gguf'
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2 << 20, 2 << 20))
    with open(out, 'wb') as f:
        f.write(b'old')
    r = run(source, '-o', out, '--type', 'Q8_0', '--no-kl', preexec_fn=limit)
    count.check(r.returncode == 1 and 'written' in last_line(r) and open(out, 'rb').read() == b'old'
                and not os.path.exists(out + '.lode-part'), 'a full disk: %s' % last_line(r))
    with open(out + '.lode-part', 'wb') as f:
        import fcntl
        fcntl.flock(f, fcntl.LOCK_EX)
        r = run(source, '-o', out, '--type', 'Q8_0', '--no-kl')
        count.check(r.returncode == 1 and 'another process' in last_line(r),
                    'two at once: %s' % last_line(r))
    os.remove(out + '.lode-part')
    os.symlink('full.gguf', t + '/link.gguf')
    r = run(source, '-o', t + '/link.gguf', '--type', 'Q8_0', '--no-kl')
    count.check(r.returncode == 0 and os.path.islink(t + '/link.gguf') and Gguf(out).whole,
                'a link is written through')


# ------------------------------------------------------------------------------------ a real model

def divergence(model, base):
    """Mean KL divergence of a model from the saved predictions."""
    r = subprocess.run([PROGRAM, 'perplexity', model, '--kl-divergence', '--kl-divergence-base', base],
                       stdin=subprocess.DEVNULL, capture_output=True, timeout=300)
    return float(r.stdout.decode().split('Mean    KLD:')[1].split()[0])


def trained(t):
    source, made = SHARED + '/models/demo/demo-bf16.gguf', SHARED + '/models/demo/demo-Q4_K_M.gguf'
    if not os.path.exists(made):
        count.skipped += 1
        return
    out, base, text = t + '/demo.gguf', t + '/base.kld', SHARED + '/models/eval-a.txt'
    r = run(source, '-o', out, '--type', 'Q4_K_M')
    g, ref = Gguf(out), Gguf(made)
    count.check({n: v[:2] for n, v in g.tensors.items()} == {n: v[:2] for n, v in ref.tensors.items()},
                'demo as Q4_K_M: the types that llama-quantize gives')
    print(r.stdout.decode())
    subprocess.run([PROGRAM, 'perplexity', source, '-f', text, '--chunks', '6',
                    '--kl-divergence-base', base], stdin=subprocess.DEVNULL, capture_output=True)
    ours, theirs = divergence(out, base), divergence(made, base)
    count.check(ours <= 1.02 * theirs, 'demo as Q4_K_M: mean KL divergence %.6f, llama-quantize\'s %.6f'
                % (ours, theirs))


with tempfile.TemporaryDirectory() as folder:
    directories(folder)
    encoders(folder)
    requantise(folder)
    importance(folder)
    kill_it(folder)
    full_disk(folder)
    trained(folder)
print('%d passed, %d failed, %d skipped' % (count.passed, count.failed, count.skipped))
sys.exit(1 if count.failed or not count.passed else 0)
