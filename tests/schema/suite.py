#!/usr/bin/env python3
"""Runs `lode schema` over the official JSON-Schema-Test-Suite: suite.py LODE DIRECTORY [-v] [-o]

DIRECTORY holds the suite's files for one draft (tests/draft2020-12).  A schema is either refused
(counted), or every instance gets the verdict that the suite says; anything else is a failure.
The schemas of older drafts (tests/draft7, ...) are told to be such, as users' are, by $schema.
"""
import json
import os
import subprocess
import sys
import tempfile


DIALECTS = {'draft4': 'http://json-schema.org/draft-04/schema#',
            'draft6': 'http://json-schema.org/draft-06/schema#',
            'draft7': 'http://json-schema.org/draft-07/schema#'}


def main():
    lode, root = sys.argv[1], sys.argv[2]
    verbose = '-v' in sys.argv
    n = {'enforced': 0, 'refused': 0, 'wrong': 0, 'instances': 0}
    reasons = {}
    dialect = DIALECTS.get(os.path.basename(os.path.normpath(root)))
    files = sorted(f for f in os.listdir(root) if f.endswith('.json'))
    with tempfile.TemporaryDirectory() as tmp:
        for f in files:
            count = [0, 0, 0]
            for group in json.load(open(os.path.join(root, f), encoding='utf-8')):
                schema = os.path.join(tmp, 'schema.json')
                if dialect and isinstance(group['schema'], dict):
                    group['schema'] = {'$schema': dialect, **group['schema']}
                json.dump(group['schema'], open(schema, 'w'))
                paths = []
                for i, t in enumerate(group['tests']):
                    paths.append(os.path.join(tmp, 'i%d.json' % i))
                    json.dump(t['data'], open(paths[-1], 'w'))
                r = subprocess.run([lode, 'schema', schema] + paths, capture_output=True,
                                   text=True, timeout=60)
                if r.returncode == 2:
                    count[1] += 1
                    why = r.stderr.strip()
                    if verbose:
                        print('%s: %s: %s' % (f, group['description'], why))
                    reasons[why.split(': ')[-1][:60]] = reasons.get(why.split(': ')[-1][:60], 0) + 1
                    continue
                verdicts = {}
                for line in r.stdout.splitlines():
                    path, _, rest = line.partition(': ')
                    verdicts[path] = rest.startswith('accepted')
                bad = [t['description'] for t, p in zip(group['tests'], paths)
                       if verdicts.get(p) != t['valid']]
                n['instances'] += len(paths)
                if bad or r.returncode not in (0, 1):
                    count[2] += 1
                    print('WRONG %s: %s: %s (exit %d) %s' % (f, group['description'], bad,
                                                             r.returncode, r.stderr[:300]))
                else:
                    count[0] += 1
            n['enforced'] += count[0]
            n['refused'] += count[1]
            n['wrong'] += count[2]
            if verbose:
                print('%-28s %3d enforced %3d refused %3d wrong' % (f, *count))
    print('%(enforced)d schemas enforced (%(instances)d instances), %(refused)d refused, '
          '%(wrong)d wrong' % n)
    return n['wrong'] > 0


if __name__ == '__main__':
    sys.exit(main())
