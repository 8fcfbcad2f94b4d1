# SPDX-License-Identifier: Apache-2.0
"""Makes a checkpoint of the shape of Qwen3.5-35B-A3B whose shards are sparse files of zeros: for measuring `convert`.

usage: make_sparse_checkpoint.py FOLDER [LAYERS]

It takes next to no disk; converting it reads as many bytes as a real one would.
"""
import json
import os
import struct
import sys


def tensors(layers):
    hidden, vocab, experts, width = 2048, 248320, 256, 512
    yield "model.embed_tokens.weight", [vocab, hidden]
    yield "lm_head.weight", [vocab, hidden]
    yield "model.norm.weight", [hidden]
    for i in range(layers):
        p = f"model.layers.{i}."
        yield p + "input_layernorm.weight", [hidden]
        yield p + "post_attention_layernorm.weight", [hidden]
        if (i + 1) % 4 == 0:
            yield p + "self_attn.q_proj.weight", [8192, hidden]
            yield p + "self_attn.k_proj.weight", [512, hidden]
            yield p + "self_attn.v_proj.weight", [512, hidden]
            yield p + "self_attn.o_proj.weight", [hidden, 4096]
            yield p + "self_attn.q_norm.weight", [256]
            yield p + "self_attn.k_norm.weight", [256]
        else:
            q = p + "linear_attn."
            yield q + "in_proj_qkv.weight", [8192, hidden]
            yield q + "in_proj_z.weight", [4096, hidden]
            yield q + "in_proj_b.weight", [32, hidden]
            yield q + "in_proj_a.weight", [32, hidden]
            yield q + "out_proj.weight", [hidden, 4096]
            yield q + "norm.weight", [128]
            yield q + "conv1d.weight", [8192, 1, 4]
            yield q + "A_log", [32]
            yield q + "dt_bias", [32]
        m = p + "mlp."
        yield m + "gate.weight", [experts, hidden]
        yield m + "experts.gate_up_proj", [experts, 2 * width, hidden]
        yield m + "experts.down_proj", [experts, hidden, width]
        for name in ("gate_proj", "up_proj"):
            yield m + f"shared_expert.{name}.weight", [width, hidden]
        yield m + "shared_expert.down_proj.weight", [hidden, width]
        yield m + "shared_expert_gate.weight", [1, hidden]


def main():
    folder, layers = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 40
    os.makedirs(folder, exist_ok=True)
    header, end = {}, 0
    for name, shape in tensors(layers):
        size = 2
        for d in shape:
            size *= d
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    with open(folder + "/model.safetensors", "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        out.truncate(8 + len(text) + end)
    config = dict(model_type="qwen3_5_moe", hidden_size=2048, num_hidden_layers=layers, vocab_size=248320, num_attention_heads=16,
                  num_key_value_heads=2, head_dim=256, linear_num_key_heads=16, linear_num_value_heads=32, linear_key_head_dim=128,
                  linear_value_head_dim=128, linear_conv_kernel_dim=4, num_experts=256, num_experts_per_tok=8,
                  moe_intermediate_size=512, shared_expert_intermediate_size=512, rms_norm_eps=1e-6, max_position_embeddings=262144,
                  tie_word_embeddings=False, rope_parameters={"rope_theta": 1e7, "partial_rotary_factor": 0.25})
    with open(folder + "/config.json", "w") as out:
        json.dump(config, out)
    print(f"{folder}: {end / 1e9:.1f} GB of weights, {os.stat(folder + '/model.safetensors').st_blocks * 512} bytes on disk")


if __name__ == "__main__":
    main()
