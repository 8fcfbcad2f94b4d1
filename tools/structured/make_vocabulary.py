#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A vocabulary of 248,320 byte strings, as many as Qwen3.5's, of the shapes that byte-level BPE gives.

  make_vocabulary.py OUT.hex TEXT... [--tokens N]

The most frequent words (with the space before them), their beginnings, and runs of punctuation, spaces and line ends,
of the texts (xz or plain), of the Python sources of this interpreter and of JSON made from these; and every single
byte. Token 0 is special and has no text. Writes a token's bytes a line, in hexadecimal, as constrain_probe reads it.
"""

import argparse
import ast
import collections
import json
import lzma
import pathlib
import re
import sysconfig

WORDS = re.compile(r"[^\r\n\w]?[^\W\d_]+|\d| ?[^\s\w]+[\r\n]*|_+|\s*[\r\n]+|\s+(?!\S)|\s+")


def code():
    for path in sorted(pathlib.Path(sysconfig.get_paths()["stdlib"]).rglob("*.py"))[:1500]:
        try:
            text = path.read_text()
            tree = ast.parse(text)
        except (UnicodeDecodeError, OSError, SyntaxError, ValueError):
            continue
        yield text
        names = [n.name for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.ClassDef))]
        value = {n: {"type": "string", "line": i, "values": [i, n, None, True]} for i, n in enumerate(names)}
        yield json.dumps(value, indent=2)
        yield json.dumps(value)


def texts(paths, limit):
    for path in paths:
        with lzma.open(path, "rt") if path.endswith(".xz") else open(path) as f:
            yield f.read(limit)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("out")
    p.add_argument("texts", nargs="*")
    p.add_argument("--tokens", type=int, default=248320)
    p.add_argument("--characters", type=int, default=30_000_000, help="read of each text at most")
    args = p.parse_args()
    words = collections.Counter()
    for source in (code(), texts(args.texts, args.characters)):
        for text in source:
            words.update(WORDS.findall(text))
    pieces = collections.Counter()
    for word, n in words.items():
        data = word.encode()[:64]
        for end in range(2, len(data) + 1):
            pieces[data[:end]] += n if end == len(data) else n // 2
    tokens = [b""] + [bytes([b]) for b in range(256)]
    tokens += [piece for piece, _ in pieces.most_common(args.tokens - len(tokens))]
    pathlib.Path(args.out).write_text("".join(token.hex() + "\n" for token in tokens))
    print(len(tokens), "tokens")


if __name__ == "__main__":
    main()
