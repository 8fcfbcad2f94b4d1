#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tokens per second of `switchyard serve` with and without a schema.

  throughput.py SWITCHYARD MODEL [--sessions 1 32] [--tokens N] [--rounds N]

Every request draws so many tokens: without a schema the ends of texts are ignored; the schema is that of a list too
long to end. Rounds with and without it alternate, and the best of each counts, so that other work on the machine
matters less: of tokens per second, and of the server's processor time for a token. The schema is compiled before.
"""

import argparse
import concurrent.futures
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import urllib.request

SCHEMA = {"type": "array", "minItems": 5000, "items": {
    "type": "object", "additionalProperties": False, "required": ["name", "count", "kind", "tags", "note"],
    "properties": {"name": {"type": "string", "maxLength": 40}, "count": {"type": "integer", "minimum": 0},
                   "kind": {"enum": ["alpha", "beta", "gamma"]}, "note": {"type": "string"},
                   "tags": {"type": "array", "items": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 12}}}}}


def ask(url, tokens, schema, seed):
    body = {"prompt": "A list as JSON: ", "max_tokens": tokens, "temperature": 1, "seed": seed}
    body |= {"guided_json": schema} if schema else {"ignore_eos": True}
    with urllib.request.urlopen(url + "/v1/completions", json.dumps(body).encode(), 600) as reply:
        answer = json.load(reply)
    return answer["usage"]["completion_tokens"]


def processor_seconds(pid):
    tasks = pathlib.Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def main():
    p = argparse.ArgumentParser()
    p.add_argument("program")
    p.add_argument("model")
    p.add_argument("--sessions", type=int, nargs="+", default=[1, 32])
    p.add_argument("--tokens", type=int, default=128)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--threads", type=int, default=0, help="0: one per core")
    args = p.parse_args()
    log = tempfile.NamedTemporaryFile("w+")
    most = max(args.sessions)
    server = subprocess.Popen([args.program, "serve", args.model, "--port", "0", "--json", "--sessions", str(most),
                               "--threads", str(args.threads)], stderr=log, stdout=subprocess.DEVNULL)
    while not (found := re.search(r'"url":"([^"]+)"', open(log.name).read())):
        if server.poll() is not None:
            sys.exit("the server does not listen: " + open(log.name).read())
        time.sleep(0.1)
    url = found.group(1)
    workers = concurrent.futures.ThreadPoolExecutor(most)
    print(f"{'sessions':>8}{'without, tokens/s':>20}{'with a schema':>16}{'loss':>8}{'without, us of processor':>26}"
          f"{'with a schema':>16}{'loss':>8}")
    for sessions in args.sessions:
        best, least = [0.0, 0.0], [1e9, 1e9]
        for n in range(args.rounds + 1):
            for side, schema in enumerate((None, SCHEMA)):
                begun, used = time.monotonic(), processor_seconds(server.pid)
                drawn = sum(workers.map(lambda seed: ask(url, args.tokens, schema, seed), range(sessions)))
                rate = drawn / (time.monotonic() - begun)
                if drawn != sessions * args.tokens:
                    print(f"only {drawn} of {sessions * args.tokens} tokens")
                if n > 0:  # the first round makes plans and states
                    best[side] = max(best[side], rate)
                    least[side] = min(least[side], (processor_seconds(server.pid) - used) / drawn * 1e6)
        print(f"{sessions:>8}{best[0]:>20.1f}{best[1]:>16.1f}{100 * (1 - best[1] / best[0]):>7.1f}%"
              f"{least[0]:>26.1f}{least[1]:>16.1f}{100 * (least[1] / least[0] - 1):>7.1f}%", flush=True)
    server.terminate()
    server.wait()


if __name__ == "__main__":
    main()
