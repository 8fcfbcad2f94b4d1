# SPDX-License-Identifier: Apache-2.0
"""switchyard pull, list, rm and -m OWNER/NAME against hub_server.py. Usage: pull_test.py SWITCHYARD TEST_DATA [TESTS]"""
import fcntl
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "../support")]
import together  # noqa: E402
from hub_server import COMMIT, Hub, digest, sha256  # noqa: E402

SWITCHYARD, DATA = sys.argv[1], pathlib.Path(sys.argv[2])
TOKEN = "hf_secret0123456789"
MIB = 1 << 20
BYTES = random.Random(1).randbytes(3 * MIB)
GGUF = (DATA / "gguf/three-value-heads.gguf").read_bytes()
TINY = {f: (DATA / "tiny/half-rotary" / f).read_bytes() for f in ("config.json", "model.safetensors")}
TINY["generation_config.json"] = b'{"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 7}'


class HubTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="switchyard_hub_"))
        self.hub = Hub({"o/fake": {"fake-Q4_K_M.gguf": BYTES, "fake-Q8_0.gguf": BYTES[:MIB], "README.md": b"words",
                                   "mmproj-BF16.gguf": b"side car"},
                        "o/tiny-GGUF": {"tiny-BF16.gguf": GGUF, "config.json": b"{}"}, "o/tiny": dict(TINY)})
        self.cache = self.folder / "home/hub"

    def tearDown(self):
        self.hub.close()
        shutil.rmtree(self.folder)

    def environment(self, **more):
        keep = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "SWITCHYARD_", "http", "HTTP"))}
        return {**keep, "HF_HOME": str(self.folder / "home"), "SWITCHYARD_MODELS": str(self.folder / "models"),
                "HF_ENDPOINT": self.hub.endpoint, "NO_PROXY": "*", "SWITCHYARD_BACKEND": "reference", **more}

    def run_it(self, *arguments, **environment):
        return subprocess.run([SWITCHYARD, *map(str, arguments)], env=self.environment(**environment), timeout=120,
                              capture_output=True, text=True)

    def pull(self, name="o/fake", **environment):
        return self.run_it("pull", name, "--fetch-only", "--attempts", 2, "--stall", 1, **environment)

    def blob(self, data, repo="o/fake"):
        return self.cache / f"models--{repo.replace('/', '--')}/blobs/{digest(data)}"

    def link(self, path, repo="o/fake"):
        return self.cache / f"models--{repo.replace('/', '--')}/snapshots/{COMMIT}/{path}"

    def assert_fails(self, ran, *parts):
        """One clear line, exit code 1, and no file that looks whole."""
        self.assertEqual(ran.returncode, 1, ran.stderr)
        self.assertEqual(ran.stdout, "")
        lines = [line for line in ran.stderr.splitlines() if line.startswith("switchyard: ")]
        self.assertEqual(len(lines), 1, ran.stderr)
        for part in parts:
            self.assertIn(part, lines[0])
        self.assertNotIn(TOKEN, ran.stderr)
        self.assertFalse(self.link("fake-Q4_K_M.gguf").exists())
        self.assertFalse(self.blob(BYTES).exists())

    def assert_pulls(self):
        ran = self.pull()
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertEqual(self.link("fake-Q4_K_M.gguf").read_bytes(), BYTES)
        self.assertFalse(list(self.cache.rglob("*.incomplete")))


class Pull(HubTest):
    def test_takes_the_default_quantization_and_leaves_what_is_there(self):
        self.assert_pulls()
        self.assertEqual(os.readlink(self.link("fake-Q4_K_M.gguf")), f"../../blobs/{sha256(BYTES)}")
        self.assertEqual((self.cache / "models--o--fake/refs/main").read_text(), COMMIT)
        self.assertEqual([p.name for p in self.link("").iterdir()], ["fake-Q4_K_M.gguf"])
        self.hub.calm()
        ran = self.pull()
        self.assertEqual(ran.returncode, 0)
        self.assertIn("0.0 KiB to fetch", ran.stderr)
        self.assertIn("here already", ran.stdout)
        self.assertEqual([r["of"] for r in self.hub.requests], ["hub"])

    def test_a_quantization_or_a_file_may_be_named(self):
        for name in ("o/fake:q8_0", "o/fake:fake-Q8_0.gguf"):
            self.assertEqual(self.pull(name).returncode, 0)
            self.assertEqual(self.link("fake-Q8_0.gguf").read_bytes(), BYTES[:MIB])
            shutil.rmtree(self.cache)
        self.assert_fails(self.pull("o/fake:Q2_K"), "has no model 'Q2_K'; it has Q4_K_M, Q8_0")
        ran = self.pull("no-name")
        self.assertEqual((ran.returncode, ran.stderr.count("\n")), (2, 1))

    def test_all_parts_of_a_split_model_come_or_none(self):
        parts = {f"Q6_K/big-Q6_K-{i:05}-of-00006.gguf": random.Random(i).randbytes(MIB // 2) for i in range(1, 7)}
        self.hub.repos["o/split"] = parts
        self.assertEqual(self.pull("o/split").returncode, 0)
        for path, data in parts.items():
            self.assertEqual(self.link(path, "o/split").read_bytes(), data)
        self.hub.repos["o/less"] = dict(list(parts.items())[1:])
        self.assert_fails(self.pull("o/less"), "o/less has no model that can be read")

    def test_the_token_goes_to_the_hub_alone(self):
        self.assertEqual(self.pull(HF_TOKEN=TOKEN).returncode, 0)
        sent = {r["of"]: r["token"] for r in self.hub.requests}
        self.assertEqual(sent, {"hub": f"Bearer {TOKEN}", "content": None})
        (self.folder / "home/token").write_text(TOKEN + "\n")
        self.hub.calm()
        self.assertEqual(self.pull("o/fake:Q8_0").returncode, 0)
        self.assertEqual({r["of"]: r["token"] for r in self.hub.requests}, sent)
        ran = self.pull(HF_TOKEN="two\nlines")
        self.assertEqual(ran.returncode, 2)
        self.assertNotIn("lines", ran.stderr)

    def test_a_model_of_no_known_family_is_refused_before_its_weights(self):
        self.hub.extra = {"gguf": {"architecture": "llama"}}
        self.assert_fails(self.run_it("pull", "o/fake"), "o/fake: architecture 'llama'")
        self.hub.repos["o/other"] = {"config.json": b'{"model_type": "gpt2"}', "model.safetensors": BYTES}
        self.assert_fails(self.run_it("pull", "o/other"), "o/other: ", "gpt2")
        self.assertEqual([r for r in self.hub.requests if r["of"] == "content"], [])

    def test_two_at_a_time_fetch_once(self):
        self.hub.fault = lambda handler, role, count: role == "content" and time.sleep(0.5)
        both = [subprocess.Popen([SWITCHYARD, "pull", "o/fake", "--fetch-only"], env=self.environment(),
                                 stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for _ in range(2)]
        ended = [(p.communicate()[1], p.returncode) for p in both]
        self.assertEqual([code for _, code in ended], [0, 0], ended)
        self.assertEqual(len([r for r in self.hub.requests if r["of"] == "content"]), 1)
        self.assertIn("another process is fetching it", ended[0][0] + ended[1][0])
        self.assert_pulls()

    def test_waits_for_a_lock_of_other_programs(self):
        lock = self.cache / f".locks/models--o--fake/{sha256(BYTES)}.lock"
        lock.parent.mkdir(parents=True)
        with lock.open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            pulling = subprocess.Popen([SWITCHYARD, "pull", "o/fake", "--fetch-only"], env=self.environment(),
                                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            for line in pulling.stderr:
                if "another process" in line:
                    break
            self.assertFalse(self.blob(BYTES).exists())
        pulling.communicate()
        self.assertEqual(pulling.returncode, 0)

    def test_ctrl_c_leaves_what_can_be_resumed(self):
        def slow(handler, role, count):
            if role != "content":
                return False
            handler.send_response(200)
            handler.send_header("Content-Length", str(len(BYTES)))
            handler.end_headers()
            handler.wfile.write(BYTES[:MIB])
            handler.wfile.flush()
            time.sleep(20)
            return True
        self.hub.fault = slow
        pulling = subprocess.Popen([SWITCHYARD, "pull", "o/fake", "--fetch-only"], env=self.environment(),
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        part = pathlib.Path(str(self.blob(BYTES)) + ".incomplete")
        until = time.monotonic() + 60
        while time.monotonic() < until and not (part.exists() and part.stat().st_size == MIB):
            time.sleep(0.02)
        pulling.send_signal(signal.SIGINT)
        begin = time.monotonic()
        _, said = pulling.communicate()
        self.assertLess(time.monotonic() - begin, 5)
        self.assertEqual(pulling.returncode, 130)
        self.assertIn("switchyard: stopped", said)
        self.assertEqual(part.read_bytes(), BYTES[:MIB])
        self.hub.calm()
        self.assert_pulls()
        self.assertEqual([r["range"] for r in self.hub.requests if r["of"] == "content"], [f"bytes={MIB}-"])


class Faults(HubTest):
    """Every fault ends in one line and exit code 1, and the next call succeeds."""

    def content_fault(self, act, parts, repeat=True):
        self.hub.fault = lambda handler, role, count: role == "content" and (repeat or count == 1) and (act(handler) or True)
        self.assert_fails(self.pull(), *parts)
        self.hub.calm()
        self.assert_pulls()

    def hub_fault(self, act, *parts):
        self.hub.fault = lambda handler, role, count: role == "hub" and (act(handler) or True)
        self.assert_fails(self.pull(HF_TOKEN=TOKEN), *parts)
        self.hub.calm()
        self.assert_pulls()

    def test_a_cut_connection_is_resumed(self):
        name = sha256(BYTES)
        self.hub.fault = lambda h, role, count: role == "content" and count < 3 and (h.content(self.hub, name, MIB) or True)
        self.assert_pulls()
        ranges = [r["range"] for r in self.hub.requests if r["of"] == "content"]
        self.assertEqual(ranges, [None, f"bytes={MIB}-", f"bytes={2 * MIB}-"])

    def test_connections_that_are_always_cut(self):
        self.content_fault(lambda h: h.content(self.hub, sha256(BYTES), 1000), ["o/fake: fake-Q4_K_M.gguf: "])
        self.assertEqual([r["range"] for r in self.hub.requests if r["of"] == "content"], ["bytes=2000-"])

    def test_a_server_without_ranges(self):
        name = sha256(BYTES)
        self.hub.fault = lambda h, role, count: role == "content" and (
            h.content(self.hub, name, MIB if count == 1 else None, ranges=False) or True)
        self.assert_pulls()
        self.assertEqual(self.hub.counts["content"], 2)

    def test_a_range_that_was_not_asked_for(self):
        self.content_fault(lambda h: h.answer(206, BYTES[5:], {"Content-Range": f"bytes 5-{len(BYTES) - 1}/{len(BYTES)}"}),
                           ["the server sends 'bytes 5-", "was asked for"])

    def test_wrong_sizes(self):
        self.content_fault(lambda h: h.answer(200, BYTES + b"more"), ["announces 3145732 bytes", "tells 3145728"])

        def without_length(h):
            h.send_response(200)
            h.send_header("Connection", "close")
            h.end_headers()
            h.wfile.write(BYTES + b"more")
            h.close_connection = True
        shutil.rmtree(self.cache)
        self.content_fault(without_length, ["sends more than the 3145728 bytes"])

    def test_wrong_bytes(self):
        self.content_fault(lambda h: h.answer(200, bytes(len(BYTES))), ["its hash is", sha256(BYTES), "it was deleted"])

    def test_a_damaged_part_is_fetched_anew(self):
        self.blob(BYTES).parent.mkdir(parents=True)
        pathlib.Path(str(self.blob(BYTES)) + ".incomplete").write_bytes(bytes(MIB))
        self.assert_pulls()

    def test_small_files_are_checked_too(self):
        self.hub.fault = lambda h, role, count: "config.json" in h.path and "generation" not in h.path and (
            h.answer(200, b"x" * len(TINY["config.json"])) or True)
        self.assert_fails(self.run_it("pull", "o/tiny"), "o/tiny: config.json: its hash is")

    def test_an_etag_of_another_file(self):
        self.hub_fault(lambda h: "resolve" not in h.path and h.hub_answer(self.hub) or "resolve" in h.path and h.answer(
            302, b"", {"Location": "/x", "X-Linked-Etag": '"' + "0" * 64 + '"'}), "the hub gives out a file with the hash 000")

    def test_unauthorized(self):
        self.hub_fault(lambda h: h.answer(401, b"", {"X-Error-Code": "RepoNotFound"}), "o/fake is not there, or is private",
                       "the token in HF_TOKEN does not open it")

    def test_gated(self):
        self.hub_fault(lambda h: h.answer(403, b"", {"X-Error-Code": "GatedRepo"}), "o/fake is gated", "accept its conditions")

    def test_not_there(self):
        self.assert_fails(self.pull("o/none"), "o/none is not there (HTTP 404)")

    def test_too_many_requests(self):
        self.hub.fault = lambda h, role, count: count == 1 and (h.answer(429, b"", {"Retry-After": "1"}) or True)
        begin = time.monotonic()
        self.assert_pulls()
        self.assertGreaterEqual(time.monotonic() - begin, 1)
        shutil.rmtree(self.cache)
        self.hub_fault(lambda h: h.answer(429, b"", {"Retry-After": "3600"}), "HTTP 429", "try again in 3600 s")

    def test_server_errors_are_tried_again(self):
        self.hub.fault = lambda h, role, count: count == 1 and (h.answer(503) or True)
        self.assert_pulls()
        shutil.rmtree(self.cache)
        self.hub_fault(lambda h: h.answer(500), "HTTP status 500")

    def test_redirects_without_end(self):
        self.hub_fault(lambda h: h.answer(302, b"", {"Location": h.path + "x"}), "redirects more than 10 times")

    def test_redirects_to_what_is_no_web_address(self):
        for to in ("file:///etc/passwd", "ftp://127.0.0.1/x", "", "http://"):
            self.hub_fault(lambda h: h.answer(302, b"", {"Location": to}), "where nothing is fetched from")
            shutil.rmtree(self.cache)

    def test_a_silent_server(self):
        self.hub.fault = lambda h, role, count: time.sleep(3) or True
        begin = time.monotonic()
        self.assert_fails(self.pull(), "o/fake: ")
        self.assertLess(time.monotonic() - begin, 30)

    def test_no_server(self):
        self.assert_fails(self.pull(HF_ENDPOINT="http://127.0.0.1:1"), "o/fake: ", "127.0.0.1")

    def test_lists_that_are_wrong(self):
        whole = self.hub.listing("o/fake")
        file = whole["siblings"][0]

        def with_file(**changes):
            return {**whole, "siblings": [{**file, **changes}]}
        for wrong, *parts in [
                ([], "is no object"), ({}, "the commit is ''"), ({**whole, "sha": "../../x"}, "the commit is '../../x'"),
                ({**whole, "siblings": None}, "the list of files is missing"),
                ({**whole, "siblings": [file, file]}, "listed twice"),
                (with_file(rfilename="../../evil.gguf"), "leads out of its folder"),
                (with_file(rfilename="a/../b.gguf"), "leads out of its folder"),
                (with_file(rfilename="/etc/evil.gguf"), "is absolute"),
                (with_file(rfilename="a//b.gguf"), "has an empty part"),
                (with_file(rfilename="a\\..\\b.gguf"), "has a backslash"),
                (with_file(rfilename="evil\x1b[2J.gguf"), "has characters that are no text"),
                (with_file(rfilename="a\nb.gguf"), "has characters that are no text"),
                (with_file(rfilename="x" * 300 + ".gguf"), "is too long"), (with_file(rfilename=""), "is empty"),
                (with_file(lfs={**file["lfs"], "size": -1}), "the size of"),
                (with_file(lfs={**file["lfs"], "size": 1 << 62}), "the size of"),
                (with_file(lfs={**file["lfs"], "size": 1e30}), "the size of"),
                (with_file(lfs={**file["lfs"], "size": 1 << 45}), "to be fetched, and", "free"),
                (with_file(lfs={**file["lfs"], "sha256": "../" * 20}), "the hash of"),
                ("[" * 100000, "o/fake")]:
            body = (wrong if isinstance(wrong, str) else json.dumps(wrong)).encode()
            self.hub.fault = lambda h, role, count: h.answer(200, body) or True
            self.assert_fails(self.pull(), *parts)
        self.assertEqual(sorted(p.name for p in self.folder.rglob("*evil*")), [])
        self.hub.calm()
        self.assert_pulls()

    def test_a_list_without_end(self):
        def endless(h):
            h.send_response(200)
            h.end_headers()
            while True:
                h.wfile.write(b" " * MIB)
        self.hub_fault(endless, "the answer has more than 64 MiB")


class Names(HubTest):
    def test_a_name_is_a_model_everywhere(self):
        shown = self.run_it("inspect", "-m", "o/tiny-GGUF", "--json")
        self.assertEqual(shown.returncode, 0, shown.stderr)
        self.assertTrue(json.loads(shown.stdout)["format"].startswith("GGUF"))
        self.assertFalse((self.folder / "models").exists())
        self.hub.close()  # what follows needs no hub
        logits = ["logits", "--ids", "1 2", "--out", self.folder / "x.npy"]
        ran = self.run_it(*logits, "-m", "o/tiny-GGUF:BF16", HF_HUB_OFFLINE="1")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertIn("o/tiny-GGUF:BF16 is converted once, into", ran.stderr)
        kept = list((self.folder / "models").iterdir())
        self.assertEqual([p.suffix for p in kept], [".swy"])
        by_path = self.run_it(*logits, "-m", self.link("tiny-BF16.gguf", "o/tiny-GGUF"))
        self.assertEqual((by_path.returncode, by_path.stderr.count("is converted")), (0, 0), by_path.stderr)
        self.assertEqual(self.run_it("plan", "-m", "o/tiny-GGUF").returncode, 0)
        self.assertEqual(self.run_it("convert", "o/tiny-GGUF", "-o", self.folder / "c.swy").returncode, 0)
        ran = self.run_it(*logits, "-m", "o/other", HF_HUB_OFFLINE="1")
        self.assertEqual(ran.returncode, 1)
        self.assertIn("HF_HUB_OFFLINE is set", ran.stderr)
        self.assertEqual(len(ran.stderr.splitlines()), 1)

    def test_a_checkpoint_is_converted_and_what_it_recommends_is_kept(self):
        pulled = json.loads(self.run_it("pull", "o/tiny:i8", "--json").stdout)
        self.assertEqual(sorted(os.path.basename(f) for f in pulled["files"]), sorted(TINY))
        ran = self.run_it("inspect", "-m", "o/tiny:i8", "--json")
        self.assertEqual(ran.stderr, "")  # it was converted
        shown = json.loads(ran.stdout)
        self.assertEqual(shown["quantization"], "i8 group 64")
        self.assertEqual(shown["metadata"],
                         {"sampling.temperature": "0.6", "sampling.top_k": "20", "origin": "o/tiny:i8"})
        self.assertEqual(json.loads(self.run_it("inspect", "-m", "o/tiny", "--json").stdout)["quantization"],
                         "i4 group 64")

    def test_first_uses_at_the_same_time_convert_once(self):
        path = self.folder / "tiny.gguf"
        path.write_bytes(GGUF)
        users = [subprocess.Popen([SWITCHYARD, "plan", "-m", str(path)], env=self.environment(),
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for _ in range(4)]
        said = [u.communicate()[1] for u in users]
        self.assertEqual([u.returncode for u in users], [0] * 4, said)
        self.assertEqual("".join(said).count("is converted once"), 1, said)
        self.assertEqual(len(list((self.folder / "models").glob("*.swy"))), 1)
        self.assertEqual(list((self.folder / "models").glob("*.lock")), [])
        self.assertEqual(self.run_it("rm", str(path)).returncode, 0)  # what was made of it
        self.assertEqual(list((self.folder / "models").glob("*.swy")), [])
        self.assertTrue(path.exists())
        self.assertIn("no converted model of", self.run_it("rm", str(path)).stderr)

    def test_what_is_no_gguf_file_is_told_by_its_name(self):
        path = self.folder / "page.gguf"
        path.write_text("<!doctype html>")
        for command in (["run", "-m", str(path), "x"], ["inspect", str(path)], ["convert", str(path), "-o", "x.swy"]):
            ran = self.run_it(*command)
            self.assertEqual(ran.returncode, 1, ran.stderr)
            self.assertIn("page.gguf is no GGUF file", ran.stderr)
            self.assertEqual(len(ran.stderr.splitlines()), 1)

    def test_a_cache_of_other_programs_is_used_as_it_is(self):
        """The layout that huggingface_hub writes, made by hand: the newest revision is not the one with the model."""
        blob = self.blob(GGUF, "o/theirs")
        blob.parent.mkdir(parents=True)
        blob.write_bytes(GGUF)
        old = self.cache / "models--o--theirs/snapshots" / ("a" * 40) / "sub/theirs-BF16.gguf"
        old.parent.mkdir(parents=True)
        old.symlink_to(f"../../../blobs/{blob.name}")
        (self.cache / "models--o--theirs/snapshots" / ("b" * 40)).mkdir()
        refs = self.cache / "models--o--theirs/refs"
        refs.mkdir()
        (refs / "main").write_text("b" * 40)
        before = sorted(p for p in self.cache.rglob("*"))
        ran = self.run_it("plan", "-m", "o/theirs", HF_HUB_OFFLINE="1")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertEqual(sorted(p for p in self.cache.rglob("*")), before)
        self.assertEqual(self.hub.requests, [])

    def test_list_and_rm(self):
        for name in ("o/tiny-GGUF", "o/tiny", "o/tiny:i8"):
            self.assertEqual(self.run_it("pull", name).returncode, 0)
        self.assertEqual(self.pull("o/fake:Q8_0").returncode, 0)
        rows = {r["name"]: r for r in json.loads(self.run_it("list", "--json").stdout)}
        self.assertEqual(sorted(rows), ["o/fake:Q8_0", "o/tiny", "o/tiny-GGUF:BF16"])
        self.assertEqual([len(rows[n]["converted"]) for n in sorted(rows)], [0, 2, 1])
        self.assertEqual(rows["o/tiny-GGUF:BF16"]["bytes"], len(GGUF))
        self.assertIn("o/tiny-GGUF:BF16", self.run_it("list").stdout)

        self.assertEqual(self.run_it("rm", "--fetched", "o/tiny-GGUF").returncode, 0)  # what was made of it still runs
        self.assertFalse((self.cache / "models--o--tiny-GGUF").exists())
        self.assertEqual(self.run_it("plan", "-m", "o/tiny-GGUF:BF16", HF_HUB_OFFLINE="1").returncode, 0)
        self.assertEqual(self.run_it("rm", "o/tiny-GGUF:BF16").returncode, 0)
        self.assertEqual(self.run_it("rm", "o/tiny:i8").returncode, 0)
        rows = {r["name"]: r for r in json.loads(self.run_it("list", "--json").stdout)}
        self.assertEqual(sorted(rows), ["o/fake:Q8_0", "o/tiny"])
        self.assertEqual([c["origin"] for c in rows["o/tiny"]["converted"]], ["o/tiny:i4"])
        ran = self.run_it("rm", "o/tiny", "o/none")
        self.assertEqual((ran.returncode, ran.stderr.count("\n")), (1, 1))
        self.assertTrue(self.link("config.json", "o/tiny").exists())
        freed = json.loads(self.run_it("rm", "o/tiny", "o/fake", "--json").stdout)["freed_bytes"]
        self.assertGreater(freed, MIB)
        self.assertEqual(json.loads(self.run_it("list", "--json").stdout), [])
        self.assertEqual([p for p in self.cache.rglob("*") if p.is_file()], [])

    def test_rm_keeps_what_another_model_shares(self):
        shared = {"a-Q4_K_M.gguf": BYTES, "b-Q8_0.gguf": BYTES}
        self.hub.repos["o/same"] = shared
        self.assertEqual(self.pull("o/same:Q4_K_M").returncode, 0)
        self.assertEqual(self.pull("o/same:Q8_0").returncode, 0)
        self.assertEqual(self.run_it("rm", "o/same:Q4_K_M").returncode, 0)
        self.assertEqual(self.link("b-Q8_0.gguf", "o/same").read_bytes(), BYTES)


if __name__ == "__main__":
    together.run([sys.argv[0], *sys.argv[3:]])
