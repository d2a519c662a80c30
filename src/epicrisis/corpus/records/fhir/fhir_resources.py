"""Read the resources of FHIR files one by one: JSON bundles, single resources, arrays and NDJSON.

    for where, resource in read_resources(path):
        if not isinstance(resource, Skipped):
            print(where, resource["resourceType"])

The types are those of FHIR and three of this module: `DELETION` (a resource that the server deleted), `OLDER_VERSION`
(a version in a history that a later one replaces) and `MANIFEST` (the list of files of a bulk export). A bundle comes
without its entries before them.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from epicrisis.corpus.base import jsonl, reader_base
from epicrisis.corpus.base.encodings import detect_wide_encoding, open_as_utf8
from epicrisis.corpus.base.jsonl import check_value_count, find_json_fault
from epicrisis.corpus.base.reader_base import Skipped
from epicrisis.corpus.records.facts.fact_values import STAY_CLASSES

Resource: TypeAlias = Mapping[str, Any]

DELETION = "deletion"
"""Of a resource of the type `target` with this `id`."""
OLDER_VERSION = "older version"
"""Of a resource of the type `target`."""
MANIFEST = "manifest of a bulk export"
WITHDRAWN = ("entered-in-error", "cancelled")
"""Status of resources that must not be read as evidence."""
_OPEN_STATUSES = ("arrived", "triaged", "in-progress", "onleave", "on-hold")
_NO_STAY_STATUSES = (*WITHDRAWN, "planned")
_CLASS_SYSTEMS = ("actcode", "2.16.840.1.113883.5.4")
"""Endings of the names of the code system of `STAY_CLASSES`."""
STRUCTURE_ERRORS = (AttributeError, KeyError, TypeError, IndexError)
"""Exceptions raised by a resource with values of other types than FHIR's."""
BAD_STRUCTURE = "not structured as FHIR requires; look at this resource"
MAX_BUNDLE_BYTES = 512 * 1024 * 1024
"""Limit of a bundle, which is parsed in one go; NDJSON is read line by line."""
_BEGINNING_BYTES = 1 << 20
"""Some servers write `resourceType` behind the text of a document."""
_XML_BEGINNING_BYTES = 4096
_XML_NAMESPACE = b"http://hl7.org/fhir"
_MANIFEST_KEYS = (b'"transactionTime"', b'"output"')
_NO_ENTRIES = "the bundle has no entries; export it with its resources"
_ONLY_RESPONSE = "{} of {} entries hold only the server's response{}; export the bundle with its resources"


@dataclass(frozen=True, slots=True)
class FhirEntry:
    """A resource and its place. `line` is (start, bytes) of an uncompressed NDJSON line that is this resource."""

    where: str
    resource: Resource | Skipped
    line: tuple[int, int] | None = None


def is_fhir(path: Path) -> bool:
    """Return whether the file begins like FHIR resources in JSON, or like the manifest of a bulk export."""
    head = reader_base.read_head(path)
    if head.is_damaged:
        return False
    beginning = head.data[:_BEGINNING_BYTES].removeprefix(b"\xef\xbb\xbf").lstrip()
    is_manifest = beginning.startswith(b"{") and all(key in beginning for key in _MANIFEST_KEYS)
    return is_manifest or (beginning.startswith((b"{", b"[")) and b'"resourceType"' in beginning)


def is_fhir_xml(path: Path) -> bool:
    """Return whether the file begins like FHIR resources in XML, which are not read."""
    head = reader_base.read_head(path)
    if head.is_damaged:
        return False
    # Without the NULs, UTF-16 looks like ASCII.
    beginning = head.data[:_XML_BEGINNING_BYTES].replace(b"\0", b"")
    return beginning.lstrip(b"\xef\xbb\xbf\xff\xfe \t\r\n").startswith(b"<") and _XML_NAMESPACE in beginning


def has_fhir_lines(path: Path) -> bool:
    """Return whether the first line of a file is a FHIR resource."""
    with suppress(ValueError, *reader_base.READ_ERRORS):
        if path.is_file():
            with open_as_utf8(path, detect_wide_encoding(path)) as file:
                line = file.readline(jsonl.MAX_LINE_BYTES).removeprefix(b"\xef\xbb\xbf")
            return "resourceType" in jsonl.parse_line(line)
    return False


def read_resources(path: Path) -> Iterator[tuple[str, Resource | Skipped]]:
    """Yield each resource with its place; the resources of bundles one by one, the observations in a resource too."""
    for entry in read_entries(path):
        yield entry.where, entry.resource
        if not isinstance(entry.resource, Skipped):
            for number, observation in enumerate(_contained_observations(entry.resource), 1):
                yield f"{entry.where}, contained observation {number}", observation


def read_entries(path: Path) -> Iterator[FhirEntry]:
    """Yield each resource that is not contained in another one, with its place. Its type is text, or missing."""
    for entry in _read_all_entries(path):
        if isinstance(entry.resource, Skipped) or isinstance(entry.resource.get("resourceType"), str | None):
            yield entry
        else:
            yield FhirEntry(entry.where, reader_base.skip(path, entry.where, BAD_STRUCTURE))


def _read_all_entries(path: Path) -> Iterator[FhirEntry]:
    if not _is_ndjson(path):
        try:
            value = _load_json(path)
        except ValueError as error:
            yield FhirEntry("", reader_base.skip(path, "", str(error)))
            return
        for number, resource in enumerate(value if isinstance(value, list) else [value], 1):
            where = f"resource {number}" if isinstance(value, list) else ""
            if isinstance(resource, dict):
                yield from _unpack_bundle(path, where, resource)
            else:
                yield FhirEntry(where, reader_base.skip(path, where, "not a FHIR resource; export it again"))
        return
    for item in jsonl.read_lines(path):
        if isinstance(item, Skipped):
            yield FhirEntry(item.where, item)
        elif item.value.get("resourceType") == "Bundle":
            yield from _unpack_bundle(path, f"line {item.number}", item.value)
        else:
            place = None if item.start < 0 else (item.start, item.size)
            yield FhirEntry(f"line {item.number}", item.value, place)


def _unpack_bundle(path: Path, where: str, resource: Resource) -> Iterator[FhirEntry]:
    kind = resource.get("resourceType")
    if kind is None and isinstance(resource.get("output"), list):
        yield FhirEntry(where or "resource 1", {**resource, "resourceType": MANIFEST})
        return
    if kind != "Bundle":
        yield FhirEntry(where or "resource 1", resource)
        return
    yield FhirEntry(where, {key: value for key, value in resource.items() if key != "entry"})
    entries = resource.get("entry")
    if not isinstance(entries, list) or not entries:
        if resource.get("total") != 0:
            yield FhirEntry(where, reader_base.skip(path, where, _NO_ENTRIES))
        return
    yield from _unpack_entries(path, where, entries, is_history=resource.get("type") == "history")


def _unpack_entries(path: Path, where: str, entries: list[Any], *, is_history: bool) -> Iterator[FhirEntry]:
    latest = _find_latest(entries) if is_history else {}
    responses = 0
    for number, entry in enumerate(entries, 1):
        place = f"{where}, entry {number}" if where else f"entry {number}"
        inner = _read_entry(entry)
        if inner is None:
            if isinstance(entry, dict) and isinstance(entry.get("response"), dict):
                responses += 1
                continue
            reason = "holds no resource; export the bundle with its resources"
            yield FhirEntry(place, reader_base.skip(path, place, reason))
        elif inner.get("resourceType") == "Bundle":
            yield from _unpack_bundle(path, place, inner)
        elif latest.get(_history_key(inner), number) != number:
            yield FhirEntry(place, {"resourceType": OLDER_VERSION, "target": _history_key(inner)[0]})
        elif inner.get("resourceType") == "Composition":
            yield FhirEntry(place, _inline_entries(inner, entries))
        else:
            yield FhirEntry(place, inner)
    if responses:
        codes = sorted({str(entry["response"].get("status") or "")[:3] for entry in entries if _is_failure(entry)})
        failures = f", failures among them ({', '.join(codes)})" if codes else ""
        yield FhirEntry(
            where, reader_base.skip(path, where or "entries", _ONLY_RESPONSE.format(responses, len(entries), failures))
        )


def _read_entry(entry: Any) -> Resource | None:
    """Return the resource of a bundle's entry, with its full URL, or what was deleted; None without either."""
    if not isinstance(entry, dict):
        return None
    response = entry.get("response")
    response = response if isinstance(response, dict) else {}
    if isinstance(entry.get("resource"), dict):
        return {**entry["resource"], "fullUrl": entry.get("fullUrl")}
    request = entry.get("request")
    if isinstance(request, dict) and request.get("method") == "DELETE":
        parts = str(request.get("url") or "").partition("?")[0].strip("/").split("/")
        if len(parts) >= 2:
            meta = {"lastUpdated": response.get("lastModified")}
            return {"resourceType": DELETION, "target": parts[-2], "id": parts[-1], "meta": meta}
    if isinstance(response.get("outcome"), dict):
        return {**response["outcome"], "resourceType": "OperationOutcome"}
    return None


def _is_failure(entry: Any) -> bool:
    response = entry.get("response") if isinstance(entry, dict) else None
    return isinstance(response, dict) and str(response.get("status") or "").startswith(("4", "5"))


def _history_key(resource: Resource) -> tuple[str, str]:
    kind = resource.get("target") if resource.get("resourceType") == DELETION else resource.get("resourceType")
    return str(kind), str(resource.get("id") or "")


def _find_latest(entries: list[Any]) -> dict[tuple[str, str], int]:
    """Return the number of the entry that holds the latest version of each resource. A history has it first."""
    latest: dict[tuple[str, str], tuple[str, int]] = {}
    for number, entry in enumerate(entries, 1):
        resource = _read_entry(entry)
        if resource is None or not resource.get("id"):
            continue
        key, updated = _history_key(resource), last_updated(resource)
        if key not in latest or (updated and latest[key][0] and updated > latest[key][0]):
            latest[key] = (updated, number)
    return {key: number for key, (_, number) in latest.items()}


def last_updated(resource: Resource) -> str:
    """Return when this version of a resource was written, or an empty string."""
    meta = resource.get("meta")
    return str(meta.get("lastUpdated") or "") if isinstance(meta, dict) else ""


def _inline_entries(composition: Resource, entries: list[Any]) -> Resource:
    """Return the composition with the resources of its bundle in the entries of its sections, as `resource`."""
    resources: dict[str, Resource] = {}
    for entry in entries:
        resource = _read_entry(entry)
        if resource is not None and resource.get("resourceType") != "Composition":
            resources.setdefault(str(resource.get("fullUrl") or ""), resource)
            resources.setdefault(f"{resource.get('resourceType')}/{resource.get('id')}", resource)

    def inline(section: Any) -> Any:
        if not isinstance(section, dict):
            return section
        references: list[Any] = []
        for reference in as_list(section.get("entry")):
            address = str(reference.get("reference") or "") if isinstance(reference, dict) else ""
            resource = resources.get(address) or resources.get("/".join(address.split("/")[-2:]))
            references.append({**reference, "resource": resource} if resource else reference)
        return {**section, "entry": references, "section": list(map(inline, as_list(section.get("section"))))}

    return {**composition, "section": list(map(inline, as_list(composition.get("section"))))}


def has_contained_observation(resource: Resource) -> bool:
    """Return whether `read_resources` yields more than this resource."""
    return "contained" in resource and next(_contained_observations(resource), None) is not None


def _contained_observations(resource: Resource) -> Iterator[Resource]:
    """Yield the observations contained in a resource, with its subject, encounter and time where they have none."""
    for inner in as_list(resource.get("contained")):
        if isinstance(inner, dict) and inner.get("resourceType") == "Observation":
            observation = dict(inner)
            for key in ("subject", "encounter", "effectiveDateTime", "effectivePeriod", "issued"):
                if key in resource and not (key.startswith("effective") and any(map(_is_time, inner))):
                    observation.setdefault(key, resource[key])
            observation["id"] = f"{resource.get('id') or ''}#{str(inner.get('id') or '').removeprefix('#')}"
            if resource.get("status") in WITHDRAWN:
                observation["status"] = resource["status"]
            yield observation


def _is_time(key: str) -> bool:
    return key.startswith("effective")


def is_ndjson_name(name: str) -> bool:
    """Return whether a file's name says that each of its lines is a resource."""
    return name.lower().removesuffix(".gz").endswith((".ndjson", ".jsonl"))


def _is_ndjson(path: Path) -> bool:
    """Return whether the first line is a complete object and another line follows; the suffix decides for one line."""
    head = reader_base.read_head(path)
    with io.BytesIO(head.data) if head.is_whole else reader_base.open_packed(path) as file:
        first = file.readline(MAX_BUNDLE_BYTES)
        if not file.readline(2):
            return is_ndjson_name(path.name)
    try:
        check_value_count(first)
        return isinstance(json.loads(first.decode("utf-8-sig")), dict)
    except (ValueError, RecursionError):
        # The first of many lines may be the damaged one; a bundle over several lines begins with a bracket alone.
        return len(first.strip()) > 2 and is_ndjson_name(path.name)


def _load_json(path: Path) -> dict[str, Any] | list[Any]:
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
    if not isinstance(value, dict | list):
        raise ValueError("not a FHIR resource; a bundle is one JSON object")  # noqa: TRY004
    if fault := find_json_fault(value):
        raise ValueError(fault)
    return value


def is_hospital_stay(encounter: Resource) -> bool:
    """Return whether an Encounter is a hospital stay that took place, by its class and its status.

    A class is one Coding in R4, and CodeableConcepts in R5. A hospital's own codes are ignored.
    """
    codes: set[str] = set()
    for concept in list_objects(encounter.get("class")):
        for coding in list_objects(concept.get("coding", concept)):
            system = str(coding.get("system") or "").lower()
            if coding.get("code") and (not system or system.endswith(_CLASS_SYSTEMS)):
                codes.add(str(coding["code"]).upper())
    is_other_class = bool(codes) and codes.isdisjoint(STAY_CLASSES)
    return encounter.get("status") not in _NO_STAY_STATUSES and not is_other_class


def read_stay_period(encounter: Resource) -> Resource:
    """Return the period of an Encounter, which R5 calls `actualPeriod`. An end that is only planned is left out."""
    period = encounter.get("period") or encounter.get("actualPeriod")
    period = period if isinstance(period, dict) else {}
    is_open = encounter.get("status") in _OPEN_STATUSES
    return {name: value for name, value in period.items() if not (is_open and name == "end")}


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


def list_objects(value: Any) -> list[Resource]:
    """Return the objects of a list, or the object itself; anything else is left out."""
    return [item for item in as_list(value) if isinstance(item, dict)]
