#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/data/sampling/golden.jsonl: what the normative sampler must compute, from an implementation of its own.

Follows the rules written at the top of plugins_api/include/switchyard/sampling_math.h, in numpy float32 (one rounded
operation at a time) and Python integers, vectorised over the row; it shares no code with the C header.

Random rows come first. They leave many a rule undecided, so short rows follow for every rule in BROKEN, each of which
has another answer when that rule alone is broken.
Needs numpy. Usage: make_sampling_golden.py OUT.jsonl
"""
import json
import math
import sys
from fractions import Fraction

import numpy as np

F = np.float32
U64 = (1 << 64) - 1
np.seterr(all="ignore")


def hexf(text):
    return F(float.fromhex(text))


LOG_P = [hexf(c) for c in ("-0x1.422b48p-4", "0x1.07c41ep-3", "-0x1.0cce58p-3", "0x1.226f7cp-3", "-0x1.547ab8p-3",
                           "0x1.99a592p-3", "-0x1.000216p-2", "0x1.55554ap-2")]
EXP_P = [hexf(c) for c in ("0x1.6db3e0p-10", "0x1.123b4ep-7", "0x1.55545ep-5", "0x1.555490p-3", "0x1p-1")]
LN2_HEAD, LN2_TAIL, LOG2E = hexf("0x1.63p-1"), hexf("0x1.bd0106p-13"), hexf("0x1.715476p0")


def bits_of(x):
    return np.asarray(x, F).view(np.uint32)


def clamp(x):
    x = np.asarray(x, F)
    big, small = F(2.0**100), F(2.0**-100)
    x = np.where(np.abs(x) > big, np.copysign(big, x), x)
    return np.where(np.abs(x) < small, F(0), x).astype(F)


def horner(coefficients, x):
    p = np.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        p = p * x + c  # numpy rounds the product, then the sum
    return p


def log_core(f, e):
    f, e = np.asarray(f, F), np.asarray(e, F)
    s = f * f
    p = (f * s) * horner(LOG_P, f)
    p = p + e * -LN2_TAIL
    p = p + s * F(-0.5)
    return (f + p) + e * LN2_HEAD


def log(x, shift=0):
    m, e = np.frexp(np.asarray(x, F))  # m in [1/2, 1)
    low = m < hexf("0x1.6a09e6p-1")  # sqrt(1/2), as the float below which the exponent drops
    m = np.where(low, m * F(2), m).astype(F)
    e = np.where(low, e - 1, e)
    return log_core(m - F(1), e + shift)


def exp(x):
    x = np.asarray(x, F)
    t = np.maximum(x, F(-80))
    n = np.trunc(t * LOG2E + F(-0.5)).astype(np.int32)
    k = n.astype(F)
    r = (t + k * -LN2_HEAD) + k * LN2_TAIL
    p = horner(EXP_P, r)
    p = (r + (r * r) * p) + F(1)
    return np.where(x < F(-80), F(0), np.ldexp(p, n)).astype(F)


def weights(d):
    w = np.floor(exp(d).astype(np.float64) * 2.0**30).astype(np.int64)
    return [int(v) for v in np.where(d < F(-21), 0, w)]


def philox(counter, key):
    c, k = list(counter), list(key)
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & 0xFFFFFFFF, (a >> 32) ^ c[3] ^ k[1], a & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def random_bits(seed, position, token):
    w = philox([position & 0xFFFFFFFF, position >> 32, token, 0], [seed & 0xFFFFFFFF, seed >> 32])
    return w[0] << 32 | w[1] | 1


def unit(r):
    drop = max(r.bit_length() - 24, 0)
    return F(math.ldexp(r >> drop, drop - 64))


def gumbel_of_bits(r):
    e = -log_core(-unit(r), 0) if r < 1 << 62 else -log(unit((1 << 64) - r))
    return F(-log(e))


def gumbel(seed, position, token):
    return gumbel_of_bits(random_bits(seed, position, token))


def draw(p, row):
    """(status, token, id, logprob bits, the three most likely ids) of one row; statuses as in sampling_math.h."""
    logits = np.frombuffer(bytes.fromhex(row["logits"]), "<u4").view(F)
    vocab = len(logits)
    bad = [i for i in range(vocab) if np.isnan(logits[i]) or logits[i] == F(np.inf)]
    if bad:
        return 1, -1, bad[0], 0, []
    allowed = set(row["allowed"]) if row["allowed"] is not None else set(range(vocab))
    live = [i for i in range(vocab) if i in allowed and logits[i] != F(-np.inf)]
    if not live:
        return 2, -1, -1, 0, []
    prompt, output = set(row["prompt"]), {}
    for t in row["output"]:
        output[t] = output.get(t, 0) + 1
    bias = dict((i, F(b)) for i, b in row["bias"])
    rep = F(min(max(p["repetition_penalty"], 2.0**-20), 2.0**20))
    inv_rep = F(1) / rep
    y = {}
    for i in live:
        v = F(clamp(logits[i]))
        if i in prompt or i in output:
            v = F(clamp(v * (inv_rep if v > 0 else rep)))
        if i in output:
            v = F(v - F(p["frequency_penalty"]) * F(output.get(i, 0)))
            v = F(clamp(v - F(p["presence_penalty"])))
        y[i] = F(clamp(v + F(clamp(bias.get(i, F(0))))))
    temperature = F(p["temperature"])
    if temperature < F(1e-5):
        token = min(live, key=lambda i: (-float(y[i]), i))
    else:
        token = draw_with_noise(p, row, live, y, max(F(1) / temperature, F(2.0**-60)))
    finite = [i for i in range(vocab) if logits[i] != F(-np.inf)]
    x = clamp(logits)
    likely = sorted(finite, key=lambda i: (-float(x[i]), i))[:3]
    return 0, token, -1, int(bits_of(logprob(logits, token))), likely


def draw_with_noise(p, row, live, y, inv):
    z = {i: F(clamp(y[i] * inv)) for i in live}
    kept = sorted(live, key=lambda i: (-float(z[i]), i))
    if p["top_k"]:
        kept = kept[:p["top_k"]]
    top = max(z[i] for i in kept)
    w = dict(zip(kept, weights(np.array([z[i] - top for i in kept], F))))
    q15 = max(1, math.floor(float(F(p["top_p"])) * 32768 + 0.5))
    if q15 < 32768:
        ordered, total, run, n = sorted(kept, key=lambda i: (-w[i], i)), sum(w.values()), 0, 0
        while run * 32768 < q15 * total:
            run += w[ordered[n]]
            n += 1
        kept = ordered[:n]
    kept = [i for i in kept if w[i] >= float(F(p["min_p"])) * 2.0**30]
    return min(kept, key=lambda i: (-float(F(z[i] + gumbel(p["seed"], row["position"], i))), i))


def logprob(logits, token):
    x = clamp(logits)
    top = x.max()
    finite = logits != F(-np.inf)
    total = sum(int(v) for v in np.floor(exp((x - top)[finite]).astype(np.float64) * 2.0**40))
    return F(F(x[token] - top) - log(unit(total), 24))


def make_logits(rng, kind, n):
    x = rng.normal(0, 3, n)
    if kind == "ties":
        x = np.round(x)
    elif kind == "flat":
        x = np.full(n, 0.25)
    elif kind == "peaked":
        x = x + 18 * (rng.random(n) < 3.0 / n)
    elif kind == "near":
        x = 1 + rng.integers(0, 6, n) * 2.0**-23
    elif kind == "huge":
        x = x * 1e30
    elif kind == "tiny":
        x = x * 1e-30 * 10.0 ** rng.integers(-14, 1, n)
    x = x.astype(F)
    if kind == "holes":
        x[rng.random(n) < 0.5] = -np.inf
    elif kind == "signed_zero":
        x = np.where(rng.random(n) < 0.5, F(0), F(-0.0)).astype(F)
    return x


def make_case(rng, index):
    kinds = ["normal", "ties", "flat", "peaked", "near", "huge", "tiny", "holes", "signed_zero"]
    n = int(rng.choice([1, 2, 31, 63, 64, 65, 130, 193], p=[.06, .06, .2, .1, .15, .15, .18, .1]))
    x = make_logits(rng, kinds[index % len(kinds)], n)
    if index % 41 == 40:
        x[int(rng.integers(n))] = rng.choice([np.nan, np.inf, -np.nan])
    if index % 29 == 28:
        x[int(rng.integers(n))] = -np.inf
    if index % 53 == 52:
        x[:] = -np.inf

    p, row = make_settings(rng, x)
    if index % 47 == 46:
        row["allowed"] = []
    return record_of(p, row)


def make_settings(rng, x):
    n = len(x)

    def sometimes(chance, value, default):
        return value if rng.random() < chance else default

    def ids(limit):
        return [int(i) for i in rng.integers(0, n, int(rng.integers(0, limit)))]

    p = {
        "temperature": float(F(rng.choice([0, 1, 0.7, 1.3, 2.5, 0.05, 1e-4, 1e-6, 1e20, 1], p=[.12, .2, .2, .15, .1, .08,
                                                                                           .05, .03, .02, .05]))),
        "top_k": int(sometimes(0.5, rng.choice([1, 2, 5, 40, 64, 1000]), 0)),
        "top_p": float(F(sometimes(0.6, rng.choice([1e-6, 0.1, 0.5, 0.9, 0.95, 0.999, 0.99999]), 1))),
        "min_p": float(F(sometimes(0.4, rng.choice([1e-12, 0.01, 0.05, 0.3, 1]), 0))),
        "repetition_penalty": float(F(sometimes(0.4, rng.choice([0.5, 1.1, 1.3, 2, 1e-9, 1e9]), 1))),
        "presence_penalty": float(F(sometimes(0.4, rng.choice([-2, -0.3, 0.6, 2]), 0))),
        "frequency_penalty": float(F(sometimes(0.4, rng.choice([-1.5, 0.1, 0.7, 2]), 0))),
        "seed": int(rng.integers(0, 1 << 63)) * 2 + int(rng.integers(0, 2)),
    }
    biased = sorted(set(ids(6))) if rng.random() < 0.4 else []
    row = {
        "logits": x.astype("<f4").tobytes().hex(),
        "position": int(sometimes(0.2, (1 << 32) + 5, rng.integers(0, 5000))),
        "allowed": sorted(set(ids(n))) if rng.random() < 0.25 else None,
        "prompt": ids(9) if rng.random() < 0.5 else [], "output": ids(25) if rng.random() < 0.5 else [],
        "bias": [[i, float(F(rng.normal(0, 5)))] for i in biased],
    }
    return p, row


def record_of(p, row):
    status, token, bad, lp, likely = draw(p, row)
    neutral = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0,
               "frequency_penalty": 0.0}
    p = {k: v for k, v in p.items() if neutral.get(k) != v}
    return {"kind": "row", "params": p, "row": row, "status": status, "token": token, "id": bad, "logprob_bits": lp,
            "likely": likely}


# Rule: its text in this program, and the text that breaks it.
BROKEN = {
    "infinite logits are bad": (" or logits[i] == F(np.inf)]", "]"),
    "-inf is never drawn": (" and logits[i] != F(-np.inf)]", "]"),
    "large logits are clamped": ("np.abs(x) > big,", "np.abs(x) > F(3.4e38),"),
    "small logits are zero": ("np.abs(x) < small, F(0), x", "np.abs(x) < small, x, x"),
    "repetition counts the prompt": ("if i in prompt or i in output", "if i in output"),
    "repetition counts the output": ("if i in prompt or i in output", "if i in prompt"),
    "repetition multiplies negative logits": ("if v > 0 else rep", "if True else rep"),
    "repetition is clamped": (
        "F(min(max(p[\"repetition_penalty\"], 2.0**-20), 2.0**20))",
        "F(p[\"repetition_penalty\"])"),
    "frequency counts": ("output.get(t, 0) + 1", "1"),
    "presence and frequency leave the prompt alone": (
        "        if i in output:",
        "        if i in output or i in prompt:"),
    "presence is subtracted": ("v - F(p[\"presence_penalty\"])", "v"),
    "bias is added": ("clamp(bias.get(i, F(0)))", "F(0)"),
    "bias comes after the penalties": ("F(clamp(logits[i]))", "F(clamp(F(clamp(logits[i])) + bias.pop(i, F(0))))"),
    "greedy begins below 1e-5": ("temperature < F(1e-5)", "temperature < F(1e-7)"),
    "greedy takes the lowest id": ("(-float(y[i]), i)", "(-float(y[i]), -i)"),
    "heat is bounded": ("max(F(1) / temperature, F(2.0**-60))", "F(1) / temperature"),
    "top-k cuts": ("[:p[\"top_k\"]]", "[:p[\"top_k\"] + 1]"),
    "top-k keeps the lowest ids": (
        "sorted(live, key=lambda i: (-float(z[i]), i))",
        "sorted(live, key=lambda i: (-float(z[i]), -i))"),
    "top-p weighs after the temperature": ("z[i] - top for i in kept], F", "(z[i] - top) / inv for i in kept], F"),
    "weights are cut, not rounded": (
        "np.floor(exp(d).astype(np.float64) * 2.0**30)",
        "np.round(exp(d).astype(np.float64) * 2.0**30)"),
    "p is rounded, not cut": ("* 32768 + 0.5)", "* 32768)"),
    "top-p counts what top-k kept": ("sum(w.values())", "sum(weights(np.array([z[i] - top for i in live], F)))"),
    "top-p stops at equality": (
        "while run * 32768 < q15 * total",
        "while n < len(kept) and run * 32768 <= q15 * total"),
    "top-p orders by weight": ("(-w[i], i)", "(-float(z[i]), i)"),
    "top-p keeps the lowest ids": ("(-w[i], i)", "(-w[i], -i)"),
    "min-p comes after top-p": (
        "ordered, total, run, n =",
        "w = {i: v for i, v in w.items() if v >= float(F(p[\"min_p\"])) * 2.0**30}; kept = list(w); ordered, total, run, n ="),
    "min-p keeps equals": ("w[i] >= float", "w[i] == 1 << 30 or w[i] > float"),
    "noise has 64 bits of seed": ("seed >> 32]", "0]"),
    "noise has 64 bits of position": ("position >> 32, token", "0, token"),
    "a draw takes the lowest id": ("row[\"position\"], i))), i)", "row[\"position\"], i))), -i)"),
    "log-probabilities are of the unmodified logits": (
        "bits_of(logprob(logits, token))",
        "bits_of(logprob(np.array([y.get(i, F(-np.inf)) for i in range(vocab)], F), token))"),
}


def broken_draw(text, wrong):
    with open(__file__) as file:
        source = file.read().split("\n# Rule:")[0]
    assert source.count(text) == 1, text
    program = {"__name__": "broken"}
    exec(compile(source.replace(text, wrong), wrong, "exec"), program)

    def answer(p, row):
        try:
            return program["draw"](p, row)
        except IndexError:  # it ran out of ids: no answer to compare
            return None

    return answer


def make_short(rng):
    x = rng.normal(0, 3, int(rng.integers(2, 13)))
    kind = int(rng.integers(8))
    if kind == 0:
        x = -np.abs(x) - 0.1
    elif kind == 1:
        x = np.round(x / 2)
    elif kind < 5:
        x = x * [1e-7, 1e-31, 3e37][kind - 2]
    x = x.astype(F)
    if kind == 5:
        x[int(rng.integers(len(x)))] = rng.choice([np.inf, -np.inf])
    return make_settings(rng, x)


def plain(rng, logits, **settings):
    """A row without mask, penalties and biases."""
    p, row = make_settings(rng, np.array(logits, F))
    p.update(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, repetition_penalty=1.0, presence_penalty=0.0,
             frequency_penalty=0.0)
    p.update({k: float(F(v)) if isinstance(v, float) else v for k, v in settings.items()})
    row.update(allowed=None, prompt=[], output=[], bias=[])
    return p, row


def make_truncated(rng):
    return plain(rng, rng.normal(0, 1.5, 12), temperature=float(rng.choice([0.7, 1, 1.5])), top_k=int(rng.integers(9)),
                 top_p=0.5 + 0.5 * rng.random(), min_p=0.2 * rng.random())


def make_min_p_edge(rng):
    """Many ids of one weight with a fraction, and min-p at the integer next to it."""
    d = F(-4.5 - rng.random())
    w = float(exp(d)) * 2.0**30
    return plain(rng, [0] + [d] * 31, min_p=float(np.rint(w)) / 2.0**30)


def make_top_p_edge(rng):
    """Nearly equal weights, and p at a multiple of one of them or a fraction of 2^-15 beside it."""
    n = int(rng.choice([2, 4, 8]))
    p = rng.integers(1, n) / n + rng.choice([0, 0.6, -0.4]) / 32768
    return plain(rng, rng.choice([0, 2.0**-30], n), top_p=float(p))


def make_hot(rng):
    return plain(rng, rng.normal(0, 2e19, 8), temperature=1e20)


MAKERS = {
    "heat is bounded": make_hot,
    "top-p weighs after the temperature": make_truncated,
    "top-p counts what top-k kept": make_truncated,
    "min-p comes after top-p": make_truncated,
    "weights are cut, not rounded": make_min_p_edge,
    "min-p keeps equals": make_min_p_edge,
    "p is rounded, not cut": make_top_p_edge,
    "top-p stops at equality": make_top_p_edge,
    "top-p orders by weight": make_top_p_edge,
    "top-p keeps the lowest ids": make_top_p_edge,
}


def decisive_rows(rng, each):
    for rule, texts in BROKEN.items():
        broken, make, found = broken_draw(*texts), MAKERS.get(rule, make_short), 0
        while found < each:
            p, row = make(rng)
            if broken(p, row) not in (None, draw(p, row)):
                yield {**record_of(p, row), "decides": rule}
                found += 1


def function_records(rng):
    # The three vectors that Random123 publishes for philox4x32, 10 rounds.
    pi = [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344], [0xA4093822, 0x299F31D0]
    published = [([0] * 4, [0] * 2, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
                 ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
                 (*pi, "d16cfe09 94fdcceb 5001e420 24126ea1")]
    for counter, key, words in published:
        want = [int(w, 16) for w in words.split()]
        assert philox(counter, key) == want
        yield {"kind": "philox", "counter": counter, "key": key, "out": want}
    yield {"kind": "tail", **noise_tail()}
    xs = np.concatenate([[F(-0.0), F(-80), F(-80.1), F(-21), F(-20.8), F(-1e-30)], -rng.random(200) * 81]).astype(F)
    yield {"kind": "exp", "in_bits": bits_of(xs).tolist(), "out_bits": bits_of(exp(xs)).tolist()}
    xs = np.concatenate([[F(1), np.nextafter(F(1), F(0)), np.nextafter(F(1), F(2)), F(2.0**-64), F(0.5), F(44.4),
                          hexf("0x1.6a09e6p-1"), hexf("0x1.6a09e4p-1")], 2.0 ** (rng.random(200) * 88 - 64)]).astype(F)
    yield {"kind": "log", "in_bits": bits_of(xs).tolist(), "out_bits": bits_of(log(xs)).tolist()}
    rs = [1, 3, (1 << 40) - 1, (1 << 62) - 1, (1 << 62) + 1, (1 << 63) + 1, U64]
    rs += [int(rng.integers(1 << 62)) >> int(rng.integers(60)) | 1 for _ in range(100)]
    yield {"kind": "gumbel_of_bits", "r": rs, "out_bits": [int(bits_of(gumbel_of_bits(r))) for r in rs]}
    where = [[int(rng.integers(1 << 62)), int(rng.integers(1 << 40)), int(rng.integers(1 << 18))] for _ in range(100)]
    yield {"kind": "noise", "at": where, "out_bits": [int(bits_of(gumbel(*w))) for w in where]}
    yield {"kind": "self_check", "hash": self_check_hash()}


def noise_tail():
    """Both ends of the noise, from exact logarithms: r, the least 64-bit numbers and the greatest, and g."""
    r = [1, 3, 5, 1001, U64, U64 - 2, U64 - 4, U64 - 1000]
    u = [Fraction(v, 1 << 64) for v in r]
    g = [-math.log(float(x) + float(x) ** 2 / 2) if x < Fraction(1, 2) else -math.log(-math.log(float(1 - x))) for x in u]
    return {"r": [str(v) for v in r], "g": g}


def self_check_hash():
    h = 14695981039346656037
    for i in range(256):
        y, count = clamp(F(i - 128) * hexf("0x1.7ae148p-2")), i % 7
        if count:
            y = clamp(y * (hexf("0x1.89d89ep-1") if y > 0 else hexf("0x1.4ccccdp0")))
            y = clamp(F(F(y) - hexf("0x1.666666p-1") * F(count)) - hexf("0x1.333334p-2"))
        y = clamp(F(y) + hexf("0x1.c28f5cp-4"))
        z = clamp(F(y) * hexf("0x1.6db6dcp0"))
        for value in (gumbel((i * 0x9E3779B97F4A7C15) & U64, i, i * 7), exp(F(i) * hexf("-0x1.c28f5cp-4")), z):
            h = ((h ^ int(bits_of(value))) * 1099511628211) & U64
    return h


def main():
    rng = np.random.default_rng(20240607)
    with open(sys.argv[1], "w") as out:
        for record in function_records(rng):
            out.write(json.dumps(record, separators=(",", ":")) + "\n")
        for index in range(300):
            out.write(json.dumps(make_case(rng, index), separators=(",", ":")) + "\n")
        for record in decisive_rows(rng, 3):
            out.write(json.dumps(record, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
