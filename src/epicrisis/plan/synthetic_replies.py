"""Build replies for a JSON schema of a strategy: the shortest, the longest, and one of usual length.

A reply of usual length has full lists and strings of half the maximum length; docs/design/plan.md compares it with
measured replies.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from epicrisis.plan.cost_plan import ReplySize

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_PROSE = """
Patients who were given the drug had fewer strokes than those on placebo during two years of follow-up, while the rate
of bleeding did not differ between both groups and few participants were lost.
"""


def synthetic_reply(schema: Mapping[str, Any] | None, size: ReplySize, document: int = 0) -> str:
    """Return a reply for the schema as compact JSON, or a short answer; it quotes document `document`, from 0."""
    if schema is None:
        return _text(size, 500, 0)
    return json.dumps(_fill(schema, size, document, 0), separators=(",", ":"))


def copy_passages(text: str, documents: Sequence[str]) -> str:
    """Return the reply with words of the quoted document in its `span`: other words would cause a second request."""
    result = json.loads(text).get("result", {}) if '"span"' in text else {}
    if "span" not in result or not documents:
        return text
    words = documents[result["doc"] - 1].split("\n", 1)[-1].split()
    length = max(len(result["span"]), len(words[0]) if words else 0)
    span = " ".join(words)[:length].rsplit(" ", 1)[0]
    return json.dumps({"result": {**result, "span": span}}, separators=(",", ":"))


def _fill(schema: Mapping[str, Any], size: ReplySize, document: int, item: int) -> Any:
    """Return a value for the schema. `item` makes the items of a list differ, as equal ones count once."""
    if "anyOf" in schema:
        branches = [_fill(branch, size, document, item) for branch in schema["anyOf"]]
        return (min if size == "least" else max)(branches, key=_length)
    if "enum" in schema:
        choices = [choice for choice in schema["enum"] if choice is not None] or schema["enum"]
        return min(choices, key=_length) if size == "least" else choices[document % len(choices)]
    match schema["type"]:
        case "object":
            return {name: _fill(inner, size, document, item) for name, inner in schema["properties"].items()}
        case "array":
            items, n = schema["items"], schema["minItems" if size == "least" else "maxItems"]
            return items["enum"][:n] if "enum" in items else [_fill(items, size, document, i) for i in range(n)]
        case "integer":
            return schema["minimum"]
        case "string":
            return _text(size, schema["maxLength"], item)
        case other:
            raise ValueError(f"no reply is known for a schema of type {other}")


def _text(size: ReplySize, longest: int, item: int) -> str:
    """Return a text of this size. The longest has two characters per token, as replies are limited."""
    if size == "least":
        return _LETTERS[item % len(_LETTERS)]
    source, length = (_LETTERS, longest) if size == "most" else (_PROSE.split(), longest // 2)
    words = [source[(item + i) % len(source)] for i in range(length // 2 + 1)]
    return " ".join(words)[:length].strip()


def _length(value: Any) -> int:
    return len(json.dumps(value))
