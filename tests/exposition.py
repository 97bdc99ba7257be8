"""Reads Prometheus' text format 0.0.4 as strictly as its own parser and linter do.

parse(text) -> {family: (type, help, {(sample name, labels): value})}; raises ValueError, with the line."""
import re

NAME = r'[a-zA-Z_:][a-zA-Z0-9_:]*'
LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*'
SAMPLE = re.compile(r'(%s)(?:\{((?:%s="(?:[^"\\\n]|\\["\\n])*")(?:,%s="(?:[^"\\\n]|\\["\\n])*")*)\})? (\S+)'
                    % (NAME, LABEL, LABEL))
PAIR = re.compile(r'(%s)="((?:[^"\\]|\\.)*)"' % LABEL)
NUMBER = re.compile(r'[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?|[+-]Inf|NaN')
TYPES = ('counter', 'gauge', 'histogram', 'summary', 'untyped')
ENDS = {'histogram': ('_bucket', '_sum', '_count'), 'summary': ('', '_sum', '_count')}


def number(text):
    if not NUMBER.fullmatch(text):
        raise ValueError('no number: ' + text)
    return float(text.replace('Inf', 'inf'))


def check_histogram(name, samples):
    series = {}
    for (sample, labels), value in samples.items():
        rest = tuple(p for p in labels if p[0] != 'le')
        s = series.setdefault(rest, {'buckets': [], '_sum': None, '_count': None})
        if sample.endswith('_bucket'):
            bounds = [v for k, v in labels if k == 'le']
            if len(bounds) != 1:
                raise ValueError('%s: a bucket without le' % name)
            s['buckets'].append((number(bounds[0]), value))
        else:
            s[sample[len(name):]] = value
    for rest, s in series.items():
        bounds = [b for b, _ in s['buckets']]
        counts = [c for _, c in s['buckets']]
        if bounds != sorted(set(bounds)) or not bounds or bounds[-1] != float('inf'):
            raise ValueError('%s%r: bounds do not ascend to +Inf' % (name, rest))
        if counts != sorted(counts) or s['_count'] != counts[-1] or s['_sum'] is None:
            raise ValueError('%s%r: counts do not add up' % (name, rest))


def parse(text):
    families, current = {}, None
    if not text.endswith('\n'):
        raise ValueError('the last line does not end')
    for at, line in enumerate(text[:-1].split('\n'), 1):
        try:
            if line.startswith('# HELP '):
                name, help_ = line[7:].split(' ', 1)
                if not re.fullmatch(NAME, name) or name in families:
                    raise ValueError('a bad or second family ' + name)
                current = name
                families[name] = [None, help_, {}]
            elif line.startswith('# TYPE '):
                name, kind = line[7:].split(' ')
                if name != current or families[name][0] or families[name][2] or kind not in TYPES:
                    raise ValueError('a TYPE out of place')
                families[name][0] = kind
            elif not line or line.startswith('#'):
                raise ValueError('an empty line or another comment')
            else:
                m = SAMPLE.fullmatch(line)
                if not m:
                    raise ValueError('no sample')
                kind, _, samples = families[current]
                if m[1] not in [current + e for e in ENDS.get(kind, ('',))]:
                    raise ValueError('a sample of another family')
                labels = tuple(PAIR.findall(m[2] or ''))
                if len(dict(labels)) != len(labels) or (m[1], labels) in samples:
                    raise ValueError('a label or a sample is there twice')
                samples[m[1], labels] = number(m[3])
                if kind == 'counter' and (not current.endswith('_total') or samples[m[1], labels] < 0):
                    raise ValueError('a counter that is negative or not called _total')
        except (ValueError, KeyError, IndexError) as e:
            raise ValueError('line %d: %s: %s' % (at, e, line)) from None
    for name, (kind, help_, samples) in families.items():
        if not kind or not help_ or not samples:
            raise ValueError('%s has no type, no help or no sample' % name)
        if kind == 'histogram':
            check_histogram(name, samples)
    return families
