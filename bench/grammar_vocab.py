#!/usr/bin/env python3
"""Writes a tokenizer.json with 151,936 made-up pieces: grammar_vocab.py DIRECTORY

Words with and without a space before them, in several scripts, capitals, digits, indentation, and
the runs of punctuation that real vocabularies have (about 3,000 pieces hold a quotation mark).  There
are no merges, so a text comes as single bytes: a mask for every byte of it, which is harder than for
every token."""
import json
import os
import random
import sys

N = 151936
random.seed(1)


def alphabet():
    keep = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    out, extra = {}, 0
    for b in range(256):
        if b in keep:
            out[b] = chr(b)
        else:
            out[b] = chr(256 + extra)
            extra += 1
    return out


BYTES = alphabet()


def spell(text):
    return ''.join(BYTES[b] for b in text.encode())


def main():
    pieces = {c: i for i, c in enumerate(BYTES.values())}
    punct = '",:{}[]()<>=-/\\.;\'!?*#&|_'
    letters = 'etaoinshrdlucmfwypvbgkjqxz'
    weight = [12, 9, 8, 7, 7, 7, 6, 6, 6, 4, 4, 3, 3, 2, 2, 2, 2, 2, 1, 1, 2, 1, 1, 1, 1, 1]
    scripts = ['абвгдежзиклмнопрстуфхцчшщыэюя', 'αβγδεζηθικλμνξοπρστυφχψω',
               ''.join(chr(0x4e00 + i) for i in range(3000)), 'אבגדהוזחטיכלמנסעפצקרשת', 'éèüöäñçßøåæ' + letters]
    while len(pieces) < N:
        kind = random.random()
        if kind < 0.06:
            t = ''.join(random.choice(punct) for _ in range(random.randint(2, 4)))
            t = random.choice(['', ' ', '']) + t + random.choice(['', '\n', ' '])
        elif kind < 0.07:
            t = '\n' * random.randint(0, 3) + random.choice(' \t') * random.randint(1, 60)
        elif kind < 0.3:
            s = random.choice(scripts)
            t = random.choice(['', ' ']) + ''.join(random.choice(s) for _ in range(random.randint(1, 5)))
        else:
            t = ''.join(random.choices(letters, weight, k=random.randint(2, 11)))
            t = random.choice(['', ' ', ' ']) + random.choice([t, t.capitalize(), t.upper(), t])
        pieces.setdefault(spell(t), len(pieces))
    doc = {'version': '1.0', 'truncation': None, 'padding': None, 'added_tokens': [
        {'id': N, 'content': '<|end|>', 'single_word': False, 'lstrip': False, 'rstrip': False,
         'normalized': False, 'special': True}],
        'normalizer': None,
        'pre_tokenizer': {'type': 'ByteLevel', 'add_prefix_space': False, 'trim_offsets': False,
                          'use_regex': False},
        'post_processor': None, 'decoder': {'type': 'ByteLevel'},
        'model': {'type': 'BPE', 'dropout': None, 'unk_token': None, 'continuing_subword_prefix': '',
                  'end_of_word_suffix': '', 'fuse_unk': False, 'byte_fallback': False,
                  'vocab': pieces, 'merges': []}}
    os.makedirs(sys.argv[1], exist_ok=True)
    json.dump(doc, open(os.path.join(sys.argv[1], 'tokenizer.json'), 'w'))


if __name__ == '__main__':
    main()
