#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How far a delta rule's results drift if its state is rounded after every token.

usage: state_rounding.py

One head of 128 keys and 128 values is computed in fp64, and with states rounded to fp32,
to 16-bit integers with a power of two as the scale of a column, to fp16, and to bf16. A line is one setting: `g`, by
which the state shrinks each token; `beta`, the largest share of a value that is written (the share is uniform from 0);
`tokens`; and `common`, how much keys and queries have in common (0: directions are random). The figures are the error of
the output relative to its size, as a root mean square over the last 256 tokens. Takes half a minute.
"""

import numpy as np

DIM, LAST = 128, 256


def shorts(state):
    """As swy::DeviceState (sdk/device_states.hpp) rounds: a column is one value's keys."""
    largest = np.abs(state).max(0)
    scale = np.exp2(np.ceil(np.log2(np.maximum(largest, 1e-30) / 32767))).astype(np.float32)
    return np.rint(state / scale) * scale


def bf16(state):
    bits = state.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


FORMS = {
    "fp32": lambda state: state,
    "16-bit integers": shorts,
    "fp16": lambda state: state.astype(np.float16).astype(np.float32),
    "bf16": bf16,
}


def direction(rng, common, shared):
    x = rng.normal(size=DIM) + common * shared
    return x / np.linalg.norm(x)


def drift(g, beta, tokens, common):
    rng = np.random.default_rng(1)
    shared = rng.normal(size=DIM)
    exact = np.zeros((DIM, DIM))
    states = {form: np.zeros((DIM, DIM), np.float32) for form in FORMS}
    errors = {form: [] for form in FORMS}
    for token in range(tokens):
        key, query = direction(rng, common, shared), direction(rng, common, shared) / np.sqrt(DIM)
        value, share = rng.normal(size=DIM), beta * rng.uniform()
        exact *= g
        exact += np.outer(key, share * (value - key @ exact))
        wanted = query @ exact
        for form, rounded in FORMS.items():
            state = np.float32(g) * states[form]
            state += np.outer(key, share * (value - key @ state)).astype(np.float32)
            states[form] = rounded(state)
            if token >= tokens - LAST:
                errors[form].append(((query @ states[form] - wanted) ** 2).sum() / (wanted**2).sum())
    return {form: np.sqrt(np.mean(e)) for form, e in errors.items()}


def main():
    print(f"{'g':>8} {'beta':>5} {'tokens':>6} {'common':>6} " + " ".join(f"{form:>15}" for form in FORMS))
    for g, beta, tokens in (
        (0.9, 1, 1000),
        (0.99, 1, 3000),
        (0.999, 1, 6000),
        (0.9999, 1, 6000),
        (0.9999, 0.05, 6000),
        (0.99999, 0.01, 6000),
    ):
        for common in (0, 1):
            errors = drift(g, beta, tokens, common)
            print(f"{g:8} {beta:5} {tokens:6} {common:6} " + " ".join(f"{e:15.1e}" for e in errors.values()))


if __name__ == "__main__":
    main()
