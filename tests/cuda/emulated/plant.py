#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""plant.py IN OUT FROM TO: copies a source with one text, which must occur just once, replaced by another."""
import sys

source, to, old, new = sys.argv[1:]
with open(source, encoding="utf-8") as file:
    text = file.read()
old, new = old.replace("\\n", "\n"), new.replace("\\n", "\n")
if text.count(old) != 1:
    sys.exit(f"plant.py: {source} has {text.count(old)} times, not once: {old!r}")
with open(to, "w", encoding="utf-8") as file:
    file.write(text.replace(old, new))
