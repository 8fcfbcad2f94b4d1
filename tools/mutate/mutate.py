#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plants known faults in a copy of the tree, one at a time, and reports which of them the tests see.

  tools/mutate/mutate.py                 every fault of tools/mutate/*.faults
  tools/mutate/mutate.py --only REGEX    the faults whose names match
  tools/mutate/mutate.py --list          names, files and tests; fails if a text of the lists is not in the code
  tools/mutate/mutate.py --build         the build alone

All faults are compiled into one build, each behind a condition on SWITCHYARD_PLANTED, so that trying one costs a run
of its tests and no compilation. The copy and its build lie in build/mutate and are kept: a later run compiles what
changed.

A list holds one paragraph per fault; lines that begin with # are comments:

  fault NAME FILE TEST...
  @text          optional: the old text is looked for after the first place where this stands
  -old text      exactly as in FILE, over as many lines as needed; it must stand there once
  +new text      what the fault makes of it

An old text that ends with `;` or `}` is a statement, anything else an expression. Where neither form fits, the new text
uses the condition PLANTED itself and replaces the old one as it stands. A text that is no longer found is an error:
mend the list together with the code.

A TEST is TARGET or TARGET:GTEST_FILTER (a GoogleTest program), or check:BACKEND:ARGUMENTS (the conformance kit on a
backend, arguments separated by commas). They run in order until one fails. Each must pass while no fault is planted.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import time
import zlib
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COPY = ROOT / "build" / "mutate"
BUILD = COPY / "build" / "release"
TEST_SECONDS = 300  # a fault that makes a test hang is seen after this long
HEADER = """// Written by tools/mutate/mutate.py.
#pragma once
#include <stdlib.h>
[[maybe_unused]] static const unsigned long planted_fault = [] {
  const char* text = getenv("SWITCHYARD_PLANTED");
  return text == nullptr ? 0UL : strtoul(text, nullptr, 10);
}();
"""


@dataclass
class Fault:
    name: str
    file: str
    tests: list
    place: str
    after: str = ""
    old: list = field(default_factory=list)
    new: list = field(default_factory=list)

    @property
    def number(self):
        return zlib.crc32(self.name.encode()) or 1

    def span(self, text):
        """Where the old text stands in the file: (begin, end)."""
        old = "\n".join(self.old)
        start = text.find(self.after) if self.after else 0
        if not old or start < 0:
            sys.exit(f"{self.place}: {self.file} no longer holds '{self.after or old}'; mend the list")
        at = text.find(old, start)
        if at < 0:
            sys.exit(f"{self.place}: the old text of {self.name} is no longer in {self.file}; mend the list")
        if not self.after and text.find(old, at + 1) >= 0:
            sys.exit(f"{self.place}: the old text of {self.name} stands in {self.file} more than once; add an @ line")
        return at, at + len(old)

    def planted(self):
        """The text that does one or the other, as SWITCHYARD_PLANTED says."""
        old, new = "\n".join(self.old), "\n".join(self.new)
        condition = f"(planted_fault == {self.number}UL)"
        if "PLANTED" in new:
            return new.replace("PLANTED", condition)
        if old.rstrip().endswith((";", "}")):
            return f"if {condition} {{ {new} }} else {{ {old} }}"
        return f"({condition} ? ({new}) : ({old}))"


def read_list(path):
    faults = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        place = f"{path.name}:{number}"
        if line.startswith("fault "):
            words = line.split()
            if len(words) < 4:
                sys.exit(f"{place}: 'fault NAME FILE TEST...' is expected")
            faults.append(Fault(words[1], words[2], words[3:], place))
        elif line and line[0] in "@-+" and faults:
            fault, text = faults[-1], line[1:]
            if line[0] == "@":
                fault.after = text
            else:
                (fault.old if line[0] == "-" else fault.new).append(text)
        elif line and not line.startswith("#"):
            sys.exit(f"{place}: not understood: {line}")
    return faults


def put(path, data):
    """Writes a file of the copy only when it changed, so that the build compiles no more than it must."""
    if not path.exists() or path.read_bytes() != data:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return True
    return False


def copy_tree(faults):
    """Brings the copy up to date, with all faults in it. Returns the number of files that changed."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                            check=True, capture_output=True).stdout.decode().split("\0")
    files = [f for f in listed if f and (ROOT / f).is_file()]
    by_file = {}
    for fault in faults:
        by_file.setdefault(fault.file, []).append(fault)
    for name in by_file:
        if name not in files:
            sys.exit(f"{by_file[name][0].place}: there is no file {name}; mend the list")
    changed = put(COPY / "planted.h", HEADER.encode())
    for name in files:
        data = (ROOT / name).read_bytes()
        if name in by_file:
            text = data.decode()
            spans = sorted((f.span(text) + (f,) for f in by_file[name]), key=lambda s: s[0])
            for (_, end, first), (begin, _, second) in zip(spans, spans[1:]):
                if begin < end:
                    sys.exit(f"{second.place}: {second.name} overlaps {first.name}; let them stand apart")
            for begin, end, fault in reversed(spans):
                text = text[:begin] + fault.planted() + text[end:]
            data = f'#include "{COPY}/planted.h"\n{text}'.encode()
        changed += put(COPY / name, data)
        shutil.copymode(ROOT / name, COPY / name)
    for path in [p for p in COPY.rglob("*") if p.is_file() and COPY / "build" not in p.parents]:
        if str(path.relative_to(COPY)) not in files and path.name != "planted.h":
            path.unlink()
    return changed


def build(targets, jobs):
    if not (BUILD / "build.ninja").exists():
        launcher = [f"-DCMAKE_{x}_COMPILER_LAUNCHER=ccache" for x in ("C", "CXX") if shutil.which("ccache")]
        subprocess.run(["cmake", "--preset", "release", "-DCMAKE_CUDA_COMPILER=NOTFOUND", *launcher], cwd=COPY,
                       check=True, stdout=subprocess.DEVNULL)
    ninja = ["ninja", "-C", BUILD, f"-j{jobs}", "-k0", "--quiet", *sorted(targets)]
    if subprocess.run(ninja, check=False).returncode != 0:
        sys.exit("the copy with the faults does not compile; see above")


def targets_of(test):
    kind, _, rest = test.partition(":")
    if kind != "check":
        return {kind}
    return {"switchyard_plugin_check", f"switchyard_backend_{rest.split(':')[0]}", "switchyard_backend_reference"}


def command_of(test):
    kind, _, rest = test.partition(":")
    if kind != "check":
        only = [f"--gtest_filter={rest}"] if rest else []
        return [str(BUILD / "bin" / kind), "--gtest_brief=1", "--gtest_fail_fast", *only]
    backend, _, arguments = rest.partition(":")
    folder = BUILD / "lib" / "switchyard" / "backends"
    return [str(BUILD / "bin" / "switchyard-plugin-check"), str(folder / f"switchyard_{backend}.so"), "--oracle",
            str(folder / "switchyard_reference.so"), *[a for a in arguments.split(",") if a]]


def run(test, fault):
    """Runs one test; returns (passed, what it said). Without a fault, passed is None if this machine cannot run it."""
    environment = dict(os.environ, SWITCHYARD_PLANTED=str(fault.number) if fault else "0",
                       XDG_CACHE_HOME=str(BUILD / "cache"))
    try:
        done = subprocess.run(command_of(test), env=environment, cwd=BUILD, timeout=TEST_SECONDS, check=False,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    except subprocess.TimeoutExpired:
        return False, "ran out of time"
    said = done.stdout.decode(errors="replace")
    if fault is None and re.search(r"PASSED +\] 0 tests", said):
        sys.exit(f"{test} runs no test at all; mend the list")
    if done.returncode == 0:
        return True, said
    if fault is None and "nothing was checked" in said and re.search(r"unsupported: .* the processor lacks", said):
        return None, said
    failed = re.search(r"\[  FAILED  \] ([\w/.]+)", said)
    return False, failed.group(1) if failed else f"exit code {done.returncode}" if fault else said


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--only", default="", metavar="REGEX", help="the faults whose names match")
    arguments.add_argument("--list", action="store_true", help="print the faults, find their texts, and stop")
    arguments.add_argument("--jobs", type=int, default=os.cpu_count(), help="parallel jobs of the build")
    arguments.add_argument("--build", action="store_true", help="build and stop")
    arguments.add_argument("--least", type=float, default=90, metavar="PERCENT", help="exit code 1 below this share")
    options = arguments.parse_args()
    everything = [f for path in sorted(Path(__file__).parent.glob("*.faults")) for f in read_list(path)]
    if len({f.number for f in everything}) != len(everything):
        sys.exit("two faults have the same name")
    faults = [f for f in everything if re.search(options.only, f.name)]
    if options.list:
        for fault in faults:
            fault.span((ROOT / fault.file).read_text())
            print(f"{fault.name:36} {fault.file:40} {' '.join(fault.tests)}")
        return 0
    if not faults:
        sys.exit(f"no fault is named like '{options.only}'")
    started = time.monotonic()
    changed = copy_tree(everything)  # all of them, whatever is asked for: what is built stays the same
    build(set().union(*(targets_of(t) for f in faults for t in f.tests)), options.jobs)
    built = time.monotonic()
    print(f"{changed} files changed since the last run; built in {built - started:.0f} s", flush=True)
    if options.build:
        return 0
    absent = set()
    for test in sorted({t for f in faults for t in f.tests}):
        passed, said = run(test, None)
        if passed is None:
            absent.add(test)
        elif not passed:
            sys.exit(f"{test} fails without any fault planted:\n{said[-3000:]}")
    seen = tried = 0
    for fault in faults:
        tests = [t for t in fault.tests if t not in absent]
        if not tests:
            print(f"{'no test':9}{fault.name:36} this machine cannot run {' '.join(fault.tests)}", flush=True)
            continue
        tried += 1
        for test in tests:
            passed, said = run(test, fault)
            if not passed:
                break
        seen += not passed
        print(f"{'NOT SEEN' if passed else 'seen':9}{fault.name:36} {'' if passed else said}", flush=True)
    share = 100 * seen / max(tried, 1)
    print(f"{seen} of {tried} planted faults were seen: {share:.1f}%; "
          f"{len(faults) - tried} need another machine; tests ran for {time.monotonic() - built:.0f} s")
    return 0 if share >= options.least else 1


if __name__ == "__main__":
    sys.exit(main())
