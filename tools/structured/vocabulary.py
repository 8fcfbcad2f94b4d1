# SPDX-License-Identifier: Apache-2.0
"""A vocabulary file of make_vocabulary.py, and ways to split texts into its tokens."""

import random


class Vocabulary:
    """As llguidance's TokenizerWrapper takes it."""

    def __init__(self, path):
        lines = open(path).read().split("\n")[:-1]
        self.tokens = [bytes.fromhex(line) or b"\xff<end>" for line in lines]
        self.eos_token_id, self.bos_token_id, self.special_token_ids = 0, None, [0]
        self.ids = {token: i for i, token in enumerate(self.tokens) if i > 0}
        self.longest = max(len(token) for token in self.ids)

    def __call__(self, text):
        """Always the longest token."""
        data = text if isinstance(text, bytes) else text.encode()
        out, at = [], 0
        while at < len(data):
            size = next(n for n in range(min(self.longest, len(data) - at), 0, -1) if data[at:at + n] in self.ids)
            out.append(self.ids[data[at:at + size]])
            at += size
        return out

    def split(self, text, seed):
        """Tokens of random lengths."""
        rng, data = random.Random(seed), text.encode()
        out, at = [], 0
        while at < len(data):
            sizes = [n for n in range(1, min(12, len(data) - at) + 1) if data[at:at + n] in self.ids]
            size = rng.choice(sizes)
            out.append(self.ids[data[at:at + size]])
            at += size
        return out

    def bytes(self, text):
        return [self.ids[bytes([b])] for b in text.encode()]
