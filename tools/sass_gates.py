#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the CUDA backend's kernels became as machine code, held against a recorded table.

usage: sass_gates.py FILE.so               compare the kernels in FILE.so with the table; exit code 1 if one got worse
       sass_gates.py --record FILE.so...   write the table; of several builds the largest values, since other host
                                           compilers make the device code differ a little
       sass_gates.py --print FILE.so       the kernels, those with the most instructions behind the wait first

FILE may also be an object file or a cubin. For the other targets in FILE, the kernels that OTHER_LIMITS names are held
against limits of registers, stack and spills. Device code that nvcc compressed (--compress-mode=size) is read by
libzstd. Of every kernel for compute capability 9.0, read from the cubins themselves (no tool of the CUDA toolkit is
needed):

  registers   of a thread. A kernel that begins beside the one in front may have 56 (boxes.cuh).
  stack       bytes of a thread's frame
  spills      instructions that load from or store to local memory
  bytes       of machine code: a step's kernels should stay near the instruction cache
  behind      instructions after the first wait for the kernels in front (griddepcontrol.wait, ACQBULK in machine code),
              in the order in which they lie in memory: loops count once, so this is a bound of size, not of time

A value may be smaller than the recorded one. `bytes` and `behind` may also be larger by what SLACK says, so that small
edits need no new record. The table is of one compiler's release; for code of another one there is nothing to compare
with, and the exit code is 77.
"""
import collections
import ctypes
import pathlib
import re
import struct
import subprocess
import sys

TABLE = pathlib.Path(__file__).resolve().with_suffix(".txt")
COLUMNS = ["registers", "stack", "spills", "bytes", "behind"]
SLACK = {"bytes": (1.05, 512), "behind": (1.05, 16)}  # times the recorded value, and at least so many more
# Whatever the table says: kernels of few rows leave registers for the next one, and those of one row touch no local
# memory.
LIMITS = [
    (r"(linear_boxes(_router)?<\w+, \du, 1u(, false)?>|down_boxes<18u>|gate_up_boxes<1u>)$",
     {"registers": 56, "stack": 0, "spills": 0}),
    (r"(linear_boxes(_router)?<\w+, \du, 2u(, false)?>|down_boxes|gate_up_boxes)", {"registers": 56}),
    (r"linear_boxes(_router)?<\w+, \du, 1u, true>", {"registers": 64, "stack": 0, "spills": 0}),
    (r"linear_boxes<\w+, \du, 4u>", {"registers": 64, "stack": 0, "spills": 0}),
    (r"delta_step<\d, true, 1u, false, \w+>", {"registers": 64}),
    (r"(route_walk|gate_up_walk)", {"registers": 64, "stack": 0, "spills": 0}),
    (r"down_walk", {"registers": 80, "stack": 0, "spills": 0}),
]
# Other targets have no table; two or three blocks of their kernels of few rows fit the registers of a multiprocessor.
# Those of one row touch no local memory, but for the output projection of the delta rule on 10.0 and 12.0.
OTHER_LIMITS = [
    (r"linear_async<false, \du, 1u>", {"registers": 64, "stack": 0, "spills": 0}),
    (r"linear_async<", {"registers": 64, "stack": 24, "spills": 12}),
    (r"gate_up_async<1u>|down_async<18u>", {"registers": 80, "stack": 0, "spills": 0}),
    (r"(gate_up|down)_async<", {"registers": 112, "stack": 0, "spills": 0}),
    (r"delta_step<\d, true, 1u, false, true>", {"registers": 64, "stack": 0, "spills": 0}),
    (r"delta_step<\d, true, 1u, false, false>", {"registers": 72, "stack": 0, "spills": 0}),  # states in fp32
    (r"route_boxes<", {"registers": 128, "stack": 0, "spills": 0}),
]
MACHINE, SM90 = 190, 90  # of an ELF header: CUDA; compute capability
FATBIN, ZSTD = b"\x50\xed\x55\xba\x01\x00\x10\x00", b"\x28\xb5\x2f\xfd"  # what these begin with
CODE = 2  # the kind of a fat binary's entry that is machine code; 1: PTX
REGISTERS, FRAME = 0x2F, 0x11  # attributes in .nv.info: of each function
WAIT, LOCAL_LOAD, LOCAL_STORE, NOP, BRANCH = 0x82E, 0x983, 0x387, 0x918, 0x947  # the lower 12 bits of an instruction
INSTRUCTION = 16  # bytes

Cubin = collections.namedtuple("Cubin", "release kernels")


def fail(text):
    sys.exit(f"sass_gates: {text}")


def sections(data, at):
    """[(name, type, link, info, content)] of the ELF file that begins at `at`."""
    table, = struct.unpack_from("<Q", data, at + 40)
    count, names = struct.unpack_from("<HH", data, at + 60)
    raw = [struct.unpack_from("<IIQQQQIIQQ", data, at + table + 64 * i) for i in range(count)]
    content = [data[at + r[4]: at + r[4] + r[5]] if r[1] != 8 else b"" for r in raw]
    text = lambda i: content[names][raw[i][0]: content[names].index(b"\0", raw[i][0])].decode()
    return [(text(i), raw[i][1], raw[i][6], raw[i][7], content[i]) for i in range(count)]


def attributes(info):
    """{attribute: {symbol: value}} of .nv.info: only those that are a value of a symbol."""
    found = collections.defaultdict(dict)
    at = 0
    while at + 4 <= len(info):
        form, kind, size = struct.unpack_from("<BBH", info, at)
        at += 4
        if form != 4:
            continue
        if size == 8:
            symbol, value = struct.unpack_from("<II", info, at)
            found[kind][symbol] = value
        at += size
    return found


def measure(code, registers, stack):
    opcodes = [struct.unpack_from("<Q", code, i)[0] & 0xFFF for i in range(0, len(code) // INSTRUCTION * INSTRUCTION,
                                                                           INSTRUCTION)]
    while opcodes and opcodes[-1] in (NOP, BRANCH):  # what fills the last line of the cache
        opcodes.pop()
    behind = len(opcodes) - 1 - opcodes.index(WAIT) if WAIT in opcodes else 0
    return {"registers": registers, "stack": stack, "spills": sum(o in (LOCAL_LOAD, LOCAL_STORE) for o in opcodes),
            "bytes": len(opcodes) * INSTRUCTION, "behind": behind}


def cubin(data, at):
    """The kernels of the cubin that begins at `at`: {mangled name: values}."""
    parts = sections(data, at)
    symbols = next((c for _, t, _, _, c in parts if t == 2), b"")
    strings = next((c for n, _, _, _, c in parts if n == ".strtab"), b"")
    names = [strings[s: strings.index(b"\0", s)].decode()
             for s, in (struct.unpack_from("<I", symbols, i) for i in range(0, len(symbols), 24))]
    index = {name: i for i, name in enumerate(names)}
    of = attributes(next((c for n, _, _, _, c in parts if n == ".nv.info"), b""))
    release = re.search(rb"release (\d+\.\d+)", b"".join(c for n, _, _, _, c in parts if n.startswith(".note")))
    kernels = {}
    for name, _, _, _, code in parts:
        if name.startswith(".text."):
            symbol = index[name[len(".text."):]]
            kernels[names[symbol]] = measure(code, of[REGISTERS].get(symbol, 0), of[FRAME].get(symbol, 0))
    return Cubin(release.group(1).decode() if release else "unknown", kernels)


def capability(data, at):
    flags, = struct.unpack_from("<I", data, at + 48)
    return flags >> 8 & 0xFF if data[at + 8] >= 8 else flags & 0xFF


def plain(mangled):
    """{mangled: name with its template arguments, without namespaces and parameters}"""
    out = subprocess.run(["c++filt"], input="\n".join(mangled), capture_output=True, text=True, check=True).stdout
    names = {}
    for m, name in zip(mangled, out.splitlines()):
        name = re.sub(r"\(anonymous namespace\)::|\bgpu::|\(\w+\)(?=\d)", "", name)
        names[m] = re.sub(r"^void ", "", re.sub(r"\((?!\w+\)\d).*$", "", name)).strip()
    return names


def expand(packed, size, path):
    if not packed.startswith(ZSTD):
        fail(f"{path}: the device code is compressed, but not by zstd; build it with nvcc --compress-mode=size or none")
    try:
        zstd = ctypes.CDLL("libzstd.so.1")
    except OSError as e:
        fail(f"{path}: the device code is compressed: {e}; install libzstd1, or build with nvcc --compress-mode=none")
    zstd.ZSTD_decompress.restype = ctypes.c_size_t
    to = ctypes.create_string_buffer(size)
    if zstd.ZSTD_decompress(to, ctypes.c_size_t(size), packed, ctypes.c_size_t(len(packed))) != size:
        fail(f"{path}: compressed device code is damaged")
    return to.raw


def compressed(data, path):
    """What the compressed entries of the fat binaries in a file contain."""
    for match in re.finditer(re.escape(FATBIN), data):
        at = match.end() + 8
        end = at + struct.unpack_from("<Q", data, match.end())[0]
        while at < end:
            kind, header, size, packed = struct.unpack_from("<H2xIQI", data, at)
            if kind == CODE and packed:  # bytes; 0 of an entry that is not compressed
                expanded, = struct.unpack_from("<Q", data, at + 56)
                yield expand(data[at + header: at + header + packed], expanded, path)
            at += header + size


def cubins(path):
    """[(file's content, where a cubin begins in it)]"""
    try:
        data = pathlib.Path(path).read_bytes()
    except OSError as e:
        fail(e)
    for one in (data, *compressed(data, path)):
        for match in re.finditer(b"\x7fELF\x02\x01", one):
            if struct.unpack_from("<H", one, match.start() + 18)[0] == MACHINE:
                yield one, match.start()


def read_targets(path):
    """{capability: (compiler's release, {kernel: values})}; of kernels of one name the largest values."""
    targets = {}
    for data, at in cubins(path):
        one = cubin(data, at)
        found = targets.setdefault(capability(data, at), (one.release, {}))[1]
        names = plain(list(one.kernels))
        for mangled, values in one.kernels.items():
            other = found.setdefault(names[mangled], values)
            found[names[mangled]] = {c: max(values[c], other[c]) for c in COLUMNS}
    return targets


def read(path):
    """Those for 9.0."""
    return read_targets(path).get(SM90, (None, {}))


def line(name, values):
    return "".join(f"{values[c]:>10}" for c in COLUMNS) + f"  {name}"


def header(release):
    return f"# nvcc {release}; written by tools/sass_gates.py --record\n#" + "".join(
        f"{c:>10}" for c in COLUMNS)[1:] + "  kernel\n"


def table():
    text = TABLE.read_text()
    rows = {}
    for row in text.splitlines():
        if not row.startswith("#"):
            parts = row.split(maxsplit=len(COLUMNS))
            rows[parts[-1]] = dict(zip(COLUMNS, map(int, parts)))
    return re.match(r"# nvcc (\S+);", text).group(1), rows


def bound(column, recorded):
    factor, more = SLACK.get(column, (1, 0))
    return max(int(recorded * factor), recorded + more)


def beyond(limits, name, values):
    """Lines for what of a kernel is above the limits for its name: those of the first pattern that fits."""
    for pattern, most in limits:
        if re.match(pattern, name):
            for c, n in most.items():
                if values[c] > n:
                    yield f"{name}: {values[c]} {c}, never more than {n}"
            return


def worse_elsewhere(targets):
    """Lines about targets other than 9.0."""
    for target, (_, found) in sorted(targets.items()):
        if target == SM90:
            continue
        for pattern, _ in OTHER_LIMITS:
            if not any(re.match(pattern, name) for name in found):
                yield f"sm_{target}: no kernel is called {pattern}"
        for name in sorted(found):
            for text in beyond(OTHER_LIMITS, name, found[name]):
                yield f"sm_{target}: {text}"


def worse(found, recorded):
    """Lines that say what is wrong."""
    again = f"; if it is meant to be so: {sys.argv[0]} --record FILE.so"
    for name in sorted(found):
        if name not in recorded:
            yield f"{name} is not in {TABLE.name}{again}"
            continue
        for c in COLUMNS:
            if found[name][c] > bound(c, recorded[name][c]):
                yield (f"{name}: {found[name][c]} {c}, at most {bound(c, recorded[name][c])} "
                       f"(recorded {recorded[name][c]}){again}")
        for pattern, limits in LIMITS:
            yield from beyond([(pattern, limits)], name, found[name])
    for name in sorted(set(recorded) - set(found)):
        yield f"{name} is in {TABLE.name}, but not in the file{again}"


def main():
    words = sys.argv[1:]
    mode = words.pop(0) if words and words[0].startswith("-") else "--check"
    if mode in ("-h", "--help") or not words or (len(words) > 1 and mode != "--record"):
        print(__doc__, end="")
        return 0 if mode in ("-h", "--help") else 2
    path = words[0]
    targets = read_targets(path)
    release, found = targets.get(SM90, (None, {}))
    for other in words[1:]:
        for name, values in read(other)[1].items():
            if name in found:
                found[name] = {c: max(values[c], found[name][c]) for c in COLUMNS}
    if not found:
        print(f"sass_gates: no kernels for compute capability 9.0 in {path}: nothing to check")
        return 77
    if mode == "--record":
        TABLE.write_text(header(release) + "".join(line(n, found[n]) + "\n" for n in sorted(found)))
        print(f"sass_gates: {len(found)} kernels recorded in {TABLE}")
        return 0
    if mode == "--print":
        print(header(release), end="")
        print("\n".join(line(n, found[n]) for n in sorted(found, key=lambda n: -found[n]["behind"])))
        return 0
    if mode != "--check":
        fail(f"no option {mode}; --record or --print")
    recorded_release, recorded = table()
    if release != recorded_release:
        print(f"sass_gates: built by nvcc {release}, recorded with {recorded_release}: nothing to compare with")
        return 77
    wrong = list(worse(found, recorded)) + list(worse_elsewhere(targets))
    for text in wrong:
        print(f"sass_gates: {text}")
    if not wrong:
        others = ", ".join(f"sm_{t}" for t in sorted(targets) if t != SM90)
        print(f"sass_gates: {len(found)} kernels within their bounds (nvcc {release})" +
              (f"; those of {others} within theirs" if others else ""))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
