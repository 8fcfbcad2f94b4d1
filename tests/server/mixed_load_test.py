#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Clients of every kind at once, for as long as is asked, while the server's memory and descriptors are sampled.

    mixed_load_test.py SWITCHYARD TEMPLATE [--seconds S] [--rate R] [--sample S] [--slack MIB] [SERVE OPTIONS...]

The demo model with a chat template that has tools. R requests begin a second, at random times: chats, completions,
streams of the four protocols, tools, schemas, several choices, conversations whose turns come from the prefix cache,
and clients that leave, read slowly, or send half a request or a wrong one. Fails on any status or text that is not
what was asked for, on requests or descriptors that are left over, and if memory grows by more than the slack after the
first third of the time, by a straight line through its samples.
"""
import argparse
import contextlib
import json
import os
import random
import socket
import statistics
import threading
import time

from serving import Server, chat, check, content, get, post, until

PLAIN = {"chat_template_kwargs": {"enable_thinking": False}}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {
    "type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}, "days": {"type": "integer", "maximum": 9}},
    "required": ["city", "days"], "additionalProperties": False}}}
WRONG = [("/v1/chat/completions", {"messages": "hello"}, 400),
         ("/v1/chat/completions", {"messages": [{"role": "boss", "content": "x"}]}, 400),
         ("/v1/completions", {"prompt": "x", "max_tokens": -1}, 400),
         ("/v1/completions", {"prompt": "x", "model": "another"}, 404),
         ("/v1/completions", {"prompt": "x", "guided_regex": "(a"}, 400),
         ("/v1/embeddings", {"input": "x"}, 501)]
STREAMS = {"/v1/chat/completions": ({"messages": [{"role": "user", "content": "Tell me a story"}]}, b"data: [DONE]"),
           "/v1/completions": ({"prompt": "The sea"}, b"data: [DONE]"),
           "/v1/responses": ({"input": "Tell me a story"}, b"event: response."),
           "/v1/messages": ({"messages": [{"role": "user", "content": "A story"}]}, b"event: message_stop")}


def expect(good, what):
    if not good:
        raise ValueError(what)


def expect_200(reply):
    expect(reply[0] == 200, f"status {reply[0]}: {reply[1]}")
    return reply[1]


def words(chance, most):
    return " ".join(chance.choice(["sea", "ship", "king", "night", "old", "the", "of"]) for _ in range(most))


def stream(port, path, fields, window=0):
    """A connection on which a stream was asked for."""
    body = json.dumps({"stream": True, **fields}).encode()
    s = socket.socket()
    if window:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
    s.settimeout(120)
    s.connect(("127.0.0.1", port))
    s.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
              f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
    return s


class Clients:
    """One function for each kind of client; `common` is what all conversations of a server begin with."""

    def __init__(self, port):
        self.port = port
        self.common = [{"role": "system", "content": "You are brief. " + "Be kind and clear. " * 20}]

    def chat(self, chance):
        reply = expect_200(chat(self.port, [{"role": "user", "content": words(chance, 20)}],
                                max_tokens=chance.randrange(1, 80), ignore_eos=True))
        expect(reply["choices"][0]["finish_reason"] == "length", reply)

    def completion(self, chance):
        prompts = [words(chance, 30) for _ in range(chance.randrange(1, 4))]
        reply = expect_200(post(self.port, "/v1/completions", {"prompt": prompts, "max_tokens": 20, "logprobs": 3}))
        expect(len(reply["choices"]) == len(prompts), reply)

    def streamed(self, chance):
        path = chance.choice(list(STREAMS))
        fields, end = STREAMS[path]
        length = "max_output_tokens" if path == "/v1/responses" else "max_tokens"
        with stream(self.port, path, {**fields, length: chance.randrange(1, 100), "ignore_eos": True}) as s:
            text = b"".join(iter(lambda: s.recv(4096), b""))
        expect(text.startswith(b"HTTP/1.1 200 ") and end in text and text.endswith(b"0\r\n\r\n"), text[-300:])

    def choices(self, chance):
        reply = expect_200(chat(self.port, [{"role": "user", "content": words(chance, 5)}], n=3, max_tokens=30))
        expect(len(reply["choices"]) == 3, reply)

    def tools(self, chance):
        reply = expect_200(chat(self.port, [{"role": "user", "content": words(chance, 5)}], tools=[TOOL],
                                tool_choice="required", parallel_tool_calls=False, max_tokens=400, **PLAIN))
        choice = reply["choices"][0]
        if choice["finish_reason"] == "length":
            return
        given = json.loads(choice["message"]["tool_calls"][0]["function"]["arguments"])
        expect(given["city"] in ("Oslo", "Rome") and given["days"] <= 9, reply)

    def schema(self, chance):
        least = chance.randrange(40)  # more kinds of schemas than are kept
        schema = {"type": "object", "properties": {"age": {"type": "integer", "minimum": least, "maximum": least + 9}},
                  "required": ["age"], "additionalProperties": False}
        form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
        reply = expect_200(chat(self.port, [{"role": "user", "content": "How old?"}], response_format=form,
                                max_tokens=200, **PLAIN))
        if reply["choices"][0]["finish_reason"] != "length":
            expect(least <= json.loads(content(reply))["age"] <= least + 9, reply)

    def conversation(self, chance):
        said = list(self.common)
        for turn in range(chance.randrange(1, 5)):
            said.append({"role": "user", "content": words(chance, 15)})
            reply = expect_200(chat(self.port, said, max_tokens=30, ignore_eos=True, **PLAIN))
            expect(turn == 0 or reply["usage"]["prompt_tokens_details"]["cached_tokens"] > 0, reply["usage"])
            said.append({"role": "assistant", "content": content(reply)})

    def leave(self, chance):
        path = chance.choice(list(STREAMS))
        fields, _ = STREAMS[path]
        with stream(self.port, path, {**fields, "max_tokens": 500, "ignore_eos": True}) as s:
            s.recv(chance.randrange(1, 4096))
            if chance.random() < 0.5:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset

    def read_slowly(self, chance):
        fields, _ = STREAMS["/v1/chat/completions"]
        with stream(self.port, "/v1/chat/completions", {**fields, "max_tokens": 500, "ignore_eos": True}, 4096) as s:
            for _ in range(40):
                if not s.recv(64):
                    break
                time.sleep(chance.uniform(0, 0.1))

    def half_a_request(self, chance):
        with socket.create_connection(("127.0.0.1", self.port)) as s:
            text = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{\"prompt\": \"x"
            s.sendall(text[:chance.randrange(1, len(text))])
            time.sleep(chance.uniform(0, 2))

    def wrong(self, chance):
        path, fields, status = chance.choice(WRONG)
        got = post(self.port, path, fields)
        expect(got[0] == status and "message" in got[1]["error"], f"{path} {fields}: {got}, not {status}")

    def lookups(self, chance):
        expect(get(self.port, chance.choice(["/", "/metrics", "/health", "/v1/models"]))[0] == 200, "a look-up")
        ids = expect_200(post(self.port, "/tokenize", {"prompt": "a b c"}))["tokens"]
        expect(expect_200(post(self.port, "/detokenize", {"tokens": ids}))["prompt"] == "a b c", ids)


KINDS = ("chat completion streamed streamed choices tools schema conversation leave read_slowly half_a_request wrong "
         "lookups").split()


class Load:
    """Begins requests at random times until told to stop; at most `most` at a time, so that a slow server slows it."""

    def __init__(self, port, rate, kinds, seed, most=32):
        self.clients, self.rate, self.kinds, self.chance = Clients(port), rate, kinds, random.Random(seed)
        self.done, self.errors, self.lock = dict.fromkeys(kinds, 0), [], threading.Lock()
        self.places, self.threads, self.stop = threading.Semaphore(most), set(), threading.Event()

    def one(self, kind, seed):
        try:
            getattr(self.clients, kind)(random.Random(seed))
            with self.lock:
                self.done[kind] += 1
        except Exception as e:  # noqa: BLE001 - whatever went wrong has to reach the end
            self.errors.append(f"{kind}: {e!r}"[:600])
        finally:
            self.places.release()
            self.threads.discard(threading.current_thread())

    def run(self):
        while not self.stop.wait(self.chance.expovariate(self.rate)):
            self.places.acquire()
            thread = threading.Thread(target=self.one, args=(self.chance.choice(self.kinds), self.chance.random()))
            self.threads.add(thread)
            thread.start()
        for thread in list(self.threads):
            thread.join(300)


def descriptors(server):
    return len(os.listdir(f"/proc/{server.pid}/fd"))


def slope(samples):
    """MiB a second, of (seconds, MiB)."""
    middle = statistics.fmean(t for t, _ in samples)
    return sum((t - middle) * m for t, m in samples) / sum((t - middle) ** 2 for t, _ in samples)


def watch(server, load, o):
    """Samples of the memory after the first third of the time."""
    begun, samples, told = time.monotonic(), [], 0
    while (now := time.monotonic() - begun) < o.seconds and not load.errors and server.alive():
        mib = server.memory()[0] / 2**20
        if now >= o.seconds / 3:
            samples.append((now, mib))
        if now >= told:
            told += min(300, o.seconds / 12)
            sizes, made = (server.metric(f"engine_step_sizes{n}") for n in ("", "_recorded_total"))
            print(f"   {now:5.0f} s: {mib:.1f} MiB, {descriptors(server)} descriptors, {sum(load.done.values())} "
                  f"requests, {sizes:.0f} of {made:.0f} recorded step sizes, {server.processor_seconds():.0f} s of "
                  "processor time", flush=True)
        time.sleep(o.sample)
    return samples


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("template")
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--rate", type=float, default=6, help="requests that begin in a second")
    parser.add_argument("--sample", type=float, default=2, help="seconds between two looks at the server")
    parser.add_argument("--slack", type=float, default=4, help="MiB that memory may grow by")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--seed", type=int, default=1)
    o, flags = parser.parse_known_args()
    server = Server(o.program, "--sessions", "8", "--threads", "1", "--cache-mib", "16", "--drain", "30",
                    "--chat-template", o.template, *flags)
    get(server.port, "/health")
    idle = descriptors(server)
    load = Load(server.port, o.rate, o.kinds, o.seed)
    runner = threading.Thread(target=load.run)
    runner.start()
    samples = watch(server, load, o)
    load.stop.set()
    runner.join(600)
    print("   requests:", load.done)
    check(server.alive(), "the server lives")
    check(not load.errors, f"every reply is what was asked for {load.errors[:3]}")
    check(all(load.done.values()), "requests of every kind")
    busy = ("num_requests_running", "num_requests_waiting", "num_requests_paused")
    until(lambda: sum(server.metric(name) for name in busy) == 0, 120, "without requests")
    with contextlib.suppress(SystemExit):  # the last connection takes a moment to close
        until(lambda: descriptors(server) <= idle, 10, "without connections")
    check(descriptors(server) <= idle, f"descriptors: {idle} before, {descriptors(server)} after")
    grown = slope(samples) * (samples[-1][0] - samples[0][0])
    memory = sorted(m for _, m in samples)
    check(grown < o.slack, f"memory grows by {grown:+.2f} MiB in {samples[-1][0] - samples[0][0]:.0f} s, by a straight "
                           f"line through {len(samples)} samples: {memory[0]:.1f} to {memory[-1]:.1f} MiB")
    check(server.stop() == 0, "it ends well when it is told to")


if __name__ == "__main__":
    main()
