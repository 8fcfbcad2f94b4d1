# SPDX-License-Identifier: Apache-2.0
"""Writes a GGUF file of the shape of Qwen3.5-35B-A3B with random weights, in the types of llama.cpp's Q4_K_M.

usage: make_gguf_model.py OUT.gguf [--layers 40] [--vocab 248320 | --tokenizer OTHER.gguf]
(needs NumPy; with --tokenizer also the package gguf; the whole model takes 20 GiB)

Which tensors have more bits is what llama-quantize chooses for this architecture: Q6_K for the output, and for
attn_qkv, attn_v, ffn_down_exps and ffn_down_shexp of about half of the layers; Q4_K for all other matrices. A few
thousand random blocks are repeated: the values do not matter to what time and memory the file takes.
"""
import argparse
import os
import struct
from pathlib import Path

import numpy as np
import peer_llama_cpp as peer
from gguf_shapes import F32, SHAPES, metadata, tensors

Q4_K, Q6_K = 12, 14
BLOCK_BYTES = {Q4_K: 144, Q6_K: 210}  # of 256 elements
REPEATED = 4096                       # blocks
SHAPE = SHAPES["qwen3.5-35b-a3b"]
MOSTLY_Q4_K_M = 15
MORE_BITS = ("attn_qkv.weight", "attn_v.weight", "ffn_down_exps.weight", "ffn_down_shexp.weight")


def with_more_bits(layer, layers):
    return layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2


def kind_of(name, kind, dims, layers):
    if kind == F32 or dims[-1] % 256 != 0:
        return F32
    if name == "output.weight":
        return Q6_K
    parts = name.split(".", 2)
    more = parts[0] == "blk" and parts[2] in MORE_BITS and with_more_bits(int(parts[1]), layers)
    return Q6_K if more else Q4_K


def bytes_of(dims, kind):
    elements = int(np.prod(dims))
    return elements * 4 if kind == F32 else elements // 256 * BLOCK_BYTES[kind]


def random_blocks(kind, deviation, generator):
    """Blocks whose values have about this deviation, and a mean of 0."""
    blocks = np.frombuffer(generator.bytes(REPEATED * BLOCK_BYTES[kind]), np.uint8).reshape(REPEATED, -1).copy()
    if kind == Q4_K:  # d * scale * q - dmin * min, with scales and minima of 6 bits and q of 4
        d = np.full(REPEATED, deviation / 260, np.float16)
        blocks[:, 0:2], blocks[:, 2:4] = d.view(np.uint8).reshape(-1, 2), (7.5 * d).view(np.uint8).reshape(-1, 2)
    else:             # d * scale * (q - 32), with scales of 8 bits and q of 6
        blocks[:, 208:210] = np.full(REPEATED, deviation / 1369, np.float16).view(np.uint8).reshape(-1, 2)
    return blocks.tobytes()


def tokenizer_of(path):
    """The tokenizer's settings of another GGUF file, each as the bytes that stand there, and how many tokens it has."""
    import gguf
    fields = {k: f for k, f in gguf.GGUFReader(path).fields.items() if k.startswith("tokenizer.")}
    tokens = len(fields["tokenizer.ggml.tokens"].data)
    return [b"".join(part.tobytes() for part in f.parts) for f in fields.values()], tokens


def header_bytes(chosen, layers, vocab, tokenizer):
    keys = metadata(SHAPE, layers, vocab) | {"general.file_type": MOSTLY_Q4_K_M}
    if tokenizer:
        keys = {k: v for k, v in keys.items() if not k.startswith("tokenizer.")}
    infos, offset = [], 0
    for name, dims, kind, _, _ in chosen:
        infos.append(peer.text_bytes(name) + struct.pack(f"<I{len(dims)}Q", len(dims), *reversed(dims))
                     + struct.pack("<IQ", kind, offset))
        offset += -(-bytes_of(dims, kind) // peer.ALIGNMENT) * peer.ALIGNMENT
    head = b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(keys) + len(tokenizer))
    head += b"".join([peer.text_bytes(k) + peer.value_bytes(v) for k, v in keys.items()] + tokenizer + infos)
    return head.ljust(-(-len(head) // peer.ALIGNMENT) * peer.ALIGNMENT, b"\0")


def write_repeated(file, data, size):
    while size > 0:
        size -= file.write(data[:size])


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("out", type=Path)
    p.add_argument("--layers", type=peer.whole(1, 4096), default=40)
    p.add_argument("--vocab", type=peer.whole(32, 1 << 24), default=248320)
    p.add_argument("--tokenizer", type=Path, metavar="OTHER.gguf", help="take the tokenizer of this file, and its size")
    o = p.parse_args()
    tokenizer, vocab = tokenizer_of(o.tokenizer) if o.tokenizer else ([], o.vocab)
    generator = np.random.Generator(np.random.SFC64(1))
    chosen = [(name, dims, kind_of(name, kind, dims, o.layers), mean, deviation)
              for name, dims, kind, mean, deviation in tensors(SHAPE, o.layers, vocab)]
    part, made = o.out.with_name(o.out.name + ".part"), {}
    with open(part, "wb", buffering=0) as file:
        file.write(header_bytes(chosen, o.layers, vocab, tokenizer))
        for _, dims, kind, mean, deviation in chosen:
            size = bytes_of(dims, kind)
            if kind == F32:
                data = peer.values_of(F32, mean, deviation, size, generator)
            else:
                data = made.get((kind, deviation)) or random_blocks(kind, deviation, generator)
                made[kind, deviation] = data
            write_repeated(file, memoryview(data), size)
            file.write(bytes(-size % peer.ALIGNMENT))
    os.replace(part, o.out)


if __name__ == "__main__":
    main()
