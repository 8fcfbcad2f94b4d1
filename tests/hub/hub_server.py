# SPDX-License-Identifier: Apache-2.0
"""A small server that speaks the protocol of the Hugging Face hub, with faults on request.

Repositories are dictionaries {path: bytes}. Large files (LFS) redirect to a second server on another port, as the hub
redirects to a host of its own for content. `faults` change what one of the two answers; `requests` records what came.
"""
import hashlib
import http.server
import json
import re
import threading
import urllib.parse

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LFS_BYTES = 1000  # files of at least this size are LFS files


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def git_hash(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def digest(data):
    return sha256(data) if len(data) >= LFS_BYTES else git_hash(data)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def answer(self, status, body=b"", headers=None):
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if "Content-Length" not in (headers or {}):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        hub = self.server.hub
        with hub.lock:
            hub.requests.append({"of": self.server.role, "path": self.path, "token": self.headers.get("Authorization"),
                                 "range": self.headers.get("Range")})
            count = hub.counts[self.server.role] = hub.counts.get(self.server.role, 0) + 1
        try:
            if hub.fault is not None and hub.fault(self, self.server.role, count):
                return
            if self.server.role == "hub":
                self.hub_answer(hub)
            else:
                self.content(hub, self.path.strip("/"))
        except (BrokenPipeError, ConnectionResetError):
            pass

    def hub_answer(self, hub):
        path = urllib.parse.unquote(urllib.parse.urlparse(self.path).path)
        for repo, files in hub.repos.items():
            if path == f"/api/models/{repo}/revision/main":
                return self.answer(200, json.dumps(hub.listing(repo)).encode(), {"Content-Type": "application/json"})
            name = re.sub(f"^/{re.escape(repo)}/resolve/({COMMIT}|main)/", "", path)
            if name in files:
                data = files[name]
                if len(data) < LFS_BYTES:
                    return self.answer(200, data, {"ETag": f'"{git_hash(data)}"', "X-Repo-Commit": COMMIT})
                return self.answer(302, b"", {
                    "Location": f"http://127.0.0.1:{hub.content_port}/{sha256(data)}", "X-Repo-Commit": COMMIT,
                    "X-Linked-Etag": f'"{sha256(data)}"', "X-Linked-Size": str(len(data))})
        self.answer(404, b"Repository not found", {"X-Error-Code": "RepoNotFound"})

    def content(self, hub, name, cut=None, ranges=True):
        """The bytes of a file; of `cut` only so many, before the connection is closed."""
        data = next((d for files in hub.repos.values() for d in files.values() if sha256(d) == name), None)
        if data is None:
            return self.answer(404)
        begin, status, headers = 0, 200, {}
        wanted = self.headers.get("Range")
        if wanted and ranges:
            begin, status = int(wanted[len("bytes="):-1]), 206
            headers["Content-Range"] = f"bytes {begin}-{len(data) - 1}/{len(data)}"
        body = data[begin:]
        headers["Content-Length"] = str(len(body))
        if cut is not None:
            body = body[:cut]
            self.close_connection = True
        self.answer(status, body, headers)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        """Clients that go away in the middle are what is tested here."""


class Hub:
    def __init__(self, repos):
        self.repos, self.requests, self.counts, self.fault, self.lock = repos, [], {}, None, threading.Lock()
        self.extra = {}  # more members of listings
        self.servers = []
        for role in ("hub", "content"):
            server = Server(("127.0.0.1", 0), Handler)
            server.hub, server.role = self, role
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
            self.servers.append(server)
        self.port, self.content_port = (s.server_address[1] for s in self.servers)
        self.endpoint = f"http://127.0.0.1:{self.port}"

    def listing(self, repo):
        siblings = []
        for path, data in self.repos[repo].items():
            entry = {"rfilename": path, "size": len(data), "blobId": git_hash(data)}
            if len(data) >= LFS_BYTES:
                entry["lfs"] = {"sha256": sha256(data), "size": len(data), "pointerSize": 134}
            siblings.append(entry)
        return {"id": repo, "sha": COMMIT, "siblings": siblings, **self.extra}

    def calm(self):
        self.fault = None
        self.counts.clear()
        self.requests.clear()

    def close(self):
        for server in self.servers:
            server.shutdown()
            server.server_close()
