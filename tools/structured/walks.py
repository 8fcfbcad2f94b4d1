#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random walks of a model under schemas: every finished text is parsed and validated by the PyPI package `jsonschema`.

  walks.py SWITCHYARD MODEL [--walks N] [--tokens N]
  walks.py --probe PROBE TOKENIZER [--walks N] [--tokens N]

Runs `switchyard run --json-schema` at temperature 2, once for each schema and seed. With --probe, constrain_probe draws
every token of a mask with the same probability instead. The schemas are made here: nested, recursive, enumerations,
patterns, bounded numbers, unicode, any order.
"""

import argparse
import collections
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import jsonschema


def schemas():
    rng = random.Random(1)

    def leaf():
        return rng.choice([
            {"type": "integer", "minimum": rng.randint(-50, 0), "maximum": rng.randint(1, 500)},
            {"type": "number", "exclusiveMinimum": 0, "maximum": rng.choice([1, 2.5, 1000])},
            {"type": "integer", "multipleOf": rng.choice([2, 5, 12]), "minimum": 0, "maximum": 600},
            {"type": "string", "maxLength": rng.randint(1, 20)},
            {"type": "string", "minLength": 2, "maxLength": 12, "pattern": rng.choice(["^[a-z]+$", "^[A-Z][a-zé]*$", "o"])},
            {"type": "string", "format": rng.choice(["date", "time", "uuid", "ipv4", "email", "date-time"])},
            {"enum": [rng.randint(0, 9), "日本", "naïve \"x\"", None, True]},
            {"type": ["boolean", "null"]},
            {"const": {"k": [1, "é"]}},
        ])

    def node(depth):
        kind = rng.random()
        if depth == 0 or kind < 0.35:
            return leaf()
        if kind < 0.5:
            return {"type": "array", "items": node(depth - 1), "minItems": rng.randint(0, 1), "maxItems": rng.randint(1, 3)}
        if kind < 0.6:
            return {"anyOf": [node(depth - 1), leaf()]}
        if kind < 0.65:
            return {"type": "array", "uniqueItems": True, "items": {"enum": ["a", "b", "ü"]}, "maxItems": 3}
        names = rng.sample(["name", "größe", "x y", "id", "tags", "n", "名"], rng.randint(1, 4))
        return {"type": "object", "properties": {n: node(depth - 1) for n in names}, "additionalProperties": False,
                "required": rng.sample(names, rng.randint(0, len(names)))}

    for i in range(90):
        yield node(1 + i % 3)
    for i in range(10):
        yield {"$ref": "#/$defs/tree", "$defs": {"tree": {
            "type": "object", "properties": {"value": leaf(), "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/tree"}]}},
            "required": ["value", "next"], "additionalProperties": False}}}


def by_model(args, schema, seeds):
    """Yields (how it ended, the text); None for the text of a run that failed."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "schema.json"
        path.write_text(json.dumps(schema))
        for seed in seeds:
            run = subprocess.run(
                [args.program, "run", "-m", args.model, "--json", "--temp", "2", "--top-p", "1", "--seed", str(seed),
                 "-n", str(args.tokens), "--json-schema", str(path), "Answer: "], capture_output=True, text=True)
            if run.returncode != 0:
                yield run.stderr.strip()[:200], None
            else:
                out = json.loads(run.stdout)
                yield out["stopped"], out["text"]


def by_probe(args, schema, seeds, probe):
    for seed in seeds:
        request = {"kind": "json_schema", "text": json.dumps(schema), "walk": {"seed": seed, "steps": args.tokens}}
        probe.stdin.write(json.dumps(request) + "\n")
        probe.stdin.flush()
        answer = json.loads(probe.stdout.readline())
        if "error" in answer:
            yield answer["error"], None
        else:
            yield "end" if answer["walk"][1] else "length", answer["walk"][0]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("program")
    p.add_argument("model")
    p.add_argument("--probe", action="store_true")
    p.add_argument("--walks", type=int, default=10, help="of each schema")
    p.add_argument("--tokens", type=int, default=200)
    args = p.parse_args()
    probe = args.probe and subprocess.Popen([args.program, args.model], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                            text=True)
    stopped, failures = collections.Counter(), 0
    for n, schema in enumerate(schemas()):
        validator = jsonschema.Draft202012Validator(schema)
        seeds = range(args.walks)
        for ended, text in by_probe(args, schema, seeds, probe) if probe else by_model(args, schema, seeds):
            if text is None:
                failures += 1
                print(f"schema {n}: {ended}")
                continue
            stopped[ended] += 1
            if ended not in ("pattern", "end"):
                continue  # cut after --tokens
            try:
                errors = list(validator.iter_errors(json.loads(text)))
            except ValueError as e:
                errors = [e]
            if errors:
                failures += 1
                print(f"schema {n} {json.dumps(schema)[:300]}: {text[:200]!r}: {errors[0]}")
    print(f"walks by how they ended: {dict(stopped)}; finished but invalid, or failed: {failures}")
    return failures > 0


if __name__ == "__main__":
    sys.exit(main())
