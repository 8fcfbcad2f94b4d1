# SPDX-License-Identifier: Apache-2.0
"""tools/sass_gates.py on files with a kernel of three instructions, as it lies there and compressed. No compiler."""
import ctypes
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

GATES = pathlib.Path(__file__).resolve().parents[2] / "tools/sass_gates.py"
CODE = b"".join(struct.pack("<QQ", opcode, 0) for opcode in (0x82E, 0x387, 0x94D))  # waits, spills, ends


def cubin():
    """For compute capability 9.0: a kernel `waits` of 56 registers, with a frame of 8 bytes."""
    info = b"".join(struct.pack("<BBHII", 4, kind, 8, 1, value) for kind, value in ((0x2F, 56), (0x11, 8)))
    parts = [("", 0, b""), (".shstrtab", 3, b""), (".strtab", 3, b"\0waits\0"),
             (".symtab", 2, bytes(24) + struct.pack("<I", 1) + bytes(20)), (".nv.info", 1, info),
             (".note.tool", 7, b"release 13.0"), (".text.waits", 1, CODE)]
    names = b"".join(name.encode() + b"\0" for name, _, _ in parts)
    parts[1] = (".shstrtab", 3, names)
    body, table, name_at = b"", b"", 0
    for name, kind, content in parts:
        table += struct.pack("<IIQQQQIIQQ", name_at, kind, 0, 0, 64 + len(body), len(content), 0, 0, 1, 0)
        body += content
        name_at += len(name) + 1
    head = b"\x7fELF\x02\x01\x01\x33\x07" + bytes(7)
    head += struct.pack("<HHIQQQIHHHHHH", 2, 190, 1, 0, 0, 64 + len(body), 90, 64, 0, 0, 64, len(parts), 1)
    return head + body + table


def zstd(content):
    library = ctypes.CDLL("libzstd.so.1")
    library.ZSTD_compress.restype = ctypes.c_size_t
    room = len(content) + 1024
    to = ctypes.create_string_buffer(room)
    size = library.ZSTD_compress(to, ctypes.c_size_t(room), content, ctypes.c_size_t(len(content)), 3)
    return to.raw[:size]


def fat_binary(content, packed):
    """As nvcc makes it: PTX, which may be compressed in another way, then code, as it is and compressed."""
    entries = b""
    for kind, payload, compressed_bytes, expanded in ((1, b"ptx ....", 6, 20), (2, b"not ELF.", 0, 0),
                                                      (2, packed, len(packed), len(content))):
        payload += bytes(-len(payload) % 8)
        entries += struct.pack("<HHIQIIIIQQQQ", kind, 0x101, 64, len(payload), compressed_bytes, 0, 0, 90, 0, 0, 0,
                               expanded) + payload
    return b"\x50\xed\x55\xba\x01\x00\x10\x00" + struct.pack("<Q", len(entries)) + entries


class Reading(unittest.TestCase):
    def said(self, content):
        with tempfile.NamedTemporaryFile() as file:
            file.write(b"what comes before" + content)
            file.flush()
            run = subprocess.run([sys.executable, GATES, "--print", file.name], capture_output=True, text=True,
                                 timeout=60)
            return run.returncode, (run.stdout + run.stderr).replace(file.name, "FILE")

    def test_a_kernel(self):
        code, text = self.said(cubin())
        self.assertEqual(code, 0, text)
        self.assertIn("# nvcc 13.0;", text)
        self.assertEqual(text.splitlines()[-1].split(), ["56", "8", "1", "48", "2", "waits"])

    def test_a_compressed_kernel(self):
        self.assertEqual(self.said(fat_binary(cubin(), zstd(cubin()))), self.said(cubin()))

    def test_other_compression(self):
        code, text = self.said(fat_binary(cubin(), b"some other form of it"))
        self.assertEqual((code, text), (1, "sass_gates: FILE: the device code is compressed, but not by zstd; build it "
                                           "with nvcc --compress-mode=size or none\n"))

    def test_damage(self):
        packed = zstd(cubin())
        code, text = self.said(fat_binary(cubin(), packed[:-40] + bytes(40)))
        self.assertEqual((code, text), (1, "sass_gates: FILE: compressed device code is damaged\n"))

    def test_no_kernel(self):
        code, text = self.said(b"")
        self.assertEqual((code, text), (77, "sass_gates: no kernels for compute capability 9.0 in FILE: nothing to "
                                            "check\n"))


if __name__ == "__main__":
    unittest.main()
