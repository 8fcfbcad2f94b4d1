#!/usr/bin/env python3
"""Where the time of a decoding step goes, from the stamps of a CUDA backend built with -DSWITCHYARD_STAMPS.

usage: stamps.py /tmp/stamps.bin

A launch is the blocks of one kernel whose waits returned together. Its time is that from the return of the wait of the
kernel in front to that of its own, so that times add up to the step. Microseconds, medians over launches; of a moment's
blocks the first and the last: begun and asked before the kernel's own wait returned (negative), the rest after it.
"""
import collections
import statistics
import struct
import sys

RECORD = struct.Struct("<4I8Q")
NAMES = {10: "normed", 11: "linear", 12: "heads", 13: "gates", 20: "route", 21: "gate_up", 22: "down", 30: "delta",
         40: "attention", 50: "head", 60: "finish", 70: "embedding"}
MOMENTS = ["begun", "asked", "waited", "read", "arrived", "multiplied", "ended"]
WAITED, ENDED = 2, 6
MOST = 400_000  # blocks read: a dozen steps
TOGETHER_NS = 2500  # blocks of one launch wait for the same event; launches of one kernel lie further apart


def read(path):
    with open(path, "rb") as file:
        data = file.read(MOST * RECORD.size)
    rows = []
    count = len(data) // RECORD.size
    for kernel, block, blocks, processor, *at in RECORD.iter_unpack(data[: count * RECORD.size]):
        if kernel in NAMES and at[ENDED] != 0:
            rows.append((kernel, block, blocks, processor, at[:7]))
    return rows


def launches(rows):
    """[(kernel, [rows])] in order of time. The gates' blocks belong to the projection that they stand beside."""
    by_kernel = collections.defaultdict(list)
    for r in rows:
        by_kernel[10 if r[0] == 13 else r[0]].append(r)
    out = []
    for kernel, mine in by_kernel.items():
        key = WAITED if kernel != 50 else ENDED
        mine.sort(key=lambda r: r[4][key])
        group = []
        for r in mine:
            if group and r[4][key] - group[-1][4][key] > TOGETHER_NS:
                out.append((kernel, group))
                group = []
            group.append(r)
        if group:
            out.append((kernel, group))
    out.sort(key=lambda g: start(g))
    return out


def start(launch):
    kernel, rows = launch
    if kernel == 50:
        return min(r[4][0] for r in rows)  # the head notes no wait
    return statistics.median(r[4][WAITED] for r in rows)


def end(launch):
    return max(r[4][ENDED] for r in launch[1])


def spread(values):
    values = [v for v in values if v is not None]
    return f"{statistics.median(values) / 1000:6.2f}" if values else "     -"


def table(all_launches):
    pairs = collections.defaultdict(list)
    for before, now, after in zip(all_launches, all_launches[1:], all_launches[2:]):
        if start(now) - start(before) < 200_000 and start(after) - start(now) < 200_000:
            pairs[(NAMES[before[0]], NAMES[now[0]])].append((before, now, after))
    print(f"{'kernel (after)':24} {'n':>5} {'blocks':>6} {'own time':>8} | last block's end in front -> own wait | "
          "first and last block of each moment, from the own wait")
    for (before_name, name), found in sorted(pairs.items(), key=lambda p: -len(p[1])):
        if len(found) < 5:
            continue
        own = spread([start(a) - start(n) for b, n, a in found])
        boundary = spread([start(n) - end(b) for b, n, a in found])
        text = []
        for i, moment in enumerate(MOMENTS):
            first, last = [], []
            for _, n, _ in found:
                at = [r[4][i] for r in n[1] if r[4][i] != 0]
                if at:
                    first.append(min(at) - start(n))
                    last.append(max(at) - start(n))
            if first and i != WAITED:
                text.append(f"{moment} {spread(first).strip()}..{spread(last).strip()}")
        blocks = statistics.median(len(n[1]) for _, n, _ in found)
        print(f"{name + ' (' + before_name + ')':24} {len(found):5} {blocks:6.0f} {own:>8} | {boundary} | " + "; ".join(text))


def doubled(all_launches):
    """How many multiprocessors had more than one block of a launch."""
    counts = collections.defaultdict(list)
    for kernel, rows in all_launches:
        each = collections.Counter(r[3] for r in rows)
        counts[NAMES[kernel]].append(sum(1 for c in each.values() if c > 1))
    print("multiprocessors with two blocks or more of one launch, median:",
          ", ".join(f"{k} {statistics.median(v):.0f}" for k, v in sorted(counts.items())))


def steps(all_launches):
    """From embedding to embedding, and what lies between the last kernel of a step and the first of the next."""
    first = [i for i, l in enumerate(all_launches) if l[0] == 70]
    whole, gaps, heads = [], [], []
    for a, b in zip(first, first[1:]):
        if b - a < 50:
            continue
        whole.append(start(all_launches[b]) - start(all_launches[a]))
        gaps.append(start(all_launches[b]) - end(all_launches[b - 1]))
        for k in range(a, b):
            if all_launches[k][0] == 50:
                heads.append((start(all_launches[k]) - end(all_launches[k - 1]), end(all_launches[k]) - start(all_launches[k])))
    if not whole:
        print("no whole step")
        return
    print(f"steps: {len(whole)}; whole {spread(whole)}; last kernel's end to next embedding's wait {spread(gaps)}")
    if heads:
        print(f"head: begins {spread([h[0] for h in heads])} after the layers' end, takes {spread([h[1] for h in heads])}")


def main():
    rows = read(sys.argv[1] if len(sys.argv) > 1 else "/tmp/stamps.bin")
    print(f"{len(rows)} blocks")
    # A full ring's oldest launch is cut.
    found = launches(rows)[1:]
    steps(found)
    table(found)
    doubled(found)


main()
