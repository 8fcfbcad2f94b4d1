# SPDX-License-Identifier: Apache-2.0
"""A small server that streams answers as the OpenAI protocol has it, on a schedule, with faults on request.

`faults` is a list of (nth, kind): the nth request (from 0) gets the fault. `delay` and `gap`: seconds to the first
piece and between pieces. `requests` records the bodies, `keys` the Authorization headers.
"""
import http.server
import json
import threading
import time


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def whole(self, status, body, kind="application/json"):
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.whole(200, {"object": "list", "data": [{"id": "scripted"}]})

    def event(self, value):
        text = value if isinstance(value, str) else json.dumps(value)
        data = f"data: {text}\n\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        s = self.server.scripted
        with s.lock:
            n = len(s.requests)
            s.requests.append(body)
            s.times.append(time.monotonic())
            s.keys.append(self.headers.get("Authorization"))
        fault = s.faults.get(n) if n >= 2 else None  # the first two ask for token counts
        if fault == 429:
            return self.whole(429, {"error": {"message": "slow down", "type": "rate_limit"}})
        if fault == "not sse":
            return self.whole(200, {"choices": [{"message": {"content": "all at once"}}]})
        chat = self.path.endswith("/chat/completions")
        text = " ".join(m["content"] for m in body["messages"]) if chat else body["prompt"]
        prompt_tokens, tokens = len(text.split()) + 5, body["max_tokens"]
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        time.sleep(s.delay if fault != "slow" else 30)
        for i in range(tokens):
            if fault == "cut" and i == tokens // 2:
                return self.connection.shutdown(2)
            if fault == "garbled" and i == 1:
                self.event("{]")
            if i:
                time.sleep(s.gap)
            choice = {"delta": {"content": "w "}} if chat else {"text": "w "}
            self.event({"choices": [{"index": 0, "finish_reason": None, **choice}]})
        self.event({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]})
        self.event({"choices": [], "usage": {"prompt_tokens": prompt_tokens, "completion_tokens": tokens}})
        self.event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request, client_address):
        pass  # a client that left


class Scripted:
    def __init__(self, faults=(), delay=0.02, gap=0.004):
        self.faults, self.delay, self.gap = dict(faults), delay, gap
        self.requests, self.times, self.keys, self.lock = [], [], [], threading.Lock()
        self.server = Server(("127.0.0.1", 0), Handler)
        self.server.scripted = self
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
