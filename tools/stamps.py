#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Where the time of a decoding step goes, from the stamps of a CUDA backend built with -DSWITCHYARD_STAMPS.

usage: stamps.py [/tmp/stamps.bin]

Every kernel of a layer has a line: its own time is that from the return of its wait for the kernel in front to the
return of the next kernel's, so that own times add up to the step; `gap` is from the last block's end of the kernel in
front to its own wait. Then the moments of its blocks, from its own wait: the first, the median and the last block, so
that begun and asked are below zero where a kernel prepares itself beside the one in front. Microseconds: means of own
times, medians over launches otherwise. "128 on 120": blocks, and how many multiprocessors had them.
docs/profile-a-run.md tells how to get the file, and how to read this.
"""
import collections
import statistics
import struct
import sys

RECORD = struct.Struct("<4I8Q")
NAMES = {10: "normed", 11: "linear", 12: "heads", 13: "gates", 20: "route", 21: "gate_up", 22: "down", 23: "combine",
         30: "delta", 40: "attention", 50: "head", 60: "finish", 70: "embedding", 80: "norm"}
GATES, NORMED = 13, 10
MOMENTS = ["begun", "asked", "waited", "read", "arrived", "multiplied", "ended"]
WAITED, ENDED = 2, 6
MOST = 400_000  # blocks read: a dozen steps
APART_NS = 6000  # launches of one kernel lie further apart than the waits of one launch's blocks

Launch = collections.namedtuple("Launch", "name blocks processors start end moments")


def read(path):
    """[(kernel, processor, [ns of each moment; 0: not noted])], of blocks that ended."""
    with open(path, "rb") as file:
        data = file.read(MOST * RECORD.size)
    count = len(data) // RECORD.size
    return [(r[0], r[3], r[4:11]) for r in RECORD.iter_unpack(data[: count * RECORD.size])
            if r[0] in NAMES and r[4 + WAITED] != 0 and r[4 + ENDED] != 0]


def launch_of(kernel, rows):
    start = statistics.median(r[2][WAITED] for r in rows)
    moments = []
    for i in range(len(MOMENTS)):
        at = sorted(r[2][i] - start for r in rows if r[2][i] != 0)
        moments.append((at[0], at[len(at) // 2], at[-1]) if at else None)
    return Launch(NAMES[kernel], len(rows), len({r[1] for r in rows}), start, max(r[2][ENDED] for r in rows), moments)


def launches(rows):
    """In order of time. The gates' blocks belong to the projection that they stand beside."""
    by_kernel = collections.defaultdict(list)
    for r in rows:
        by_kernel[NORMED if r[0] == GATES else r[0]].append(r)
    out = []
    for kernel, mine in by_kernel.items():
        mine.sort(key=lambda r: r[2][WAITED])
        first = 0
        for i in range(1, len(mine) + 1):
            if i == len(mine) or mine[i][2][WAITED] - mine[i - 1][2][WAITED] > APART_NS:
                out.append(launch_of(kernel, mine[first:i]))
                first = i
    out.sort(key=lambda launch: launch.start)
    return out


def steps_of(all_launches):
    """[[launches from an embedding to the next, that one included]], of the most common length."""
    at = [i for i, launch in enumerate(all_launches) if launch.name == "embedding"]
    found = [all_launches[a:b + 1] for a, b in zip(at, at[1:])]
    if not found:
        return []
    length = collections.Counter(len(s) for s in found).most_common(1)[0][0]
    found = [s for s in found if len(s) == length]
    usual = statistics.median(s[-1].start - s[0].start for s in found)
    return [s for s in found if s[-1].start - s[0].start < 1.5 * usual]


def us(ns):
    return f"{ns / 1000:.2f}"


def place_of(step, i):
    """The kind of the part that launch i of a step belongs to: a kind of layer, or the step's ends."""
    first = i
    while first > 0 and step[first].name not in ("normed", "embedding", "norm", "head"):
        first -= 1
    if step[first].name != "normed":
        return "the rest"
    mixer = step[first + 1].name if first + 1 < len(step) else ""
    return f"layer of {mixer}"


def line(found):
    """found: [(launch in front or None, launch, next launch)] of the same place."""
    own = statistics.mean(after.start - now.start for _, now, after in found)
    gaps = [now.start - before.end for before, now, _ in found if before is not None]
    name, text = found[0][1].name, []
    for i, moment in enumerate(MOMENTS):
        at = [now.moments[i] for _, now, _ in found if now.moments[i] is not None]
        if at:
            text.append(f"{moment} " + " ".join(us(statistics.median(a[k] for a in at)) for k in range(3)))
    blocks = f"{statistics.median(now.blocks for _, now, _ in found):.0f} on " \
             f"{statistics.median(now.processors for _, now, _ in found):.0f}"
    gap = us(statistics.median(gaps)) if gaps else "-"
    print(f"  {name:10} {blocks:>10}  own {us(own):>6}  gap {gap:>5} | " + "; ".join(text))
    return own


def table(steps):
    places = collections.defaultdict(lambda: collections.defaultdict(list))
    for step in steps:
        for i, (now, after) in enumerate(zip(step, step[1:])):
            before = step[i - 1] if i > 0 else None
            order = i
            place = place_of(step, i)
            if place != "the rest":
                while step[order].name != "normed":
                    order -= 1
                order = i - order
            places[place][(order, now.name)].append((before, now, after))
    for place, kernels in sorted(places.items()):
        print(f"{place}:")
        total = sum(line(found) for _, found in sorted(kernels.items()))
        layers = len(next(iter(kernels.values()))) / len(steps)
        times = f", {layers:.0f} times a step: {us(total * layers)}" if place != "the rest" else ""
        print(f"  together {us(total)}{times}")


def ends(steps):
    whole = [s[-1].start - s[0].start for s in steps]
    between = [s[-1].start - s[-2].end for s in steps]
    begun = [s[-1].moments[0][0] + s[-1].start - s[-2].end for s in steps if s[-1].moments[0] is not None]
    print(f"{len(steps)} steps of {len(steps[0]) - 1} launches, {us(statistics.median(whole))} each, "
          f"{us(min(whole))} to {us(max(whole))}")
    print(f"between steps, from the last end to the next embedding's wait: {us(statistics.median(between))}, "
          f"{us(min(between))} to {us(max(between))}"
          + (f"; to its first block's beginning {us(statistics.median(begun))}" if begun else ""))


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else "/tmp/stamps.bin"
    try:
        rows = read(path)
    except OSError as e:
        sys.exit(f"stamps.py: {path}: {e.strerror}; was the backend built with -DSWITCHYARD_STAMPS, and what does it "
                 "say on stderr?")
    found = launches(rows)
    steps = steps_of(found)
    print(f"{len(rows)} blocks of {len(found)} launches")
    if not steps:
        names = collections.Counter(launch.name for launch in found)
        sys.exit(f"stamps.py: no whole step from embedding to embedding in {dict(names)}")
    ends(steps)
    table(steps)


main()
