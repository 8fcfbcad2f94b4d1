"""The loss of a program's weights as transformers computes it: the figure that tests/engine/loss_test.cpp holds us to.

usage: quantized_nll.py PROGRAM TEXT [--windows 16] [--exported FILE] [--record tests/data/demo/expected.json]

Mean negative log-likelihood in nats over windows of 512 tokens. The weights are dequantised here, by a reader of the
program file that shares no code with Switchyard; the configuration and the tokenizer are those inside the program.
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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=Path)
    parser.add_argument("text", type=Path)
    parser.add_argument("--windows", type=int, default=16)
    parser.add_argument("--exported", type=Path)
    parser.add_argument("--record", type=Path, help="expected.json to enter the figure into")
    args = parser.parse_args()
    program = program_file.Program(args.program)
    weights = program.tensors()
    if args.exported:
        compare_export(weights, args.exported)
    ids = Tokenizer.from_str(program.tokenizer).encode(args.text.read_bytes().decode(), add_special_tokens=False).ids
    config = json.loads(program.config)
    loss, _ = nll.transformers_nll(transformers_model.build(config, weights), ids, args.windows)
    exact_model = transformers_model.build(config, weights, torch.float64)
    with transformers_model.double_precision():
        exact, by_window = nll.transformers_nll(exact_model, ids, args.windows)
    print(f"{args.program}: {exact:.9f} nats over {len(by_window)} windows in float64, {loss:.9f} in fp32")
    if args.record:
        expected = json.loads(args.record.read_text())
        expected["quantized"] = {"program": args.program.name, "windows": len(by_window), "nll": round(exact, 9),
                                 "nll_fp32": round(loss, 9), "nll_by_window": [round(x, 6) for x in by_window]}
        args.record.write_text(fixture_json.dumps(expected))


if __name__ == "__main__":
    main()
