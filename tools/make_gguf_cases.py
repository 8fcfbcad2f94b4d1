# SPDX-License-Identifier: Apache-2.0
"""Records what the `gguf` package makes of random blocks of every type that GGUF files may have and that is read here.

usage: make_gguf_cases.py OUT.bin [SEED]

The file, little-endian: for each type u32 id, u32 elements of a block, u32 bytes of a block, u32 blocks, the blocks,
and the elements as fp32. After random bytes, and each byte 0 or 255, every fp16 scale takes each extreme value, with
random quants and with the largest. Needs: pip install gguf numpy.
"""
import struct
import sys

import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import GGML_QUANT_SIZES
from gguf.quants import dequantize

TYPES = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL",
         "IQ4_XS", "MXFP4"]

# Where the fp16 scales of a block lie. MXFP4 has a byte that is an exponent.
SCALES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0]}
# Infinities, NaNs, the least and the largest subnormal and normal values, zeros of both signs.
EXTREMES = [0x7C00, 0xFC00, 0x7E00, 0xFE01, 0x0001, 0x83FF, 0x0400, 0x7BFF, 0xFBFF, 0x0000, 0x8000]
EXPONENTS = [0, 1, 2, 127, 254, 255]


def extreme_blocks(name, size, rng):
    blocks = []
    for quants in (rng.integers(0, 256, size, dtype=np.uint8), np.full(size, 0xFF, np.uint8)):
        for at in SCALES.get(name, []):
            for bits in EXTREMES:
                block = quants.copy()
                for other in SCALES[name]:
                    block[other:other + 2] = np.frombuffer(struct.pack("<e", 0.5), np.uint8)
                block[at:at + 2] = np.frombuffer(struct.pack("<H", bits), np.uint8)
                blocks.append(block)
        for exponent in EXPONENTS if name == "MXFP4" else []:
            blocks.append(quants.copy())
            blocks[-1][0] = exponent
    return blocks


def main():
    rng = np.random.default_rng(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    with open(sys.argv[1], "wb") as out:
        for name in TYPES:
            kind = Type[name]
            elements, size = GGML_QUANT_SIZES[kind]
            count = max(4, 64 // elements)
            blocks = rng.integers(0, 256, (count, size), dtype=np.uint8)
            if elements > 1:  # every byte the same: the extremes of all fields at once
                blocks[0], blocks[1] = 0, 0xFF
            blocks = np.stack([*blocks, *extreme_blocks(name, size, rng)])
            count = len(blocks)
            with np.errstate(all="ignore"):
                if name == "F32":
                    values = blocks.view(np.float32)
                elif name == "F16":
                    values = blocks.view(np.float16).astype(np.float32)
                else:
                    values = dequantize(blocks, kind)
            out.write(struct.pack("<4I", int(kind), elements, size, count))
            out.write(blocks.tobytes())
            out.write(values.astype("<f4").tobytes())


if __name__ == "__main__":
    main()
