# SPDX-License-Identifier: Apache-2.0
"""What transformers computes with the weights of a program file: the figures that tests/engine/demo_test.cpp and
loss_test.cpp hold demo.swy to.

usage: record_program.py PROGRAM TEXT [--windows 16] [--exported FILE] [--record tests/data/demo/expected.json]

Prints the mean negative log-likelihood in nats over windows of 512 tokens; with --record, enters it into that file,
together with logits and greedy ids of the prompts that stand there. The weights are dequantised here, by a reader of
the program file that shares no code with Switchyard; the configuration and the tokenizer are those inside the program.
--exported also compares the safetensors that `switchyard inspect PROGRAM --dequantize FILE` wrote, value for value.
"""
import argparse
import json
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer

import fixture_json
import nll
import program_file
import safetensors_file
import transformers_model


def compare_export(ours, path):
    theirs = safetensors_file.read(path)
    if ours.keys() != theirs.keys():
        raise SystemExit(f"{path}: other tensors than the program's: {sorted(ours.keys() ^ theirs.keys())}")
    worst = max(float(np.abs(w.reshape(-1) - theirs[name][0].reshape(-1)).max()) for name, w in ours.items())
    print(f"exported weights differ by at most {worst:.2g}")


def prompt_figures(exact, fp32, tokenizer, prompt):
    """One prompt's entry for expected.json, in float64; the decisions are those of fp32 too."""
    text, count = prompt["text"], len(prompt["greedy_ids"])
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    if ids != prompt["ids"]:
        raise SystemExit(f"{text!r}: the program's tokenizer gives other ids than the recorded ones")
    with transformers_model.double_precision():
        logits = transformers_model.prefill_logits(exact, ids).numpy()
        greedy = transformers_model.greedy_ids(exact, ids, count)
        rows = transformers_model.prefill_logits(exact, ids + greedy[:-1]).numpy()[len(ids) - 1 :]
    second, first = np.partition(rows, -2)[:, -2:].T
    gap = float((first - second).min())
    if greedy != transformers_model.greedy_ids(fp32, ids, count):
        raise SystemExit(f"{text!r}: fp32 and float64 decode differently (closest decision {gap:.1e})")
    top = np.argsort(-logits[-1], kind="stable")[:8]
    rounded = lambda values: [round(float(v), 6) for v in values]
    return {"text": text, "ids": ids, "last_top8_ids": top.tolist(), "last_top8_logits": rounded(logits[-1][top]),
            "logits_norm": rounded(np.linalg.norm(logits, axis=1)), "greedy_ids": greedy,
            "greedy_text": tokenizer.decode(greedy), "min_greedy_gap": round(gap, 6)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=Path)
    parser.add_argument("text", type=Path)
    parser.add_argument("--windows", type=int, default=16)
    parser.add_argument("--exported", type=Path)
    parser.add_argument("--record", type=Path, help="expected.json to enter the figures into")
    args = parser.parse_args()
    program = program_file.Program(args.program)
    weights = program.tensors()
    if args.exported:
        compare_export(weights, args.exported)
    tokenizer = Tokenizer.from_str(program.tokenizer)
    ids = tokenizer.encode(args.text.read_bytes().decode(), add_special_tokens=False).ids
    config = json.loads(program.config)
    fp32 = transformers_model.build(config, weights)
    exact = transformers_model.build(config, weights, torch.float64)
    loss, _ = nll.transformers_nll(fp32, ids, args.windows)
    with transformers_model.double_precision():
        exact_loss, by_window = nll.transformers_nll(exact, ids, args.windows)
    print(f"{args.program}: {exact_loss:.9f} nats over {len(by_window)} windows in float64, {loss:.9f} in fp32")
    if args.record:
        expected = json.loads(args.record.read_text())
        prompts = [prompt_figures(exact, fp32, tokenizer, prompt) for prompt in expected["prompts"]]
        expected["program"] = {"name": args.program.name, "windows": len(by_window), "nll": round(exact_loss, 9),
                               "nll_fp32": round(loss, 9), "nll_by_window": [round(x, 6) for x in by_window],
                               "prompts": prompts}
        args.record.write_text(fixture_json.dumps(expected))


if __name__ == "__main__":
    main()
