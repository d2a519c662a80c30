"""Replies that satisfy the JSON schema of a request."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import getitem
from typing import Any, TypeAlias

from epicrisis.core.prompts import OPEN, unfence

Schema: TypeAlias = Mapping[str, Any]
Pick: TypeAlias = Callable[[Sequence[Any]], Any]
_QUESTION = re.compile(r"Question: (.*?)(?:\n\s*\n|\Z)", re.DOTALL)
_LETTER = re.compile(r"(?m)^([A-Z])\. ")


def schema_reply(body: Mapping[str, Any]) -> str:
    """Return a reply to the JSON body of a chat request that satisfies its schema, or a sentence without a schema.

    The choice depends only on the question and its options, so it is the same for every stage, partition, seed and
    sample. Quotations are words of a document.
    """
    prompt = content_text(body["messages"][-1]["content"])
    text_before_documents = prompt.partition(OPEN)[0]
    match = _QUESTION.search(text_before_documents)
    question = match[1] if match else text_before_documents
    number = int.from_bytes(hashlib.sha256(question.encode()).digest()[:8], "big")

    def pick(choices: Sequence[Any]) -> Any:
        real = [choice for choice in choices if choice is not None] or choices
        return real[number % len(real)]

    schema = (body.get("response_format") or {}).get("json_schema", {}).get("schema")
    if schema is None:
        letters = _LETTER.findall(question)
        return f"The answer is {pick(letters)}." if letters else "It is so."
    documents = unfence(prompt)
    values: dict[str, Any] = {"found": True}
    if documents:
        place = number % len(documents)
        values["quotes"] = [{"doc": place + 1, "quote": quotation(documents[place].splitlines()[-1])}]
    return json.dumps(fill(schema, values, "It is so.", pick))


def fill(schema: Schema, values: Mapping[str, Any], text: str, pick: Pick = lambda choices: choices[0]) -> Any:
    """Return a value that satisfies the schema.

    Properties named in `values` get that value at any depth. Other strings are `text`; `pick` chooses from an `enum`;
    an `anyOf` uses the first branch that admits the values. `allOf`, `pattern` and `format` are not supported.
    """

    def build(part: Schema) -> Any:
        if "$ref" in part:
            return build(reduce(getitem, part["$ref"].removeprefix("#/").split("/"), schema))
        branches = part.get("anyOf") or part.get("oneOf")
        if branches:
            for branch in branches:
                if _admits(branch, values):
                    return build(branch)
            return build(branches[0])
        if "const" in part:
            return part["const"]
        if "enum" in part:
            return pick(part["enum"])
        kind = part.get("type", "object" if "properties" in part else "string")
        match kind if isinstance(kind, str) else kind[0]:
            case "object":
                inner = part.get("properties", {})
                return {name: values[name] if name in values else build(inner[name]) for name in inner}
            case "array":
                return [build(part["items"]) for _ in range(max(1, part.get("minItems", 0)))] if "items" in part else []
            case scalar:
                return _scalar(part, scalar, text)

    return build(schema)


def _scalar(schema: Schema, kind: str, text: str) -> Any:
    if kind in ("integer", "number"):
        least = schema.get("minimum", schema.get("exclusiveMinimum", -1) + 1)
        return min(least, schema.get("maximum", least))
    if kind == "string":
        return text[: schema.get("maxLength")].ljust(schema.get("minLength", 0), ".")
    return True if kind == "boolean" else None


def quotation(passage: str) -> str:
    """Return words of the passage without quotation marks, cut at a blank."""
    start = max(passage.split('"'), key=len)[:160].strip()
    return start.rsplit(" ", 1)[0] if " " in start else start


def content_text(content: Any) -> str:
    """Return the text of a message content: a string, a list of parts, or null."""
    if isinstance(content, list):
        return "\n".join(part.get("text", "") for part in content)
    return content or ""


def _admits(branch: Schema, values: Mapping[str, Any]) -> bool:
    """Return False if an `enum` of the branch excludes one of the values."""
    inner = branch.get("properties", {})
    return all(value in inner[name]["enum"] for name, value in values.items() if "enum" in inner.get(name, {}))
