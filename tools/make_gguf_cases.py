# SPDX-License-Identifier: Apache-2.0
"""Records what the `gguf` package makes of random blocks of every type that GGUF files may have and that is read here.

usage: make_gguf_cases.py OUT.bin [SEED]

The file, little-endian: for each type u32 id, u32 elements of a block, u32 bytes of a block, u32 blocks, the blocks, and the
elements as fp32. Random bytes give every scale, zeros, subnormals and infinities among them. Needs: pip install gguf numpy.
"""
import struct
import sys

import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import GGML_QUANT_SIZES
from gguf.quants import dequantize

TYPES = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL",
         "IQ4_XS", "MXFP4"]


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
