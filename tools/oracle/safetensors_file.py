# SPDX-License-Identifier: Apache-2.0
"""Reads and writes safetensors files with NumPy alone, so that the oracle shares no code with what it checks.

Format: an unsigned 64-bit little-endian header length, that many bytes of JSON ({name: {dtype, shape, data_offsets}}),
then the tensors' bytes; offsets count from the end of the header. NumPy has no bfloat16: its values travel as float32.
"""
import json
from pathlib import Path

import numpy as np

DTYPES = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "I64": np.int64, "U8": np.uint8}


def bf16_bits(x):
    """float array -> uint16 bfloat16 bits, rounded to nearest even."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def bf16_values(bits):
    """uint16 bfloat16 bits -> float32 array of the same shape."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def read(path):
    """One file -> {name: (array, dtype name)}; BF16 tensors come back as float32 values."""
    data = Path(path).read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    tensors = {}
    for name, info in json.loads(data[8:start]).items():
        if name == "__metadata__":
            continue
        first, last = info["data_offsets"]
        raw = data[start + first : start + last]
        if info["dtype"] == "BF16":
            values = bf16_values(np.frombuffer(raw, "<u2"))
        else:
            values = np.frombuffer(raw, np.dtype(DTYPES[info["dtype"]]).newbyteorder("<"))
        tensors[name] = (values.reshape(info["shape"]), info["dtype"])
    return tensors


def read_folder(folder):
    """Every *.safetensors of a checkpoint folder -> {name: array}."""
    paths = sorted(Path(folder).glob("*.safetensors"))
    return {name: array for path in paths for name, (array, _) in read(path).items()}


def write(path, tensors):
    """{name: (array, "BF16", "F32" or "U8")} -> one file. Tensors are laid out in the order given, tightly packed."""
    header, blobs, offset = {}, [], 0
    for name, (array, dtype) in tensors.items():
        kind = {"BF16": "<u2", "F32": "<f4", "U8": "u1"}[dtype]
        blob = (bf16_bits(array) if dtype == "BF16" else array).astype(kind).tobytes()
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [offset, offset + len(blob)]}
        blobs.append(blob)
        offset += len(blob)
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    text += b" " * (-len(text) % 8)
    Path(path).write_bytes(len(text).to_bytes(8, "little") + text + b"".join(blobs))
