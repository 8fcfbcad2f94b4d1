#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares masks with llguidance's, token by token.

  compare.py PROBE VOCABULARY

Over regular expressions, grammars of Lark's and of llama.cpp's format, and schemas, each with texts that both follow a
token at a time. VOCABULARY: what make_vocabulary.py wrote (a few thousand tokens are enough). Every token that only one
of the masks has is counted under what the two are known to mean differently, or as unexplained, which fails the run.
Needs `llguidance`.
"""

import argparse
import collections
import json
import subprocess
import sys

import llguidance
from llguidance.gbnf_to_lark import gbnf_to_lark
from vocabulary import Vocabulary

REGEXES = [
    (r"[a-z]+@[a-z]+\.(com|org)", ["joe@example.com", "a@b.org"]),
    (r"[0-9]{3}-[0-9]{4}", ["555-1234"]),
    (r"(foo|bar)*baz", ["foobarfoobaz", "baz"]),
    (r"(a|ab)(c|bcd)(d*)", ["abcd", "acddd"]),
    (r"[^\n]*", ["any text, naïve 日本", ""]),
    (r".{3,20}", ["the quick brown"]),
    (r"(0|[1-9][0-9]*)(\.[0-9]+)?", ["0.25", "1024"]),
    (r"[A-Z][a-zé]* (is|was) [^ ]+\.", ["Zoé was here."]),
    (r"(yes|no|maybe)", ["maybe"]),
    (r"(([a-f]{2}:){3}[a-f]{2})|(none)", ["ab:cd:ef:aa", "none"]),
    (r"\"[^\"\\]*\"", ['"quoted text"']),
    (r"[ \t]*x[ \t]*=[ \t]*[0-9]+;?", ["  x = 15;"]),
]
LARKS = [
    ('start: "[" num ("," num)* "]"\nnum: /[0-9]+/', ["[1,22,333]"]),
    ('start: expr\nexpr: term ("+" term)*\nterm: /[0-9]+/ | "(" expr ")"', ["1+(2+3)+44"]),
    ('start: pair+\npair: NAME "=" NAME ";"\nNAME: /[a-z]+/', ["key=value;x=y;"]),
    ('start: "a" inner? "b"\ninner: "<" inner? ">"', ["a<<<>>>b", "ab"]),
]
GBNFS = [
    ('root ::= "I " ("like" | "hate") " " [a-z]+ "."', ["I like cats."]),
    ('root ::= item ("," item)*\nitem ::= [0-9]+ | "(" root ")"', ["1,(2,3),4"]),
    ('root ::= [^x]* "x" "y"?', ["the end x", "xy"]),
    ('root ::= ("a" | "bc"){2,4}', ["abcabc"]),
]
CLOSED = {"additionalProperties": False}
SCHEMAS = [
    ({"type": "boolean"}, ["true"]),
    ({"type": "integer", "minimum": 3, "maximum": 1250}, ["17", "1249", "3"]),
    ({"type": "integer"}, ["-120", "0"]),
    ({"type": "string"}, ['"some \\u00e9 text"', '"naïve \\n x"']),
    ({"type": "string", "maxLength": 5}, ['"abcde"']),
    ({"type": "string", "minLength": 3, "maxLength": 40}, ['"the quick brown fox"']),
    ({"enum": ["alpha", "beta", 3, None, True]}, ['"alpha"', "3", "null"]),
    ({"type": "array", "items": {"type": "integer"}}, ["[1, 2,3]", "[]"]),
    ({"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 3}, ["[true, false]"]),
    ({"type": "array", "prefixItems": [{"type": "null"}, {"type": "string"}], "items": False, "minItems": 2},
     ['[null, "x"]']),
    ({"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"], **CLOSED},
     ['{"name": "value"}']),
    ({"type": "object", "properties": {"a": {"type": "object", "properties": {"b": {"type": "null"}},
                                             "required": ["b"], **CLOSED}}, "required": ["a"], **CLOSED},
     ['{"a": {"b": null}}']),
    ({"type": "string", "pattern": "^[a-z]+[0-9]$"}, ['"abc1"']),
    ({"type": "string", "format": "date"}, ['"2024-02-28"']),
    ({"type": "string", "format": "uuid"}, ['"f81d4fae-7dec-11d0-a765-00a0c91e6bf6"']),
    ({"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 3}]}, ["5", '"abc"']),
    ({"$ref": "#/$defs/t", "$defs": {"t": {"type": "array", "items": {"$ref": "#/$defs/t"}}}}, ["[[], [[]]]"]),
]
# What a difference means, by the side that allows the token.
ESCAPE = "an escape: here, any text may be written with every escape of JSON; there, \\u stands for control characters"
FORCED = "forced text: there, of the tokens that begin it only one"
DOT = "a dot: here, it leaves out every end of a line, as in ECMA-262; there, only \\n"
DELETE = "the character 7F: here, a JSON string may have it, as RFC 8259 says"
NUMBER = "an integer: here, it may be written as 17.0, which is one in JSON Schema"


def llguidance_grammar(kind, text):
    if kind == "regex":
        return llguidance.LLMatcher.grammar_from_regex(text)
    if kind == "json_schema":
        return llguidance.LLMatcher.grammar_from_json_schema(text)
    return llguidance.LLMatcher.grammar_from_lark(gbnf_to_lark(text) if kind == "gbnf" else text)


def explanation(kind, grammar, before, token, here, forced):
    """Why one side alone has the token after the text `before`; None: it is not known."""
    if here and forced:
        return FORCED
    if kind == "regex" and not here and "." in grammar and (b"\r" in token or b"\xe2\x80" in token):
        return DOT
    if kind != "json_schema":
        return None
    if here and b"\x7f" in token:
        return DELETE
    if b"\\" in token or before.rstrip(b"0123456789abcdefABCDEFu").endswith(b"\\"):
        return ESCAPE
    if here and "integer" in json.dumps(grammar) and before[-1:].isdigit() and token == b".":
        return NUMBER
    return None


def main():
    p = argparse.ArgumentParser()
    p.add_argument("probe")
    p.add_argument("vocabulary")
    args = p.parse_args()
    vocabulary = Vocabulary(args.vocabulary)
    tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(vocabulary))
    probe = subprocess.Popen([args.probe, args.vocabulary], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    reasons, unexplained, rows = collections.Counter(), 0, []
    for kind, cases in (("regex", REGEXES), ("lark", LARKS), ("gbnf", GBNFS), ("json_schema", SCHEMAS)):
        masks = equal = tokens = 0
        for grammar, texts in cases:
            text = json.dumps(grammar) if kind == "json_schema" else grammar
            runs = [split for t in texts for split in (vocabulary(t), vocabulary.bytes(t))]
            probe.stdin.write(json.dumps({"kind": kind, "text": text, "masks": runs}) + "\n")
            probe.stdin.flush()
            answer = json.loads(probe.stdout.readline())
            assert "error" not in answer, (text, answer)
            for run, ours in zip(runs, answer["masks"]):
                m = llguidance.LLMatcher(tokenizer, llguidance_grammar(kind, text))
                assert not m.is_error(), (text, m.get_error())
                before = b""
                for at, mine in enumerate(ours):
                    theirs = int.from_bytes(m.compute_bitmask(), "little")
                    differ = (int.from_bytes(bytes.fromhex(mine), "little") ^ theirs) & ~1  # token 0 has no text
                    masks += 1
                    tokens += len(vocabulary.tokens)
                    equal += differ == 0
                    forced = theirs.bit_count() == 1
                    while differ:
                        token = (differ & -differ).bit_length() - 1
                        differ &= differ - 1
                        here = not theirs >> token & 1
                        why = explanation(kind, grammar, before, vocabulary.tokens[token], here, forced)
                        reasons[(kind, "only here" if here else "only there", why)] += 1
                        if why is None:
                            unexplained += 1
                            if unexplained < 30:
                                print(f"unexplained, {'only here' if here else 'only there'}: {text[:80]}: after "
                                      f"{before!r}: {vocabulary.tokens[token]!r}")
                    if at < len(run):
                        before += vocabulary.tokens[run[at]]
                        if not m.consume_token(run[at]):
                            print(f"refused there: {text[:80]}: after {before!r}")
                            break
        rows.append((kind, len(cases), masks, equal, tokens))
    probe.stdin.close()
    print(f"{'kind':14}{'grammars':>10}{'masks':>8}{'equal':>8}{'tokens compared':>18}")
    for kind, cases, masks, equal, tokens in rows:
        print(f"{kind:14}{cases:>10}{masks:>8}{equal:>8}{tokens:>18}")
    for (kind, side, why), n in sorted(reasons.items(), key=str):
        print(f"{n:>8} tokens, {kind}, {side}: {why or 'unexplained'}")
    return unexplained > 0


if __name__ == "__main__":
    sys.exit(main())
