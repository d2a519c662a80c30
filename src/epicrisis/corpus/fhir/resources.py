"""Read the resources of FHIR files one by one: JSON bundles, single resources and NDJSON.

for where, resource in read_resources(path):
    if not isinstance(resource, Skipped):
        print(where, resource["resourceType"])
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from epicrisis.corpus import jsonl, reader_base
from epicrisis.corpus.jsonl import check_value_count, find_json_fault
from epicrisis.corpus.reader_base import Skipped

Resource: TypeAlias = Mapping[str, Any]

WITHDRAWN = ("entered-in-error", "cancelled")
"""Status of resources that must not be read as evidence."""
STRUCTURE_ERRORS = (AttributeError, KeyError, TypeError, IndexError)
"""Exceptions raised by a resource with values of other types than FHIR's."""
BAD_STRUCTURE = "not structured as FHIR requires; look at this resource"
MAX_BUNDLE_BYTES = 512 * 1024 * 1024
"""Limit of a bundle, which is parsed in one go; NDJSON is read line by line."""
_BEGINNING_BYTES = 4096


def is_fhir(path: Path) -> bool:
    """Return whether the file begins like a FHIR resource in JSON."""
    try:
        with reader_base.open_packed(path) as file:
            beginning = file.read(_BEGINNING_BYTES).removeprefix(b"\xef\xbb\xbf").lstrip()
    except reader_base.READ_ERRORS:
        return False
    return beginning.startswith(b"{") and b'"resourceType"' in beginning


def read_resources(path: Path) -> Iterator[tuple[str, Resource | Skipped]]:
    """Yield each resource with its place; the resources of bundles one by one."""
    if not _is_ndjson(path):
        try:
            resource = _load_resource(path)
        except ValueError as error:
            yield "", reader_base.skip(path, "", str(error))
            return
        yield from _unpack_bundle(path, "", resource)
        return
    for item in jsonl.read_objects(path):
        if isinstance(item, Skipped):
            yield item.where, item
        else:
            yield from _unpack_bundle(path, f"line {item[0]}", item[1])


def _unpack_bundle(path: Path, where: str, resource: Resource) -> Iterator[tuple[str, Resource | Skipped]]:
    if resource.get("resourceType") != "Bundle":
        yield where or "resource 1", resource
        return
    entries = resource.get("entry")
    if not isinstance(entries, list) or not entries:
        yield where, reader_base.skip(path, where, "the bundle has no entries; export it with its resources")
        return
    for number, entry in enumerate(entries, 1):
        place = f"{where}, entry {number}" if where else f"entry {number}"
        inner = entry.get("resource") if isinstance(entry, dict) else None
        if isinstance(inner, dict):
            yield place, {**inner, "fullUrl": entry.get("fullUrl")}
        else:
            yield place, reader_base.skip(path, place, "holds no resource; export the bundle with its resources")


def _is_ndjson(path: Path) -> bool:
    """Return whether the first line is a complete object and another line follows; the suffix decides for one line."""
    with reader_base.open_packed(path) as file:
        first = file.readline(MAX_BUNDLE_BYTES)
        if not file.readline(2):
            return path.name.lower().removesuffix(".gz").endswith((".ndjson", ".jsonl"))
    try:
        check_value_count(first)
        return isinstance(json.loads(first.decode("utf-8-sig")), dict)
    except (ValueError, RecursionError):
        return False


def _load_resource(path: Path) -> Mapping[str, Any]:
    try:
        with reader_base.open_packed(path) as file:
            raw = file.read(MAX_BUNDLE_BYTES + 1)
        if len(raw) > MAX_BUNDLE_BYTES:
            raise ValueError(f"larger than {MAX_BUNDLE_BYTES // 2**20} MB; export it as NDJSON, one resource a line")
        check_value_count(raw)
        value = json.loads(raw.decode("utf-8-sig"))
    except reader_base.READ_ERRORS as error:
        raise ValueError(reader_base.describe_read_error(error)) from error
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 at byte {error.start + 1}; save the file as UTF-8") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at character {error.pos + 1}; export it again") from error
    except RecursionError as error:
        raise ValueError("nested too deep to be read; export it again") from error
    if not isinstance(value, dict):
        raise ValueError("not a FHIR resource; a bundle is one JSON object")  # noqa: TRY004
    if fault := find_json_fault(value):
        raise ValueError(fault)
    return value


def concept_text(concept: Any) -> str:
    """Return the words of a CodeableConcept: its text, else the first coding's display, else its code."""
    if not isinstance(concept, dict):
        return ""
    codings = [coding for coding in as_list(concept.get("coding")) if isinstance(coding, dict)]
    words = [concept.get("text")]
    for key in ("display", "code"):
        words += [coding.get(key) for coding in codings]
    return str(next(filter(None, words), "")).strip()


def as_list(value: Any) -> list[Any]:
    """Return a list as it is, None as an empty list, and anything else as a list of one."""
    if value is None:
        return []
    return value if isinstance(value, list) else [value]
