# SPDX-License-Identifier: Apache-2.0
"""JSON for recorded fixtures: indented, but a list of numbers stays on one line, so that a change reads well."""
import json
import re


def dumps(value):
    text = json.dumps(value, indent=1, ensure_ascii=False)
    return re.sub(r"\[\s+([-+.\deE,\s]+?)\s+\]", lambda m: "[" + re.sub(r"\s+", " ", m[1]) + "]", text) + "\n"
