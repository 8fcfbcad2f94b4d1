# SPDX-License-Identifier: Apache-2.0
"""llama.cpp as an oracle for GGUF files, through the library that the package llama-cpp-py-sync carries.

usage: llama_cpp.py quantize IN.gguf TYPE OUT.gguf     (Q8_0, Q4_0, Q4_K_M, Q5_K_M, Q6_K, IQ4_XS, ...)
       llama_cpp.py loss X.gguf TEXT                   mean loss as the project quotes it: see nll.py
       llama_cpp.py greedy X.gguf PROMPT COUNT         the text that the most likely tokens make
       llama_cpp.py logits X.gguf ID,ID,... OUT.f32    logits of every position, float32 [tokens, vocab]
       llama_cpp.py bench X.gguf PROMPT DECODE THREADS  tokens per second of a prompt of random ids and after it

Needs: pip install llama-cpp-py-sync cffi numpy.
"""
import os
import sys
import time
from pathlib import Path

import numpy as np
from llama_cpp_py_sync._cffi_bindings import ffi, get_lib

WINDOW = 512


@ffi.callback("void(enum ggml_log_level, const char *, void *)")
def quiet(level, text, _):
    if level == 4 or os.environ.get("LLAMA_LOG"):  # errors
        sys.stderr.write(ffi.string(text).decode(errors="replace"))


class Model:
    def __init__(self, path, tokens=WINDOW, threads=1):  # several wait for each other on a loaded machine
        params = lib.llama_model_default_params()
        self.model = lib.llama_model_load_from_file(os.fsencode(path), params)
        if self.model == ffi.NULL:
            sys.exit(f"llama_cpp.py: llama.cpp does not load {path}")
        context = lib.llama_context_default_params()
        context.n_ctx = context.n_batch = context.n_ubatch = tokens
        # A smaller cache type or another attention kernel would be a difference of its own.
        context.type_k = context.type_v = 0  # F32
        context.flash_attn_type = 0
        context.n_threads = context.n_threads_batch = threads
        self.context = lib.llama_init_from_model(self.model, context)
        if self.context == ffi.NULL:
            sys.exit(f"llama_cpp.py: llama.cpp makes no context for {path}")
        self.vocab = lib.llama_model_get_vocab(self.model)
        self.vocab_size = lib.llama_vocab_n_tokens(self.vocab)

    def tokens(self, text):
        raw = text.encode()
        out = ffi.new("llama_token[]", len(raw) + 8)
        count = lib.llama_tokenize(self.vocab, raw, len(raw), out, len(raw) + 8, False, True)
        return [out[i] for i in range(count)]

    def step(self, ids, begin, every):
        """Logits after these tokens at positions from `begin` on: of all of them, or of the last."""
        batch = lib.llama_batch_init(len(ids), 0, 1)
        batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0] = token, begin + i, 1, 0
            batch.logits[i] = every or i + 1 == len(ids)
        if lib.llama_decode(self.context, batch) != 0:
            sys.exit("llama_cpp.py: llama_decode failed")
        rows = range(len(ids)) if every else [len(ids) - 1]
        size = self.vocab_size * 4
        out = [np.frombuffer(ffi.buffer(lib.llama_get_logits_ith(self.context, i), size), np.float32) for i in rows]
        out = np.stack(out)
        lib.llama_batch_free(batch)
        return out

    def logits(self, ids):
        lib.llama_memory_clear(lib.llama_get_memory(self.context), True)
        return self.step(ids, 0, True)

    def greedy(self, ids, count):
        lib.llama_memory_clear(lib.llama_get_memory(self.context), True)
        out, at, step = [], 0, ids
        for _ in range(count):
            last = int(self.step(step, at, False)[0].argmax())
            at, step = at + len(step), [last]
            out.append(last)
        return out

    def text(self, ids):
        out = ffi.new("char[]", 64 * len(ids) + 64)
        return ffi.buffer(out, lib.llama_detokenize(self.vocab, ids, len(ids), out, len(out), False, True))[:].decode(
            errors="replace")


def quantize(source, kind, to):
    params = ffi.new("llama_model_quantize_params *", lib.llama_model_quantize_default_params())
    name = "LLAMA_FTYPE_" + ("ALL_" if kind == "F32" else "MOSTLY_") + kind
    params.ftype = ffi.typeof("enum llama_ftype").relements[name]
    params.nthread = 1
    if lib.llama_model_quantize(os.fsencode(source), os.fsencode(to), params) != 0:
        sys.exit(f"llama_cpp.py: llama.cpp does not quantize {source} to {kind}")


def loss(path, text):
    model = Model(path)
    ids = model.tokens(Path(text).read_text())
    windows = [ids[i:i + WINDOW] for i in range(0, len(ids) - WINDOW, WINDOW)]
    means = []
    for window in windows:
        x = model.logits(window).astype(np.float64)[:-1]
        top = x.max(axis=1)
        log_sum = top + np.log(np.exp(x - top[:, None]).sum(axis=1))
        means.append((log_sum - x[np.arange(len(window) - 1), window[1:]]).mean())
    print(f"{np.mean(means):.6f} nats per token, {len(windows)} windows, {len(ids)} tokens in the text")


def bench(path, prompt, decode, threads):
    model = Model(path, prompt + decode, threads)
    ids = np.random.default_rng(1).integers(0, model.vocab_size, prompt).tolist()
    model.greedy(ids[:8], 4)  # reads the weights
    lib.llama_memory_clear(lib.llama_get_memory(model.context), True)
    times = [time.monotonic()]
    last = int(model.step(ids, 0, False)[0].argmax())
    times.append(time.monotonic())
    for i in range(decode):
        last = int(model.step([last], prompt + i, False)[0].argmax())
    times.append(time.monotonic())
    print(f"prompt {prompt / (times[1] - times[0]):.1f} decode {decode / (times[2] - times[1]):.2f} tokens per second")


def main():
    global lib
    lib = get_lib()
    lib.llama_log_set(quiet, ffi.NULL)
    lib.llama_backend_init()
    what, *rest = sys.argv[1:]
    if what == "quantize":
        quantize(*rest)
    elif what == "loss":
        loss(*rest)
    elif what == "greedy":
        model = Model(rest[0])
        print(model.text(model.greedy(model.tokens(rest[1]), int(rest[2]))))
    elif what == "bench":
        bench(rest[0], *map(int, rest[1:]))
    else:
        ids = [int(i) for i in rest[1].split(",")]
        Model(rest[0]).logits(ids).astype("<f4").tofile(rest[2])


if __name__ == "__main__":
    main()
