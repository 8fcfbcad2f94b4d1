#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""translate.py IN OUT: turns a preprocessed CUDA source into C++ for the emulator of tests/cuda/emulated.

What a C++ compiler does not know of CUDA's language, and nothing else:
  asm("name.of.an.instruction %0, [%1];" : ...)   becomes   ptx::name_of_an_instruction(operands in this order);
  __shared__ declarations                         become    references into the memory of the block
  kernel<<<grid, block, bytes, stream>>>(...)     becomes   emulated::launch_plain(...)(...)
  threadIdx.x and the like                        become    what the running thread knows of itself;
  while (*p ...), p a volatile pointer            also lets other threads run
"""
import re
import sys

SHAPE = re.compile(r"_?m(\d+)n(\d+)k(\d+)")


def marks(text, at=0):
    """The characters of `text` from `at` on that are in no string, each as (place, character, open parentheses)."""
    depth = 0
    while at < len(text):
        c = text[at]
        if c == '"':
            at += 1
            while text[at] != '"':
                at += 2 if text[at] == "\\" else 1
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
        yield at, c, depth
        at += 1


def closing(text, at):
    """The place of the parenthesis that closes the one at `at`."""
    return next(place for place, _, depth in marks(text, at) if depth == 0)


def split(text, mark):
    """Parts of `text` between marks that are in no parentheses."""
    parts, start = [], 0
    for at, c, depth in marks(text):
        if c == mark and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    return parts + [text[start:]]


def literal(text):
    """The value of neighbouring string literals."""
    pieces = re.findall(r'"((?:[^"\\]|\\.)*)"', text)
    return "".join(pieces).replace("\\n", "\n").replace("\\t", " ")


def operands_of(text):
    """The expressions of a list of operands, `"=r"(x), "r"(y)`."""
    found = []
    for part in split(text, ","):
        part = part.strip()
        if part:
            open_at = part.index("(")
            found.append(part[open_at:].replace("\n", " "))
    return found


def instruction(text, operands):
    """One instruction as a call."""
    name, _, rest = text.partition(" ")
    arguments = []
    for word in re.sub(r"[\[\]{}]", " ", rest).split(","):
        word = word.strip()
        if not word:
            continue
        if word.startswith("%%"):
            arguments.append("::emulated::ptx::special_" + word[2:].replace(".", "_") + "()")
        elif word.startswith("%"):
            arguments.append(operands[int(word[1:])])
        else:
            arguments.append("::emulated::ptx::nowhere" if word == "_" else word)
    called = name.replace("::", "_").replace(".", "_")
    shape = SHAPE.search(called)
    if shape:
        called = SHAPE.sub("", called) + "<" + ", ".join(shape.groups()) + ">"
    return f"::emulated::ptx::{called}({', '.join(arguments)});"


def statement(inside):
    """An asm statement, given what is in its parentheses."""
    parts = split(inside, ":")
    operands = []
    for part in parts[1:3]:
        operands += operands_of(part)
    code = literal(parts[0]).strip()
    if not code:  # it only keeps values where they are
        return "::emulated::keep(" + ", ".join(operands) + ")"
    calls = []
    for line in code.strip("{}" if code.startswith("{") else "").split(";"):
        line = line.strip()
        if line.startswith(".reg .pred"):
            calls.append("bool " + line.split()[-1] + " = false;")
        elif line:
            calls.append(instruction(line, operands))
    return "do { " + " ".join(calls) + " } while (false)"


def asm_statements(text):
    out, start = [], 0
    for found in re.finditer(r"\basm\b(\s+volatile)?\s*\(", text):
        if found.start() < start:
            continue
        end = closing(text, found.end() - 1)
        inside = text[found.end():end]
        new = statement(inside)
        new += "\n" * (text.count("\n", found.start(), end) - new.count("\n"))
        out += [text[start:found.start()], new]
        start = end + 1
    return "".join(out) + text[start:]


def name_of(declarator):
    return re.match(r"[^\[=]*?(\w+)\s*(\[|$)", declarator.strip(), re.S).group(1)


def shared(text):
    count = 0

    def dynamic(found):
        attribute, kind, name = found.groups()
        alignment = attribute or f"alignof({kind})"
        return f"auto* {name} = static_cast<{kind}*>(::emulated::dynamic_shared({alignment}));"

    def fixed(found):
        nonlocal count
        count += 1
        declarators = split(found.group(1), ",")
        names = [name_of(d) for d in declarators]
        return (f"struct SwyShared{count} {{ {found.group(1)}; }}; static const char swy_id{count} = 0; "
                f"auto& swy_shared{count} = ::emulated::static_shared<SwyShared{count}>(&swy_id{count}); "
                + " ".join(f"auto& {n} = swy_shared{count}.{n};" for n in names))

    text = re.sub(r"extern\s+SWY_SHARED\s+(?:__attribute__\(\(aligned\(([^)]*)\)\)\)\s*)?(\w+)\s+(\w+)\s*\[\]\s*;",
                  dynamic, text)
    return re.sub(r"\bSWY_SHARED\s+([^;{}]*);", fixed, text)


def launches(text):
    return re.sub(r"(\w+)\s*<<<([^;]*?)>>>\s*\(", r"::emulated::launch_plain(\1, \2)(", text)


def spins(text):
    for name in set(re.findall(r"\bvolatile\s+\w+\s*\*\s*(\w+)", text)):
        text = re.sub(r"\bwhile\s*\(\s*\*" + name + r"\b", f"while (::emulated::spin(), *{name}", text)
    return text


PLACES = {"threadIdx": "thread", "blockIdx": "block", "blockDim": "threads", "gridDim": "blocks"}


def places(text):
    return re.sub(r"(?<![.>\w])(" + "|".join(PLACES) + r")\.(?=[xyz]\b)",
                  lambda found: f"::emulated::current->here.{PLACES[found.group(1)]}.", text)


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        text = file.read()
    text = places(spins(launches(shared(asm_statements(text)))))
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write(text)


if __name__ == "__main__":
    main()
