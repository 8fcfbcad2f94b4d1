# SPDX-License-Identifier: Apache-2.0
"""switchyard bench --serve against load_server.py and against `switchyard serve`. Usage: load_test.py SWITCHYARD"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "../support")]
import together  # noqa: E402
from load_server import Scripted  # noqa: E402

SWITCHYARD = sys.argv[1]
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("SWITCHYARD_")}


def bench(url, *options, **environment):
    return subprocess.run([SWITCHYARD, "bench", "--serve", url, *map(str, options)], timeout=60, capture_output=True,
                          text=True, env={**ENVIRONMENT, **environment})


class ScriptedTest(unittest.TestCase):
    def serve(self, **script):
        server = Scripted(**script)
        self.addCleanup(server.close)
        return server

    def measure(self, server, *options, **environment):
        ran = bench(server.url, "--json", *options, **environment)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        return json.loads(ran.stdout)

    def test_closed_loop(self):
        server = self.serve(delay=0.05, gap=0.01)
        r = self.measure(server, "--clients", 4, "--requests", 12, "--prompt-tokens", 40, "--answer-tokens", 11,
                         "--ttft-limit", 5000, "--tpot-limit", 5)
        self.assertEqual((r["ended_well"], r["requests"], len(server.requests)), (12, 12, 14))
        self.assertEqual(r["model"], "scripted")
        self.assertEqual(r["prompt_tokens"], 40)
        self.assertEqual(r["answer_tokens"], 11)
        # The script's times are the least that can be measured.
        self.assertGreaterEqual(r["ttft"]["p50"], 0.05)
        self.assertGreaterEqual(r["tpot"]["p50"], 0.01)
        self.assertGreaterEqual(r["whole"]["p50"], 0.15)
        self.assertEqual(r["itl"]["samples"], 120)
        self.assertLess(r["tokens_per_second"], 4 * 11 / 0.15)
        self.assertEqual(r["goodput"]["requests"], 0)
        body = server.requests[2]
        self.assertEqual((body["max_tokens"], body["stream"], body["ignore_eos"]), (11, True, True))
        self.assertEqual(body["stream_options"], {"include_usage": True})
        self.assertEqual(len({json.dumps(b["messages"]) for b in server.requests}), 14)

    def test_open_loop_does_not_wait(self):
        server = self.serve(delay=0.5, gap=0.001)
        r = self.measure(server, "--rate", 50, "--requests", 25, "--answer-tokens", 2, "--load-seed", 3)
        self.assertEqual(r["ended_well"], 25)
        self.assertLess(server.times[-1] - server.times[2], 2, "each takes half a second, one after the other 12")
        gaps = [b - a for a, b in zip(server.times[2:], server.times[3:])]
        self.assertGreater(max(gaps), 2 * sum(gaps) / len(gaps), "arrivals are not regular")

    def test_faults_are_told_apart(self):
        server = self.serve(faults={2: 429, 3: "cut", 4: "not sse", 5: "garbled", 6: "slow", 7: 429})
        r = self.measure(server, "--clients", 1, "--requests", 8, "--answer-tokens", 6, "--request-timeout", 1)
        found = {(f["kind"], f["status"]): f["count"] for f in r["failures"]}
        self.assertEqual(found, {("status", 429): 2, ("cut off", 200): 1, ("not an event stream", 200): 1,
                                 ("malformed", 200): 1, ("timeout", 200): 1})
        self.assertEqual((r["ended_well"], r["requests"]), (2, 8))
        self.assertEqual(r["failures"][0]["message"], "slow down")

    def test_nothing_ended_well(self):
        server = self.serve(faults={n: 429 for n in range(2, 20)})
        ran = bench(server.url, "--requests", 3)
        self.assertEqual(ran.returncode, 1)
        self.assertIn("no request ended well: slow down", ran.stderr)
        self.assertIn("failed        3 by status 429: slow down", ran.stdout)
        server.close()
        ran = bench(server.url)
        self.assertEqual(ran.returncode, 1)
        self.assertEqual(ran.stderr.count("\n"), 1)
        self.assertIn("refused", ran.stderr)

    def test_keys_and_completions(self):
        server = self.serve()
        self.measure(server, "--completions", "--requests", 2, "--answer-tokens", 2, SWITCHYARD_API_KEY="sesame")
        self.assertEqual(set(server.keys), {"Bearer sesame"})
        self.assertIn("prompt", server.requests[0])

    def test_conversations(self):
        server = self.serve()
        r = self.measure(server, "--requests", 6, "--turns", 3, "--prompt-tokens", 10, "--answer-tokens", 4,
                         "--shared-tokens", 20)
        self.assertEqual([len(b["messages"]) for b in server.requests[2:]], [2, 4, 6] * 2)
        self.assertEqual(server.requests[3]["messages"][2]["content"], "w w w w ")
        tokens = [t["prompt_tokens"] for t in r["by_turn"]]
        self.assertEqual(len(tokens), 3)
        self.assertLess(tokens[0], tokens[1])

    def test_duration_and_interrupt(self):
        server = self.serve(gap=0.001)
        begun = time.monotonic()
        r = self.measure(server, "--duration", 0.5, "--clients", 2, "--answer-tokens", 4)
        self.assertLess(time.monotonic() - begun, 5)
        self.assertGreater(r["requests"], 4)
        process = subprocess.Popen([SWITCHYARD, "bench", "--serve", server.url, "--duration", "100"], text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT)
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=20)
        self.assertIn("stopped early", out)

    def test_wrong_options(self):
        for options, message in ((["--prefill", "5"], "--prefill has no meaning with --serve"),
                                 (["--prompt-tokens", "x"], "--prompt-tokens 'x' is not a number of tokens"),
                                 (["--rate", "1", "--clients", "2"], "--clients"),
                                 (["--turns", "2", "--completions"], "--turns needs chat completions")):
            ran = bench("http://127.0.0.1:9", *options)
            self.assertEqual(ran.returncode, 2, options)
            self.assertIn(message, ran.stderr)
        ran = bench("https://host")
        self.assertEqual((ran.returncode, ran.stderr.count("\n")), (2, 1))


class OwnServerTest(unittest.TestCase):
    def test_chat_and_completions(self):
        with tempfile.TemporaryDirectory() as folder:
            log = pathlib.Path(folder) / "log"
            with open(log, "w") as out:
                process = subprocess.Popen([SWITCHYARD, "serve", "--port", "0", "--json", "--sessions", "4", "--ctx",
                                            "512", "--api-key", "k"], stdout=out, stderr=out, env=ENVIRONMENT)
            try:
                url = self.address(log)
                for protocol in ([], ["--completions"]):
                    ran = bench(url, "--json", "--clients", 4, "--requests", 8, "--prompt-tokens", 64,
                                "--answer-tokens", 8, *protocol, SWITCHYARD_API_KEY="k")
                    self.assertEqual(ran.returncode, 0, ran.stderr)
                    r = json.loads(ran.stdout)
                    self.assertEqual((r["ended_well"], r["answer_tokens"]), (8, 8))
                    self.assertAlmostEqual(r["prompt_tokens"], 64, delta=6)
                ran = bench(url, "--json", "--turns", 3, "--requests", 3, "--prompt-tokens", 64, "--answer-tokens", 8,
                            SWITCHYARD_API_KEY="k")
                turns = json.loads(ran.stdout)["by_turn"]
                self.assertGreater(turns[2]["cached_tokens"], turns[0]["prompt_tokens"] / 2)
                ran = bench(url, "--requests", 1)
                self.assertEqual(ran.returncode, 1, "without the key")
            finally:
                process.terminate()
                self.assertEqual(process.wait(timeout=30), 0)

    def address(self, log):
        for _ in range(600):
            for line in log.read_text().splitlines():
                if "listening" in line:
                    return json.loads(line)["url"]
            time.sleep(0.05)
        self.fail(log.read_text())


if __name__ == "__main__":
    together.run([sys.argv[0], *sys.argv[2:]])
