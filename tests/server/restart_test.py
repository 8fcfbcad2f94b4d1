#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A conversation goes on with a hit after the server was restarted; damaged files of states cost one line.

    restart_test.py SWITCHYARD
"""
import os
import sys
import tempfile

from serving import Server, chat, check, content

SAID = [{"role": "user", "content": "Tell me of the ship. " * 30}]
DRAW = {"seed": 3, "max_tokens": 20, "ignore_eos": True}


def cached(reply):
    return reply["usage"]["prompt_tokens_details"]["cached_tokens"]


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        flags = ("--deterministic", "--cache-dir", os.path.join(folder, "states"))
        server = Server(program, *flags)
        status, first, _ = chat(server.port, SAID, **DRAW)
        check(status == 200 and cached(first) == 0, "the first turn reads everything")
        check(server.stop() == 0, "the server ends well")
        saved = server.event("saved")
        check(saved["states"] > 0 and os.stat(saved["path"]).st_mode & 0o777 == 0o600, f"states are saved: {saved}")

        turn = SAID + [first["choices"][0]["message"], {"role": "user", "content": "And then?"}]
        server = Server(program, *flags)
        _, second, _ = chat(server.port, turn, **DRAW)
        check(server.stop() == 0, "the server ends well")
        plain = Server(program, "--deterministic", "--no-cache")
        _, same, _ = chat(plain.port, turn, **DRAW)
        check(plain.stop() == 0, "the server without a cache ends well")
        check(cached(second) >= 64 and cached(same) == 0, f"{cached(second)} tokens come from before the restart")
        check(content(second) == content(same), f"the text is equal: {content(second)!r}")

        size = os.path.getsize(saved["path"])
        with open(saved["path"], "r+b") as file:
            file.truncate(size // 2)
        server = Server(program, *flags)
        _, again, _ = chat(server.port, turn, **DRAW)
        check(server.stop() == 0, "a server with a truncated file ends well")
        warnings = [line for line in server.lines if "warning" in line]
        check(content(again) == content(same) and len(warnings) == 1, f"and says so: {warnings[0].strip()}")


main()
