# SPDX-License-Identifier: Apache-2.0
"""Makes tests/data/tiny/families: a small random checkpoint of each model family, with the logits of transformers.

usage: make_family_checkpoints.py OUT [NAME ...]      (needs torch and transformers: see tools/oracle/README.md)

OUT/NAME holds a Hugging Face checkpoint (config.json, model.safetensors in bf16, experts of some in MXFP4), and
  expected.json   200 token ids, the lengths at which they were run, how far computations of them differ
  logits.f32      logits of every position in double precision, rounded once: little-endian float32 [200, vocab]
Attention is causal, so the logits at a shorter length are the first of these; that is checked while recording. A seed
whose fp32 result is far from the double one (a router decision that rounding turns) is passed over.
"""
import argparse
import contextlib
import importlib
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import torch
import transformers
from transformers import modeling_rope_utils as rope_utils
from transformers.integrations import mxfp4

sys.path.insert(0, str(Path(__file__).parent / "oracle"))
import fixture_json  # noqa: E402
import safetensors_file  # noqa: E402

LENGTHS = [1, 5, 63, 65, 200]  # the gated delta rule works in chunks of 64
MAX_PREFIX_DIFFERENCE, MAX_FP32_ERROR = 1e-9, 3e-5  # in logits; of the largest logit
DELTA, FULL, SLIDING = "linear_attention", "full_attention", "sliding_attention"
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
BLOCK = 32

COMMON = dict(vocab_size=96, hidden_size=32, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
              rms_norm_eps=1e-6, max_position_embeddings=512, eos_token_id=95, hidden_act="silu", attention_bias=False,
              attention_dropout=0.0, tie_word_embeddings=False)
DELTA_RULE = dict(linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=16, linear_value_head_dim=16,
                  linear_conv_kernel_dim=4)


def rope(theta, part):
    return {"rope_type": "default", "rope_theta": theta, "partial_rotary_factor": part}


def yarn(original, factor, **more):
    return {"rope_type": "yarn", "rope_theta": 150000.0, "factor": factor, "beta_fast": 32.0, "beta_slow": 1.0,
            "original_max_position_embeddings": original} | more


GPT_OSS = dict(model="gpt_oss", cls="GptOss", rms_norm_eps=1e-5, attention_bias=True, sliding_window=32,
               layer_types=[SLIDING, FULL, SLIDING], num_hidden_layers=3, num_attention_heads=6)

# `model` is the transformers module. `nested`: config.json and names of the multimodal class. `split`: experts one by
# one, as this family's checkpoints have them. `mxfp4`: experts in that encoding.
CHECKPOINTS = {
    "qwen3": dict(model="qwen3", cls="Qwen3", num_hidden_layers=3, num_key_value_heads=1, head_dim=24,
                  intermediate_size=88, tie_word_embeddings=True, rope_parameters=rope(1e6, 1.0),
                  use_sliding_window=False, sliding_window=None, layer_types=[FULL] * 3),
    "qwen3_moe": dict(model="qwen3_moe", cls="Qwen3Moe", num_hidden_layers=3, num_experts=16, num_experts_per_tok=4,
                      moe_intermediate_size=24, intermediate_size=72, norm_topk_prob=True, decoder_sparse_step=1,
                      mlp_only_layers=[1], rope_parameters=rope(1e6, 1.0), use_sliding_window=False, split=True),
    "qwen3_next": dict(DELTA_RULE, model="qwen3_next", cls="Qwen3Next", num_hidden_layers=3,
                       layer_types=[DELTA, DELTA, FULL], num_experts=512, num_experts_per_tok=10,
                       moe_intermediate_size=4, shared_expert_intermediate_size=24, intermediate_size=40,
                       norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[0, 1],
                       rope_parameters=rope(1e7, 0.25), split=True),
    "qwen3_5": dict(DELTA_RULE, model="qwen3_5", cls="Qwen3_5", num_hidden_layers=4, linear_num_value_heads=8,
                    layer_types=[DELTA, FULL, DELTA, FULL], intermediate_size=88, num_key_value_heads=4,
                    rope_parameters=rope(1e7, 0.25), nested=True),
    "qwen3_5-tied": dict(DELTA_RULE, model="qwen3_5", cls="Qwen3_5", num_hidden_layers=2, linear_num_value_heads=2,
                         layer_types=[DELTA, FULL], intermediate_size=40, tie_word_embeddings=True,
                         rope_parameters=rope(1e7, 0.25), nested=True),
    "gpt_oss": dict(GPT_OSS, hidden_size=64, head_dim=20, num_local_experts=6, num_experts_per_tok=3,
                    intermediate_size=96, rope_parameters=yarn(64, 8.0, truncate=False), mxfp4=True),
    "gpt_oss-bf16": dict(GPT_OSS, hidden_size=40, head_dim=12, num_key_value_heads=3, num_local_experts=5,
                         num_experts_per_tok=2, intermediate_size=28, rope_parameters=yarn(48, 4.0)),
}


class WideTorch:
    """The `torch` module with float32 standing for float64."""

    float32 = float = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


@contextlib.contextmanager
def double_precision(modeling):
    """Within this block, the model's own casts to fp32 are casts to fp64."""
    narrow = torch.Tensor.float
    modeling.torch, torch.Tensor.float = WideTorch(), torch.Tensor.double
    try:
        yield
    finally:
        modeling.torch, torch.Tensor.float = torch, narrow


def values(name, shape, rng):
    """Random values of one tensor, scaled so that logits, gates and decays all vary; rounded to bf16."""
    if name.endswith("A_log"):
        x = np.log(rng.uniform(0.2, 8.0, shape))
    elif name.endswith("dt_bias"):
        x = rng.uniform(-4.0, 0.5, shape)
    elif name.endswith("norm.weight"):
        x = rng.normal(values.norm_mean if not name.endswith("linear_attn.norm.weight") else 1.0, 0.3, shape)
    elif name.endswith("sinks"):
        x = rng.normal(0.5, 1.0, shape)
    elif name.endswith("bias"):
        x = rng.normal(0, 0.5, shape)
    elif name.endswith("experts.gate_up_proj") and "gpt_oss" in values.model:
        x = rng.normal(0, 4.0 / np.sqrt(shape[1]), shape)  # so that the activation's limits are met
    elif name.endswith("embed_tokens.weight"):
        x = rng.normal(0, 2.5 / np.sqrt(shape[-1]), shape)
    else:
        gain = 2.0 if name.endswith(("mlp.gate.weight", "mlp.router.weight")) else 2.5 if name == "lm_head.weight" else 1.0
        x = rng.normal(0, gain / np.sqrt(shape[-1]), shape)
    return safetensors_file.bf16_values(safetensors_file.bf16_bits(x))


def split_experts(tensors):
    """Replaces the two stacked expert tensors of every layer by three matrices per expert."""
    out = {}
    for name, array in tensors.items():
        if name.endswith("experts.gate_up_proj"):
            for e, (gate, up) in enumerate(np.split(m, 2) for m in array):
                base = name.removesuffix("gate_up_proj") + str(e)
                out |= {f"{base}.gate_proj.weight": gate, f"{base}.up_proj.weight": up}
        elif name.endswith("experts.down_proj"):
            for e, down in enumerate(array):
                out[name.removesuffix("down_proj") + f"{e}.down_proj.weight"] = down
        else:
            out[name] = array
    return out


def to_mxfp4(array):
    """[experts, in, out], as transformers has it -> blocks [experts, out, in / 32, 16], scales [experts, out, in / 32]"""
    groups = array.transpose(0, 2, 1).reshape(array.shape[0], array.shape[2], -1, BLOCK)
    exponents = np.floor(np.log2(np.abs(groups).max(-1))) - 2
    codes = np.abs(np.abs(groups / 2.0 ** exponents[..., None])[..., None] - E2M1).argmin(-1) + 8 * (groups < 0)
    return (codes[..., 0::2] | codes[..., 1::2] << 4).astype(np.uint8), (exponents + 127).astype(np.uint8)


def quantize_experts(tensors):
    """Replaces the experts' matrices by what MXFP4 makes of them; returns the tensors that a file has in their stead."""
    stored = {}
    for name in [n for n in tensors if n.endswith(("experts.gate_up_proj", "experts.down_proj"))]:
        blocks, scales = to_mxfp4(tensors[name])
        values_of = mxfp4.convert_moe_packed_tensors(torch.tensor(blocks), torch.tensor(scales), dtype=torch.float32)
        tensors[name] = values_of.numpy()
        stored |= {name + "_blocks": blocks, name + "_scales": scales}
    return stored


def write_checkpoint(folder, c, config, tensors, stored):
    if c.get("split"):
        tensors = split_experts(tensors)
    if c.get("nested"):
        tensors = {name.replace("model.", "model.language_model."): array for name, array in tensors.items()}
        tensors["model.visual.merger.norm.weight"] = np.ones(4)
        config = {"model_type": c["model"], "text_config": config, "tie_word_embeddings": config["tie_word_embeddings"]}
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(fixture_json.dumps(config))
    kept = {name: (array, "BF16") for name, array in tensors.items() if name + "_blocks" not in stored}
    safetensors_file.write(folder / "model.safetensors", kept | {name: (array, "U8") for name, array in stored.items()})


def build(cls, config, tensors, dtype):
    model = cls(config).to(dtype).eval()
    state = {name: torch.tensor(array).to(dtype) for name, array in tensors.items()}
    if config.tie_word_embeddings:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state, assign=True)
    rotary = model.model.rotary_emb
    if config.rope_parameters["rope_type"] == "yarn":
        rope_utils.torch = WideTorch()  # transformers computes these, too, in fp32
        rotary.inv_freq, rotary.attention_scaling = rope_utils.ROPE_INIT_FUNCTIONS["yarn"](config)
        rotary.inv_freq = rotary.inv_freq.to(dtype)
        rope_utils.torch = torch
        return model
    turning = int(config.head_dim * config.rope_parameters.get("partial_rotary_factor", 1.0))
    exponents = torch.arange(0, turning, 2, dtype=dtype) / turning  # transformers computes them in fp32
    rotary.inv_freq = 1.0 / torch.tensor(config.rope_parameters["rope_theta"], dtype=dtype) ** exponents
    return model


@torch.no_grad()
def logits(model, ids):
    return model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].double().numpy()


def record(folder, name, c, seed):
    """Writes one checkpoint with what is expected of it; None, or why this seed will not do."""
    rng = np.random.default_rng(seed)
    modeling = importlib.import_module(f"transformers.models.{c['model']}.modeling_{c['model']}")
    text = "Text" if c["model"] == "qwen3_5" else ""
    config_class = getattr(transformers, c["cls"] + text + "Config")
    fields = COMMON | {k: v for k, v in c.items() if k not in ("model", "cls", "nested", "split", "mxfp4")}
    config = config_class(**fields, experts_implementation="eager", attn_implementation="eager")
    cls = getattr(modeling, c["cls"] + "ForCausalLM")
    with torch.device("meta"):
        shapes = {key: tuple(t.shape) for key, t in cls(config).state_dict().items()}
    if c.get("tie_word_embeddings"):
        shapes.pop("lm_head.weight", None)
    values.model, values.norm_mean = c["model"], 1.0 if c["model"] in ("qwen3", "qwen3_moe", "gpt_oss") else 0.0
    tensors = {key: values(key, shape, rng) for key, shape in shapes.items()}
    published = {"model_type": config.model_type, "dtype": "bfloat16"} | fields
    stored = quantize_experts(tensors) if c.get("mxfp4") else {}
    write_checkpoint(folder, c, published, tensors, stored)

    ids = rng.integers(0, fields["vocab_size"] - 1, LENGTHS[-1]).tolist()
    exact = build(cls, config, tensors, torch.float64)
    with double_precision(modeling):
        want = logits(exact, ids)
        prefix = max(float(np.abs(logits(exact, ids[:n]) - want[:n]).max()) for n in LENGTHS)
    if prefix > MAX_PREFIX_DIFFERENCE:
        raise SystemExit(f"{name}: the logits depend on later tokens: {prefix}")
    narrow = logits(build(cls, config, tensors, torch.float32), ids)
    error = float(np.abs(narrow - want).max() / np.abs(want).max())
    if error > MAX_FP32_ERROR:
        return f"fp32 errs by {error:.2g}"
    want.astype("<f4").tofile(folder / "logits.f32")
    expected = {"seed": seed, "oracle": f"transformers {transformers.__version__} in float64", "lengths": LENGTHS,
                "vocab": fields["vocab_size"], "ids": ids, "fp32_error": float(f"{error:.2g}"),
                "prefix_difference": float(f"{prefix:.2g}"), "logits_std": round(float(want.std()), 4)}
    (folder / "expected.json").write_text(fixture_json.dumps(expected))
    size = sum(p.stat().st_size for p in folder.iterdir())
    print(f"{name:14} seed {seed} {size / 1000:4.0f} KB  fp32 error {error:.1e}  prefix {prefix:.1e}", flush=True)
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*", help="only these checkpoints")
    args = parser.parse_args()
    for name in args.names or CHECKPOINTS:
        for seed in range(1, 100):
            refusal = record(args.out / name, name, CHECKPOINTS[name], seed)
            if refusal is None:
                break
            print(f"{name}: seed {seed} passed over: {refusal}", flush=True)
        else:
            raise SystemExit(f"{name}: no seed will do")


if __name__ == "__main__":
    transformers.utils.logging.set_verbosity_error()
    main()
