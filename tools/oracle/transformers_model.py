# SPDX-License-Identifier: Apache-2.0
"""Loads a Qwen3.5-MoE checkpoint into transformers on the CPU, in fp32 or in true double precision.

`model.double()` alone is not double: the model casts to fp32 inside its norms, router, rotary tables and delta rule.
`double_precision()` widens those casts while it is active, which takes rounding out of the recorded figures.
"""
import contextlib
import json
from pathlib import Path

import torch
import transformers
import transformers.models.qwen3_5_moe.modeling_qwen3_5_moe as modeling
from transformers import Qwen3_5MoeForCausalLM, Qwen3_5MoeTextConfig

transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()


class _WideTorch:
    """The `torch` module with float32 standing for float64."""

    float32 = float = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


@contextlib.contextmanager
def double_precision():
    """Within this block, the model's own casts to fp32 are casts to fp64."""
    narrow = torch.Tensor.float
    modeling.torch, torch.Tensor.float = _WideTorch(), torch.Tensor.double
    try:
        yield
    finally:
        modeling.torch, torch.Tensor.float = torch, narrow


def load(folder, dtype=torch.float32):
    """The checkpoint's text model, weights converted to `dtype`. Fails if a tensor is missing or left over."""
    config = json.loads((Path(folder) / "config.json").read_text())
    text = config.get("text_config", config)
    model, info = Qwen3_5MoeForCausalLM.from_pretrained(
        folder, config=Qwen3_5MoeTextConfig(**text), dtype=dtype, output_loading_info=True,
        attn_implementation="eager", experts_implementation="eager",
    )
    # transformers has no multi-token prediction layer, and knows one name of it that is to be passed over.
    left = {key: [name for name in value if "mtp." not in str(name)] for key, value in info.items()}
    problems = {key: sorted(value) for key, value in left.items() if value}
    if problems:
        raise SystemExit(f"{folder}: transformers did not load it cleanly: {problems}")
    _exact_rotary(model, text, dtype)
    return model.eval()


def build(config, weights, dtype=torch.float32):
    """The text model of `config` (config.json as a dict) with `weights`: {name: float32 array}, experts stacked."""
    text = config.get("text_config", config)
    with torch.device("meta"):
        model = Qwen3_5MoeForCausalLM(Qwen3_5MoeTextConfig(**text, experts_implementation="eager"))
    wanted = model.state_dict()
    named = {name.replace("model.language_model.", "model."): torch.tensor(array) for name, array in weights.items()
             if "mtp." not in name}
    if text.get("tie_word_embeddings"):
        named["lm_head.weight"] = named["model.embed_tokens.weight"]
    if named.keys() != wanted.keys():
        raise SystemExit(f"these are not the model's tensors: {sorted(named.keys() ^ wanted.keys())}")
    shaped = {name: tensor.reshape(wanted[name].shape).to(dtype) for name, tensor in named.items()}
    model.load_state_dict(shaped, assign=True)
    _exact_rotary(model, text, dtype)
    return model.eval()


def _exact_rotary(model, text, dtype):
    """Replaces the rotary frequencies, which transformers computes in fp32, by those of `dtype`."""
    rope = text["rope_parameters"]
    rotary = int(text["head_dim"] * rope["partial_rotary_factor"])
    exponents = torch.arange(0, rotary, 2, dtype=dtype) / rotary
    model.model.rotary_emb.inv_freq = 1.0 / torch.tensor(float(rope["rope_theta"]), dtype=dtype) ** exponents


@torch.no_grad()
def prefill_logits(model, ids):
    """Logits of every position in one pass (the chunked delta rule), [tokens, vocab]."""
    return model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]


@torch.no_grad()
def stepped_logits(model, ids):
    """The same, one token at a time through the cache (the recurrent delta rule)."""
    cache, rows = None, []
    for token in ids:
        out = model(input_ids=torch.tensor([[token]]), past_key_values=cache, use_cache=True)
        cache = out.past_key_values
        rows.append(out.logits[0, -1])
    return torch.stack(rows)


@torch.no_grad()
def greedy_ids(model, ids, count):
    """`count` greedy ids after the prompt, end-of-sequence ids treated like any other."""
    out = model(input_ids=torch.tensor([ids]), use_cache=True)
    chosen = []
    for _ in range(count):
        chosen.append(int(out.logits[0, -1].argmax()))
        out = model(input_ids=torch.tensor([[chosen[-1]]]), past_key_values=out.past_key_values, use_cache=True)
    return chosen
