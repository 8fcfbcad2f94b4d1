# SPDX-License-Identifier: Apache-2.0
"""Qwen3.5 (text), and Qwen3 and Qwen3-Next, dense or with experts, in NumPy, float64, token by token: an implementation
written from the arithmetic alone.

It shares nothing with transformers or with Switchyard, so agreement of any two of the three means something.

usage: qwen35_numpy.py CHECKPOINT --ids "1 2 3" [--greedy N]
Prints, as JSON, the eight largest logits of the last position and N greedy ids.
"""
import argparse
import json
from pathlib import Path

import numpy as np

import safetensors_file


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def silu(x):
    return x * sigmoid(x)


def softplus(x):
    return np.logaddexp(0.0, x)


def rms(x, eps):
    """x / rms(x) over the last axis; every norm multiplies by its own function of the weight."""
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps)


class Model:
    """Weights of one checkpoint in float64. `start()` gives an empty state, `step(state, id)` one token's logits."""

    def __init__(self, folder):
        config = json.loads((Path(folder) / "config.json").read_text())
        self.config = c = config.get("text_config", config)
        nested = "text_config" in config
        prefix = "model.language_model." if nested else "model."
        tensors = safetensors_file.read_folder(folder)
        ahead = ("mtp.", "model.mtp.")
        self.weights = {
            name[len(prefix) :] if name.startswith(prefix) else name: array.astype(np.float64)
            for name, array in tensors.items()
            if not name.startswith(("model.visual.", *ahead))
        }
        self.mtp = {  # of the multi-token prediction layer, without what the names begin with
            name.split("mtp.", 1)[1]: array.astype(np.float64)
            for name, array in tensors.items() if name.startswith(ahead)
        }
        rope = c["rope_parameters"]
        rotary = int(c["head_dim"] * rope.get("partial_rotary_factor", 1.0))
        self.inv_freq = float(rope["rope_theta"]) ** (-np.arange(0, rotary, 2) / rotary)
        tied = c.get("tie_word_embeddings", config.get("tie_word_embeddings", False))
        self.lm_head = self.weights["embed_tokens.weight"] if tied else self.weights["lm_head.weight"]
        self.centre = 0.0 if c["model_type"] in ("qwen3", "qwen3_moe") else 1.0  # what norms add to their weights
        self.layers = [self._layer(self.weights, i) for i in range(c["num_hidden_layers"])]
        self.min_router_gap = np.inf  # smallest distance of router logits from the last expert taken to the first not

    def _layer(self, weights, index):
        """The layer's tensors by short name, experts stacked as gate_up [E, 2I, H] and down [E, H, I]."""
        prefix = f"layers.{index}."
        layer = {name[len(prefix) :]: w for name, w in weights.items() if name.startswith(prefix)}
        if "linear_attn.in_proj_qkvz.weight" in layer:
            layer |= self._apart(layer["linear_attn.in_proj_qkvz.weight"], layer["linear_attn.in_proj_ba.weight"])
        if "mlp.experts.0.gate_proj.weight" in layer:
            each = lambda kind: [layer[f"mlp.experts.{e}.{kind}.weight"] for e in range(self.config["num_experts"])]
            pairs = zip(each("gate_proj"), each("up_proj"))
            layer["mlp.experts.gate_up_proj"] = np.stack([np.concatenate(pair) for pair in pairs])
            layer["mlp.experts.down_proj"] = np.stack(each("down_proj"))
        return layer

    def _apart(self, qkvz, ba):
        """Of Qwen3-Next, whose rows take turns by key head: q, k, v and z; b and a."""
        c = self.config
        heads, dk = c["linear_num_key_heads"], c["linear_key_head_dim"]
        values = c["linear_num_value_heads"] // heads * c["linear_value_head_dim"]
        q, k, v, z = np.split(qkvz.reshape(heads, -1, qkvz.shape[1]), [dk, 2 * dk, 2 * dk + values], axis=1)
        b, a = np.split(ba.reshape(heads, -1, ba.shape[1]), 2, axis=1)
        rows = lambda x: x.reshape(-1, x.shape[2])
        return {"linear_attn.in_proj_qkv.weight": np.concatenate([rows(q), rows(k), rows(v)]),
                "linear_attn.in_proj_z.weight": rows(z), "linear_attn.in_proj_b.weight": rows(b),
                "linear_attn.in_proj_a.weight": rows(a)}

    def start(self):
        return {"position": 0, "layers": [{} for _ in self.layers]}

    def step(self, state, token):
        """Advances `state` by one token id; returns logits [vocab]."""
        return self.lm_head @ self.hidden_row(state, token)

    def hidden_row(self, state, token):
        """Advances `state` by one token id; returns the row that the head sees [hidden]."""
        eps = self.config["rms_norm_eps"]
        norm = lambda x, w: rms(x, eps) * (self.centre + w)
        kinds = self.config.get("layer_types", ["full_attention"] * len(self.layers))
        x = self.weights["embed_tokens.weight"][token]
        for kind, w, s in zip(kinds, self.layers, state["layers"]):
            h = norm(x, w["input_layernorm.weight"])
            x = x + (self._attention(w, s, h, state["position"]) if kind == "full_attention" else self._delta(w, s, h))
            forward = self._mlp if "mlp.gate_proj.weight" in w else self._moe
            x = x + forward(w, norm(x, w["post_attention_layernorm.weight"]))
        state["position"] += 1
        return norm(x, self.weights["norm.weight"])

    def mtp_step(self, state, position, hidden, token):
        """One row of the multi-token prediction layer: from the row of a position and the token after it. Advances
        `state` ({} at the beginning); returns its own row and the logits of the token after that one."""
        w, layer = self.mtp, self._layer(self.mtp, 0)
        norm = lambda x, weight: rms(x, self.config["rms_norm_eps"]) * (self.centre + weight)
        both = np.concatenate([norm(self.weights["embed_tokens.weight"][token], w["pre_fc_norm_embedding.weight"]),
                               norm(hidden, w["pre_fc_norm_hidden.weight"])])
        x = w["fc.weight"] @ both
        x = x + self._attention(layer, state, norm(x, layer["input_layernorm.weight"]), position)
        x = x + self._moe(layer, norm(x, layer["post_attention_layernorm.weight"]))
        row = norm(x, w["norm.weight"])
        return row, self.lm_head @ row

    def mtp_logits(self, ids, drafts):
        """Logits of the layer at every position of `ids` that has a token after it, [tokens - 1, vocab], and then of
        the positions of `drafts`, each from the layer's own row before it."""
        trunk, state, out, row = self.start(), {}, [], None
        rows = [self.hidden_row(trunk, token) for token in ids]
        for position, token in enumerate(ids[1:]):
            row, logits = self.mtp_step(state, position, rows[position], token)
            out.append(logits)
        for position, token in enumerate(drafts, len(ids) - 1):
            row, logits = self.mtp_step(state, position, row, token)
            out.append(logits)
        return np.stack(out)

    def _attention(self, w, state, x, position):
        c, p = self.config, lambda name: w[f"self_attn.{name}.weight"]
        heads, kv_heads, dim, eps = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"], c["rms_norm_eps"]
        q = (p("q_proj") @ x).reshape(heads, -1)
        q, gate = q[:, :dim], q[:, dim:]  # no gate where the projection gives none
        k, v = (p("k_proj") @ x).reshape(kv_heads, dim), (p("v_proj") @ x).reshape(kv_heads, dim)
        q = self._rope(rms(q, eps) * (self.centre + p("q_norm")), position)
        k = self._rope(rms(k, eps) * (self.centre + p("k_norm")), position)
        state.setdefault("k", []).append(k)
        state.setdefault("v", []).append(v)
        keys, values = np.stack(state["k"], 1), np.stack(state["v"], 1)  # [kv_heads, tokens, dim]
        out = np.empty((heads, dim))
        for head in range(heads):
            kv = head // (heads // kv_heads)
            scores = keys[kv] @ q[head] * dim**-0.5
            weights = np.exp(scores - scores.max())
            out[head] = weights / weights.sum() @ values[kv]
        return p("o_proj") @ (out * sigmoid(gate) if gate.size else out).reshape(-1)

    def _rope(self, x, position):
        """Rotates pairs (i, i + rotary/2) of the first rotary dims; x is [heads, head_dim]."""
        half = len(self.inv_freq)
        cos, sin = np.cos(position * self.inv_freq), np.sin(position * self.inv_freq)
        a, b = x[:, :half], x[:, half : 2 * half]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin, x[:, 2 * half :]], axis=1)

    def _delta(self, w, state, x):
        c, p = self.config, lambda name: w[f"linear_attn.{name}"]
        key_heads, value_heads = c["linear_num_key_heads"], c["linear_num_value_heads"]
        dk, dv, kernel = c["linear_key_head_dim"], c["linear_value_head_dim"], c["linear_conv_kernel_dim"]
        qkv = p("in_proj_qkv.weight") @ x
        window = np.concatenate([state.get("conv", np.zeros((kernel - 1, qkv.size))), qkv[None]])
        state["conv"] = window[1:]
        q, k, v = np.split(
            silu((window.T * p("conv1d.weight")[:, 0]).sum(1)), [key_heads * dk, 2 * key_heads * dk]
        )
        unit = lambda y: y / np.sqrt((y * y).sum(1, keepdims=True) + 1e-6)
        q, k, v = unit(q.reshape(key_heads, dk)) * dk**-0.5, unit(k.reshape(key_heads, dk)), v.reshape(value_heads, dv)
        beta = sigmoid(p("in_proj_b.weight") @ x)
        decay = np.exp(-np.exp(p("A_log")) * softplus(p("in_proj_a.weight") @ x + p("dt_bias")))
        S = state.setdefault("S", np.zeros((value_heads, dk, dv)))
        out = np.empty((value_heads, dv))
        for head in range(value_heads):
            key, query = k[head // (value_heads // key_heads)], q[head // (value_heads // key_heads)]
            S[head] *= decay[head]
            S[head] += np.outer(key, beta[head] * (v[head] - key @ S[head]))
            out[head] = query @ S[head]
        z = (p("in_proj_z.weight") @ x).reshape(value_heads, dv)
        return p("out_proj.weight") @ (rms(out, c["rms_norm_eps"]) * p("norm.weight") * silu(z)).reshape(-1)

    def _mlp(self, w, x, at="mlp."):
        p = lambda name: w[f"{at}{name}.weight"]
        return p("down_proj") @ (silu(p("gate_proj") @ x) * (p("up_proj") @ x))

    def _moe(self, w, x):
        k = self.config["num_experts_per_tok"]
        logits = w["mlp.gate.weight"] @ x
        order = np.argsort(-logits, kind="stable")  # ties go to the lowest expert id
        if k < len(order):
            self.min_router_gap = min(self.min_router_gap, logits[order[k - 1]] - logits[order[k]])
        share = np.exp(logits[order[:k]] - logits[order[0]])  # softmax over all, renormalised over the k taken
        y = np.zeros_like(x)
        for expert, weight in zip(order[:k], share / share.sum()):
            gate, up = np.split(w["mlp.experts.gate_up_proj"][expert] @ x, 2)
            y += weight * (w["mlp.experts.down_proj"][expert] @ (silu(gate) * up))
        if "mlp.shared_expert_gate.weight" not in w:
            return y
        return y + sigmoid(w["mlp.shared_expert_gate.weight"][0] @ x) * self._mlp(w, x, "mlp.shared_expert.")

    def logits(self, ids):
        """Logits of every position, [tokens, vocab], and the state after the last."""
        state = self.start()
        return np.stack([self.step(state, token) for token in ids]), state

    def greedy(self, ids, count):
        """`count` greedy ids after the prompt (ties to the lowest id), and the smallest gap of the best two logits."""
        logits, state = self.logits(ids)
        row, out, gap = logits[-1], [], np.inf
        for _ in range(count):
            out.append(int(row.argmax()))
            second, first = np.partition(row, -2)[-2:]
            gap = min(gap, first - second)
            row = self.step(state, out[-1])
        return out, gap


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("--ids", required=True, help="token ids, separated by spaces")
    parser.add_argument("--greedy", type=int, default=0, help="how many greedy ids to append")
    args = parser.parse_args()
    model, ids = Model(args.checkpoint), [int(i) for i in args.ids.split()]
    row = model.logits(ids)[0][-1]
    top = np.argsort(-row, kind="stable")[:8]
    print(json.dumps({"top_ids": top.tolist(), "top_logits": row[top].tolist(),
                      "greedy_ids": model.greedy(ids, args.greedy)[0]}))


if __name__ == "__main__":
    main()
