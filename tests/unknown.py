#!/usr/bin/env python3
"""unknown.py LODE: models whose architecture is not known.

A directory or GGUF file of a standard decoder under a name that nobody has gives the bits that it
gives under its own, and says what was assumed; models that have something of their own are refused."""
import json
import os
import subprocess
import sys
import tempfile

from lodetest import Count, SHARED, TESTS, logits_bytes

IDS = [5, 17, 99, 3, 250, 42, 7]
# Directories with nothing of their own, and what lode_arch_fits or the fields refuse.
STANDARD = 'llama llama3rope qwen2 qwen3 mistral seed_oss phi3 stablelm'.split()
OTHER = 'gemma2 olmo2 granite phi cohere2 gpt_oss mixtral deepseek_v3'.split()


def run(program, model):
    return subprocess.run([program, 'logits', model, '--ids', '1,2,3', '-o', os.devnull],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)


def directories(count, program, folder):
    for name in STANDARD + OTHER:
        source = '%s/%s/hf' % (folder, name)
        if not os.path.exists(source + '/model.safetensors'):
            continue
        with tempfile.TemporaryDirectory() as t:
            for file in os.listdir(source):
                if not file.startswith('config'):
                    os.symlink(os.path.abspath(source + '/' + file), t + '/' + file)
            with open(source + '/config.json') as f:
                config = json.load(f)
            config['model_type'] = 'foozle'
            with open(t + '/config.json', 'w') as f:
                json.dump(config, f)
            r = run(program, t)
            said = r.stderr.decode()
            if name in OTHER:
                count.check(r.returncode == 1 and 'foozle' in said,
                            '%s is no standard decoder: %s' % (name, said.strip()[-120:]))
                continue
            same = r.returncode == 0 and (logits_bytes(program, t, IDS, '--all') ==
                                          logits_bytes(program, source, IDS, '--all'))
            count.check(same and 'foozle' in said and 'standard decoder' in said,
                        '%s as foozle: %s' % (name, said.strip()[-160:]))


def ggufs(count, program, folder):
    for name, fits in (('qwen2', True), ('qwen3', True), ('olmo2', False), ('gemma2', False),
                       ('granite', False)):
        path = '%s/%s/model.gguf' % (folder, name)
        if not os.path.exists(path):
            continue
        with open(path, 'rb') as f:
            data = f.read()
        other = name[:-1] + 'X'
        with tempfile.TemporaryDirectory() as t:
            with open(t + '/x.gguf', 'wb') as f: # names of the same length: the file stays in order
                f.write(data.replace(name.encode(), other.encode()))
            r = run(program, t + '/x.gguf')
            said = r.stderr.decode()
            if fits:
                same = r.returncode == 0 and (
                    logits_bytes(program, t + '/x.gguf', IDS, '--all') ==
                    logits_bytes(program, path, IDS, '--all'))
                count.check(same and other in said, '%s.gguf as %s: %s' % (
                    name, other, said.strip()[-160:]))
            else:
                count.check(r.returncode == 1 and other in said,
                            '%s.gguf is no standard decoder: %s' % (name, said.strip()[-120:]))


def main():
    program, count = os.path.abspath(sys.argv[1]), Count()
    for folder in (os.path.join(TESTS, 'data', 'arch'), os.path.join(SHARED, 'ref', 'arch')):
        directories(count, program, folder)
        ggufs(count, program, folder)
    if not os.path.isdir(os.path.join(SHARED, 'ref')):
        count.skip('the full set of reference models: set LODE_SHARED')
    count.end()


main()
