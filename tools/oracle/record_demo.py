# SPDX-License-Identifier: Apache-2.0
"""Makes tests/data/demo: what transformers and NumPy compute from the demo checkpoint in bf16.

usage: record_demo.py CHECKPOINT TEXT --out tests/data/demo
CHECKPOINT is the demo model's Hugging Face folder with its reference.json (tools/train_demo.py), TEXT the whole
held-out text. Written: val16.txt, an excerpt of whole words that yields the text's first 8,192 ids and some more, and
expected.json: the prompts of reference.json with figures in float64, and the loss over the excerpt's 16 windows. An
existing "program" entry of expected.json (see record_program.py) is kept.
"""
import argparse
import json
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer

import fixture_json
import nll
import qwen35_numpy
import transformers_model

WINDOWS = 16
SPARE = 100  # tokens kept beyond the windows, so that no reader's last window is a partial one
AGREEMENT = 1e-9  # of float64 computations, in logits
NEAR_REFERENCE = 2e-3  # reference.json was computed on a GPU


def excerpt(tokenizer, text):
    """The text up to a space some tokens past the last window; its first ids are those of the whole text."""
    whole = tokenizer.encode(text, add_special_tokens=False)
    need = WINDOWS * nll.WINDOW
    cut = text.index(" ", whole.offsets[need + SPARE][0])
    part = text[:cut]
    if tokenizer.encode(part, add_special_tokens=False).ids[: need + 1] != whole.ids[: need + 1]:
        raise SystemExit("the excerpt does not tokenize like the beginning of the whole text")
    return part, whole.ids[: need + 1]


def check_prompt(prompt, exact, fp32, numpy_model):
    """The prompt's entry for expected.json: figures in float64, checked against each other and the recorded ones."""
    ids = prompt["ids"]
    with transformers_model.double_precision():
        logits = transformers_model.prefill_logits(exact, ids).numpy()
        greedy = transformers_model.greedy_ids(exact, ids, len(prompt["greedy_ids"]))
    differs = lambda other: float(np.abs(logits - np.asarray(other)).max())
    from_numpy = differs(numpy_model.logits(ids)[0])
    numpy_greedy, gap = numpy_model.greedy(ids, len(greedy))
    from_reference = float(np.abs(logits[-1][prompt["last_top8_ids"]] - prompt["last_top8_logits"]).max())
    same_tokens = greedy == numpy_greedy == prompt["greedy_ids"]
    if not same_tokens or from_numpy > AGREEMENT or from_reference > NEAR_REFERENCE:
        found = f"{same_tokens=}, {from_numpy=}, {from_reference=}"
        raise SystemExit(f"{prompt['text']!r}: the computations disagree: {found}")
    from_fp32 = differs(transformers_model.prefill_logits(fp32, ids))
    print(f"{prompt['text']!r}: float64 vs NumPy {from_numpy:.1e}, vs fp32 {from_fp32:.1e}, vs reference.json "
          f"{from_reference:.1e}, closest greedy decision {gap:.1e}")
    top = np.argsort(-logits[-1], kind="stable")[:8]
    rounded = lambda values: [round(float(v), 6) for v in values]
    return {"text": prompt["text"], "ids": ids, "last_top8_ids": top.tolist(),
            "last_top8_logits": rounded(logits[-1][top]), "logits_norm": rounded(np.linalg.norm(logits, axis=1)),
            "greedy_ids": greedy, "greedy_text": prompt["greedy_text"], "min_greedy_gap": round(gap, 6)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("text", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    tokenizer = Tokenizer.from_file(str(args.checkpoint / "tokenizer.json"))
    with open(args.text, encoding="utf8", newline="") as f:
        part, ids = excerpt(tokenizer, f.read())
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "val16.txt").write_bytes(part.encode())

    fp32, exact = (transformers_model.load(args.checkpoint, dtype) for dtype in (torch.float32, torch.float64))
    numpy_model = qwen35_numpy.Model(args.checkpoint)
    reference = json.loads((args.checkpoint / "reference.json").read_text())
    prompts = [check_prompt(prompt, exact, fp32, numpy_model) for prompt in reference["prompts"]]

    loss, by_window = nll.transformers_nll(fp32, ids, WINDOWS)
    with transformers_model.double_precision():
        exact_loss, _ = nll.transformers_nll(exact, ids, WINDOWS)
    numpy_loss, _ = nll.mean_nll(lambda window: numpy_model.logits(window)[0], ids, WINDOWS)
    print(f"bf16 loss of {WINDOWS} windows: fp32 {loss:.9f}, float64 {exact_loss:.9f}, NumPy {numpy_loss:.9f}")
    if abs(exact_loss - numpy_loss) > AGREEMENT:
        raise SystemExit("transformers and NumPy disagree on the loss")

    path = args.out / "expected.json"
    expected = json.loads(path.read_text()) if path.exists() else {}
    expected |= {
        "prompts": prompts,
        "val16": {"text": "val16.txt", "window": nll.WINDOW, "windows": WINDOWS, "bf16_nll": round(exact_loss, 9),
                  "bf16_nll_fp32": round(loss, 9), "bf16_nll_by_window": [round(x, 6) for x in by_window]},
        "val_whole": {"tokens": reference["val_tokens"], "bf16_nll": reference["val_nll_512"]},
    }
    path.write_text(fixture_json.dumps(expected))


if __name__ == "__main__":
    main()
