#!/usr/bin/env python3
"""`lode schema`: its manners, the official suite where it is at hand, and random schemas against
Python's jsonschema where that is installed.  verb_schema.py LODE [SEED]

LODE_SCHEMA_SUITE names the folder of the JSON-Schema-Test-Suite's draft2020-12, beside which the older
drafts lie (the source package of jsonschema on PyPI has it in json/tests)."""
import json
import os
import random
import subprocess
import sys
import tempfile

LODE = sys.argv[1]
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 1
N_RANDOM = 2000 if os.environ.get('LODE_LONG') else 150
count = {'passed': 0, 'failed': 0, 'skipped': 0}


def say(good, what):
    count['passed' if good else 'failed'] += 1
    if not good:
        print('FAILED ' + what)


def run(*args, text=None):
    return subprocess.run([LODE, 'schema'] + list(args), input=text, capture_output=True, text=True,
                          timeout=120)


def manners(tmp):
    def file(name, text):
        path = os.path.join(tmp, name)
        with open(path, 'w', encoding='utf-8') as f:
            f.write(text)
        return path
    s = file('s.json', '{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"],'
                       '"additionalProperties":false}')
    good, bad = file('good.json', ' {"a" : 1e1 }\n'), file('bad.json', '{"a":1,"b":2}')
    r = run(s)
    say(r.returncode == 0 and 'can be enforced' in r.stdout, 'a good schema')
    r = run(s, good, good, '--stats')
    say(r.returncode == 0 and r.stdout.count('accepted') == 2 and 'compiled in' in r.stdout,
        'good instances')
    r = run(s, good, bad)
    say(r.returncode == 1 and 'bad.json: refused at byte 6' in r.stdout, 'a bad instance')
    r = run(file('u.json', '{"items":{"uniqueItems":true}}'), good)
    say(r.returncode == 2 and '#/items/uniqueItems' in r.stderr, 'a schema that is refused')
    r = run(file('deep.json', '{"items":' * 20000 + 'true' + '}' * 20000))
    say(r.returncode == 2, 'a deep schema')
    r = run('-', text='{"type":')
    say(r.returncode == 2 and 'schema' in r.stderr, 'no JSON')
    r = run(file('r.txt', 'a+b\n'), file('i.txt', 'aab'), '--kind', 'regex')
    say(r.returncode == 0, 'a regular expression')
    r = run(file('g.gbnf', 'root ::= "x" root | "y"'), file('i2.txt', 'xxz'), '--kind=gbnf')
    say(r.returncode == 1 and 'byte 2' in r.stdout, 'a grammar')
    say(run(s, os.path.join(tmp, 'missing.json')).returncode == 2, 'a missing instance')


def suite():
    root = os.environ.get('LODE_SCHEMA_SUITE')
    if not root or not os.path.isdir(root):
        count['skipped'] += 1
        return
    tool = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'schema', 'suite.py')
    for draft in 'draft2020-12', 'draft2019-09', 'draft7', 'draft6', 'draft4':
        r = subprocess.run([sys.executable, tool, LODE, os.path.join(root, '..', draft)],
                           capture_output=True, text=True)
        say(r.returncode == 0, 'the official suite, %s: %s' % (draft, r.stdout[-500:]))


# ---- random schemas ----

KEYS = ['a', 'b', 'ab', 'x1']
VALUES = [None, True, False, 0, 1, -1, 2, 3, 1.5, -0.5, 10, 100, 1e20, 1e-7, '', 'a', 'ab', 'abc',
          '\u00e9', '\U0001f600b', [], [1], [1, 'a'], [None, 1, 2], {}, {'a': 1}, {'b': 'a'},
          {'a': 1, 'b': 2}, {'ab': None, 'a': 'x'}, {'x1': [1], 'a': {}}]
PATTERNS = ['^a', 'b$', 'a', '^[a-b]{1,2}$', '1', '^x?$', '(ab|c)+']


def schema(r, depth):
    if depth <= 0 or r.random() < 0.08:
        return r.choice([True, True, False, {}, {'type': 'integer'}, {'type': 'string'}])
    sub = lambda: schema(r, depth - 1)
    subs = lambda n=3: [sub() for _ in range(r.randint(1, n))]
    named = lambda keys: {k: sub() for k in r.sample(keys, r.randint(1, 2))}
    s = {}
    if r.random() < 0.5:
        s['type'] = r.choice(['null', 'boolean', 'integer', 'number', 'string', 'array', 'object',
                              ['integer', 'null'], ['string', 'array'], ['object', 'number']])
    makers = {
        'enum': lambda: r.sample(VALUES, r.randint(1, 5)),
        'const': lambda: r.choice(VALUES),
        'minimum': lambda: r.choice([-1, 0, 0.5, 1, 2.5]),
        'maximum': lambda: r.choice([0, 1, 1.5, 10, 1e19]),
        'exclusiveMinimum': lambda: r.choice([-0.5, 0, 1]),
        'exclusiveMaximum': lambda: r.choice([1, 2, 100]),
        'multipleOf': lambda: r.choice([1, 2, 0.5, 3, 10]),
        'minLength': lambda: r.randint(0, 3), 'maxLength': lambda: r.randint(0, 3),
        'pattern': lambda: r.choice(PATTERNS),
        'minItems': lambda: r.randint(0, 3), 'maxItems': lambda: r.randint(0, 3),
        'items': sub, 'prefixItems': subs, 'contains': sub,
        'properties': lambda: named(KEYS), 'additionalProperties': sub,
        'patternProperties': lambda: named(PATTERNS), 'propertyNames': sub,
        'required': lambda: r.sample(KEYS, r.randint(1, 2)),
        'minProperties': lambda: r.randint(0, 2), 'maxProperties': lambda: r.randint(0, 2),
        'dependentRequired': lambda: {r.choice(KEYS): r.sample(KEYS, 1)},
        'dependentSchemas': lambda: named(KEYS),
        'unevaluatedProperties': sub, 'unevaluatedItems': sub,
        'allOf': subs, 'anyOf': subs, 'oneOf': subs, 'not': sub,
        'if': sub, 'then': sub, 'else': sub,
    }
    for k in r.sample(sorted(makers), r.randint(1, 4)):
        s[k] = makers[k]()
    if 'contains' in s and r.random() < 0.5:
        s['minContains' if r.random() < 0.5 else 'maxContains'] = r.randint(0, 2)
    return s


def closed_objects(r, depth):
    """Alternatives that overlap, so that one has to be negated: of objects with rules for all keys."""
    value = lambda: r.choice([True, {'type': 'integer'}, {'type': 'string'}, {'enum': [1, 'a']}, False])

    def branch():
        s = {'properties': {k: value() for k in r.sample(KEYS, r.randint(1, 3))}}
        rule = r.random()
        if rule < 0.6:
            s['additionalProperties'] = r.choice([False, False, {'type': 'integer'}])
        elif rule < 0.8:
            s['patternProperties'] = {r.choice(PATTERNS): value()}
        if rule > 0.5 and r.random() < 0.5:
            s['propertyNames'] = {'enum': r.sample(KEYS, 2)} if r.random() < 0.5 else {'pattern': 'a'}
        if r.random() < 0.4:
            s['required'] = r.sample(KEYS, 1)
        if r.random() < 0.5:
            s['type'] = 'object'
        return s
    if r.random() < 0.3:
        return {'allOf': [dict(branch(), additionalProperties=False), {'not': branch()}]}
    if r.random() < 0.2:
        return {'if': branch(), 'then': branch(), 'else': dict(branch(), additionalProperties=False)}
    return {'oneOf': [branch() for _ in range(r.randint(2, 3))]}


def old_schema(r, depth):
    """What draft 7 says by other keywords."""
    leaf = lambda: r.choice([True, False, {'type': 'integer'}, {'type': 'string'}, {'minimum': 1},
                             {'type': ['null', 'string']}])
    s = r.choice([
        lambda: {'items': [leaf() for _ in range(r.randint(1, 3))]},
        lambda: {'items': {'type': 'integer'}, 'additionalItems': leaf()},
        lambda: {'items': [leaf(), leaf()], 'additionalItems': leaf(), 'maxItems': r.randint(1, 4)},
        lambda: {'dependencies': {k: r.choice([['a'], ['b', 'x1'], {'required': ['ab']},
                                               {'properties': {'b': leaf()}}])
                                  for k in r.sample(KEYS, r.randint(1, 3))}},
        lambda: {'definitions': {'d': {'$id': '#d', 'items': [leaf()]}}, 'anyOf': [{'$ref': '#d'}]},
    ])()
    if r.random() < 0.2:
        s = {'not': s}
    if r.random() < 0.3:
        s = {'anyOf': [s, leaf()]}
    return {'$schema': 'http://json-schema.org/draft-07/schema#', **s}


def value(r, depth):
    if depth <= 0 or r.random() < 0.6:
        return r.choice(VALUES)
    if r.random() < 0.5:
        return [value(r, depth - 1) for _ in range(r.randint(0, 3))]
    return {k: value(r, depth - 1) for k in r.sample(KEYS, r.randint(0, 3))}


def differential(tmp):
    try:
        import jsonschema
    except ImportError:
        count['skipped'] += 1
        return
    r = random.Random(SEED)
    refused = 0
    for i in range(N_RANDOM):
        s = (old_schema if i % 5 == 0 else closed_objects if i % 5 == 1 else schema)(r, 3)
        oracle = (jsonschema.Draft202012Validator if i % 5 else jsonschema.Draft7Validator)(s)
        values = r.sample(VALUES, 10) + [value(r, 2) for _ in range(10)]
        paths = []
        for k, v in enumerate(values):
            paths.append(os.path.join(tmp, 'v%d' % k))
            with open(paths[-1], 'w') as f:
                json.dump(v, f, ensure_ascii=r.random() < 0.5, indent=r.choice([None, 1]))
        with open(os.path.join(tmp, 'random.json'), 'w') as f:
            json.dump(s, f)
        out = run(os.path.join(tmp, 'random.json'), *paths)
        if out.returncode == 2:
            refused += 1
            continue
        lines = [l for l in out.stdout.splitlines() if l.startswith(os.path.join(tmp, 'v'))]
        wrong = [(v, l) for v, l in zip(values, lines)
                 if oracle.is_valid(v) != l.endswith(': accepted')]
        say(out.returncode in (0, 1) and len(lines) == len(values) and not wrong,
            'seed %d, schema %d: %s: %s %s' % (SEED, i, json.dumps(s), wrong[:2], out.stderr[-200:]))
    print('random schemas: %d of %d enforced, seed %d' % (N_RANDOM - refused, N_RANDOM, SEED))


def main():
    with tempfile.TemporaryDirectory() as tmp:
        manners(tmp)
        suite()
        differential(tmp)
    print('%(passed)d passed, %(failed)d failed, %(skipped)d skipped' % count)
    return count['failed'] > 0


if __name__ == '__main__':
    sys.exit(main())
