#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""lm-eval asks a server which of four continuations of a text is the likeliest; what it adds up is compared, choice by
choice, with the log-probabilities that NumPy computes from the model's weights (tools/oracle).

    python3 -m venv /tmp/eval && /tmp/eval/bin/pip install 'lm-eval[api]' transformers numpy
    /tmp/eval/bin/python tests/server/likelihood.py SWITCHYARD [--items N] [--within NATS] [SERVE OPTIONS...]

With `--exact` the server computes what NumPy does; without, with 8-bit activations, which --within has to allow for.
The text is the held-out one of the demo model. One continuation is the text's own; the others are pieces of the same
number of tokens from elsewhere in it. Prompts go as token ids, as lm-eval sends them by itself, and then as texts.
"""
import argparse
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
from lm_eval import simple_evaluate
from lm_eval.models.openai_completions import LocalCompletionsAPI
from lm_eval.tasks import TaskManager
from tokenizers import Tokenizer

from serving import Server, check, post

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/oracle"))
import program_file  # noqa: E402
import qwen35_numpy  # noqa: E402
import safetensors_file  # noqa: E402

TASK = """task: likelihood
dataset_path: json
dataset_kwargs: {{data_files: {{test: {folder}/items.jsonl}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{prompt}}}}"
target_delimiter: ""
doc_to_choice: "{{{{choices}}}}"
doc_to_target: right
metric_list: [{{metric: acc, aggregation: mean, higher_is_better: true}}]
metadata: {{version: 1}}
"""


def make_items(tokenizer, count, prompt=40, answer=8):
    """Prompts of the held-out text whose continuations begin with a blank, so that tokens do not join across."""
    ids = tokenizer.encode((ROOT / "tests/data/demo/val16.txt").read_text(), add_special_tokens=False).ids
    pieces = [i for i in range(prompt, len(ids) - answer) if tokenizer.decode(ids[i:i + answer]).startswith(" ")]
    step = len(pieces) // count
    items = []
    for n in range(count):
        starts = [pieces[(n * step + k * len(pieces) // 4) % len(pieces)] for k in range(4)]
        choices = [tokenizer.decode(ids[at:at + answer]) for at in starts]
        right = n % 4
        choices[0], choices[right] = choices[right], choices[0]
        before = tokenizer.decode(ids[starts[0] - prompt:starts[0]])
        items.append({"prompt": before, "choices": choices, "right": right})
    return items


def write_folder(folder, program, items):
    """lm-eval's task and tokenizer, and the weights as NumPy's model wants them."""
    (folder / "items.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items))
    (folder / "likelihood.yaml").write_text(TASK.format(folder=folder))
    (folder / "tokenizer.json").write_text(program.tokenizer)
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    (folder / "config.json").write_text(program.config)
    tensors = {name: value[:, None] if name.endswith("conv1d.weight") else value  # which a program has flat
               for name, value in program.tensors().items()}
    safetensors_file.write(folder / "model.safetensors", {name: (value, "F32") for name, value in tensors.items()})


class Expected:
    """NumPy's log-probabilities of a continuation's tokens, and whether each is the most likely one."""

    def __init__(self, folder, tokenizer):
        self.model, self.tokenizer = qwen35_numpy.Model(folder), tokenizer

    def of(self, prompt, choice):
        def encode(text):
            return self.tokenizer.encode(text, add_special_tokens=False).ids
        ids, first = encode(prompt + choice), len(encode(prompt))
        rows = self.model.logits(ids[:-1])[0][first - 1:]
        rows = rows - np.logaddexp.reduce(rows, axis=1, keepdims=True)
        values = rows[np.arange(len(rows)), ids[first:]]
        return values, bool((values == rows.max(axis=1)).all())


def compare(samples, expected, within):
    worst, largest_sum, greedies = 0.0, 0.0, 0
    for sample in samples:
        for (prompt, choice), (got, greedy) in zip(sample["arguments"], sample["filtered_resps"]):
            values, most_likely = expected.of(prompt, choice)
            worst = max(worst, abs(float(got) - values.sum()))
            largest_sum = max(largest_sum, abs(values.sum()))
            greedies += bool(greedy) == most_likely
    check(worst < 8 * within, f"the largest difference of {4 * len(samples)} log-likelihoods is {worst:.6f}; they go "
                              f"up to {largest_sum:.1f}")
    check(greedies == 4 * len(samples), f"whether a text is the most likely one: {greedies} times the same")


def check_protocol(port, tokenizer, expected, item, within):
    """One reply as OpenAI's protocol has it: the first token has no value, offsets are characters of the text."""
    text = item["prompt"] + item["choices"][item["right"]]
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    reply = post(port, "/v1/completions", {"prompt": text, "max_tokens": 0, "echo": True, "logprobs": 2})[1]
    lists = reply["choices"][0]["logprobs"]
    check(reply["choices"][0]["text"] == text and len(lists["tokens"]) == len(ids), f"{len(ids)} tokens, and the text")
    check(lists["token_logprobs"][0] is None and lists["top_logprobs"][0] is None, "the first token has no value")
    check(all(text[at:at + len(t)] == t for at, t in zip(lists["text_offset"], lists["tokens"])), "offsets")
    rows = expected.model.logits(ids[:-1])[0]
    values = (rows - np.logaddexp.reduce(rows, axis=1, keepdims=True))[np.arange(len(rows)), ids[1:]]
    worst = max(abs(a - b) for a, b in zip(values, lists["token_logprobs"][1:]))
    check(worst < within, f"the largest difference of a token's log-probability is {worst:.6f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--items", type=int, default=16)
    parser.add_argument("--within", type=float, default=1e-4, help="nats a token")
    o, flags = parser.parse_known_args()
    model = program_file.Program(ROOT / "models/demo.swy")
    tokenizer = Tokenizer.from_str(model.tokenizer)
    items = make_items(tokenizer, o.items)
    server = Server(o.program, "-m", str(ROOT / "models/demo.swy"), "--model-name", "demo", "--threads", "1", *flags)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_folder(folder, model, items)
        expected = Expected(folder, tokenizer)
        check_protocol(server.port, tokenizer, expected, items[0], o.within)
        for as_ids in (True, False):
            client = LocalCompletionsAPI(base_url=f"http://127.0.0.1:{server.port}/v1/completions", model="demo",
                                         tokenizer_backend="huggingface", tokenizer=name, tokenized_requests=as_ids,
                                         num_concurrent=4)
            made = simple_evaluate(model=client, tasks=["likelihood"], log_samples=True,
                                   task_manager=TaskManager(include_path=name))
            compare(made["samples"]["likelihood"], expected, o.within)
            accuracy = made["results"]["likelihood"]["acc,none"]
            check(accuracy >= 0.5, f"lm-eval, prompts as {'ids' if as_ids else 'texts'}: right {accuracy:.3f} of the "
                                   "time, by chance 0.25")
    check(server.stop() == 0, "the server ends well")


if __name__ == "__main__":
    main()
