#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""faults.py KIT PLUGIN ORACLE --filter TEXT: what of a kernel's waiting would be missed if it were not there.

Runs the conformance kit on the emulated CUDA backend once, and notes the places where kernels wait: barriers of blocks,
warps and clusters, barriers in shared memory, copies, products, earlier kernels. Then it runs the kit again for each
place, without waiting there, until a seed of the scheduler shows the fault. A line a place: how often it was tried, what
showed it, and where the place is. A place that no seed shows is one that this check cannot judge, or one that is not
needed.
"""
import argparse
import os
import subprocess
import sys
import tempfile


def run(arguments, seed, extra):
    environment = dict(os.environ, SWITCHYARD_EMULATED_SEED=str(seed), **extra)
    command = [arguments.kit, arguments.plugin, "--oracle", arguments.oracle, "--suite", arguments.suite, "--filter",
               arguments.filter, "--seed", "1", "--limit-s", str(arguments.limit)]
    for setting in arguments.set:
        command += ["--set", setting]
    return subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", check=False)


def why(output):
    for line in output.splitlines():
        if line.startswith("emulated:"):
            return line[len("emulated: "):][:100]
    for line in output.splitlines():
        if line.startswith(("FAILED", "CRASHED", "HUNG")):
            return line.split(": ", 2)[-1][-100:]
    return "?"


def where(plugin, address):
    try:
        lines = subprocess.run(["addr2line", "-i", "-e", plugin, hex(int(address, 16) - 1)], stdout=subprocess.PIPE,
                               text=True, check=True).stdout.split("\n")
    except (OSError, subprocess.CalledProcessError):
        return address
    own = [line.split("/backends/cuda/")[1].split(" ")[0] for line in lines if "/backends/cuda/" in line]
    return " < ".join(own[:3]) or address


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kit")
    parser.add_argument("plugin")
    parser.add_argument("oracle")
    parser.add_argument("--filter", default="")
    parser.add_argument("--suite", default="ops")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--limit", type=int, default=30)
    parser.add_argument("--kernel", default="", help="only places in kernels whose name contains this")
    parser.add_argument("--least", type=int, default=0, help="exit code 1 if fewer places are shown")
    arguments = parser.parse_args()
    with tempfile.NamedTemporaryFile() as places:
        sound = run(arguments, 1, {"SWITCHYARD_EMULATED_PLACES": places.name})
        if sound.returncode != 0:
            print(sound.stdout)
            sys.exit("the kit fails with nothing left out")
        found = {}
        for line in open(places.name, encoding="utf-8"):
            address, what, kernel = line.split(" ", 2)
            if arguments.kernel in kernel:
                found.setdefault(address, (what, kernel.strip()))
    shown = 0
    for address, (what, kernel) in sorted(found.items(), key=lambda f: (f[1][1], f[0])):
        verdict = f"not shown by {arguments.seeds} seeds"
        for seed in range(1, arguments.seeds + 1):
            result = run(arguments, seed, {"SWITCHYARD_EMULATED_DROP": address})
            if result.returncode != 0:
                verdict = f"shown by seed {seed}: {why(result.stdout)}"
                shown += 1
                break
        print(f"{kernel.split('<')[0]}  {what}  {where(arguments.plugin, address)}  {verdict}", flush=True)
    print(f"{shown} of {len(found)} places are shown")
    sys.exit(0 if shown >= arguments.least else 1)


if __name__ == "__main__":
    main()
