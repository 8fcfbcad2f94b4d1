# SPDX-License-Identifier: Apache-2.0
"""Reads a Switchyard program file (.swy), its texts and dequantised weights; written from the format's description.

The file is a 64-byte header, a FlatBuffer (core/program/program.fbs) and weight segments, encoded as
switchyard/weights.h says. A field of a FlatBuffers table is found by its place in the schema, which never changes.
"""
import struct
from pathlib import Path

import numpy as np

from safetensors_file import bf16_values

MAGIC = b"\x89SWYP\r\n\x1a"
HEADER_BYTES = 64
PROGRAM_TENSORS, PROGRAM_SOURCE_CONFIG, PROGRAM_TOKENIZER = 3, 8, 11
TENSOR_NAME, TENSOR_DTYPE, TENSOR_GROUP, TENSOR_DIMS, TENSOR_SEGMENTS = range(5)
SEGMENT_OFFSET, SEGMENT_BYTES = 2, 3
F32, BF16, I8, I4, I4A = 1, 2, 4, 5, 6


class Table:
    """One FlatBuffers table at `position` of `data`; fields by index, absent ones as None or the default given."""

    def __init__(self, data, position):
        self.data, self.position = data, position
        self.vtable = position - struct.unpack_from("<i", data, position)[0]
        self.fields = (struct.unpack_from("<H", data, self.vtable)[0] - 4) // 2

    def _at(self, field):
        offset = struct.unpack_from("<H", self.data, self.vtable + 4 + 2 * field)[0] if field < self.fields else 0
        return self.position + offset if offset else None

    def _follow(self, field):
        """Where the string or vector of `field` begins, and its length."""
        at = self._at(field)
        if at is None:
            return 0, 0
        at += struct.unpack_from("<I", self.data, at)[0]
        return at + 4, struct.unpack_from("<I", self.data, at)[0]

    def number(self, field, code, default=0):
        at = self._at(field)
        return default if at is None else struct.unpack_from("<" + code, self.data, at)[0]

    def text(self, field):
        at, length = self._follow(field)
        return bytes(self.data[at : at + length]).decode()

    def numbers(self, field, dtype):
        at, length = self._follow(field)
        return np.frombuffer(self.data, dtype, length, at).tolist()

    def tables(self, field):
        at, length = self._follow(field)
        where = [at + 4 * i for i in range(length)]
        return [Table(self.data, p + struct.unpack_from("<I", self.data, p)[0]) for p in where]


def dequantize(segment, dtype, group, dims):
    """A canonical segment (uint8 array) -> float32 array of shape `dims`."""
    if dtype == F32:
        return segment.view("<f4").reshape(dims)
    if dtype == BF16:
        return bf16_values(segment.view("<u2")).reshape(dims)
    width, rows = dims[-1], int(np.prod(dims[:-1]))
    size = group or width
    groups = -(-width // size)
    align = lambda n: -(-n // 64) * 64
    group_bytes = size if dtype == I8 else (size + 1) // 2
    quant_bytes, scale_bytes = rows * groups * group_bytes, 2 * rows * groups
    plane = lambda at: segment[at : at + scale_bytes].view("<f2").reshape(rows, groups, 1).astype(np.float32)
    raw = segment[:quant_bytes].reshape(rows, groups, group_bytes)
    scales_at = align(quant_bytes)
    scale = plane(scales_at)
    if dtype == I8:
        values = raw.view(np.int8).astype(np.float32) * scale
    elif dtype in (I4, I4A):
        nibbles = np.stack([raw & 15, raw >> 4], axis=-1).reshape(rows, groups, 2 * group_bytes)[..., :size]
        offset = plane(align(scales_at + scale_bytes)) if dtype == I4A else None
        q = nibbles.astype(np.float32)
        values = (q - 8) * scale if offset is None else q * scale + offset
    else:
        raise ValueError(f"dtype {dtype} is no encoding of weights")
    return values.reshape(rows, groups * size)[:, :width].reshape(dims)


class Program:
    """`config` and `tokenizer`: JSON texts. `tensors()`: {checkpoint name: float32 array}."""

    def __init__(self, path):
        self.data = Path(path).read_bytes()
        if self.data[:8] != MAGIC:
            raise SystemExit(f"{path} is not a Switchyard program file")
        self.root = Table(self.data, HEADER_BYTES + struct.unpack_from("<I", self.data, HEADER_BYTES)[0])
        self.config = self.root.text(PROGRAM_SOURCE_CONFIG)
        self.tokenizer = self.root.text(PROGRAM_TOKENIZER)

    def tensors(self):
        out = {}
        for tensor in self.root.tables(PROGRAM_TENSORS):
            canonical = tensor.tables(TENSOR_SEGMENTS)[0]
            count, offset = canonical.number(SEGMENT_BYTES, "Q"), canonical.number(SEGMENT_OFFSET, "Q")
            segment = np.frombuffer(self.data, np.uint8, count, offset)
            out[tensor.text(TENSOR_NAME)] = dequantize(
                segment, tensor.number(TENSOR_DTYPE, "I"), tensor.number(TENSOR_GROUP, "I"),
                tensor.numbers(TENSOR_DIMS, "<u8"),
            )
        return out
