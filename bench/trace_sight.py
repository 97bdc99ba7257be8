#!/usr/bin/env python3
"""How far the default cache policy could be from Belady's optimum if it saw a little of the future.

    lode trace record MODEL -f TEXT -o a.trace
    bench/trace_sight.py a.trace [TOKENS]

Replays a trace (docs/bigger-than-memory.md has the format) with src/store/policy_next.c's rule as it is; the
same with the true choices of the token's layers to come known, as perfect guesses by their routers would give them
(the next token's are nobody's to know before it is drawn); of the next layer, whichever token's, of the next two, of
as many as the model has; and Belady's rule. Prints hits, and the share of Belady's. Needs numpy."""
import struct
import sys

import numpy as np

KEEP = np.exp2(-1 / np.array([0.5, 2, 8, 32, 128, 512]))
REST = -1  # of this token


def load(path):
    """-> experts (tokens, layers, used), experts a layer."""
    with open(path, 'rb') as f:
        data = f.read()
    n_layers, n_experts, n_used, name = struct.unpack_from('<4I', data, 8)
    version = data[7] - ord('0')
    first = 32 if version == 1 else 40
    sizes = struct.unpack_from('<%dQ' % n_layers, data, first)
    guessed = data[first + 8 * n_layers:first + 9 * n_layers] if first == 40 else bytes(n_layers)
    at = first + (9 if first == 40 else 8) * n_layers + name + (8 if version >= 3 else 0)
    layers = [i for i in range(n_layers) if sizes[i]]
    row = np.dtype([('pos', '<u4')] + [
        ('l%d' % i, [('expert', '<u2', n_used), ('weight', '<f4', n_used),
                     ('guesses', '<u2', (guessed[i].bit_count(), n_used))]) for i in layers])
    tokens = np.frombuffer(data, row, (len(data) - at) // row.itemsize, at)  # a checksum may follow
    return np.stack([tokens['l%d' % i]['expert'] for i in layers], axis=1).astype(int), n_experts


class Next:
    """policy_next.c: worth by chances (chance.c) from six averages and the mean, whose weights are learned."""

    def __init__(self, layers, n_experts, sight):
        self.layers, self.sight = layers, sight
        self.weight = np.append(np.full(6, 1 / 6), 0)
        self.average = np.zeros((layers, n_experts, 6))
        self.products, self.uses = np.zeros((7, 7)), np.zeros(7)
        self.worth = np.ones((layers, n_experts))  # when its layer comes next
        self.passed = np.ones((layers, n_experts))  # if it comes without a use
        self.visits = np.zeros(layers)

    def wait(self, used, visit):
        m = visit % self.layers
        ahead = (np.arange(self.layers) - m - 1) % self.layers + 1
        worth = self.worth.copy()
        worth[m] = self.passed[m]  # but for those that are used, which stay
        for d in range(1, (self.layers - m - 1 if self.sight == REST else self.sight) + 1):
            if visit + d < len(used):
                row = (m + d) % self.layers  # known: used then, or not before a round later
                worth[row] = np.where(used[visit + d], 1, self.passed[row] / 2)
        return -worth * np.exp2(-ahead / self.layers)[:, None] + 2

    def learn(self, used, visit):
        m, experts = visit % self.layers, used.shape[1]
        y = used[visit].astype(float)
        mean = y.mean()
        x = np.column_stack([self.average[m], np.full(experts, mean)])
        fades = 1 - 1 / (200 * self.layers)
        self.products = fades * self.products + x.T @ x
        self.uses = fades * self.uses + y @ x
        prior = 1 + 1e-9 * np.trace(self.products)
        self.weight = np.linalg.solve(self.products + prior * np.eye(7),
                                      self.uses + prior * np.append(np.full(6, 1 / 6), 0))
        self.visits[m] += 1
        keep = np.minimum(KEEP, 1 - 1 / self.visits[m])
        a = self.average[m]
        a *= keep
        a += np.outer(y, 1 - keep)
        c = [np.clip(a @ (self.weight[:6] * KEEP ** h) + self.weight[6] * mean, 1e-5, 1) for h in range(4)]
        self.worth[m], self.passed[m] = worth(*c[:3]), worth(*c[1:])


def worth(first, second, then):
    """The mean of 2^-t, t rounds until it is used."""
    away = (1 - first) / 2
    return first + away * second + away * (1 - second) / 2 * then / (0.5 + 0.5 * then)


class Belady:
    def __init__(self, used, layers):
        self.layers = layers
        after = np.full(used.shape, 1 << 30)  # the visit of the next use, from each visit on
        for v in range(len(used) - layers - 1, -1, -1):
            after[v] = np.where(used[v + layers], v + layers, after[v + layers])
        self.after = after

    def wait(self, used, visit):
        rows = [visit - (visit - m) % self.layers for m in range(self.layers)]  # each layer's latest visit
        return np.array([self.after[r] if r >= 0 else np.zeros(used.shape[1]) for r in rows], float)

    def learn(self, used, visit):
        pass


def hits(trace, n_experts, share, policy):
    n, layers, n_used = trace.shape
    used = np.zeros((n * layers, n_experts), bool)
    np.put_along_axis(used, trace.reshape(n * layers, n_used), True, 1)
    p = Belady(used, layers) if policy == 'belady' else Next(layers, n_experts, policy)
    held, found, room = np.zeros((layers, n_experts), bool), 0, int(share * layers * n_experts)
    for visit in range(n * layers):
        m, want = visit % layers, used[visit]
        found += (held[m] & want).sum()
        for e in np.flatnonzero(want & ~held[m]):
            if room == 0:
                wait = np.where(held, p.wait(used, visit), -1)
                wait[m, want] = -1
                held[np.unravel_index(np.argmax(wait), wait.shape)] = False
                room += 1
            held[m, e] = True
            room -= 1
        p.learn(used, visit)
    return found / trace.size


def main():
    trace, n_experts = load(sys.argv[1])
    trace = trace[:int(sys.argv[2]) if len(sys.argv) > 2 else None]
    layers = trace.shape[1]
    print('%d tokens, %d layers, %d of %d experts' % (len(trace), layers, trace.shape[2], n_experts))
    for share in 0.25, 0.5, 0.75:
        best = hits(trace, n_experts, share, 'belady')
        row = ['%s known: %.4f (%.3f)' % ('its layers to come' if s == REST else '%d layers' % s, h, h / best)
               for s in [0, REST] + sorted({1, 2, layers}) for h in [hits(trace, n_experts, share, s)]]
        print('%2.0f %%: Belady %.4f; %s' % (100 * share, best, '; '.join(row)), flush=True)


main()
