# SPDX-License-Identifier: Apache-2.0
"""Records what the `tokenizers` package makes of varied strings, for tests/text/tokenizer_test.cpp.

usage: make_tokenizer_cases.py TOKENIZER_JSON OUT_JSONL [COUNT] [SEED]

Each line: {"text": ..., "ids": [...], "decoded": ...}. Needs: pip install tokenizers.
"""
import json
import random
import sys

from tokenizers import Tokenizer

FIXED = [
    "", " ", "  ", "\n", "\r\n", "\r", "\t", "a", "A", "\u00a0", "\u3000x", " \n ", "\n\n\n", "x\r\n\r\ny", "   lead", "trail   ",
    "a  b   c    d", "\t\tif (x) {\r\n\t\t\treturn -1;\r\n\t\t}\r\n", "I'm he'll we've they'd it's can't you're", "I'M HE'LL WE'VE THEY'D IT'S",
    "'\u017f long s contraction", "1234567890", "3.14159 1,000,000", "\u0661\u0662\u0663", "\u00bd\u00be", "e\u0301 \u00e9 cafe\u0301", "\u1100\u1161\u11a8 \uac01",
    "\u4f60\u597d\uff0c\u4e16\u754c\u3002", "\u3053\u3093\u306b\u3061\u306f", "\u0645\u0631\u062d\u0628\u0627", "\u05e9\u05dc\u05d5\u05dd", "\u0928\u092e\u0938\u094d\u0924\u0947", "\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f1e9\U0001f1ea\U0001f44d\U0001f3fd",
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n", "a<|endoftext|>b", "<|im_start", "<|im_start|", "<<|im_end|>>", "<think>\n\n</think>\n\n",
    "\u200b\u200c\u200d\ufeff", "\u2028\u2029\u0085", "a" * 300, " " * 300, "ab" * 200, "!" * 100, "\n" * 50, "\x00\x01\x7f", "\ufffd", "\U0010ffff",
    "int main(void) { return 0; } // done", "def f(x):\n    return x ** 2\n", "<html>&nbsp;</html>", "https://example.org/a?b=c&d=%20#e", "{\"k\": [1, 2, null]}",
    "\u00c5\u212b\u0041\u030a", "\u0344\u0958\u2126", "\ufb01\ufb02 ligatures", "\u0130\u0131 I i", "\u1e9e\u00df", "a\u0300\u0301\u0302\u0303", "\uc598\u11a7\u1107", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35",
]
WORDS = ("the King said that he would go to sea when Watson looked at the door and it was dark in London don't I'll "
         "You've O'Brien co-operate naïve Zürich żółw привет мир κόσμος こんにちは 世界 안녕 שלום مرحبا ไทย 12 345 6.7 x=y a_b "
         "foo(bar) [1] {} <b> & % $ # @ ! ? ... -- — “quoted” 'single' e\u0301a n\u0303 \U0001f600 \U0001f44d\U0001f3fd <|im_end|> <|im_start|> <think>").split()
GAPS = [" ", " ", " ", " ", "  ", "\n", "\n\n", "\r\n", "\t", "", "   ", " \n", ", ", ". "]
RANGES = [(0x20, 0x7e), (0x20, 0x7e), (0xa0, 0x24f), (0x300, 0x36f), (0x370, 0x5ff), (0x600, 0x6ff), (0x900, 0x97f), (0xe00, 0xe7f),
          (0x1100, 0x11ff), (0x2000, 0x206f), (0x3040, 0x30ff), (0x4e00, 0x9fff), (0xac00, 0xd7a3), (0x1f300, 0x1f6ff), (0x9, 0xd)]


def random_text(rng):
    if rng.random() < 0.5:
        return "".join(rng.choice(WORDS) + rng.choice(GAPS) for _ in range(rng.randint(1, 14)))
    return "".join(chr(rng.randint(*rng.choice(RANGES))) for _ in range(rng.randint(1, 30)))


def main():
    tokenizer = Tokenizer.from_file(sys.argv[1])
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 2400
    rng = random.Random(int(sys.argv[4]) if len(sys.argv) > 4 else 1)
    with open(sys.argv[2], "w", encoding="utf-8") as out:
        for text in FIXED + [random_text(rng) for _ in range(count - len(FIXED))]:
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            decoded = tokenizer.decode(ids, skip_special_tokens=False)
            out.write(json.dumps({"text": text, "ids": ids, "decoded": decoded}) + "\n")


if __name__ == "__main__":
    main()
