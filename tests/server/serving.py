# SPDX-License-Identifier: Apache-2.0
"""What the scripts of this folder share: a `switchyard serve` as a process of its own, and requests to it."""
import atexit
import http.client
import json
import os
import queue
import signal
import subprocess
import threading
import time


class Server:
    """`switchyard serve` with the demo model on a free port of 127.0.0.1, or the port that is given."""

    def __init__(self, program, *flags, port=0, wait=120):
        self.process = subprocess.Popen([program, "serve", "--json", "--quiet", "--port", str(port), *flags],
                                        stderr=subprocess.PIPE, text=True)
        atexit.register(self.process.kill)
        self.pid = self.process.pid
        self.lines, self.events = [], queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()
        self.port = int(self.event("listening", wait)["url"].rsplit(":", 1)[1])

    @classmethod
    def running(cls, pid, port):
        """One that somebody else has started, and ends."""
        self = cls.__new__(cls)
        self.pid, self.port, self.process = pid, port, None
        return self

    def read(self):
        for line in self.process.stderr:
            self.lines.append(line)
            if line.startswith("{"):
                self.events.put(json.loads(line))
        self.events.put(None)

    def event(self, name, seconds=120):
        """The next event of this name in the log."""
        while True:
            event = self.events.get(timeout=seconds)
            if event is None:
                raise SystemExit(f"the server ended: {self.lines[-3:]}")
            if event["event"] == name:
                return event

    def alive(self):
        return os.path.exists(f"/proc/{self.pid}") if self.process is None else self.process.poll() is None

    def memory(self):
        """Resident bytes, and the most there have been."""
        with open(f"/proc/{self.pid}/status") as status:
            sizes = {line.split(":")[0]: line.split()[1] for line in status if line.startswith("Vm")}
        return int(sizes["VmRSS"]) << 10, int(sizes["VmHWM"]) << 10

    def processor_seconds(self):
        with open(f"/proc/{self.pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def metric(self, name, **labels):
        """The sum of a metric's values with these labels."""
        wanted = [f'{k}="{v}"' for k, v in labels.items()]
        total = 0.0
        for line in get(self.port, "/metrics")[1].decode().splitlines():
            if line.startswith(f"switchyard:{name}{{") and all(w in line for w in wanted):
                total += float(line.rsplit(" ", 1)[1])
        return total

    def stop(self, seconds=60):
        """SIGTERM; the exit code."""
        if self.alive():
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise SystemExit("the server does not end") from None


def send(port, method, path, body=None, headers=None, timeout=120):
    """A request on a connection of its own: (status, body, headers)."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request(method, path, body=body, headers=headers or {})
        reply = connection.getresponse()
        return reply.status, reply.read(), {k.lower(): v for k, v in reply.getheaders()}
    finally:
        connection.close()


def get(port, path, headers=None, timeout=120):
    return send(port, "GET", path, None, headers, timeout)


def post(port, path, fields, headers=None, timeout=120):
    """(status, the JSON of the reply, headers)"""
    status, body, back = send(port, "POST", path, json.dumps(fields),
                              {"Content-Type": "application/json", **(headers or {})}, timeout)
    return status, json.loads(body), back


def chat(port, messages, headers=None, timeout=120, **fields):
    return post(port, "/v1/chat/completions", {"messages": messages, **fields}, headers, timeout)


def content(reply):
    return reply["choices"][0]["message"]["content"]


def until(condition, seconds, what):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise SystemExit(f"after {seconds} s: not yet {what}")
        time.sleep(0.05)


def check(good, what):
    if not good:
        raise SystemExit(f"FAILED: {what}")
    print("ok:", what, flush=True)
