# SPDX-License-Identifier: Apache-2.0
"""Makes the tiny random Qwen3.5-MoE checkpoints of tests/data/tiny, with the logits that an independent oracle expects.

usage: make_tiny_checkpoints.py OUT [NAME ...]      (needs torch and transformers 5.17: see tools/oracle/README.md)

Each folder OUT/NAME holds a Hugging Face checkpoint whose shapes differ from the demo model in one way, and
  expected.json   for each prompt: ids, 32 greedy ids, per-position logsumexp, and the name of its logits file
  PROMPT.f32      logits of every position, little-endian float32 [tokens, vocab]
  PROMPT.mtp.f32  where there is a multi-token prediction layer, its logits as NumPy computes them: of every position
                  that has a token after it, and then of three drafts, the first greedy ids
The figures are transformers' in double precision, rounded once. They are recorded only if transformers' chunked and
recurrent delta rules and the NumPy implementation agree, and if no top-k or greedy decision is close enough for fp32
rounding to turn it; a seed that fails that is passed over for the next one.
"""
import argparse
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent / "oracle"))
import fixture_json  # noqa: E402
import qwen35_numpy  # noqa: E402
import safetensors_file  # noqa: E402
import transformers_model  # noqa: E402

DRAFTS = 3  # rows of the multi-token prediction layer after the prompt's
LONG, SHORT, GREEDY = 70, 3, 32  # LONG crosses the chunk of 64; SHORT is shorter than the convolution
AGREEMENT = 1e-9  # between the three double-precision computations, in logits
MAX_FP32_ERROR = 1e-4  # of transformers in fp32, in logits: keeps random weights that amplify rounding out
MIN_ROUTER_GAP, MIN_GREEDY_GAP = 1e-3, 1e-2  # in router logits, in logits
DELTA, FULL = "linear_attention", "full_attention"

BASE = dict(
    vocab_size=128, hidden_size=48, layer_types=[DELTA, FULL], num_attention_heads=4, num_key_value_heads=2,
    head_dim=16, partial_rotary_factor=0.25, rope_theta=10000.0, linear_num_key_heads=2, linear_num_value_heads=4,
    linear_key_head_dim=16, linear_value_head_dim=16, linear_conv_kernel_dim=4, num_experts=5, num_experts_per_tok=2,
    moe_intermediate_size=20, shared_expert_intermediate_size=32, tie_word_embeddings=False, rms_norm_eps=1e-6,
)

# How each checkpoint differs from BASE. `fused`: experts as two stacked tensors; `nested`: config.json and tensor names
# of the multimodal class, with vision and MTP tensors to skip; `wide`: tensors kept in fp32; `shards`: file count;
# `mtp`: with a multi-token prediction layer, whose tensors' names begin so.
CHECKPOINTS = {
    "key-value-dims": dict(layer_types=[DELTA, DELTA, FULL], num_experts=3, linear_value_head_dim=24),
    "three-value-heads": dict(linear_num_key_heads=2, linear_num_value_heads=6, fused=True),
    "one-kv-head": dict(num_key_value_heads=1, num_experts_per_tok=3),
    "tied-embeddings": dict(tie_word_embeddings=True, vocab_size=150),
    "odd-widths": dict(hidden_size=72, moe_intermediate_size=40, shared_expert_intermediate_size=56, vocab_size=131,
                       head_dim=24, num_attention_heads=2, linear_key_head_dim=20, linear_value_head_dim=12,
                       num_experts=3, fused=True),
    "attention-first": dict(layer_types=[FULL, DELTA, FULL, DELTA], num_experts=3, moe_intermediate_size=16),
    "half-rotary": dict(partial_rotary_factor=0.5, rope_theta=1e6),
    "multimodal": dict(nested=True, fused=True, shards=3, wide=("A_log", "norm.weight"), vocab_size=160,
                       layer_types=[DELTA, FULL, DELTA], num_experts=4),
    "mtp": dict(mtp="mtp.", vocab_size=120),
    "mtp-stacked": dict(mtp="model.mtp.", fused=True, num_experts=3),
}


def random_tensors(c, rng):
    """{name without prefix: (array, dtype)} of one checkpoint, scaled so that logits, gates and decays all vary."""
    hidden, vocab, width = c["hidden_size"], c["vocab_size"], c["moe_intermediate_size"]
    key_dim = c["linear_num_key_heads"] * c["linear_key_head_dim"]
    value_dim = c["linear_num_value_heads"] * c["linear_value_head_dim"]
    matrix = lambda *shape, gain=1.0: rng.normal(0, gain / np.sqrt(shape[-1]), shape)
    norm = lambda dim, mean=0.0: rng.normal(mean, 0.3, dim)
    t = {"embed_tokens.weight": rng.normal(0, 2.5 / np.sqrt(hidden), (vocab, hidden)), "norm.weight": norm(hidden)}
    for i, kind in enumerate(c["layer_types"]):
        layer = {"input_layernorm.weight": norm(hidden), "post_attention_layernorm.weight": norm(hidden)}
        if kind == FULL:
            dim, heads, kv_heads = c["head_dim"], c["num_attention_heads"], c["num_key_value_heads"]
            for name, rows, columns in (("q", 2 * heads * dim, hidden), ("k", kv_heads * dim, hidden),
                                        ("v", kv_heads * dim, hidden), ("o", hidden, heads * dim)):
                layer[f"self_attn.{name}_proj.weight"] = matrix(rows, columns)
            layer |= {"self_attn.q_norm.weight": norm(dim), "self_attn.k_norm.weight": norm(dim)}
        else:
            heads, channels = c["linear_num_value_heads"], 2 * key_dim + value_dim
            for name, rows, columns in (("in_proj_qkv", channels, hidden), ("in_proj_z", value_dim, hidden),
                                        ("in_proj_b", heads, hidden), ("in_proj_a", heads, hidden),
                                        ("out_proj", hidden, value_dim)):
                layer[f"linear_attn.{name}.weight"] = matrix(rows, columns)
            layer |= {
                "linear_attn.conv1d.weight": matrix(channels, 1, c["linear_conv_kernel_dim"]),
                "linear_attn.norm.weight": norm(c["linear_value_head_dim"], mean=1.0),
                "linear_attn.A_log": np.log(rng.uniform(0.2, 8.0, heads)),
                "linear_attn.dt_bias": rng.uniform(-4.0, 0.5, heads),
            }
        layer |= {
            "mlp.gate.weight": matrix(c["num_experts"], hidden, gain=2.0),
            "mlp.experts.gate_up_proj": matrix(c["num_experts"], 2 * width, hidden),
            "mlp.experts.down_proj": matrix(c["num_experts"], hidden, width),
            "mlp.shared_expert_gate.weight": matrix(1, hidden),
        }
        shared = c["shared_expert_intermediate_size"]
        for name, rows, columns in (("gate", shared, hidden), ("up", shared, hidden), ("down", hidden, shared)):
            layer[f"mlp.shared_expert.{name}_proj.weight"] = matrix(rows, columns)
        t |= {f"layers.{i}.{name}": array for name, array in layer.items()}
    if not c["tie_word_embeddings"]:
        t["lm_head.weight"] = matrix(vocab, hidden, gain=2.5)
    return t


def mtp_tensors(c, rng):
    """The same for the tensors of a multi-token prediction layer."""
    hidden = c["hidden_size"]
    layer = random_tensors(c | {"layer_types": [FULL], "tie_word_embeddings": True}, rng)
    own = {name: array for name, array in layer.items() if name != "embed_tokens.weight"}
    own["fc.weight"] = rng.normal(0, 1 / np.sqrt(hidden), (hidden, 2 * hidden))
    return own | {f"pre_fc_norm_{name}.weight": rng.normal(0, 0.3, hidden) for name in ("embedding", "hidden")}


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


def text_config(c):
    """The text part of config.json."""
    end = c["vocab_size"] - 1
    config = {k: v for k, v in c.items() if k in BASE and k not in ("partial_rotary_factor", "rope_theta")}
    rotary = int(c["head_dim"] * c["partial_rotary_factor"]) // 2
    section = [rotary - 2 * (rotary // 3), rotary // 3, rotary // 3]
    rope = {"rope_type": "default", "rope_theta": c["rope_theta"], "partial_rotary_factor": c["partial_rotary_factor"],
            "mrope_section": section, "mrope_interleaved": True}
    return config | {
        "model_type": "qwen3_5_moe_text", "dtype": "bfloat16", "hidden_act": "silu", "attention_bias": False,
        "num_hidden_layers": len(c["layer_types"]), "max_position_embeddings": 512, "rope_parameters": rope,
        "bos_token_id": None, "eos_token_id": [end, end - 1], "pad_token_id": end, "use_cache": True,
    } | ({"mtp_num_hidden_layers": 1} if "mtp" in c else {})


def whole_config(c):
    """config.json: the text configuration, or the multimodal one around it."""
    text = text_config(c)
    if not c.get("nested"):
        return {"architectures": ["Qwen3_5MoeForCausalLM"]} | text
    text |= {"attn_output_gate": True, "full_attention_interval": 3, "mamba_ssm_dtype": "float32",
             "mtp_num_hidden_layers": 1, "mtp_use_dedicated_embeddings": False}
    vision = {"model_type": "qwen3_5_moe_vision", "depth": 1, "hidden_size": 16, "num_heads": 2,
              "intermediate_size": 32, "out_hidden_size": c["hidden_size"], "patch_size": 4}
    return {"architectures": ["Qwen3_5MoeForConditionalGeneration"], "model_type": "qwen3_5_moe", "text_config": text,
            "vision_config": vision, "image_token_id": 1, "video_token_id": 2, "vision_start_token_id": 3,
            "vision_end_token_id": 4, "tie_word_embeddings": c["tie_word_embeddings"]}


def write_checkpoint(folder, c, seed):
    rng = np.random.default_rng(seed)
    tensors = random_tensors(c, rng)
    tensors = tensors if c.get("fused") else split_experts(tensors)
    prefix = "model.language_model." if c.get("nested") else "model."
    named = {name if name == "lm_head.weight" else prefix + name: array for name, array in tensors.items()}
    if "mtp" in c:
        own = mtp_tensors(c, rng)
        named |= {c["mtp"] + name: array for name, array in (own if c.get("fused") else split_experts(own)).items()}
    if c.get("nested"):
        named |= {"model.visual.patch_embed.proj.weight": rng.normal(size=(16, 3, 2, 4, 4)),
                  "model.visual.merger.norm.weight": rng.normal(size=16),
                  "mtp.fc.weight": rng.normal(size=(c["hidden_size"], 2 * c["hidden_size"])),
                  "mtp.norm.weight": rng.normal(size=c["hidden_size"])}
    typed = {name: (array, "F32" if name.endswith(c.get("wide", ())) else "BF16") for name, array in named.items()}
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(whole_config(c), indent=1) + "\n")
    shards = c.get("shards", 1)
    if shards == 1:
        safetensors_file.write(folder / "model.safetensors", typed)
        return
    where, names = {}, list(typed)
    for i in range(shards):  # dealt in turn, so that one layer's tensors lie in different files
        file = f"model-{i + 1:05}-of-{shards:05}.safetensors"
        safetensors_file.write(folder / file, {name: typed[name] for name in names[i::shards]})
        where |= dict.fromkeys(names[i::shards], file)
    size = sum(array.size * (4 if dtype == "F32" else 2) for array, dtype in typed.values())
    index = {"metadata": {"total_size": size}, "weight_map": dict(sorted(where.items()))}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n")


def difference(a, b):
    return float(np.abs(np.asarray(a) - np.asarray(b)).max())


def record(folder, c, seed):
    """Computes and writes what is expected of a written checkpoint; None, or why this seed will not do."""
    model, exact = (transformers_model.load(folder, dtype) for dtype in (torch.float32, torch.float64))
    numpy_model = qwen35_numpy.Model(folder)
    rng = np.random.default_rng([seed, 1])
    prompts, worst = [], dict.fromkeys(("chunked_vs_recurrent", "transformers_vs_numpy", "fp32_vs_fp64"), 0.0)
    for name, length in (("long", LONG), ("short", SHORT)):
        ids = rng.integers(0, c["vocab_size"] - 2, length).tolist()
        with transformers_model.double_precision():
            logits = transformers_model.prefill_logits(exact, ids).numpy()
            stepped = transformers_model.stepped_logits(exact, ids).numpy()
            greedy = transformers_model.greedy_ids(exact, ids, GREEDY)
        numpy_greedy, gap = numpy_model.greedy(ids, GREEDY)
        worst["chunked_vs_recurrent"] = max(worst["chunked_vs_recurrent"], difference(logits, stepped))
        worst["transformers_vs_numpy"] = max(
            worst["transformers_vs_numpy"], difference(logits, numpy_model.logits(ids)[0])
        )
        worst["fp32_vs_fp64"] = max(
            worst["fp32_vs_fp64"], difference(logits, transformers_model.prefill_logits(model, ids))
        )
        if gap < MIN_GREEDY_GAP or set(greedy) & {c["vocab_size"] - 1, c["vocab_size"] - 2} or len(set(greedy)) < 6:
            return f"greedy ids of {name} are too close ({gap:.2g}), too few, or end the sequence"
        if greedy != numpy_greedy:
            raise SystemExit(f"{folder}: transformers and NumPy disagree on the greedy ids")
        logits.astype("<f4").tofile(folder / f"{name}.f32")
        if numpy_model.mtp:
            numpy_model.mtp_logits(ids, greedy[:DRAFTS]).astype("<f4").tofile(folder / f"{name}.mtp.f32")
        lse = np.logaddexp.reduce(logits, axis=1)
        prompts.append({"name": name, "ids": ids, "greedy_ids": greedy, "min_greedy_gap": round(gap, 6),
                        "logits": f"{name}.f32", "shape": list(logits.shape), "logits_std": round(logits.std(), 4),
                        "logsumexp": [round(float(x), 6) for x in lse]})
    if max(worst["chunked_vs_recurrent"], worst["transformers_vs_numpy"]) > AGREEMENT:
        raise SystemExit(f"{folder}: the oracles disagree: {worst}")
    if numpy_model.min_router_gap < MIN_ROUTER_GAP:
        return f"a router decision hangs on {numpy_model.min_router_gap:.2g}"
    if worst["fp32_vs_fp64"] > MAX_FP32_ERROR:
        return f"fp32 errs by {worst['fp32_vs_fp64']:.2g}"
    expected = {"seed": seed, "oracle": "transformers 5.17 in float64", "max_abs_difference": worst,
                "min_router_gap": numpy_model.min_router_gap, "prompts": prompts}
    (folder / "expected.json").write_text(fixture_json.dumps(expected))
    sizes = sum(p.stat().st_size for p in folder.iterdir())
    print(f"{folder.name:20} seed {seed:3} {sizes / 1000:4.0f} KB  router gap {numpy_model.min_router_gap:.1e}  " +
          "  ".join(f"{k} {v:.1e}" for k, v in worst.items()), flush=True)
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*", help="only these checkpoints")
    args = parser.parse_args()
    for name in args.names or CHECKPOINTS:
        c = BASE | CHECKPOINTS[name]
        for seed in range(1, 200):
            write_checkpoint(args.out / name, c, seed)
            refusal = record(args.out / name, c, seed)
            if refusal is None:
                break
            print(f"{name}: seed {seed} passed over: {refusal}", flush=True)
        else:
            raise SystemExit(f"{name}: no seed will do")


if __name__ == "__main__":
    main()
