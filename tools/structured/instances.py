# SPDX-License-Identifier: Apache-2.0
"""Random values that a JSON Schema is likely to allow; whoever uses them validates them."""

import random
import string


class Generator:
    def __init__(self, schema, seed):
        self.root = schema
        self.random = random.Random(seed)
        self.left = 400  # values at most

    def resolve(self, ref):
        if not ref.startswith("#"):
            raise ValueError("elsewhere")
        node = self.root
        for step in ref[1:].split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            node = node[int(step)] if isinstance(node, list) else node[step]
        return node

    def text(self, schema):
        words = ["alpha", "the quick brown fox", "value", "x", "build", "naïve", "main.py", "lorem ipsum dolor sit"]
        samples = {"date": "2024-02-29", "date-time": "2024-05-06T07:08:09Z", "uri": "https://example.com/a?b=c",
                   "email": "joe@example.com", "uuid": "f81d4fae-7dec-11d0-a765-00a0c91e6bf6", "ipv4": "10.0.0.1",
                   "hostname": "example.com", "time": "07:08:09Z", "ipv6": "::1"}
        if schema.get("format") in samples:
            return samples[schema["format"]]
        out = " ".join(self.random.choice(words) for _ in range(self.random.randint(1, 4)))
        out += "".join(self.random.choice(string.ascii_letters) for _ in range(schema.get("minLength", 0) - len(out)))
        return out[:schema.get("maxLength", 200)]

    def number(self, schema, whole):
        low = schema.get("minimum", schema.get("exclusiveMinimum", 0))
        high = schema.get("maximum", schema.get("exclusiveMaximum", low + 1000))
        if isinstance(low, bool) or isinstance(high, bool):
            low, high = 0, 1000
        value = self.random.randint(int(low) + 1, max(int(high) - 1, int(low) + 1))
        return value if whole or self.random.random() < 0.5 else value + 0.25

    def value(self, schema, depth=0):
        self.left -= 1
        if self.left < 0 or depth > 12:
            raise ValueError("too large")
        if schema is True or schema == {}:
            return self.random.choice([None, True, 3, "text", {"a": 1}, [1, 2]])
        if schema is False:
            raise ValueError("nothing")
        schema = dict(schema)
        if "$ref" in schema:
            target = self.resolve(schema.pop("$ref"))
            if isinstance(target, bool):
                return self.value(target, depth + 1)
            schema = {**target, **schema}
            return self.value(schema, depth + 1)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return self.random.choice(schema["enum"])
        for part in schema.pop("allOf", []):
            part = self.resolve(part["$ref"]) if isinstance(part, dict) and "$ref" in part else part
            if isinstance(part, dict):
                merged = {**schema.get("properties", {}), **part.get("properties", {})}
                required = schema.get("required", []) + part.get("required", [])
                schema = {**part, **schema, "properties": merged, "required": required}
        for key in ("anyOf", "oneOf"):
            if key in schema:
                branch = self.random.choice(schema.pop(key))
                if isinstance(branch, dict):
                    branch = self.resolve(branch["$ref"]) if "$ref" in branch else branch
                    return self.value({**schema, **branch}, depth + 1)
        kind = schema.get("type")
        kind = self.random.choice(kind) if isinstance(kind, list) else kind
        if kind is None:
            kind = "object" if "properties" in schema else "array" if "items" in schema else "string"
        if kind == "object":
            return self.members(schema, depth)
        if kind == "array":
            return self.items(schema, depth)
        if kind == "string":
            return self.text(schema)
        if kind in ("integer", "number"):
            return self.number(schema, kind == "integer")
        return self.random.random() < 0.5 if kind == "boolean" else None

    def members(self, schema, depth):
        out = {}
        properties = schema.get("properties", {})
        names = list(properties)
        self.random.shuffle(names)
        wanted = set(schema.get("required", [])) | set(names[:self.random.randint(1, 6)])
        for name in [n for n in properties if n in wanted] + [n for n in wanted if n not in properties]:
            try:
                out[name] = self.value(properties.get(name, {}), depth + 1)
            except (ValueError, KeyError, IndexError, TypeError, AttributeError):
                if name in schema.get("required", []):
                    raise
        extra = schema.get("additionalProperties")
        if isinstance(extra, dict) and self.random.random() < 0.7:
            out["extra name"] = self.value(extra, depth + 1)
        return out

    def items(self, schema, depth):
        low = schema.get("minItems", 0)
        high = min(schema.get("maxItems", low + 3), low + 3)
        items = schema.get("items", {})
        if isinstance(items, list):
            return [self.value(one, depth + 1) for one in items]
        return [self.value(items, depth + 1) for _ in range(self.random.randint(max(low, min(1, high)), high))]
