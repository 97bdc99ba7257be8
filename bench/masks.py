#!/usr/bin/env python3
"""masks.py LODE: how long masks of tokens take at a vocabulary of 151,937 tokens (grammar_vocab.py's), for forms
that clients send: answers with a schema, arguments of an agent's tools, lists of records, free JSON, a grammar.

A mask for every byte of each instance, as the vocabulary has no merges.  Prints the median, the mean and the
longest, which is the first within a kind of string: the grammar keeps it for all that come after."""
import json
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))


def record(**properties):
    return {'type': 'object', 'properties': properties, 'required': list(properties), 'additionalProperties': False}


TEXT, INT, YES = {'type': 'string'}, {'type': 'integer'}, {'type': 'boolean'}
CODE = ('static int read_all(FILE *f, char **out) {\n    size_t n = 0;\n    while (!feof(f)) {\n'
        '        if (grow(out, n + 4096) < 0) /* "no memory" */\n            return -1;\n    }\n    return 0;\n}\n')
FORMS = {
    'an edit of a file (an agent\'s tool)': (
        record(path=TEXT, old_string=TEXT, new_string=TEXT, replace_all=YES),
        {'path': 'src/base/file.c', 'old_string': CODE, 'new_string': CODE.replace('4096', 'BLOCK'), 'replace_all': False}),
    'a command (an agent\'s tool)': (
        record(command=TEXT, timeout={'type': 'integer', 'minimum': 1, 'maximum': 600000}, description=TEXT),
        {'command': 'grep -rn "lode_fail(" src | sort | head -40', 'timeout': 120000, 'description': 'Find where errors are made'}),
    'the weather (a tool with an enum)': (
        record(city=TEXT, unit={'enum': ['celsius', 'fahrenheit']}, days={'type': 'integer', 'minimum': 1, 'maximum': 14}),
        {'city': 'Reykjavik', 'unit': 'celsius', 'days': 7}),
    'a person: lengths, a date, a pattern': (
        record(name=dict(TEXT, maxLength=40), born=dict(TEXT, format='date'), phone=dict(TEXT, pattern='^\\+[0-9]{6,14}$'),
               roles={'type': 'array', 'items': {'enum': ['admin', 'author', 'reader']}, 'maxItems': 3}),
        {'name': 'Grace Brewster Hopper', 'born': '1906-12-09', 'phone': '+15551234567', 'roles': ['admin', 'author']}),
    'steps of reasoning and an answer': (
        record(steps={'type': 'array', 'items': record(explanation=TEXT, output=TEXT)}, final_answer=TEXT),
        {'steps': [{'explanation': 'Subtract 7 from both sides, which leaves 8x alone.', 'output': '8x = -30'}] * 6,
         'final_answer': 'x = -3.75'}),
    '40 records with references and alternatives': (
        {'type': 'array', 'items': {'$ref': '#/$defs/item'}, '$defs': {'item': record(
            id=INT, label=TEXT, score={'type': 'number', 'minimum': 0, 'maximum': 1},
            value={'anyOf': [TEXT, {'type': 'number'}, {'type': 'null'}]},
            tags={'type': 'array', 'items': TEXT})}},
        [{'id': i, 'label': 'entry number %d' % i, 'score': 0.25, 'value': [None, 3.5, 'three'][i % 3], 'tags': ['a', 'blue']}
         for i in range(40)]),
    'any object': ({'type': 'object'}, {'a': [1, 2, {'b': 'some text that goes on for a while'}], 'c': None} ),
}


def main():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, os.path.join(HERE, 'grammar_vocab.py'), folder], check=True)
        print('| form | masks | median | mean | longest |\n| --- | --- | --- | --- | --- |')
        for what, (schema, instance) in FORMS.items():
            paths = [os.path.join(folder, n) for n in ('schema.json', 'instance.json')]
            for path, value in zip(paths, (schema, instance)):
                with open(path, 'w') as f:
                    json.dump(value, f)
            out = subprocess.run([sys.argv[1], 'schema', *paths, '-m', os.path.join(folder, 'tokenizer.json')],
                                 check=True, capture_output=True, text=True).stdout
            m = re.search(r'masks: (\d+) tokens of \d+, median (.*) us, mean (.*) us, longest (.*) us', out)
            print('| %s | %s | %s us | %s us | %.0f ms |' % (what, *m.groups()[:3], float(m.group(4)) / 1000), flush=True)


main()
