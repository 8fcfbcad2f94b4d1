#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""JSON-Schema-Test-Suite against core/constrain.

  suite.py PROBE VOCABULARY SUITE [--ratchet FILE] [--record]

PROBE is the built constrain_probe; SUITE is a folder with the suite's `draft2020-12`, such as `json/tests` of the
source distribution of the Python package `jsonschema`. Prints a table by file. With --ratchet, a test whose result is
worse than the recorded one fails the run; --record writes the file.
"""

import argparse
import collections
import json
import pathlib
import subprocess
import sys

RANK = {"pass": 0, "unsupported": 1, "false_negative": 2, "false_positive": 3}


def groups(suite):
    """Yields (file, group) of draft 2020-12, and of its formats, which count as assertions here."""
    folder = suite / "draft2020-12"
    for path in sorted(folder.glob("*.json")):
        if path.name == "format.json":  # it has formats as annotations; optional/format has them as assertions
            continue
        for group in json.loads(path.read_text()):
            yield path.stem, group
    for path in sorted((folder / "optional" / "format").glob("*.json")):
        for group in json.loads(path.read_text()):
            yield "format/" + path.stem, group


def main():
    p = argparse.ArgumentParser()
    p.add_argument("probe")
    p.add_argument("vocabulary")
    p.add_argument("suite", type=pathlib.Path)
    p.add_argument("--ratchet", type=pathlib.Path)
    p.add_argument("--record", action="store_true")
    p.add_argument("--list", action="store_true", help="print each test that does not pass")
    args = p.parse_args()

    work = []
    for name, group in groups(args.suite):
        texts = [json.dumps(test["data"], ensure_ascii=False) for test in group["tests"]]
        request = {"kind": "json_schema", "text": json.dumps(group["schema"]), "texts": texts}
        work.append((name, group, request))
    lines = "\n".join(json.dumps(request) for _, _, request in work) + "\n"
    done = subprocess.run([args.probe, args.vocabulary], input=lines, capture_output=True, text=True, check=True)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(work), "the probe ended early"

    results, reasons = {}, collections.Counter()
    table = collections.defaultdict(collections.Counter)
    for (name, group, _), answer in zip(work, answers):
        for i, test in enumerate(group["tests"]):
            if "error" in answer:
                result = "unsupported"
                reasons[answer["error"].split("'")[1] if "'" in answer["error"] else answer["error"]] += 1
            else:
                accepted = answer["accepted"][i]
                result = ("pass" if accepted == test["valid"] else "false_positive" if accepted else "false_negative")
            key = f"{name} | {group['description']} | {test['description']}"
            results[key] = result
            table[name][result] += 1
            if args.list and result != "pass":
                why = answer.get("error", "") or json.dumps(test["data"])
                print(f"{result}: {key}: {why[:150]}")

    print(f"{'file':28}{'pass':>6}{'unsupported':>13}{'refused though valid':>22}{'accepted though invalid':>25}")
    total = collections.Counter()
    for name, counts in table.items():
        total.update(counts)
        print(f"{name:28}" + "".join(f"{counts[k]:>{w}}" for k, w in
                                     (("pass", 6), ("unsupported", 13), ("false_negative", 22), ("false_positive", 25))))
    print(f"{'all':28}" + "".join(f"{total[k]:>{w}}" for k, w in
                                  (("pass", 6), ("unsupported", 13), ("false_negative", 22), ("false_positive", 25))))
    print("unsupported because of:", dict(reasons.most_common(12)))

    if args.ratchet and args.record:
        worse = {k: v for k, v in results.items() if v != "pass"}
        args.ratchet.write_text(json.dumps({"tests": len(results), "not_passed": worse}, indent=0) + "\n")
    elif args.ratchet:
        recorded = json.loads(args.ratchet.read_text())["not_passed"]
        worse = [k for k, v in results.items() if RANK[v] > RANK[recorded.get(k, "pass")]]
        for key in worse:
            print(f"worse than recorded: {key}: {results[key]}")
        if worse:
            sys.exit(1)
        print("ratchet: nothing is worse than recorded")


if __name__ == "__main__":
    main()
