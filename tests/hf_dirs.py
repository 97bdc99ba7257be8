#!/usr/bin/env python3
"""hf_dirs.py LODE: Hugging Face directories as people have them.

One model written in many ways: in several files with an index, within a multimodal model, with joined
experts, without its tied head, by its name in Hugging Face's cache.  Each gives the same bits.  Then
what is refused, what is said, and what generation_config.json asks for."""
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile

from lodetest import Count, SHARED, TESTS, logits_bytes

IDS = [5, 17, 99, 3, 250, 42, 7]


def read_weights(folder):
    """-> {name: (dtype, shape, bytes)}"""
    with open(folder + '/model.safetensors', 'rb') as f:
        n = struct.unpack('<Q', f.read(8))[0]
        header, data = json.loads(f.read(n)), f.read()
    header.pop('__metadata__', None)
    return {k: (v['dtype'], v['shape'], data[slice(*v['data_offsets'])]) for k, v in header.items()}


def write_weights(path, tensors):
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {'dtype': dtype, 'shape': shape, 'data_offsets': [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b' ' * (-len(text) % 8)
    with open(path, 'wb') as f:
        f.write(struct.pack('<Q', len(text)) + text + b''.join(t[2] for t in tensors.values()))


def write_json(path, value):
    with open(path, 'w') as f:
        json.dump(value, f)


class Model:
    """A directory to vary."""

    def __init__(self, folder):
        self.folder, self.tensors = folder, read_weights(folder)
        with open(folder + '/config.json') as f:
            self.config = json.load(f)

    def write(self, to, config=None, tensors=None, files=1):
        for name in os.listdir(self.folder):
            if name.startswith('tokenizer'):
                shutil.copy(self.folder + '/' + name, to)
        write_json(to + '/config.json', self.config if config is None else config)
        tensors = self.tensors if tensors is None else tensors
        if files == 1:
            write_weights(to + '/model.safetensors', tensors)
            return
        where = {}
        for i in range(files):
            name = 'model-%05d-of-%05d.safetensors' % (i + 1, files)
            part = dict(list(tensors.items())[i::files])
            write_weights(to + '/' + name, part)
            where.update({k: name for k in part})
        write_json(to + '/model.safetensors.index.json',
                   {'metadata': {'total_size': 1}, 'weight_map': where})


def run(program, *args, **more):
    return subprocess.run([program, *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=60, **more)


def complaint(program, model):
    r = run(program, 'logits', model, '--ids', '1,2', '-o', os.devnull)
    return r.returncode, r.stderr.decode()


def join_experts(tensors):
    """The experts of a layer as transformers 5 joins them: gate_up_proj, gate first."""
    out, layers = {}, {}
    for name, t in tensors.items():
        head, mark, tail = name.partition('.mlp.experts.')
        if not mark:
            out[name] = t
            continue
        expert, kind = tail.split('.')[:2]
        layers.setdefault(head, {}).setdefault(int(expert), {})[kind] = t
    for head, experts in layers.items():
        n = len(experts)
        dtype, (ff, d), _ = experts[0]['gate_proj']
        out[head + '.mlp.experts.gate_up_proj'] = (dtype, [n, 2 * ff, d], b''.join(
            experts[e]['gate_proj'][2] + experts[e]['up_proj'][2] for e in range(n)))
        out[head + '.mlp.experts.down_proj'] = (dtype, [n, d, ff], b''.join(
            experts[e]['down_proj'][2] for e in range(n)))
    return out


def variants(model):
    """-> (what, config, tensors, files, what is said)"""
    tensors = model.tensors
    yield 'three files and an index', None, None, 3, ''
    eye = {'model.vision_tower.patch.weight': ('BF16', [2, 2], bytes(8)),
           'model.vision_tower.head.weight': ('F8_E4M3', [3], bytes(3)),
           'model.multi_modal_projector.linear.weight': ('F32', [1], bytes(4))}
    whole = {'model_type': 'seen', 'architectures': ['Seen'], 'text_config': model.config,
             'vision_config': {'hidden_size': 7}}
    for prefix in ('model.language_model.', 'language_model.model.'):
        inner = {(prefix + k[len('model.'):] if k.startswith('model.') else
                  (prefix.split('.')[0] + '.' if prefix.startswith('language') else '') + k): t
                 for k, t in tensors.items()}
        yield prefix + ' beside what sees', whole, {**eye, **inner}, 1, \
            '3 tensors that the text model does not use are left out: model.vision_tower, ' \
            'model.multi_modal_projector'
    many = {'tower_%d.weight' % i: ('F32', [1], bytes(4)) for i in range(7)}
    yield 'seven things that are not text', None, {**tensors, **many}, 1, \
        '7 tensors that the text model does not use are left out: tower_0, tower_1, tower_2, ' \
        'tower_3 and others'
    if any('.mlp.experts.0.' in k for k in tensors):
        yield 'experts joined', None, join_experts(tensors), 1, ''
    if model.config.get('tie_word_embeddings'):
        head = tensors['model.embed_tokens.weight']
        other = (head[0], head[1], bytes(len(head[2])))
        yield 'a head that is tied whatever it holds', None, {**tensors, 'lm_head.weight': other}, \
            1, ''
    if 'lm_head.weight' not in tensors:
        yield 'a head that should be there', {**model.config, 'tie_word_embeddings': False}, None, \
            1, 'the embedding is taken'
    odd = dict(model.config)
    for key in ('head_dim', 'num_key_value_heads'):
        odd[key] = None if key == 'head_dim' else float(odd[key])
    if 'self_attn.q_proj' in ' '.join(tensors):
        yield 'head_dim from the shapes', odd, None, 1, ''


def same_bits(count, program, model, what):
    want = logits_bytes(program, model.folder, IDS, '--all')
    for name, config, tensors, files, note in variants(model):
        with tempfile.TemporaryDirectory() as t:
            model.write(t, config, tensors, files)
            for flags in ([], ['--no-mmap']):
                try:
                    same = logits_bytes(program, t, IDS, '--all', *flags) == want
                except RuntimeError as e:
                    same, name = False, '%s: %s' % (name, e)
                count.check(same, '%s: %s%s' % (what, name, ' (read)' if flags else ''))
            said = complaint(program, t)[1]
            count.check(said.count('\n') == (1 if note else 0) and note in said,
                        '%s: %s: said: %s' % (what, name, said.strip()))
            if note:
                seen = run(program, 'inspect', t).stdout.decode()
                count.check(note in seen, '%s: %s: inspect says it' % (what, name))


def in_cache(count, program, model):
    with tempfile.TemporaryDirectory() as t:
        home = t + '/hub/models--acme--tiny'
        os.makedirs(home + '/snapshots/c0ffee')
        os.makedirs(home + '/refs')
        os.makedirs(home + '/blobs')
        model.write(home + '/blobs')
        for name in os.listdir(home + '/blobs'): # as the hub's client has it
            os.symlink('../../blobs/' + name, home + '/snapshots/c0ffee/' + name)
        with open(home + '/refs/main', 'w') as f:
            f.write('c0ffee')
        env = {k: v for k, v in os.environ.items() if not k.startswith('HF_')}
        for variable, value in (('HF_HOME', t), ('HF_HUB_CACHE', t + '/hub')):
            r = run(program, 'inspect', 'acme/tiny', '--json', env={**env, variable: value})
            j = json.loads(r.stdout or '{}')
            count.check(j.get('path', '').endswith('/snapshots/c0ffee') and
                        j['metadata']['general.name']['value'] == 'acme/tiny',
                        'acme/tiny by %s: %s' % (variable, r.stderr.decode().strip()))
        if os.path.exists(home + '/blobs/tokenizer.json'):
            r = run(program, 'tokenize', 'acme/tiny', '-p', 'x', env={**env, 'HF_HOME': t})
            count.check(r.returncode == 0 and r.stdout, 'acme/tiny tokenizes')
        r = run(program, 'inspect', 'acme/other', env={**env, 'HF_HOME': t})
        count.check(r.returncode == 1 and t in r.stderr.decode(), 'acme/other is not there')


def refusals(count, program, model):
    def index(change):
        def act(t):
            path = t + '/model.safetensors.index.json'
            with open(path) as f:
                value = json.load(f)
            change(value['weight_map'])
            write_json(path, value)
        return act
    first = next(iter(model.tensors))
    cases = [
        ('a file outside of the directory', 'index.json',
         index(lambda m: m.update({first: '../model-00001-of-00002.safetensors'}))),
        ('an absolute path', 'index.json', index(lambda m: m.update({first: '/etc/passwd'}))),
        ('a file that is missing', '00002-of-00002',
         lambda t: os.remove(t + '/model-00002-of-00002.safetensors')),
        ('a tensor in another file than it says', 'another file', index(lambda m: m.update(
            {first: 'model-00002-of-00002.safetensors'}))),
        ('a tensor in none of the files', 'in none of its files', index(
            lambda m: m.update({'model.extra.weight': 'model-00001-of-00002.safetensors'}))),
        ('a shard that was cut off', '00001-of-00002', lambda t: os.truncate(
            t + '/model-00001-of-00002.safetensors', 5000)),
    ]
    for what, why, act in cases:
        with tempfile.TemporaryDirectory() as t:
            model.write(t, files=2)
            act(t)
            code, said = complaint(program, t)
            count.check(code == 1 and why in said, '%s: %s' % (what, said.strip()))
    with tempfile.TemporaryDirectory() as t:
        model.write(t)
        os.rename(t + '/model.safetensors', t + '/pytorch_model.bin')
        code, said = complaint(program, t)
        count.check(code == 1 and 'safetensors' in said and 'pickle' in said,
                    "PyTorch's own weights: " + said.strip())
    with tempfile.TemporaryDirectory() as t:
        write_json(t + '/adapter_config.json', {'peft_type': 'LORA'})
        code, said = complaint(program, t)
        count.check(code == 1 and 'LoRA' in said, 'an adapter: ' + said.strip())
    with tempfile.TemporaryDirectory() as t:
        def text(s):
            return struct.pack('<Q', len(s)) + s.encode()
        keys = (('general.architecture', 'llama'), ('general.type', 'adapter'),
                ('adapter.type', 'lora'))
        with open(t + '/lora.gguf', 'wb') as f:
            f.write(b'GGUF' + struct.pack('<IQQ', 3, 0, len(keys)) +
                    b''.join(text(k) + struct.pack('<I', 8) + text(v) for k, v in keys))
        code, said = complaint(program, t + '/lora.gguf')
        count.check(code == 1 and 'LoRA' in said and 'llama' in said, 'a GGUF adapter: ' + said.strip())


def generation(count, program, folder):
    """What generation_config.json asks for: ends, and sampling below flag and environment."""
    if not os.path.exists(folder + '/model.safetensors'):
        count.skip('generation_config.json: set LODE_SHARED')
        return
    with tempfile.TemporaryDirectory() as t:
        for name in os.listdir(folder):
            if name not in ('generation_config.json', 'tokenizer_config.json'):
                os.symlink(os.path.abspath(folder + '/' + name), t + '/' + name)

        def answer(value, *flags, **env):
            write_json(t + '/generation_config.json', value)
            r = run(program, 'run', t, '-p', 'The cat sat on the', '-n', '24', '--raw', '--seed', '7',
                    *flags, env={**os.environ, **env})
            return r.stdout.decode() if r.returncode == 0 else r.stderr.decode()
        greedy, hot = {'do_sample': False}, {'do_sample': True, 'temperature': 5.0, 'top_k': 0}
        plain = answer(greedy, '--temp', '0')
        count.check(answer(greedy) == plain, 'do_sample false is greedy')
        count.check(answer(hot) != plain, 'temperature is taken from generation_config.json')
        count.check(answer(hot, '--temp', '0') == plain, 'a flag beats it')
        count.check(answer(hot, LODE_TEMP='0') == plain, 'the environment beats it')
        count.check(answer(greedy, LODE_TEMP='5', ) != plain, 'the environment beats do_sample')
        r = run(program, 'tokenize', t, '-p', plain, '--ids', '--no-bos')
        ids = json.loads(r.stdout)
        prompt = json.loads(run(program, 'tokenize', t, '-p', 'The cat sat on the', '--ids',
                                '--no-bos').stdout)
        new = ids[len(prompt):] if ids[:len(prompt)] == prompt else ids
        stop = new[4]
        cut = answer({**greedy, 'eos_token_id': [stop, 1]})
        count.check(0 < len(cut) < len(plain) and plain.startswith(cut.rstrip('\n')),
                    'the list of ends is kept: %r, not %r' % (cut, plain))


def main():
    program, count = os.path.abspath(sys.argv[1]), Count()
    data, arch = os.path.join(TESTS, 'data', 'arch'), os.path.join(SHARED, 'ref', 'arch')
    # ours: dense with a head, tied, experts; the others where they are
    found = [p for p in [data + '/' + n for n in ('seed_oss', 'gemma', 'qwen2_moe')] +
             [arch + '/' + n for n in ('qwen3', 'qwen3_moe', 'llama3rope')]
             if os.path.exists(p + '/hf/model.safetensors')]
    for path in found:
        same_bits(count, program, Model(path + '/hf'), os.path.basename(path))
    in_cache(count, program, Model(([p for p in found if os.path.exists(
        p + '/hf/tokenizer.json')] or found)[0] + '/hf'))
    refusals(count, program, Model(found[0] + '/hf'))
    generation(count, program, os.path.join(SHARED, 'models', 'moe', 'hf'))
    count.end()


main()
