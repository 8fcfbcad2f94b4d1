#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records what Python's jinja2 makes of the template cases, for tests/text/jinja.

Writes tests/data/templates/expressions.json (small templates, one construct each) and conversations.json (the chat
templates in that folder on a set of conversations). The environment is the one that Hugging Face's apply_chat_template
builds: the immutable sandbox with trim_blocks, lstrip_blocks, loop controls, generation blocks and a plain tojson.

Usage: python3 tools/make_template_cases.py   (needs jinja2 3.1)
"""
import datetime
import json
import pathlib

import jinja2
import jinja2.ext
import jinja2.nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

from template_cases import CONVERSATIONS, EXPRESSIONS, REFUSED, VARIABLES

DATA = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data" / "templates"


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_text"), [], [], body).set_lineno(line)

    def _text(self, caller):
        return caller()


def environment():
    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda form: datetime.datetime(2026, 3, 9, 14, 5, 7).strftime(form)
    return env


def render(source, variables):
    """{"text": ...} or {"error": ...}, as jinja2 gives."""
    try:
        text = environment().from_string(source).render(**variables)
        text.encode("utf-8")  # a lone surrogate is a str to Python, but no text
        return {"text": text}
    except Exception as problem:  # whatever jinja2 or Python raises is an error to the caller of a template
        return {"error": f"{type(problem).__name__}: {problem}"}


def write(name, cases):
    with open(DATA / name, "w", encoding="utf-8") as out:
        out.write("[\n")
        out.write(",\n".join(json.dumps(case, ensure_ascii=False) for case in cases))
        out.write("\n]\n")
    errors = sum("error" in case for case in cases)
    print(f"{name}: {len(cases)} cases, {errors} of them errors")


def main():
    expressions = [{"variables": VARIABLES}]
    for source in EXPRESSIONS:
        case = {"source": source, **render(source, VARIABLES)}
        if source in REFUSED or " at 0x" in case.get("text", ""):
            case = {"source": source, "refused": "Python renders it; this interpreter says that it does not"}
        expressions.append(case)
    write("expressions.json", expressions)

    conversations = []
    for path in sorted(DATA.glob("*.jinja")):
        source = path.read_text(encoding="utf-8")
        for name, conversation in CONVERSATIONS.items():
            for prompt in (True, False):
                variables = {
                    "messages": conversation["messages"],
                    "tools": conversation.get("tools"),
                    "documents": None,
                    "add_generation_prompt": prompt,
                    **conversation.get("extra", {}),
                }
                conversations.append(
                    {"template": path.name, "conversation": name, "prompt": prompt, **render(source, variables)}
                )
    inputs = {name: conversation for name, conversation in CONVERSATIONS.items()}
    write("conversations.json", [{"conversations": inputs}] + conversations)


if __name__ == "__main__":
    main()
