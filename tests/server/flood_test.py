#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Clients that misbehave in every way at once, while another one asks the same question over and over.

    flood_test.py SWITCHYARD [--connections N] [--seconds S] [--rounds N] [--slack MIB] [--running PID PORT]

Opens and drops N connections at random points of requests and replies, for S seconds at least. Meanwhile clients read
a byte at a time or not at all, stop within a request, announce or send 1 GB, send what is no JSON, no UTF-8, or too
many headers. Fails if the server ends, if the other client's text ever differs, if a wrong request gets another status
than its own, if requests are left over, or if memory grows by more than the bodies that may be read at a time and the
slack.
"""
import argparse
import contextlib
import json
import random
import socket
import threading
import time

from serving import Server, chat, check, content, get, until

ASK = {"messages": [{"role": "user", "content": "Tell me a story"}], "ignore_eos": True, "max_tokens": 400}
BODIES_MIB = 256  # HttpOptions::bodies_bytes


def request(body, path="/v1/chat/completions", extra=b""):
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n".encode()
    return head + extra + b"\r\n" + body


STREAM = request({**ASK, "stream": True})
WHOLE = [STREAM, request(ASK), request({**ASK, "n": 4, "stream": True}),
         request({**ASK, "prompt": "A"}, "/v1/completions"),
         request({**ASK, "stream": True}, "/v1/messages"), request({"input": "Hi", "stream": True}, "/v1/responses"),
         b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"]

# What is no request, and the status that it gets.
WRONG = [
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
    (request(b'{"messages": [{"role": "user", "content": '), 400),
    (request(b'{"messages":[{"role":"user","content":"\xff\xfe\x80"}]}'), 400),
    (request(b'{"messages":[{"role":"user","content":"\\ud800"}]}'), 400),
    (request(b"[" * 100000), 400),
    (request(b'{"a":' * 50000), 400),
    (request({"messages": "hello"}), 400),
    (request({"messages": [{"role": "user", "content": "x"}], "max_tokens": -1}), 400),
    (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n", 413),
    (b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 20000 + b"\r\n\r\n", 431),
    (b"GET /health HTTP/1.1\r\n" + b"".join(b"X-%d: 1\r\n" % i for i in range(5000)) + b"\r\n", 431),
]


class Attack:
    def __init__(self, port, seed):
        self.port, self.random, self.stop, self.errors = port, random.Random(seed), threading.Event(), []
        self.done, self.lock, self.left = {}, threading.Lock(), 0

    def count(self, what):
        with self.lock:
            self.done[what] = self.done.get(what, 0) + 1

    def connect(self, window=0):
        s = socket.socket()
        if window:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
        s.settimeout(60)
        s.connect(("127.0.0.1", self.port))
        return s

    def run(self, kind, seed):
        chance = random.Random(seed)
        while not self.stop.is_set():
            try:
                idle = getattr(self, kind)(chance)
                if not idle:
                    self.count(kind)
            except OSError:  # the server closed first, which is its right
                self.count(kind + ", closed by the server")
            except Exception as e:  # noqa: BLE001 - a thread's failure has to reach the end
                self.errors.append(f"{kind}: {e!r}")
                return

    def drop(self, chance):
        """A connection that ends at a random point of its request or of the reply; true when there are enough."""
        with self.lock:
            ends, self.left = self.left == 0, max(0, self.left - 1)
        if ends:
            self.stop.wait(0.1)
            return True
        s = self.connect()
        try:
            text = chance.choice(WHOLE + [w for w, _ in WRONG])
            cut = chance.choice([0, chance.randrange(len(text)), len(text)])
            s.sendall(text[:cut])
            if cut == len(text) and chance.random() < 0.7:
                s.settimeout(chance.uniform(0.001, 0.2))
                with contextlib.suppress(TimeoutError):
                    s.recv(chance.randrange(1, 4096))
            if chance.random() < 0.2:
                s.shutdown(socket.SHUT_WR)
        finally:
            if chance.random() < 0.5:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset
            s.close()
        return False

    def wrong(self, chance):
        text, status = chance.choice(WRONG)
        with self.connect() as s:
            s.sendall(text)
            reply = s.recv(4096).decode(errors="replace")
        if reply and int(reply.split()[1]) != status:
            raise ValueError(f"{text[:80]!r} got {reply[:200]!r}, not {status}")
        self.stop.wait(0.01)

    def read_slowly(self, chance):
        with self.connect(window=4096) as s:
            s.sendall(STREAM)
            for _ in range(chance.randrange(20, 100)):
                if self.stop.is_set() or not s.recv(1):
                    break
                time.sleep(0.02)

    def never_read(self, chance):
        with self.connect(window=4096) as s:
            s.sendall(request({**ASK, "n": 4, "stream": True, "logprobs": True, "top_logprobs": 20}))
            self.stop.wait(chance.uniform(1, 4))

    def talk(self, chance):
        """A client that behaves: turns of a conversation, formats, completions."""
        said = [{"role": "system", "content": "You are " + "very " * chance.randrange(50) + "brief."}]
        for _ in range(chance.randrange(1, 4)):
            said.append({"role": "user", "content": "Tell me of " + "the sea " * chance.randrange(1, 40)})
            fields = chance.choice([{}, {"n": 2}, {"response_format": {"type": "json_object"}}, {"logprobs": True},
                                    {"structured_outputs": {"regex": "[a-z]{%d}" % chance.randrange(1, 30)}}])
            status, reply, _ = chat(self.port, said, max_tokens=chance.randrange(1, 60), timeout=300, **fields)
            if status not in (200, 429):
                raise ValueError(f"{fields} got {status} {reply}")
            if status == 200:
                said.append({"role": "assistant", "content": content(reply)})

    def stop_halfway(self, chance):
        with self.connect() as s:
            s.sendall(STREAM[:chance.randrange(1, len(STREAM))])
            self.stop.wait(chance.uniform(1, 4))

    def send_a_gigabyte(self, chance):
        """In chunks, so that its length is not announced."""
        with self.connect() as s:
            s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
            piece = b"100000\r\n" + b"a" * (1 << 20) + b"\r\n"
            for sent in range(1000):
                if self.stop.is_set():
                    break
                s.sendall(piece)
            else:
                raise ValueError("the server took 1 GB")


class Neighbour(threading.Thread):
    """Asks one question over and over, and notes how long each answer took."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.port, self.seconds, self.wrong, self.stop = port, [], [], threading.Event()
        self.text = self.ask()

    def ask(self):
        begun = time.monotonic()
        status, reply, _ = chat(self.port, [{"role": "user", "content": "Hello"}], seed=7, max_tokens=24,
                                ignore_eos=True, priority=1, timeout=300)
        self.seconds.append(time.monotonic() - begun)
        return content(reply) if status == 200 else f"{status} {reply}"

    def run(self):
        while not self.stop.is_set():
            text = self.ask()
            if text != self.text:
                self.wrong.append(text)
            time.sleep(0.02)

    def latency(self):
        times, self.seconds = sorted(self.seconds), []
        return (f"{len(times)} answers, seconds: median {times[len(times) // 2]:.3f}, "
                f"95% {times[len(times) * 95 // 100]:.3f}, most {times[-1]:.3f}")


def mib(n):
    return f"{n / 2**20:.1f} MiB"


def assault(server, o, neighbour):
    attack = Attack(server.port, o.seed)
    attack.left = o.connections
    kinds = ["drop"] * 8 + ["wrong"] * 2 + ["read_slowly"] * 4 + ["never_read"] * 4 + ["stop_halfway"] * 4
    kinds += ["talk"] * 2 + ["send_a_gigabyte"]
    threads = [threading.Thread(target=attack.run, args=(kind, o.seed * 100 + i)) for i, kind in enumerate(kinds)]
    begun, sampled = time.monotonic(), time.monotonic()
    for t in threads:
        t.start()
    while (attack.left > 0 or time.monotonic() - begun < o.seconds) and not attack.errors and server.alive():
        time.sleep(0.2)
        if time.monotonic() - sampled >= 60:
            sampled += 60
            print(f"   {(time.monotonic() - begun) / 60:.0f} min: {mib(server.memory()[0])}", flush=True)
    attack.stop.set()
    for t in threads:
        t.join(120)
    print(f"   {time.monotonic() - begun:.0f} s of it:", dict(sorted(attack.done.items())))
    check(server.alive(), "the server lives")
    check(not attack.errors, f"wrong requests got their status {attack.errors[:3]}")
    check(attack.left == 0, f"{o.connections} connections opened and dropped")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--connections", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--slack", type=int, default=64, help="MiB that memory may have grown by at the end")
    parser.add_argument("--rounds", type=int, default=1, help="of all this, against one server")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--running", type=int, nargs=2, metavar=("PID", "PORT"), help="use this server, and leave it")
    o = parser.parse_args()
    # With --deterministic, texts do not depend on what else is computed.
    server = Server.running(*o.running) if o.running else Server(
        o.program, "--sessions", "8", "--drain", "30", "--cache-mib", "16", "--deterministic")
    # Memory that every session touches once: its states, and the plans of both kinds of request.
    for fields in ({}, {"logprobs": True, "top_logprobs": 20}):
        chat(server.port, ASK["messages"], n=8, ignore_eos=True, max_tokens=400, timeout=600, **fields)
    neighbour = Neighbour(server.port)
    for _ in range(8):
        neighbour.ask()
    print("   before:", neighbour.latency(), flush=True)
    before = server.memory()[0]
    neighbour.start()
    for _ in range(o.rounds):
        assault(server, o, neighbour)
        o.seed += 1
    neighbour.stop.set()
    neighbour.join(300)
    print("   meanwhile:", neighbour.latency())
    check(not neighbour.wrong, f"the other client always got the same text {neighbour.wrong[:2]}")
    busy = ("num_requests_running", "num_requests_waiting", "num_requests_paused")
    until(lambda: sum(server.metric(name) for name in busy) == 0, 120, "without requests")
    after, most = server.memory()
    memory = f"memory: {mib(before)} before, {mib(most)} at most, {mib(after)} after"
    check(after - before < o.slack << 20 and most - before < (o.slack + BODIES_MIB) << 20, memory)
    check(get(server.port, "/health")[0] == 200, "it is well")
    if not o.running:
        check(server.stop() == 0, "it ends well when it is told to")


main()
