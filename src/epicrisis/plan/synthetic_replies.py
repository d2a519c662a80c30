"""Replies as long as a JSON schema lets them be: the shortest, the longest, and one of a usual length.

Understands the schemas that strategies ask for (`ReplyForm.schema`): objects, arrays, `anyOf`, `enum`, whole numbers,
strings with a greatest length. Knows no model and no strategy.

A usual length: the reply found something, its lists are full, and each string is half as long as it may be; how near
that comes to what was measured stands in docs/design/plan.md.
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
    """The text of a reply under the schema, compact JSON. `document` (from 0): which document its quotations are of.

    Without a schema: words, as many as a short answer has.
    """
    if schema is None:
        return _text(size, 500, 0)
    return json.dumps(_fill(schema, size, document, 0), separators=(",", ":"))


def copy_passages(text: str, documents: Sequence[str]) -> str:
    """The reply, its `span`, where it has one, replaced by as many characters of its document: others would not be
    found there, and asked for once more."""
    result = json.loads(text).get("result", {}) if '"span"' in text else {}
    if "span" not in result or not documents:
        return text
    begun = documents[result["doc"] - 1].split("\n", 1)[-1].split()
    span = " ".join(begun)[: max(len(result["span"]), len(begun[0]) if begun else 0)].rsplit(" ", 1)[0]
    return json.dumps({"result": {**result, "span": span}}, separators=(",", ":"))


def _fill(schema: Mapping[str, Any], size: ReplySize, document: int, item: int) -> Any:
    """A value of the schema; `item` tells the items of a list apart, since the same one twice counts once."""
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
    """The longest has two characters a token, as `ReplyForm.max_tokens` counts."""
    if size == "least":
        return _LETTERS[item % len(_LETTERS)]
    source, length = (_LETTERS, longest) if size == "most" else (_PROSE.split(), longest // 2)
    words = [source[(item + i) % len(source)] for i in range(length // 2 + 1)]
    return " ".join(words)[:length].strip()


def _length(value: Any) -> int:
    return len(json.dumps(value))
