#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Predicts the time of a layer of a decoding step on the CUDA backend, without a device: a simulation of one GPU.

usage: schedule_model.py [--json] [LAYER...]
       schedule_model.py --what-if CHANGE [--what-if CHANGE...] LAYER
       schedule_model.py --check | --list

Without options: the kernels of these layers, or of all, as stamps would show them. `own` is from the return of a
kernel's wait to that of the next one's, `gap` from the last block's end of the kernel in front; then the moments of the
median block, from its kernel's wait, and `last`, the last block's end. Microseconds.

--check    modelled beside recorded; exit code 1 if a layer is off by more than 10%
--list     the parameters, with where each comes from, and the names of the layers
--what-if  the layer as it is and with a change:
             without=KERNEL          the layer lacks it
             KERNEL.FIELD=NUMBER     registers, shared (bytes a block), threads, cluster
             KERNEL.release=WHERE    when it lets the next one begin: first, asked, wait or end
             KERNEL.steps=STEPS      of its first kind of block
             PARAMETER=NUMBER        memory=3000 is an H100's
--data     FILE instead of schedule_model.toml
--json     the same as JSON

The data file describes kernels by what their sources and machine code say: blocks, threads, registers, shared memory,
and what a block does, as steps (a layer may have `parameters` of its own, those of another card):
  run N          N instructions of each warp            load N      N loads that need each other's results
  ask KB         requests KB of the copy engine         stream KB W the same, at most W KB of it at a time
  release        lets the next kernel begin             wait        until the kernel in front has ended
  read KB        loads what others wrote                need [N]    until what it asked for has come, all but the last N
  join           the block's barrier, sum and write     walk KB W N streams KB, N instructions for each W/2 KB, in turn
  meet           until all blocks of the kernel are here
Multiprocessors have room (registers of each quarter, shared memory, threads, blocks), and memory serves all requests
in the order in which they came. docs/schedule-model.md tells what the model cannot say.
"""
import argparse
import collections
import copy
import json
import pathlib
import statistics
import sys
import tomllib

from schedule_simulation import POSITIVE, Failure, Simulation

DATA = pathlib.Path(__file__).resolve().with_suffix(".toml")
ALLOWED = 0.10
LAYERS = 6  # simulated in a row; the first ones do not count, nor does the last
LAYERS_OF_CHANGES = 20  # placing differs from layer to layer, and small differences drown in that
MOMENTS = ["begun", "asked", "read", "arrived", "multiplied", "ended"]
NUMBERS = ["threads", "registers", "shared", "cluster"]
RELEASES = ["first", "asked", "wait", "end"]


def fail(text):
    sys.exit(f"schedule_model: {text}")


def layer_of(data, name):
    for layer in data["layer"]:
        if layer["name"] == name:
            return layer
    raise Failure(f"no layer \"{name}\"; there are: {'; '.join(one['name'] for one in data['layer'])}")


def kernels_of(data, layer):
    return [(name, data["kernels"][name]) for name in layer["kernels"]]


def model(data, layer, count=LAYERS):
    """{"us", "kernels": [{"name", "own", "gap", moments}]} of a layer: by itself, or between layers of another kind."""
    own, counted = kernels_of(data, layer), range(2, count - 1)
    layers = [own] * count
    if "between" in layer:
        others = kernels_of(data, layer_of(data, layer["between"]))
        layers, counted = [others, own] * (count // 2), range(1, count - 1, 2)
    parameters = {**{name: one["value"] for name, one in data["parameter"].items()}, **layer.get("parameters", {})}
    found = collections.defaultdict(list)
    for launch in Simulation(data["gpu"], parameters, layers).run():
        if launch.layer in counted:
            found[launch.name].append(launch)
    kernels = []
    for name, launches in found.items():
        row = {"name": name, "blocks": len(launches[0].todo)}
        row["own"] = statistics.mean(one.after.start - one.start for one in launches)
        row["gap"] = statistics.mean(one.start - one.before.complete for one in launches)
        for moment in MOMENTS:
            at = [m[moment] - one.start for one in launches for m in one.moments if moment in m]
            row[moment] = statistics.median(at) if at else None
        row["last"] = statistics.mean(one.complete - one.start for one in launches)
        kernels.append(row)
    return {"us": sum(k["own"] for k in kernels), "kernels": kernels}


# ---- changes

def change(data, layer, text):
    """Applies what --what-if says to a layer's kernels, or to a parameter."""
    target, _, value = text.partition("=")
    kernel, dot, field = target.rpartition(".")
    own = {name.split(".", 1)[1]: name for name in layer["kernels"]}
    if target == "without" and value in own:
        layer["kernels"].remove(own[value])
    elif target in data["parameter"] and POSITIVE.fullmatch(value):
        data["parameter"][target]["value"] = float(value)
    elif dot and kernel in own and field in NUMBERS and value.isdigit() and int(value) > 0:
        data["kernels"][own[kernel]][field] = int(value)
    elif dot and kernel in own and field == "steps":
        data["kernels"][own[kernel]]["block"][0]["steps"] = value
    elif dot and kernel in own and field == "release" and value in RELEASES:
        for group in data["kernels"][own[kernel]]["block"]:
            group["steps"] = released(group["steps"], value)
    else:
        raise Failure(f"cannot change \"{text}\": it is without=KERNEL, PARAMETER=NUMBER, "
                      f"KERNEL.{{{','.join(NUMBERS)}}}=NUMBER, KERNEL.release={{{','.join(RELEASES)}}} "
                      f"or KERNEL.steps=STEPS; this layer's kernels: {', '.join(own)}")


def released(steps, where):
    steps = [step for step in steps.split(", ") if step != "release"]
    words = [step.split()[0] for step in steps]
    asks = [i for i, word in enumerate(words[:words.index("wait")]) if word in ("ask", "stream")]
    place = {"first": 0, "asked": asks[-1] + 1 if asks else 0, "wait": words.index("wait") + 1, "end": len(steps)}
    return ", ".join(steps[:place[where]] + ["release"] + steps[place[where]:])


# ---- what is printed

def show(layer, found):
    recorded = f", recorded {layer['recorded']:.2f} ({layer['role']})" if "recorded" in layer else ""
    print(f"{layer['name']}: {found['us']:.2f} us{recorded}")
    for k in found["kernels"]:
        moments = "; ".join(f"{m} {k[m]:.2f}" for m in MOMENTS if k[m] is not None)
        print(f"  {k['name']:22}{k['blocks']:4}  own {k['own']:5.2f}  gap {k['gap']:5.2f} | "
              f"{moments}, last {k['last']:.2f}")


def check(data, as_json):
    rows = []
    for layer in data["layer"]:
        if "recorded" in layer:
            us = model(data, layer)["us"]
            rows.append({"layer": layer["name"], "role": layer["role"], "recorded": layer["recorded"], "modelled": us,
                         "error": us / layer["recorded"] - 1})
    wrong = [row for row in rows if abs(row["error"]) > ALLOWED]
    if as_json:
        print(json.dumps({"allowed": ALLOWED, "layers": rows, "passed": not wrong}, indent=2))
    else:
        print(f"{'layer':24}{'recorded':>10}{'modelled':>10}{'error':>8}")
        for row in rows:
            print(f"{row['layer']:24}{row['recorded']:10.2f}{row['modelled']:10.2f}{row['error']:+8.1%}  {row['role']}")
        print("\n".join(f"schedule_model: {row['layer']} is off by more than {ALLOWED:.0%}" for row in wrong)
              or f"schedule_model: {len(rows)} recorded layers within {ALLOWED:.0%}")
    return 1 if wrong else 0


def what_if(data, layer, changes, as_json):
    changed = copy.deepcopy(data)
    other = layer_of(changed, layer["name"])
    for text in changes:
        change(changed, other, text)
    found = [model(data, layer, LAYERS_OF_CHANGES), model(changed, other, LAYERS_OF_CHANGES)]
    if as_json:
        print(json.dumps({"layer": layer["name"], "changes": changes, "before": found[0], "after": found[1]}, indent=2))
        return
    show(layer, found[0])
    show({"name": " ".join([layer["name"], "with", *changes])}, found[1])
    print(f"difference {found[1]['us'] - found[0]['us']:+.2f} us a layer")


def show_list(data, as_json):
    found = {"parameters": data["parameter"], "layers": [one["name"] for one in data["layer"]]}
    if as_json:
        print(json.dumps(found, indent=2))
        return
    for name, one in data["parameter"].items():
        print(f"  {name:12}{one['value']:8g} {one['unit']:10} {one['from']}")
    print("\n".join(found["layers"]))


def arguments():
    text = __doc__.split("\n\n")
    parser = argparse.ArgumentParser(usage=text[1][len("usage: "):], description=text[0], epilog="\n\n".join(text[2:]),
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("layers", nargs="*", help=argparse.SUPPRESS)
    for name in ("list", "check", "json"):
        parser.add_argument("--" + name, action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--what-if", action="append", default=[], help=argparse.SUPPRESS)
    parser.add_argument("--data", type=pathlib.Path, default=DATA, help=argparse.SUPPRESS)
    return parser.parse_args()


def run(args):
    data = tomllib.loads(args.data.read_text())
    if args.check:
        return check(data, args.json)
    if args.list:
        show_list(data, args.json)
        return 0
    chosen = [layer_of(data, name) for name in args.layers] or data["layer"]
    if args.what_if:
        if len(args.layers) != 1:
            raise Failure("--what-if needs the name of one layer; --list shows them")
        what_if(data, chosen[0], args.what_if, args.json)
        return 0
    found = [(layer, model(data, layer)) for layer in chosen]
    if args.json:
        print(json.dumps([{"layer": layer["name"], **one} for layer, one in found], indent=2))
    for layer, one in found if not args.json else []:
        show(layer, one)
    return 0


def main():
    args = arguments()
    try:
        return run(args)
    except Failure as e:
        fail(e)
    except (OSError, tomllib.TOMLDecodeError) as e:
        fail(f"{args.data}: {e}")
    except KeyError as e:
        fail(f"{args.data}: lacks {e}")


if __name__ == "__main__":
    sys.exit(main())
