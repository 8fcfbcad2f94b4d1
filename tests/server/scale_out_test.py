#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two servers behind HAProxy, with the configuration of docs/scale-out.md: conversations stay where their states are,
and a rolling restart loses no request.

    scale_out_test.py SWITCHYARD DOCUMENT

Exits with 77 where HAProxy is not installed.
"""
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

from serving import Server, chat, check, content, get, send, until

STREAM = {"stream": True, "max_tokens": 40, "ignore_eos": True, "seed": 1}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def configuration(document, ports):
    with open(document, encoding="utf-8") as f:
        text = re.search(r"```\n(global\n.*?)```", f.read(), re.S).group(1)
    for known, port in zip((8000, 8081, 8082), ports):
        text, changed = re.subn(f":{known}\\b", f":{port}", text)
        check(changed == 1, f"the document's port {known} is {port} here")
    return text


def conversations(port, servers):
    """The turns of 12 conversations, of which each has its own server."""
    for turn in range(3):
        for number in range(12):
            said = [{"role": "user", "content": f"Conversation {number}. " + "The ship was at sea. " * 12}]
            for i in range(turn):
                said += [{"role": "assistant", "content": f"Answer {i}."}, {"role": "user", "content": "And?"}]
            status, _, _ = chat(port, said, {"X-Session-Id": f"conversation-{number}"}, max_tokens=4, seed=1)
            if status != 200:
                raise SystemExit(f"status {status}")
    asked = [s.metric("request_success_total") for s in servers]
    queries = sum(s.metric("prefix_cache_queries_total") for s in servers)
    hits = sum(s.metric("prefix_cache_hits_total") for s in servers)
    check(sum(asked) == 36 and min(asked) >= 3, f"36 requests, by server: {asked}")
    check(all(n % 3 == 0 for n in asked), "no conversation changed its server")
    check(hits > 0.5 * queries, f"{hits:.0f} of {queries:.0f} tokens came from the prefix caches")


class Load(threading.Thread):
    """One client of the balancer, until it is told to stop."""

    def __init__(self, port, number):
        super().__init__(daemon=True)
        self.port, self.number, self.stop, self.answers, self.lost = port, number, threading.Event(), 0, []

    def ask(self):
        said = [{"role": "user", "content": f"Hello {self.number}"}]
        headers = {"X-Session-Id": f"client-{self.number}-{self.answers // 5}"}
        if self.answers % 2:
            status, reply, _ = chat(self.port, said, headers, max_tokens=20, ignore_eos=True)
            return status == 200 and bool(content(reply)), f"{status} {reply}"
        status, body, _ = send(self.port, "POST", "/v1/chat/completions", json.dumps({"messages": said, **STREAM}),
                               headers)
        whole = body.endswith(b"data: [DONE]\n\n") and b'"error"' not in body
        return status == 200 and whole, f"{status} {body[-300:]}"

    def run(self):
        while not self.stop.is_set():
            try:
                good, what = self.ask()
            except OSError as e:
                good, what = False, repr(e)
            self.answers += 1
            if not good:
                self.lost.append(what)


def rolling_restart(program, port, servers):
    loads = [Load(port, n) for n in range(8)]
    for load in loads:
        load.start()
    time.sleep(1)
    for round_ in range(2):
        for i, server in enumerate(servers):
            code = server.stop(60)
            check(code == 0, f"server {i} has drained and ended ({round_ + 1})")
            servers[i] = Server(program, "--sessions", "8", port=server.port)
            until(lambda i=i: get(servers[i].port, "/ready")[0] == 200, 30, "ready")
            time.sleep(1.5)  # the balancer looks every second
    for load in loads:
        load.stop.set()
    for load in loads:
        load.join(120)
    answers, lost = sum(load.answers for load in loads), [what for load in loads for what in load.lost]
    shares = [s.metric("request_success_total") for s in servers]
    check(not lost, f"{answers} requests during 4 restarts, {len(lost)} of them lost {lost[:2]}")
    check(min(shares) > 0, f"both new servers have answered: {shares}")


def main():
    program, document = sys.argv[1:]
    haproxy = shutil.which("haproxy", path=os.environ["PATH"] + ":/usr/sbin")
    if haproxy is None:
        print("HAProxy is not installed")
        raise SystemExit(77)
    servers = [Server(program, "--sessions", "8") for _ in range(2)]
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "haproxy.cfg")
        with open(path, "w", encoding="utf-8") as f:
            f.write(configuration(document, (port, servers[0].port, servers[1].port)))
        checked = subprocess.run([haproxy, "-c", "-f", path], capture_output=True, text=True)
        check(checked.returncode == 0, f"HAProxy takes the configuration {checked.stderr.strip()}")
        balancer = subprocess.Popen([haproxy, "-f", path], stderr=subprocess.DEVNULL)
        try:
            def answers():
                try:
                    return get(port, "/ready")[0] == 200
                except OSError:
                    return False
            until(answers, 30, "a balancer that answers")
            conversations(port, servers)
            rolling_restart(program, port, servers)
            for server in servers:
                check(server.stop() == 0, "a server ends well")
            check(get(port, "/v1/models")[0] == 503, "without servers: 503")
        finally:
            balancer.kill()
            balancer.wait()


main()
