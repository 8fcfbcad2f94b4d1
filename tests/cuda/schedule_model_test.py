# SPDX-License-Identifier: Apache-2.0
"""tools/schedule_model.py: its recorded layers, and what the simulation under it must do. No device."""
import copy
import json
import pathlib
import subprocess
import sys
import tempfile
import tomllib
import unittest

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"
MODEL = TOOLS / "schedule_model.py"
sys.path.insert(0, str(TOOLS))
import schedule_model as tool  # noqa: E402
import schedule_simulation as simulation  # noqa: E402

DATA = tomllib.loads(MODEL.with_suffix(".toml").read_text())
PARAMETERS = {**{name: one["value"] for name, one in DATA["parameter"].items()}, "spread": 1e-9}
TWO = {**DATA["gpu"], "processors": 2, "groups": [2]}  # a GPU of two multiprocessors
P = PARAMETERS


def run(*args):
    return subprocess.run([sys.executable, MODEL, *map(str, args)], capture_output=True, text=True, timeout=120)


def kernel(steps, count=2, threads=512, registers=56, shared=1000, **more):
    return {"threads": threads, "registers": registers, "shared": shared, **more,
            "block": [{"count": count, "steps": steps}]}


def launches(*kernels, gpu=None, **parameters):
    named = [(f"k{i}", one) for i, one in enumerate(kernels)]
    return simulation.Simulation(gpu or TWO, {**PARAMETERS, **parameters}, [named]).run()


def begun(launch):
    return max(m["begun"] for m in launch.moments)


class CommandTest(unittest.TestCase):
    def test_recorded_layers_are_within_ten_percent(self):
        done = run("--check", "--json")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        rows = {row["layer"]: row for row in json.loads(done.stdout)["layers"]}
        self.assertEqual({rows[name]["recorded"] for name in ("8 warps", "16 warps", "room")}, {31.6, 25.7, 23.65})
        self.assertEqual(sum(row["role"] == "fitted" for row in rows.values()), 1)
        for row in rows.values():
            self.assertLess(abs(row["modelled"] / row["recorded"] - 1), 0.10, row)

    def test_a_layer_that_is_off_fails_the_check(self):
        text = MODEL.with_suffix(".toml").read_text()
        text = text[:text.index("[[layer]]")] + ('[[layer]]\nname = "room"\nrecorded = 40.0\nrole = "fitted"\n'
                                                 'kernels = ["c.normed", "c.delta", "c.heads"]\n')
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
            file.write(text)
            file.flush()
            done = run("--check", "--data", file.name)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("room is off by more than 10%", done.stdout)

    def test_what_if(self):
        found = json.loads(run("one kernel, one row", "--what-if", "memory=2150", "--json").stdout)
        self.assertGreater(found["after"]["us"], found["before"]["us"] + 2)

    def test_changes(self):
        def changed(text):
            data = copy.deepcopy(DATA)
            room = tool.layer_of(data, "room")
            if text:
                tool.change(data, room, text)
            return tool.model(data, room)
        before, without, slow = (changed(text) for text in ("", "without=down", "memory=2150"))
        self.assertEqual(len(without["kernels"]), 5)
        self.assertLess(without["us"], before["us"] - 2)
        self.assertGreater(slow["us"], before["us"] + 2)
        for where, steps in [("first", "release, run 1, ask 2, wait, read 3, join"),
                             ("asked", "run 1, ask 2, release, wait, read 3, join"),
                             ("wait", "run 1, ask 2, wait, release, read 3, join"),
                             ("end", "run 1, ask 2, wait, read 3, join, release")]:
            self.assertEqual(tool.released("run 1, release, ask 2, wait, read 3, join", where), steps)

    def test_what_is_wrong_is_one_line(self):
        for args, says in [(["nothing"], "no layer \"nothing\""), (["room", "--what-if", "down.rows=3"], "down.rows=3"),
                           (["room", "--what-if", "down.steps=run 0, wait"], "no step \"run 0\""),
                           (["one kernel, one row", "--what-if", "layer.shared=999999"], "fits no multiprocessor"),
                           (["--data", "/nowhere.toml", "--check"], "/nowhere.toml")]:
            done = run(*args)
            self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1), done.stderr)
            self.assertIn(says, done.stderr)

    def test_help_teaches_every_step(self):
        text = run("--help").stdout
        for word in simulation.STEPS:
            self.assertRegex(text, rf"  {word}( [A-Z\[][^ ]*)* ")


class SimulationTest(unittest.TestCase):
    def test_a_kernel_by_itself_takes_its_instructions(self):
        first, second = launches(kernel("wait, run 1980, join"), kernel("wait, run 360, join"))
        self.assertAlmostEqual(first.complete, P["place"] + 5.5 + P["join"])
        self.assertAlmostEqual(second.start - first.complete, max(P["wait"], P["launch"] + P["place"]))
        self.assertAlmostEqual(second.complete - second.start, 1 + P["join"])

    def test_a_kernel_that_does_not_fit_beside_another_begins_later(self):
        work = "release, wait, run 3600, join"
        for key, beside, alone in [("shared", 90000, 150000), ("registers", 56, 88), ("threads", 512, 1600)]:
            room = {"registers": 16, key: beside}
            begins = [begun(launches(kernel(work, **{**room, key: first}), kernel("wait, join", **room))[1])
                      for first in (beside, alone)]
            self.assertLess(begins[0], 2, key)
            self.assertGreater(begins[1], 10, key)

    def test_warps_of_a_quarter_share_its_issue(self):
        gpu = {**TWO, "processors": 1, "groups": [1]}
        few, many = (launches(kernel("wait, load 1, run 1980, join", count=n), gpu=gpu)[0].complete for n in (1, 2))
        self.assertAlmostEqual(many - few, 2 * 16 / 4 - P["cycles"])

    def test_registers_belong_to_quarters(self):
        down = kernel("release, wait, run 3600, join", threads=576)
        for registers, least, most in [(56, 0, 2), (64, 10, 20)]:
            begins = begun(launches(down, kernel("wait, join", registers=registers))[1])
            self.assertTrue(least < begins < most, f"{registers}: {begins}")

    def test_a_cluster_needs_its_room_at_once(self):
        work, big = "release, wait, run 3600, join", 150000
        free = {"gpu": {**TWO, "processors": 3, "groups": [3]}}
        apart = begun(launches(kernel(work, shared=big), kernel("wait, join", shared=big, count=1), **free)[1])
        cluster = begun(launches(kernel(work, shared=big), kernel("wait, join", shared=big, cluster=2), **free)[1])
        self.assertLess(apart, 2)
        self.assertGreater(cluster, 10)

    def test_when_the_next_kernel_begins(self):
        at = [begun(launches(kernel(steps), kernel("wait, join"))[1])
              for steps in ("release, run 360, wait, run 360, join", "run 360, release, wait, run 360, join",
                            "run 360, wait, run 360, join")]
        self.assertAlmostEqual(at[1] - at[0], 1)
        self.assertGreater(at[2] - at[1], 1)

    def test_memory_has_a_rate_and_an_order(self):
        done = []
        memory = simulation.Memory(2, 1000.0, 50.0)
        self.assertAlmostEqual(memory.request(0.0, 0, 100, lambda: done.append("first")), 2)
        memory.request(0.0, 1, 300, lambda: done.append("as long as the first"))
        memory.load(0.0, 1, lambda: done.append("behind"))
        times = []
        while memory.queue:
            memory.serve()()
            times.append(memory.now)
        self.assertEqual(done, ["first", "as long as the first", "behind"])
        self.assertAlmostEqual(times[0], 0.4)
        self.assertAlmostEqual(times[2], 0.4)

    def test_half_the_rate_takes_twice_as_long(self):
        steps = "wait, ask 400, need, join"
        fast, slow = (launches(kernel(steps), memory=rate, engine=1e6)[0].complete for rate in (400.0, 200.0))
        self.assertAlmostEqual(slow - fast, 2)

    def test_blocks_of_a_multiprocessor_share_its_copy_engine(self):
        one = {**TWO, "processors": 1, "groups": [1]}
        apart, together = (launches(kernel("wait, ask 98, need, join"), gpu=gpu, engine=49.0)[0].complete
                           for gpu in (TWO, one))
        self.assertAlmostEqual(together - apart, 2)

    def test_a_stream_waits_for_its_window(self):
        whole, piecewise = (launches(kernel(steps), engine=1e6, memory=1e6)[0].complete
                            for steps in ("wait, ask 80, need, join", "wait, stream 80 20, need, join"))
        self.assertAlmostEqual(piecewise - whole, 3 * P["latency"], delta=0.01)  # eight halves, two at a time

    def test_loads_come_behind_requests(self):
        first, behind = (launches(kernel(steps), memory=400.0)[0].complete
                         for steps in ("wait, read 6, ask 200, join", "wait, ask 200, read 6, join"))
        self.assertGreater(behind - first, 0.9)

    def test_all_blocks_of_a_kernel_meet(self):
        gpu = {**TWO, "processors": 1, "groups": [1]}
        late = launches(kernel("wait, run 360, meet, join", shared=100000, threads=128), gpu=gpu)[0]
        self.assertAlmostEqual(late.complete, P["place"] + 1 + P["meet"] + P["join"])
        with self.assertRaises(simulation.Failure):
            launches(kernel("wait, meet, join", shared=200000), gpu=gpu)


if __name__ == "__main__":
    unittest.main()
