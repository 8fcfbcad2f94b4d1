#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what HTTP costs, and `switchyard serve` beside llama.cpp's llama-server. Prints one line a run.

  server_speed.py one MODEL.swy         decode of one stream through HTTP, in turns with `switchyard run`
  server_speed.py many MODEL.swy        64 streams through HTTP, while all of them are drawn, in turns with `switchyard
                                        bench` on as many requests
  server_speed.py peer MODEL.swy PEER.gguf    both servers at 1, 4, 16 and 32 clients, one after the other
  server_speed.py talk MODEL.swy PEER.gguf    both servers in a conversation of 10 turns

`switchyard bench --serve` makes the load. Each line has the processor time of the server's threads, the busiest first:
those that compute (--threads), then the server's own. Run it on a machine that does nothing else. Linux alone.
"""
import argparse
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from pathlib import Path


def thread_seconds(pid):
    seconds = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            seconds[task.name] = int((task / "schedstat").read_text().split()[0]) / 1e9
    return seconds


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """A server that runs while the `with` block does."""

    def __init__(self, o, kind, model, sessions, context):
        self.o, port, context = o, free_port(), max(context, 256)
        self.url = f"http://127.0.0.1:{port}"
        threads = str(o.threads)
        if kind == "switchyard":
            command = [o.switchyard, "serve", "-m", model, "--backend", "cpu", "--threads", threads, "--port",
                       str(port), "--sessions", str(sessions), "--ctx", str(context), "--quiet"]
        else:
            command = [o.llama_server, "-m", model, "-t", threads, "-tb", threads, "-np", str(sessions), "-c",
                       str(sessions * context), "--host", "127.0.0.1", "--port", str(port)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def __enter__(self):
        for _ in range(3000):
            with contextlib.suppress(OSError):
                if urllib.request.urlopen(self.url + "/health", timeout=2).status == 200:
                    return self
            if self.process.poll() is not None:
                sys.exit(f"server_speed.py: the server ended: {' '.join(self.process.args)}")
            time.sleep(0.1)
        sys.exit("server_speed.py: the server did not come up within five minutes")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def metrics(self):
        values = {}
        for text in urllib.request.urlopen(self.url + "/metrics", timeout=20).read().decode().splitlines():
            if text.startswith("switchyard:"):
                values[text.split("{")[0].split(":")[1]] = float(text.rsplit(" ", 1)[1])
        return values

    def steady_rate(self, ran, streams):
        """Tokens a second while all streams are drawn: after the last first token, and before the first end."""
        begun = self.metrics()
        first = last = None
        while ran.poll() is None:
            now, m = time.monotonic(), self.metrics()
            drawing = m["time_to_first_token_seconds_count"] - begun["time_to_first_token_seconds_count"]
            if drawing >= streams and m["num_requests_running"] == streams:
                last = (now, m["generation_tokens_total"])
                first = first or last
            time.sleep(0.5)
        if first is None or last is first:
            sys.exit("server_speed.py: the streams ran together too briefly; give more --tokens")
        return (last[1] - first[1]) / (last[0] - first[0])

    def load(self, *options, together=0):
        before = thread_seconds(self.process.pid)
        ran = subprocess.Popen([self.o.switchyard, "bench", "--serve", self.url, "--json", *map(str, options)],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        rate = self.steady_rate(ran, together) if together else None
        out, said = ran.communicate()
        if ran.returncode != 0:
            sys.exit("server_speed.py: " + said)
        r = json.loads(out)
        r["steady"] = rate
        after = thread_seconds(self.process.pid)
        r["threads"] = sorted((after[t] - before.get(t, 0) for t in after), reverse=True)
        return r


def line(r):
    def ms(name, digits):
        return "/".join(f"{1e3 * r[name][p]:.{digits}f}" for p in ("p50", "p90", "p99"))
    threads = " ".join(f"{t:.3f}" for t in r["threads"] if t >= 0.0005)
    failed = "".join(f"; {f['count']} failed: {f['message']}" for f in r["failures"])
    return (f"{r['tokens_per_second']:.1f} tok/s; first token {ms('ttft', 1)} ms, between {ms('itl', 2)} ms; "
            f"{r['ended_well']} requests of {r['prompt_tokens']:.0f} + {r['answer_tokens']:.0f} tokens in "
            f"{r['seconds']:.2f} s; threads {threads} s; generator {100 * r['generator']['core_share']:.1f}%{failed}")


def one(o):
    with Server(o, "switchyard", o.model, 4, 2 * o.tokens) as server:
        server.load("--requests", 1, "--answer-tokens", 16)
        for pair in range(o.pairs):
            ran = subprocess.run([o.switchyard, "run", "-m", o.model, "--backend", "cpu", "--threads", str(o.threads),
                                  "-n", str(o.tokens), "--ignore-eos", "--seed", "1", "--json",
                                  "Once upon a time there was"], capture_output=True, text=True, check=True)
            alone = (o.tokens - 1) / json.loads(ran.stdout)["decode_seconds"]
            r = server.load("--requests", 1, "--prompt-tokens", 16, "--answer-tokens", o.tokens, "--load-seed",
                            pair + 1)
            served = 1 / r["tpot"]["p50"]
            print(f"run {alone:.2f} tok/s, served {served:.2f}, ratio {served / alone:.4f}; {line(r)}", flush=True)


def many(o):
    streams, tokens = o.streams, o.tokens
    with Server(o, "switchyard", o.model, streams, tokens + 64) as server:
        # As long as those that are measured: memory that is used for the first time is cleared page by page.
        server.load("--requests", streams, "--clients", streams, "--prompt-tokens", 16, "--answer-tokens", tokens)
        for pair in range(o.pairs):
            ran = subprocess.run([o.switchyard, "bench", "-m", o.model, "--backend", "cpu", "--threads", str(o.threads),
                                  "--metrics", "decode", "--batch", str(streams), "--sampling", "auto", "--context",
                                  str(tokens // 2), "--decode", "32", "--no-check", "--no-probes", "--json"],
                                 capture_output=True, text=True, check=True)
            cell = json.loads(ran.stdout)["configurations"][0]["cells"][0]
            # The server's rate is over all steps, also those that other programs delay, and so is this one.
            batch = cell["tokens"] / statistics.mean(cell["samples"])
            undisturbed = cell["tokens"] / statistics.median(cell["samples"])
            r = server.load("--requests", streams, "--clients", streams, "--prompt-tokens", 16, "--answer-tokens",
                            tokens, "--load-seed", pair + 1, together=streams)
            served = r["steady"]
            print(f"batch {batch:.1f} tok/s (by its median step {undisturbed:.1f}), served {served:.1f}, ratio "
                  f"{served / batch:.4f}; {line(r)}", flush=True)


def peer(o):
    for clients in map(int, o.clients.split(",")):
        for kind, model in (("switchyard", o.model), ("llama-server", o.peer)):
            with Server(o, kind, model, clients, o.prompt + o.tokens + 64) as server:
                server.load("--requests", max(1, clients // 2), "--clients", clients, "--prompt-tokens", 16,
                            "--answer-tokens", 4)
                r = server.load("--requests", o.rounds * clients, "--clients", clients, "--prompt-tokens", o.prompt,
                                "--answer-tokens", o.tokens)
                print(f"{kind}, {clients} clients: {line(r)}", flush=True)


def talk(o):
    for kind, model in (("switchyard", o.model), ("llama-server", o.peer)):
        with Server(o, kind, model, 1, 12 * (o.prompt + o.tokens)) as server:
            server.load("--requests", 1, "--prompt-tokens", 16, "--answer-tokens", 4)
            r = server.load("--requests", 10, "--turns", 10, "--prompt-tokens", o.prompt, "--answer-tokens", o.tokens)
            print(f"{kind}: {line(r)}")
            for name, value in (("first token, ms", lambda t: f"{1e3 * t['ttft']['p50']:.1f}"),
                                ("prompt tokens", lambda t: f"{t['prompt_tokens']:.0f}"),
                                ("of them cached", lambda t: f"{t['cached_tokens']:.0f}")):
                print(f"  {name}: {', '.join(map(value, r['by_turn']))}", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=("one", "many", "peer", "talk"))
    p.add_argument("model")
    p.add_argument("peer", nargs="?", help="the same model as GGUF, for llama-server")
    p.add_argument("--switchyard", default="switchyard")
    p.add_argument("--llama-server", default="llama-server")
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--pairs", type=int, default=3, help="of one and many")
    p.add_argument("--streams", type=int, default=64, help="of many")
    p.add_argument("--clients", default="1,4,16,32", help="of peer")
    p.add_argument("--rounds", type=int, default=2, help="of peer: requests of each client")
    p.add_argument("--prompt", type=int, default=128, help="of peer and talk: tokens")
    p.add_argument("--tokens", type=int, default=64, help="of each answer")
    o = p.parse_args()
    if o.what in ("peer", "talk") and o.peer is None:
        p.error(f"{o.what} needs the model as GGUF, too")
    {"one": one, "many": many, "peer": peer, "talk": talk}[o.what](o)


if __name__ == "__main__":
    main()
