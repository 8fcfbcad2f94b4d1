# SPDX-License-Identifier: Apache-2.0
"""The recorded logits of small checkpoints beside those of the NumPy oracles.

usage: check_families.py FOLDER ...
FOLDER: as of tests/data/tiny/families, with expected.json and logits.f32. For each of the lengths that were recorded,
prints the largest difference of any logit from the record, as a share of the largest logit. Exit code 1 where it is
more than fp32, in which the record is, can hold.
"""
import json
import sys
from pathlib import Path

import numpy as np

import gpt_oss_numpy
import qwen35_numpy

MOST = 1e-7


def logits(folder, ids):
    if json.loads((folder / "config.json").read_text())["model_type"] == "gpt_oss":
        return gpt_oss_numpy.Model(folder).logits(ids)
    return qwen35_numpy.Model(folder).logits(ids)[0]


def main():
    worst = 0
    for folder in map(Path, sys.argv[1:]):
        expected = json.loads((folder / "expected.json").read_text())
        record = np.fromfile(folder / "logits.f32", "<f4").reshape(-1, expected["vocab"]).astype(np.float64)
        shares = []
        for length in expected["lengths"]:
            want = record[:length]
            shares.append(np.abs(logits(folder, expected["ids"][:length]) - want).max() / np.abs(want).max())
        print(folder.name, *(f"{length}: {share:.1e}" for length, share in zip(expected["lengths"], shares)))
        worst = max(worst, *shares)
    sys.exit(not worst <= MOST)


if __name__ == "__main__":
    main()
