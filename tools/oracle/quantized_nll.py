"""The loss of a program's weights as transformers computes it: the figure that tests/engine/loss_test.cpp holds us to.

usage: switchyard inspect models/demo.swy --dequantize weights.safetensors
       quantized_nll.py CHECKPOINT_FOLDER weights.safetensors TEXT [WINDOWS]

Mean negative log-likelihood over windows of 512 tokens, fp32. Needs: pip install torch transformers safetensors.
"""
import json
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import AutoConfig, Qwen3_5MoeForCausalLM


def main():
    folder, weights, text = sys.argv[1:4]
    windows = int(sys.argv[4]) if len(sys.argv) > 4 else 16
    model = Qwen3_5MoeForCausalLM(AutoConfig.from_pretrained(folder)).float().eval()
    wanted = model.state_dict()
    given = load_file(weights)
    missing = set(wanted) ^ set(given)
    assert not missing, missing
    model.load_state_dict({name: tensor.reshape(wanted[name].shape) for name, tensor in given.items()})
    ids = Tokenizer.from_file(folder + "/tokenizer.json").encode(open(text, encoding="utf-8", newline="").read()).ids
    total = count = 0
    with torch.no_grad():
        for w in range(windows):
            x = torch.tensor(ids[w * 512:(w + 1) * 512])[None]
            logits = model(input_ids=x, use_cache=False).logits.float()
            total += F.cross_entropy(logits[0, :-1], x[0, 1:], reduction="sum").item()
            count += 511
    print(json.dumps({"nll": total / count, "tokens": count, "windows": windows}))


if __name__ == "__main__":
    main()
