#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times of masks on one thread, beside llguidance, over real schemas; and whether valid texts get through.

  masks.py values VALUES VOCABULARY SCHEMAS...
  masks.py times VALUES VOCABULARY PROBE [--seconds N] [--slow]
  masks.py check VALUES VOCABULARY PROBE TOKENIZER

VOCABULARY: what make_vocabulary.py wrote. SCHEMAS: files or folders of JSON Schemas. `values` makes a few random values
of each (instances.py), keeps those that the PyPI package `jsonschema` finds valid, and writes them, split into the
longest tokens, at random and into bytes, to VALUES: one schema a line. `times` has both engines follow the longest
tokens with a mask before each, and this one alone the other splits. Times are processor time of the thread. `check`
compares masks along the texts with what can be followed, for each token of a small TOKENIZER. Needs `llguidance` and
`jsonschema`.
"""

import argparse
import collections
import ctypes
import json
import pathlib
import subprocess
import sys
import time

import jsonschema
import llguidance
import referencing
from instances import Generator
from vocabulary import Vocabulary


def now():
    return time.thread_time_ns() / 1000


def percentiles(times):
    times = sorted(times)
    at = lambda share: times[min(len(times) - 1, int(len(times) * share))]
    mean = sum(times) / len(times)
    return f"{len(times):>8}{mean:>9.1f}{at(.5):>8.1f}{at(.9):>8.1f}{at(.99):>9.1f}{at(.999):>9.1f}{times[-1]:>10.1f}"


def valid_texts(schema, seed):
    made = []
    # References to other documents are not fetched.
    validator = jsonschema.validators.validator_for(schema)(schema, registry=referencing.Registry())
    end = time.time() + 10
    for n in range(30):
        try:
            value = Generator(schema, seed * 100 + n).value(schema)
            validator.validate(value)
        except Exception:  # noqa: BLE001: whatever goes wrong in a foreign schema
            continue
        finally:
            if time.time() > end:
                return made
        style = ({}, {"indent": 2}, {"ensure_ascii": False})[len(made) % 3]
        text = json.dumps(value, **style)
        if len(text) < 20_000 and text not in made:
            made.append(text)
        if len(made) == 6:
            break
    return made


def make_values(args):
    vocabulary = Vocabulary(args.vocabulary)
    paths = [f for s in args.schemas for f in (sorted(s.rglob("*.json")) if s.is_dir() else [s])]
    schemas = texts = 0
    with open(args.values, "w") as out:
        for seed, path in enumerate(paths):
            try:
                schema = json.loads(path.read_text())
            except (UnicodeDecodeError, ValueError):
                continue
            if not isinstance(schema, dict):
                continue
            made = valid_texts(schema, seed)
            others = [s for i, t in enumerate(made) for s in (vocabulary.split(t, i), vocabulary.bytes(t))]
            line = {"name": path.name, "schema": json.dumps(schema), "runs": [vocabulary(t) for t in made],
                    "others": others}
            out.write(json.dumps(line) + "\n")
            schemas += 1
            texts += len(made)
    print(schemas, "schemas,", texts, "valid texts")


def follow_llguidance(tokenizer, text, runs, buffer):
    begun = now()
    try:
        grammar = llguidance.LLMatcher.grammar_from_json_schema(text)
        first = llguidance.LLMatcher(tokenizer, grammar)
        if first.is_error():
            return None, first.get_error()
    except ValueError as e:
        return None, str(e)
    first.unsafe_compute_mask_ptr(ctypes.addressof(buffer), ctypes.sizeof(buffer))
    out = {"first": now() - begun, "times": [], "through": [], "done": []}
    for ids in runs:
        m = first.deep_copy()
        done = 0
        for token in ids:
            begun = now()
            m.unsafe_compute_mask_ptr(ctypes.addressof(buffer), ctypes.sizeof(buffer))
            out["times"].append(now() - begun)
            if not buffer[token // 32] >> token % 32 & 1 or not m.consume_token(token):
                break
            done += 1
        out["through"].append(done == len(ids) and m.is_accepting())
        out["done"].append(min(done, len(ids) - 1))
    return out, ""


def take_times(args):
    end = time.time() + args.seconds
    vocabulary = Vocabulary(args.vocabulary)
    wrapper = llguidance.TokenizerWrapper(vocabulary)
    tokenizer = llguidance.LLTokenizer(wrapper)
    buffer = (ctypes.c_uint32 * ((len(vocabulary.tokens) + 31) // 32))()
    probe = subprocess.Popen([args.probe, args.vocabulary], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             text=True)
    count, refused = collections.Counter(), collections.Counter()
    ours, theirs, first, slow = [], [], [], []
    for line in open(args.values):
        if time.time() > end:
            print("stopped early")
            break
        given = json.loads(line)
        name, text, runs = given["name"], given["schema"], given["runs"]
        request = {"kind": "json_schema", "text": text, "tokens": runs, "more_tokens": given["others"]}
        probe.stdin.write(json.dumps(request) + "\n")
        probe.stdin.flush()
        line = probe.stdout.readline()
        assert line, f"the probe ended at {name}"
        answer = json.loads(line)
        other, why = follow_llguidance(tokenizer, text, runs, buffer)
        count["schemas"] += 1
        if "error" in answer:
            count["not compiled here"] += 1
            refused[answer["error"] if args.slow else answer["error"].split(" at ")[0][:60]] += 1
        if other is None:
            count["not compiled by llguidance"] += 1
            if args.slow:
                print("llguidance:", name, why[:150].replace("\n", " "))
        if "error" in answer or other is None:
            if "error" not in answer:
                count["only compiled here"] += 1
            elif other is not None:
                count["only compiled by llguidance"] += 1
        if "error" in answer:
            continue
        for i, (done, ended) in enumerate(answer.get("followed") or []):
            count["valid texts"] += 1
            count["let through here"] += ended
            if not ended:
                at = b"".join(vocabulary.tokens[t] for t in runs[i][:done])[-60:]
                token = vocabulary.tokens[runs[i][min(done, len(runs[i]) - 1)]]
                print(f"refused here: {name}: after {at!r}: {token!r}")
        for done, ended in answer.get("followed_more") or []:
            count["other splits of them"] += 1
            count["other splits let through here"] += ended
        slow.append((max(answer["mask_us"] or [0]), answer["first_mask_us"], len(text), name))
        if other is None:
            continue
        count["compiled by both"] += 1
        first.append((answer["first_mask_us"], other["first"], len(text)))
        at = [0, 0]
        for i, (done, ended) in enumerate(answer.get("followed") or []):  # times of texts that both let through
            count["valid texts of schemas that both compile"] += 1
            count["let through by llguidance"] += other["through"][i]
            both = ended and other["through"][i]
            for side, (times, out) in enumerate(((answer["mask_us"], ours), (other["times"], theirs))):
                through = (ended, other["through"][i])[side]
                n = len(runs[i]) if through else min((done, other["done"][i])[side], len(runs[i]) - 1) + 1
                out += times[at[side]:at[side] + n] if both else []
                at[side] += n
    probe.stdin.close()
    report(args, count, refused, ours, theirs, first, slow)


def check(args):
    vocabulary = Vocabulary(args.vocabulary)
    probe = subprocess.Popen([args.probe, args.tokenizer], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    masks = wrong = 0
    for line in open(args.values):
        given = json.loads(line)
        texts = [b"".join(vocabulary.tokens[t] for t in run).decode()[:400] for run in given["runs"][:2]]
        probe.stdin.write(json.dumps({"kind": "json_schema", "text": given["schema"], "check": texts}) + "\n")
        probe.stdin.flush()
        made, what = json.loads(probe.stdout.readline()).get("checked", (0, None))
        masks += made
        if what:
            wrong += 1
            print(given["name"], what[-200:])
    probe.stdin.close()
    print(masks, "masks,", wrong, "schemas with a wrong one")
    return wrong > 0


def report(args, count, refused, ours, theirs, first, slow):
    for name, n in count.items():
        print(f"{name:70}{n:>8}")
    print("refused here:", *(f"{n:>6} {why}" for why, n in refused.most_common()), sep="\n")
    print(f"\n{'mask, us':14}{'masks':>8}{'mean':>9}{'p50':>8}{'p90':>8}{'p99':>9}{'p99.9':>9}{'max':>10}")
    print(f"{'here':14}{percentiles(ours)}")
    print(f"{'llguidance':14}{percentiles(theirs)}")
    print("\ncompiling and the first mask, us")
    print(f"{'here':14}{percentiles([f[0] for f in first])}")
    print(f"{'llguidance':14}{percentiles([f[1] for f in first])}")
    large = [f for f in first if 50_000 <= f[2] <= 100_000]
    if large:
        print("of schemas of 50 to 100 KB")
        print(f"{'here':14}{percentiles([f[0] for f in large])}")
        print(f"{'llguidance':14}{percentiles([f[1] for f in large])}")
    if args.slow:
        print("the largest mask, the first one, bytes of the schema, its name")
        for one in sorted(slow)[-30:] + sorted(slow, key=lambda s: s[1])[-15:]:
            print(*one)


def main():
    p = argparse.ArgumentParser()
    commands = p.add_subparsers(required=True)
    values = commands.add_parser("values")
    values.set_defaults(run=make_values)
    times = commands.add_parser("times")
    times.set_defaults(run=take_times)
    checks = commands.add_parser("check")
    checks.set_defaults(run=check)
    for command in (values, times, checks):
        command.add_argument("values")
        command.add_argument("vocabulary")
    values.add_argument("schemas", nargs="+", type=pathlib.Path)
    for command in (times, checks):
        command.add_argument("probe")
    checks.add_argument("tokenizer")
    times.add_argument("--seconds", type=float, default=220)
    times.add_argument("--slow", action="store_true", help="print the slowest schemas, and each error whole")
    args = p.parse_args()
    return args.run(args)


if __name__ == "__main__":
    sys.exit(main())
