# SPDX-License-Identifier: Apache-2.0
"""gpt-oss in NumPy, float64, all positions of a text at once: an implementation written from the arithmetic alone
(arXiv:2508.10925; YaRN: arXiv:2309.00071; MXFP4: OCP Microscaling Formats 1.0).

It shares nothing with transformers or with Switchyard, so agreement of any two of the three means something.
"""
import json
from pathlib import Path

import numpy as np

import safetensors_file

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
ALPHA, LIMIT = 1.702, 7.0


def rms_norm(x, weight, eps):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * weight


def yarn(dim, theta, factor, original, fast, slow, truncate):
    """Radians per position of each pair, and what cosines and sines are multiplied by."""
    speeds = theta ** (-np.arange(0, dim, 2) / dim)
    pair_with = lambda turns: dim * np.log(original / (turns * 2 * np.pi)) / (2 * np.log(theta))  # in `original` tokens
    low, high = pair_with(fast), pair_with(slow)
    if truncate:
        low, high = np.floor(low), np.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    slowed = np.clip((np.arange(dim // 2) - low) / max(high - low, 1e-3), 0, 1)
    return speeds * (1 - slowed) + speeds / factor * slowed, 0.1 * np.log(factor) + 1


def mxfp4(blocks, scales):
    """blocks [..., groups, 16], scales [..., groups] -> values [..., 32 * groups]"""
    pairs = np.stack([E2M1[blocks & 15], E2M1[blocks >> 4]], axis=-1)
    groups = pairs.reshape(*blocks.shape[:-1], 32) * 2.0 ** (scales.astype(np.float64) - 127)[..., None]
    return groups.reshape(*groups.shape[:-2], -1)


class Model:
    def __init__(self, folder):
        self.config = c = json.loads((Path(folder) / "config.json").read_text())
        self.weights = {n.removeprefix("model."): w for n, w in safetensors_file.read_folder(folder).items()}
        r = c["rope_parameters"]
        self.speeds, self.rope_scale = yarn(c["head_dim"], r["rope_theta"], r["factor"],
                                            r["original_max_position_embeddings"], r["beta_fast"], r["beta_slow"],
                                            r.get("truncate", True))

    def weight(self, name):
        return self.weights[name].astype(np.float64)

    def expert_matrices(self, name):
        """[experts, out, in]"""
        if name + "_blocks" in self.weights:
            return mxfp4(self.weights[name + "_blocks"], self.weights[name + "_scales"])
        return self.weight(name).transpose(0, 2, 1)

    def logits(self, ids):
        """[tokens, vocab]"""
        c, w = self.config, self.weight
        x = w("embed_tokens.weight")[ids]
        for i, kind in enumerate(c["layer_types"]):
            at, eps = f"layers.{i}.", c["rms_norm_eps"]
            h = rms_norm(x, w(at + "input_layernorm.weight"), eps)
            x = x + self.attention(at + "self_attn.", h, c["sliding_window"] if kind == "sliding_attention" else len(x))
            x = x + self.experts(at + "mlp.", rms_norm(x, w(at + "post_attention_layernorm.weight"), eps))
        return rms_norm(x, w("norm.weight"), c["rms_norm_eps"]) @ w("lm_head.weight").T

    def turn(self, x):
        """x [tokens, heads, head_dim]: pairs (i, i + head_dim / 2)"""
        angles = np.arange(len(x))[:, None, None] * self.speeds
        cos, sin = np.cos(angles) * self.rope_scale, np.sin(angles) * self.rope_scale
        a, b = np.split(x, 2, axis=-1)
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)

    def attention(self, at, x, window):
        c, w, tokens = self.config, self.weight, len(x)
        heads, kv_heads, dim = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        project = lambda name, y: y @ w(f"{at}{name}.weight").T + w(f"{at}{name}.bias")
        q = self.turn(project("q_proj", x).reshape(tokens, heads, dim))
        k = self.turn(project("k_proj", x).reshape(tokens, kv_heads, dim))
        v = project("v_proj", x).reshape(tokens, kv_heads, dim)
        behind = np.arange(tokens)[:, None] - np.arange(tokens)  # [row, position]
        hidden = (behind < 0) | (behind >= window)
        out = np.empty((tokens, heads, dim))
        for head in range(heads):
            kv = head // (heads // kv_heads)
            scores = np.where(hidden, -np.inf, q[:, head] @ k[:, kv].T / np.sqrt(dim))
            sink = w(at + "sinks")[head]  # a score that has no value
            most = np.maximum(scores.max(axis=1), sink)[:, None]
            weights = np.exp(scores - most)
            out[:, head] = weights / (weights.sum(axis=1, keepdims=True) + np.exp(sink - most)) @ v[:, kv]
        return project("o_proj", out.reshape(tokens, -1))

    def experts(self, at, x):
        w = self.weight
        scores = x @ w(at + "router.weight").T + w(at + "router.bias")
        chosen = np.argsort(-scores, axis=1, kind="stable")[:, : self.config["num_experts_per_tok"]]
        shares = np.exp(np.take_along_axis(scores, chosen, 1) - scores.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        gate_up, down = self.expert_matrices(at + "experts.gate_up_proj"), self.expert_matrices(at + "experts.down_proj")
        y = np.zeros_like(x)
        for row, (experts, weights) in enumerate(zip(chosen, shares)):
            for e, share in zip(experts, weights):
                both = gate_up[e] @ x[row] + w(at + "experts.gate_up_proj_bias")[e]
                gate, up = np.minimum(both[0::2], LIMIT), np.clip(both[1::2], -LIMIT, LIMIT)
                middle = gate / (1 + np.exp(-ALPHA * gate)) * (up + 1)
                y[row] += share * (down[e] @ middle + w(at + "experts.down_proj_bias")[e])
        return y
