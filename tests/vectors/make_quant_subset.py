#!/usr/bin/env python3
"""Copies a few rows per type out of the full reference set into tests/vectors/quant.

    python3 tests/vectors/make_quant_subset.py SHARED/ref/quant/ggml tests/vectors/quant

Per type T: T.bin = blocks of 4 rows quantised by ggml (with an importance matrix where the type
needs one) and 4 rows of random bytes; T.f32 = the 256 float32 numbers of each row.
source.f32 = rows 8..39 of what was quantised, weights.f32 = the importance of its columns.
"""
import os
import sys

import numpy as np

src, dst = sys.argv[1:]
types = sorted({f.split(".")[0].removesuffix("_im") for f in os.listdir(src) if f.endswith(".bin")})
for t in types:
    blocks, numbers = [], []
    name = t if os.path.exists(f"{src}/{t}.bin") else t + "_im"
    for part, rows in ((name, (2, 4, 9, 40)), (t + ".rand", (0, 5, 13, 31))):
        if not os.path.exists(f"{src}/{part}.bin"):
            continue
        deq = np.load(f"{src}/{part}.deq.npy")
        raw = np.fromfile(f"{src}/{part}.bin", dtype=np.uint8).reshape(deq.shape[0], -1)
        blocks.append(raw[list(rows)])
        numbers.append(deq[list(rows)].astype("<f4"))
    np.concatenate(blocks).tofile(f"{dst}/{t}.bin")
    np.concatenate(numbers).tofile(f"{dst}/{t}.f32")
np.load(f"{src}/source.npy")[8:40].astype("<f4").tofile(f"{dst}/source.f32")
np.load(f"{src}/imatrix.npy").astype("<f4").tofile(f"{dst}/weights.f32")
