# SPDX-License-Identifier: Apache-2.0
"""Compares a build's `reference` backend with the recorded prompts of the demo model: ids, logits and 64 greedy ids.

usage: check_prompts.py SWITCHYARD PROGRAM tests/data/demo/expected.json

A program of bf16 weights (`switchyard convert CHECKPOINT -o demo-bf16.swy --quant bf16`) is compared with the figures of
the checkpoint; any other is taken for demo.swy, whose figures are those of its dequantised weights. Exits with 1 when
ids differ or a top-8 logit is off by 1e-3.
"""
import argparse
import json
import subprocess
import tempfile
from pathlib import Path

import numpy as np

TOLERANCE = 1e-3


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("switchyard", type=Path)
    parser.add_argument("program", type=Path)
    parser.add_argument("expected", type=Path)
    args = parser.parse_args()
    call = lambda *words: subprocess.run([args.switchyard, *words], check=True, capture_output=True).stdout
    bf16 = json.loads(call("inspect", args.program, "--json"))["quantization"] == "bf16"
    expected = json.loads(args.expected.read_text())
    failed = False
    for prompt in expected["prompts"] if bf16 else expected["program"]["prompts"]:
        count = len(prompt["greedy_ids"])
        ran = json.loads(call("run", "-m", args.program, "--backend", "reference", "--temp", "0", "-n", str(count), "--json", prompt["text"]))
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "logits.npy"
            call("logits", args.program, "--backend", "reference", "--ids", " ".join(map(str, prompt["ids"])), "--out", out)
            logits = np.load(out)
        top = np.argsort(-logits[-1], kind="stable")[:8]
        same_ids, same_greedy = ran["prompt_ids"] == prompt["ids"], ran["ids"] == prompt["greedy_ids"]
        same_top = top.tolist() == prompt["last_top8_ids"]
        worst = float(np.abs(logits[-1][prompt["last_top8_ids"]] - prompt["last_top8_logits"]).max())
        norm = float(np.abs(np.linalg.norm(logits.astype(np.float64), axis=1) - prompt["logits_norm"]).max())
        print(f"{prompt['text'][:30]!r} ids equal: {same_ids} top-8 ids equal: {same_top} worst top-8 logit difference: "
              f"{worst:.2e} worst norm difference: {norm:.1e} {count} greedy ids equal: {same_greedy}")
        failed |= not (same_ids and same_greedy and same_top and worst < TOLERANCE)
    raise SystemExit(int(failed))


if __name__ == "__main__":
    main()
