#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random walks of a model under schemas: every finished text is parsed and validated by the PyPI package `jsonschema`.

  walks.py SWITCHYARD MODEL [--walks N] [--tokens N] [--sessions N]
  walks.py --probe PROBE TOKENIZER [--walks N] [--tokens N]

Starts `switchyard serve`, and asks for each schema and seed at temperature 2, many at a time. With --probe,
constrain_probe draws every token of a mask with the same probability instead. The schemas are made here: nested,
recursive, enumerations, patterns, bounded numbers, unicode, any order. --first and --schemas choose some of the 100.
"""

import argparse
import collections
import concurrent.futures
import json
import random
import re
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

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
            most = {"maxItems": rng.randint(1, 3)} if rng.random() < 0.7 else {}
            return {"type": "array", "items": node(depth - 1), "minItems": rng.randint(0, 1), **most}
        if kind < 0.6:
            return {"anyOf": [node(depth - 1), leaf()]}
        if kind < 0.65:
            some = rng.choice([{"enum": ["a", "b", "ü"]}, {"type": "string", "maxLength": 2}, {"pattern": "^(a|b+)$"}])
            return {"type": "array", "uniqueItems": True, "items": {"type": "string", **some}, "maxItems": 3}
        names = rng.sample(["name", "größe", "x y", "id", "tags", "n", "名"], rng.randint(1, 4))
        return {"type": "object", "properties": {n: node(depth - 1) for n in names}, "additionalProperties": False,
                "required": rng.sample(names, rng.randint(0, len(names)))}

    for i in range(90):
        yield node(1 + i % 3)
    for i in range(10):
        yield {"$ref": "#/$defs/tree", "$defs": {"tree": {
            "type": "object", "properties": {"value": leaf(), "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/tree"}]}},
            "required": ["value", "next"], "additionalProperties": False}}}


class Server:
    def __init__(self, args):
        self.args = args
        self.log = tempfile.NamedTemporaryFile("w+")
        self.process = subprocess.Popen(
            [args.program, "serve", args.model, "--port", "0", "--json", "--sessions", str(args.sessions), "--queue",
             str(10 * args.sessions), "--threads", str(args.threads)], stderr=self.log, stdout=subprocess.DEVNULL)
        self.workers = concurrent.futures.ThreadPoolExecutor(args.sessions)
        while True:
            found = re.search(r'"url":"([^"]+)"', open(self.log.name).read())
            if found:
                self.url = found.group(1)
                return
            if self.process.poll() is not None:
                sys.exit("the server does not listen: " + open(self.log.name).read())

    def ask(self, schema, seed):
        body = {"prompt": "Answer: ", "guided_json": schema, "temperature": 2, "top_p": 1, "seed": seed,
                "max_tokens": self.args.tokens}
        try:
            with urllib.request.urlopen(self.url + "/v1/completions", json.dumps(body).encode(), 600) as reply:
                choice = json.load(reply)["choices"][0]
        except urllib.error.HTTPError as e:
            return e.read().decode()[:300], None
        return choice["finish_reason"], choice["text"]

    def walks(self, schemas, seeds):
        """Yields (number of the schema, how it ended, the text); None for the text of a request that failed."""
        for n, schema in schemas:
            asked = [self.workers.submit(self.ask, schema, seed) for seed in seeds]
            for one in asked:
                yield n, *one.result()

    def close(self):
        self.process.terminate()
        self.process.wait()


def by_probe(args, schemas, seeds):
    probe = subprocess.Popen([args.program, args.model], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    for n, schema in schemas:
        for seed in seeds:
            request = {"kind": "json_schema", "text": json.dumps(schema), "walk": {"seed": seed, "steps": args.tokens}}
            probe.stdin.write(json.dumps(request) + "\n")
            probe.stdin.flush()
            answer = json.loads(probe.stdout.readline())
            if "error" in answer:
                yield n, answer["error"], None
            else:
                yield n, "stop" if answer["walk"][1] else "length", answer["walk"][0]
    probe.stdin.close()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("program")
    p.add_argument("model")
    p.add_argument("--probe", action="store_true")
    p.add_argument("--walks", type=int, default=10, help="of each schema")
    p.add_argument("--tokens", type=int, default=200)
    p.add_argument("--sessions", type=int, default=32)
    p.add_argument("--threads", type=int, default=0, help="of the server; 0: one per core")
    p.add_argument("--first", type=int, default=0)
    p.add_argument("--schemas", type=int, default=100)
    args = p.parse_args()
    chosen = list(enumerate(schemas()))[args.first:args.first + args.schemas]
    validators = {n: jsonschema.Draft202012Validator(schema) for n, schema in chosen}
    server = None if args.probe else Server(args)
    seeds = range(args.walks)
    stopped, failures = collections.Counter(), 0
    for n, ended, text in by_probe(args, chosen, seeds) if args.probe else server.walks(chosen, seeds):
        if text is None:
            failures += 1
            print(f"schema {n}: {ended}")
            continue
        stopped[ended] += 1
        if ended != "stop":
            continue  # cut after --tokens
        try:
            errors = list(validators[n].iter_errors(json.loads(text)))
        except ValueError as e:
            errors = [e]
        if errors:
            failures += 1
            print(f"schema {n} {json.dumps(validators[n].schema)[:300]}: {text[:200]!r}: {errors[0]}")
    if server:
        server.close()
    print(f"walks by how they ended: {dict(stopped)}; finished but invalid, or failed: {failures}", flush=True)
    return failures > 0


if __name__ == "__main__":
    sys.exit(main())
