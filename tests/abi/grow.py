#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the public headers as the next minor version could have them: every struct that may grow has one more field.

  grow.py FROM TO    FROM: plugins_api/include; TO: a folder, which gets a copy
"""
import pathlib
import re
import sys

FIELD = "  uint64_t grown; /* of the next minor version */\n"
# In the step's block of memory beside arrays of it; its header holds its size fixed.
FIXED = {"swy_sample_params"}


def grow(text):
    """The text of a header, and the names of the structs that grew."""
    names = []

    def longer(match):
        name, body = match.group(2), match.group(3)
        if name in FIXED or "  uint32_t struct_size;" not in body:
            return match.group(0)
        names.append(name)
        return match.group(1) + body + FIELD + match.group(4)

    text = re.sub(r"((?:typedef )?struct (swy_\w+) \{\n)(.*?)(^\}[^;\n]*;)", longer, text, flags=re.S | re.M)
    for name in names:
        text = re.sub(rf"^SWY_SIZE\({name}, \d+\);\n", "", text, flags=re.M)
    return text, names


def main():
    source, target = map(pathlib.Path, sys.argv[1:3])
    grown = []
    for path in sorted(source.rglob("*")):
        if path.is_dir():
            continue
        text, names = grow(path.read_text())
        if path.name == "plugin.h":
            text, found = re.subn(r"(#define SWY_ABI_MINOR )(\d+)u", lambda m: f"{m[1]}{int(m[2]) + 1}u", text)
            assert found == 1, "plugin.h has no SWY_ABI_MINOR"
        grown += names
        copy = target / path.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(text)
    needed = {"swy_host", "swy_negotiate_in", "swy_negotiate_out", "swy_tensor", "swy_op", "swy_bucket", "swy_step"}
    assert needed <= set(grown), f"these did not grow: {needed - set(grown)}"


main()
