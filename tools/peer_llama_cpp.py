# SPDX-License-Identifier: Apache-2.0
"""Measures llama.cpp's CPU backend and Switchyard in one run, on models of the same shape and bytes per weight.

A shape of gguf_shapes.py with random weights, 4.5 bits each: `synth:SHAPE` (i4 in groups of 32) here, Q4_0 there, in a
GGUF file that this program writes (no package but NumPy). The two programs take turns; ratios are taken within a pair
of turns, and load by others is told, since it slows the two differently. --help tells how to run it.
"""
import argparse
import errno
import json
import os
import shlex
import statistics
import struct
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

try:
    import numpy as np
except ImportError:
    sys.exit("peer_llama_cpp.py: needs NumPy, to write the GGUF file; install it (Debian: apt install python3-numpy)")

from gguf_shapes import CONTEXT, F32, SHAPES, metadata, tensors

HELP = """\
First, llama.cpp's benchmark, from its source (for example the one that the sdist of llama-cpp-python carries in
vendor/llama.cpp). Clang, because GCC 12 miscompiles its AMX kernels; the macros, because clang 14 spells them
otherwise and llama.cpp then leaves AMX out:

  AMX="-D__AMX_TILE__ -D__AMX_INT8__ -D__AMX_BF16__"
  cmake -S llama.cpp -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_COMPILER=clang \\
    -DCMAKE_CXX_COMPILER=clang++ -DBUILD_SHARED_LIBS=OFF -DGGML_NATIVE=ON -DLLAMA_OPENSSL=OFF \\
    -DCMAKE_C_FLAGS="$AMX" -DCMAKE_CXX_FLAGS="$AMX"
  cmake --build build --target llama-bench

Then, for four layers on two threads, and for the whole model (18 GiB) on sixteen:

  peer_llama_cpp.py --llama-bench build/bin/llama-bench --switchyard switchyard --gguf slice.gguf
  peer_llama_cpp.py --llama-bench build/bin/llama-bench --switchyard switchyard --gguf whole.gguf \\
    --layers 40 --vocab 248320 --threads 16 --pairs 3

`others` is how many cores other programs used meanwhile. Threads that wait for each other lose far more than their
share to other load, so what counts are the pairs without it, which have a table of their own. Ctrl-C ends the pairs and
prints the tables. A GGUF of the right size is used as it is.
"""

BLOCK, BLOCK_BYTES = 32, 18      # Q4_0: an fp16 scale and 32 nibbles q for scale * (q - 8)
NIBBLE_DEVIATION = 4.61          # of a uniform whole number in -8..7
ALIGNMENT, CHUNK_BYTES = 32, 18 << 20


class Fail(Exception):
    """What is wrong and what to do, in one line."""


# ---- the GGUF file (version 3, little endian)


def bytes_of(dims, kind):
    return int(np.prod(dims)) * 4 if kind == F32 else int(np.prod(dims)) // BLOCK * BLOCK_BYTES


def text_bytes(text):
    return struct.pack("<Q", len(text)) + text.encode()


def value_bytes(value):
    if isinstance(value, str):
        return struct.pack("<I", 8) + text_bytes(value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, list):
        return struct.pack(f"<IIQ{len(value)}i", 9, 5, len(value), *value)
    return struct.pack("<II", 4, value)


def header_bytes(shape, layers, vocab):
    keys, infos, offset = metadata(shape, layers, vocab), [], 0
    for name, dims, kind, _, _ in tensors(shape, layers, vocab):
        sizes = struct.pack(f"<I{len(dims)}Q", len(dims), *reversed(dims))
        infos.append(text_bytes(name) + sizes + struct.pack("<IQ", kind, offset))
        offset += -(-bytes_of(dims, kind) // ALIGNMENT) * ALIGNMENT
    head = b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(keys))
    head += b"".join(text_bytes(k) + value_bytes(v) for k, v in keys.items()) + b"".join(infos)
    return head.ljust(-(-len(head) // ALIGNMENT) * ALIGNMENT, b"\0"), offset


def values_of(kind, mean, deviation, n_bytes, generator):
    """Random values of one type, as bytes. A scale's sign is random, so that the mean of its values is zero."""
    if kind == F32:
        return (mean + deviation * generator.standard_normal(n_bytes // 4, dtype=np.float32)).tobytes()
    blocks = np.frombuffer(generator.bytes(n_bytes), np.uint8).reshape(-1, BLOCK_BYTES).copy()
    low, high = np.float16(deviation / NIBBLE_DEVIATION).tobytes()
    blocks[:, 0] = low
    blocks[:, 1] = blocks[:, 1] & 0x80 | high
    return blocks.tobytes()


def write_gguf(path, shape, layers, vocab, threads):
    """Leaves a file that is there with the size that this shape has; writes to a name of its own until it is whole."""
    head, size = header_bytes(shape, layers, vocab)
    if path.exists() and path.stat().st_size == len(head) + size:
        return
    jobs, offset = [], len(head)
    for _, dims, kind, mean, deviation in tensors(shape, layers, vocab):
        n = bytes_of(dims, kind)
        jobs += [(offset + at, kind, mean, deviation, min(CHUNK_BYTES, n - at)) for at in range(0, n, CHUNK_BYTES)]
        offset += -(-n // ALIGNMENT) * ALIGNMENT
    part = path.with_name(path.name + ".part")
    print(f"writing {path}: {(len(head) + size) / 2**30:.2f} GiB", file=sys.stderr)

    def fill(job):
        at, kind, mean, deviation, n = job
        data = values_of(kind, mean, deviation, n, np.random.Generator(np.random.SFC64(at)))
        if os.pwrite(f.fileno(), data, at) != n:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    try:
        with open(part, "wb") as f, ThreadPoolExecutor(threads) as pool:
            f.write(head)
            f.flush()
            f.truncate(len(head) + size)
            list(pool.map(fill, jobs))
        part.rename(path)
    except OSError as e:
        part.unlink(missing_ok=True)
        raise Fail(f"cannot write {path}: {e.strerror}") from e


# ---- the two programs


def clocks():
    """Seconds: processor time of the whole machine, of our children, and the time."""
    with open("/proc/stat", encoding="ascii") as f:
        user, nice, system, _, _, irq, soft, steal = map(int, f.readline().split()[1:9])
    t = os.times()
    busy = (user + nice + system + irq + soft + steal) / os.sysconf("SC_CLK_TCK")
    return busy, t.children_user + t.children_system, time.monotonic()


def others_since(before):
    """Cores that other programs used, on average."""
    busy, own, seconds = (b - a for a, b in zip(before, clocks()))
    return max(0.0, busy - own) / seconds


def wait_for_quiet(o):
    end = time.monotonic() + o.patience
    while time.monotonic() < end:
        before = clocks()
        time.sleep(2)
        if others_since(before) < o.quiet:
            return


def run(command, o):
    """The command's JSON and the cores that others used meanwhile."""
    if o.verbose:
        print("$ " + shlex.join(command), file=sys.stderr)
    before = clocks()
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    except OSError as e:
        raise Fail(f"cannot run {command[0]}: {e.strerror}; give the path of the program") from e
    others = others_since(before)
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise Fail(f"{shlex.join(command)} ended with status {done.returncode}: "
                   + (" | ".join(lines[-3:]) or "no message"))
    try:
        return json.loads(done.stdout), others
    except json.JSONDecodeError as e:
        raise Fail(f"{shlex.join(command)} printed no JSON: {e}") from e


def llama(what, o):
    """Tokens per second by row, medians of the repeats (each program runs once more, uncounted), and others' cores."""
    flags = ["-p", o.prefill, "-n", "0"] if what == "prefill" else ["-p", "0", "-n", str(o.decode), "-d", o.depth]
    rows, others = run([o.llama_bench, "-m", str(o.gguf), "-t", str(o.threads), "-r", str(o.repeat), "-o", "json"]
                       + flags + shlex.split(o.llama_flags), o)
    name = "prefill" if what == "prefill" else "decode at"
    return {f"{name} {r['n_prompt'] or r['n_depth']}": statistics.median(r["samples_ts"]) for r in rows}, others


def switchyard(what, o):
    """The same of ours. Its rate of decoding is the mean over all tokens, as theirs is."""
    flags = ["--prefill", o.prefill, "--decode", "0"] if what == "prefill" else \
        ["--prefill", "1", "--decode", str(o.decode), "--depth", o.depth]
    out, others = run([o.switchyard, "bench", f"synth:{o.shape},layers={o.layers},vocab={o.vocab}", "--backend",
                       "cpu", "--threads", str(o.threads), "--repeat", str(o.repeat), "--random", "--time-limit", "3600",
                       "--json"] + flags + shlex.split(o.switchyard_flags), o)
    rates = {}
    for cell in out["configurations"][0]["cells"]:
        if cell["state"] != "measured":
            raise Fail(f"switchyard bench: {cell['metric']} at {cell['at']}: {cell['reason']}")
        if cell["metric"] == what == "prefill":
            rates[f"prefill {cell['at']}"] = cell["rate"]["median"]
        elif cell["metric"] == what:
            rates[f"decode at {cell['at']}"] = cell["tokens"] / statistics.mean(cell["samples"])
    return rates, others


def measure_pair(pair, what, o, rows):
    wait_for_quiet(o)
    theirs, others_there = llama(what, o)
    ours, others = switchyard(what, o)
    if theirs.keys() != ours.keys():
        raise Fail(f"llama-bench measured {', '.join(theirs)}, switchyard {', '.join(ours)}")
    for name, b in ours.items():
        a = theirs[name]
        rows.setdefault(name, []).append((a, b, max(others_there, others) < o.quiet))
        print(f"{pair:<5} {name:<16} {a:>10.1f} {others_there:>7.2f} {b:>11.1f} {others:>7.2f} {b / a:>6.2f}x",
              flush=True)


def compare(o):
    rows = {}
    print(f"{'pair':<5} {'':<16} {'llama.cpp':>10} {'others':>7} {'switchyard':>11} {'others':>7} {'ratio':>7}",
          flush=True)
    try:
        for pair in range(1, o.pairs + 1):
            for what in ("prefill", "decode"):
                measure_pair(pair, what, o, rows)
    except KeyboardInterrupt:
        print("interrupted; what there is:", file=sys.stderr)
    summarize("all pairs", rows)
    summarize(f"others below {o.quiet:g}", {n: [r for r in all_of if r[2]] for n, all_of in rows.items()})


def summarize(title, rows):
    print(f"\n{title:<22} {'llama.cpp':>10} {'switchyard':>11} {'ratio':>7}   medians, and the ratios' range")
    for name, pairs in rows.items():
        if not pairs:
            print(f"{name:<22} no such pair")
            continue
        theirs, ours, _ = zip(*pairs)
        ratios = [b / a for a, b, _ in pairs]
        print(f"{name:<22} {statistics.median(theirs):>10.1f} {statistics.median(ours):>11.1f} "
              f"{statistics.median(ratios):>6.2f}x   {min(ratios):.2f} to {max(ratios):.2f} of {len(pairs)} pairs")


# ---- the command line


def whole(low, high):
    def parse(text):
        if not text.isdecimal() or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"'{text}' is not a whole number from {low} to {high}")
        return int(text)
    return parse


def wholes(low, high):
    def parse(text):
        return ",".join(str(whole(low, high)(part)) for part in text.split(","))
    return parse


def options():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0], epilog=HELP,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--gguf", type=Path, required=True, help="llama.cpp's model; written if it is not there")
    p.add_argument("--llama-bench", help="llama.cpp's benchmark; without it the GGUF is written, and that is all")
    p.add_argument("--switchyard", default="switchyard", help="default: the one in PATH")
    p.add_argument("--shape", choices=SHAPES, default="qwen3.5-35b-a3b", help="default: qwen3.5-35b-a3b")
    p.add_argument("--layers", type=whole(1, 4096), default=4, help="default: 4; of the whole model 40")
    p.add_argument("--vocab", type=whole(32, 1 << 24), default=32768, help="default: 32768; of the whole model 248320")
    p.add_argument("--threads", type=whole(1, 1024), default=2, help="of both programs; default: 2")
    p.add_argument("--pairs", type=whole(1, 1000), default=5, help="turns of each program; default: 5")
    p.add_argument("--prefill", type=wholes(1, CONTEXT), default="512,1341", help="prompt lengths; default: 512,1341")
    p.add_argument("--depth", type=wholes(0, CONTEXT), default="0,1024", help="contexts to decode at; default: 0,1024")
    p.add_argument("--decode", type=whole(1, CONTEXT), default=64, help="tokens to decode at each; default: 64")
    p.add_argument("--repeat", type=whole(1, 1000), default=3, help="runs within a turn; the median counts; default: 3")
    p.add_argument("--quiet", type=float, default=0.2, metavar="CORES",
                   help="load by others that is none: pairs wait for it to be lower; default: 0.2")
    p.add_argument("--patience", type=whole(0, 86400), default=120, metavar="SECONDS",
                   help="how long to wait for that, then it begins all the same; default: 120")
    p.add_argument("--llama-flags", default="", help="more flags for llama-bench, as one word: '-ub 2048'")
    p.add_argument("--switchyard-flags", default="", help="more flags for switchyard bench, as one word: '--pin'")
    p.add_argument("--verbose", action="store_true", help="print each command")
    return p.parse_args()


def main():
    o = options()
    try:
        write_gguf(o.gguf, SHAPES[o.shape], o.layers, o.vocab, os.cpu_count())
        if o.llama_bench:
            compare(o)
    except KeyError as e:
        sys.exit(f"peer_llama_cpp.py: a benchmark's JSON lacks {e}: its version is not one that this program knows")
    except Fail as e:
        sys.exit(f"peer_llama_cpp.py: {e}")


if __name__ == "__main__":
    main()
