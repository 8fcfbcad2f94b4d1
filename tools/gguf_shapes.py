# SPDX-License-Identifier: Apache-2.0
"""Tensors and settings of published models, as a GGUF file has them: with as many layers and tokens as asked for."""
F32, Q4_0 = 0, 2  # types of tensors in a GGUF file
CONTEXT = 40960   # what every shape here allows at least


def matrix(name, *dims, scale=1.0, kind=Q4_0):
    return name + ".weight", dims, kind, 0.0, scale * dims[-1] ** -0.5


def norm(name, width):
    return name + ".weight", (width,), F32, 1.0, 0.05


def back_of(layers):
    """What returns to the residual stream grows it by a bounded factor over all layers."""
    return (2 * layers) ** -0.5


class Qwen35Moe:
    """Qwen3.5-35B-A3B."""
    arch, context, hidden, full_every = "qwen35moe", 262144, 2048, 4
    heads, kv_heads, head_dim, rotated, sections = 16, 2, 256, 64, [11, 11, 10, 0]
    key_heads, value_heads, state_dim, conv = 16, 32, 128, 4
    experts, top_k, width = 256, 8, 512

    def layer(self, layer, back):
        b, keys, values = f"blk.{layer}.", self.key_heads * self.state_dim, self.value_heads * self.state_dim
        yield norm(b + "attn_norm", self.hidden)
        if (layer + 1) % self.full_every == 0:
            yield matrix(b + "attn_q", 2 * self.heads * self.head_dim, self.hidden)  # queries and the gate
            yield matrix(b + "attn_k", self.kv_heads * self.head_dim, self.hidden)
            yield matrix(b + "attn_v", self.kv_heads * self.head_dim, self.hidden)
            yield norm(b + "attn_q_norm", self.head_dim)
            yield norm(b + "attn_k_norm", self.head_dim)
            yield matrix(b + "attn_output", self.hidden, self.heads * self.head_dim, scale=back)
        else:
            yield matrix(b + "attn_qkv", 2 * keys + values, self.hidden)
            yield matrix(b + "attn_gate", values, self.hidden)
            yield matrix(b + "ssm_alpha", self.value_heads, self.hidden)
            yield matrix(b + "ssm_beta", self.value_heads, self.hidden)
            yield b + "ssm_conv1d.weight", (2 * keys + values, self.conv), F32, 0.0, 0.5
            yield b + "ssm_a", (self.value_heads,), F32, -5.0, 1.0  # minus the rate of forgetting, times softplus below
            yield b + "ssm_dt.bias", (self.value_heads,), F32, -3.0, 1.0
            yield norm(b + "ssm_norm", self.state_dim)
            yield matrix(b + "ssm_out", self.hidden, values, scale=back)
        yield norm(b + "post_attention_norm", self.hidden)
        yield matrix(b + "ffn_gate_inp", self.experts, self.hidden, kind=F32)
        yield matrix(b + "ffn_gate_exps", self.experts, self.width, self.hidden)
        yield matrix(b + "ffn_up_exps", self.experts, self.width, self.hidden)
        yield matrix(b + "ffn_down_exps", self.experts, self.hidden, self.width, scale=back)
        yield matrix(b + "ffn_gate_inp_shexp", self.hidden, kind=F32)
        yield matrix(b + "ffn_gate_shexp", self.width, self.hidden)
        yield matrix(b + "ffn_up_shexp", self.width, self.hidden)
        yield matrix(b + "ffn_down_shexp", self.hidden, self.width, scale=back)

    def settings(self):
        return {
            "attention.layer_norm_rms_epsilon": 1e-6, "full_attention_interval": self.full_every,
            "rope.freq_base": 1e7, "rope.dimension_count": self.rotated, "rope.dimension_sections": self.sections,
            "ssm.conv_kernel": self.conv, "ssm.state_size": self.state_dim, "ssm.group_count": self.key_heads,
            "ssm.time_step_rank": self.value_heads, "ssm.inner_size": self.value_heads * self.state_dim,
            "expert_count": self.experts, "expert_used_count": self.top_k,
            "expert_feed_forward_length": self.width, "expert_shared_feed_forward_length": self.width,
        }


class Qwen3:
    """Qwen3-8B."""
    arch, context, hidden, heads, kv_heads, head_dim, width = "qwen3", 40960, 4096, 32, 8, 128, 12288

    def layer(self, layer, back):
        b = f"blk.{layer}."
        yield norm(b + "attn_norm", self.hidden)
        yield matrix(b + "attn_q", self.heads * self.head_dim, self.hidden)
        yield matrix(b + "attn_k", self.kv_heads * self.head_dim, self.hidden)
        yield matrix(b + "attn_v", self.kv_heads * self.head_dim, self.hidden)
        yield norm(b + "attn_q_norm", self.head_dim)
        yield norm(b + "attn_k_norm", self.head_dim)
        yield matrix(b + "attn_output", self.hidden, self.heads * self.head_dim, scale=back)
        yield norm(b + "ffn_norm", self.hidden)
        yield from self.feed_forward(b, back)

    def feed_forward(self, b, back):
        yield matrix(b + "ffn_gate", self.width, self.hidden)
        yield matrix(b + "ffn_up", self.width, self.hidden)
        yield matrix(b + "ffn_down", self.hidden, self.width, scale=back)

    def settings(self):
        return {"attention.layer_norm_rms_epsilon": 1e-6, "rope.freq_base": 1e6, "feed_forward_length": self.width}


class Qwen3Moe(Qwen3):
    """Qwen3-30B-A3B."""
    arch, hidden, kv_heads, width, experts, top_k, expert_width = "qwen3moe", 2048, 4, 6144, 128, 8, 768

    def feed_forward(self, b, back):
        yield matrix(b + "ffn_gate_inp", self.experts, self.hidden, kind=F32)
        yield matrix(b + "ffn_gate_exps", self.experts, self.expert_width, self.hidden)
        yield matrix(b + "ffn_up_exps", self.experts, self.expert_width, self.hidden)
        yield matrix(b + "ffn_down_exps", self.experts, self.hidden, self.expert_width, scale=back)

    def settings(self):
        return super().settings() | {"expert_count": self.experts, "expert_used_count": self.top_k,
                                     "expert_feed_forward_length": self.expert_width}


# By the name that `synth:` has for the shape.
SHAPES = {"qwen3.5-35b-a3b": Qwen35Moe(), "qwen3-30b-a3b": Qwen3Moe(), "qwen3-8b": Qwen3()}


def tensors(shape, layers, vocab):
    """Yields (name, dims with the contiguous one last, type, mean, deviation of the values)."""
    yield "token_embd.weight", (vocab, shape.hidden), Q4_0, 0.0, 1.0
    for layer in range(layers):
        yield from shape.layer(layer, back_of(layers))
    yield norm("output_norm", shape.hidden)
    yield matrix("output", vocab, shape.hidden)


def metadata(shape, layers, vocab):
    own = {
        "vocab_size": vocab, "block_count": layers, "context_length": shape.context, "embedding_length": shape.hidden,
        "attention.head_count": shape.heads, "attention.head_count_kv": shape.kv_heads,
        "attention.key_length": shape.head_dim, "attention.value_length": shape.head_dim,
    } | shape.settings()
    return {
        "general.architecture": shape.arch, "general.name": "random weights", "general.file_type": 2,
        "tokenizer.ggml.model": "no_vocab",
    } | {f"{shape.arch}.{name}": value for name, value in own.items()}
