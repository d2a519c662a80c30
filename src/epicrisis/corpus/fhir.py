"""Read notes of patients from FHIR (R4, R5): bundles (JSON) and NDJSON of DocumentReference and Observation.

A DocumentReference is a note: its first attachment of plain text, else HTML. Observations of one patient, day, category
and encounter are one note with a line each, because a single one has too few words to be found by meaning. They are
held in memory until the end of the last file, a few hundred bytes each.

Names of patients and dates of stays come from the Patient and Encounter resources of all files read together (see
`fhir_references`), since bulk exports have a file for each type. Other resources are counted and ignored. Nothing is
fetched: an attachment given only by its address is `Skipped`.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeAlias

from epicrisis.corpus import fhir_references, jsonl, reader_base, sandbox
from epicrisis.corpus.fhir_references import WITHDRAWN, FhirReferences, Resource, as_list
from epicrisis.corpus.html import text_encoding
from epicrisis.corpus.jsonl import check_value_count, find_json_fault
from epicrisis.corpus.note_documents import ClinicalNote, NoteCleaning, build_items
from epicrisis.corpus.note_times import parse_note_time
from epicrisis.errors import InputError

MAX_BUNDLE_BYTES = 512 * 1024 * 1024
"""Limit of a bundle, which is parsed in one go; NDJSON is read line by line."""
_BEGINNING_BYTES = 4096
_STRUCTURE_ERRORS = (AttributeError, KeyError, TypeError, IndexError)
_NO_FHIR = "not FHIR in JSON: a bundle, or one resource a line, each with its resourceType"
_BAD_STRUCTURE = "not structured as FHIR requires; look at this resource"

_DayKey: TypeAlias = tuple[str, str, str, str]
"""Patient, day, category, encounter."""


def is_fhir(path: Path) -> bool:
    """Return whether the file begins like a FHIR resource in JSON."""
    try:
        with reader_base.open_packed(path) as file:
            beginning = file.read(_BEGINNING_BYTES).removeprefix(b"\xef\xbb\xbf").lstrip()
    except reader_base.READ_ERRORS:
        return False
    return beginning.startswith(b"{") and b'"resourceType"' in beginning


def read_files(files: Sequence[tuple[Path, str]], cleaning: NoteCleaning) -> Iterator[reader_base.ReaderItem]:
    """Yield the notes of all files (path, name).

    DocumentReferences come file by file, then the days of observations, then the fingerprints. A file that cannot be
    unpacked to its end is skipped completely, because even the lines before the damage may be wrong; so is a file that
    is no FHIR. Raises InputError, before the first note, if no file is FHIR, or if two patients or encounters could not
    be distinguished.
    """
    readable, skipped_files = _split_readable(files)
    yield from skipped_files
    if not readable:
        return
    shared = FhirReferences()
    faults: list[reader_base.Skipped] = []
    learned = [(path, _record_references(path, shared, cleaning, faults)) for path, _ in readable]
    yield from faults
    yield from fhir_references.patient_identities(shared)
    if not cleaning.keep_superseded:
        fhir_references.mark_superseded(references for _, references in learned)
        # An earlier addition may have contained them.
        for patient, note_id in sorted(shared.superseded):
            yield reader_base.DeletedDocument(f"note:{note_id}", patient=patient)
    fingerprints: list[reader_base.ReaderItem] = []
    for (path, name), (_, references) in zip(readable, learned, strict=True):
        notes = build_items(path, name, partial(_read_notes, path, references), cleaning)
        for item in reader_base.append_fingerprint(path, notes):
            if isinstance(item, reader_base.FileFingerprint):
                fingerprints.append(item)
            else:
                yield item
    path, name = readable[-1]
    # Lines of values have no template, so they need no counting of recurring texts.
    yield from build_items(path, name, partial(_read_days, learned), replace(cleaning, keep_boilerplate=True))
    yield from fingerprints


def _split_readable(files: Sequence[tuple[Path, str]]) -> tuple[list[tuple[Path, str]], list[reader_base.Skipped]]:
    """Return the readable files, and why each other is skipped. Raises InputError if no file is FHIR."""
    readable: list[tuple[Path, str]] = []
    skipped_files: list[reader_base.Skipped] = []
    other_files = 0
    for path, name in files:
        reader_base.check_file(path)
        if damage := reader_base.describe_damage(path):
            skipped_files.append(reader_base.skip(path, "", damage))
        elif is_fhir(path):
            readable.append((path, name))
        else:
            other_files += 1
            skipped_files.append(reader_base.skip(path, "", _NO_FHIR))
    if other_files == len(files):
        raise InputError(f"{skipped_files[0].path}: {_NO_FHIR}")
    return readable, skipped_files


def _record_references(
    path: Path, shared: FhirReferences, cleaning: NoteCleaning, faults: list[reader_base.Skipped]
) -> FhirReferences:
    """Return the file's references, `shared` with the other files, and count the resources that are no notes."""
    references = replace(shared, addresses={}, replacing=[])
    log = cleaning.removal_log
    for where, resource in _read_resources(path):
        if isinstance(resource, reader_base.Skipped):
            continue
        try:
            fhir_references.record_resource(resource, references)
            if _replaces_others(resource):
                references.replacing.append(resource)
        except ValueError as error:
            raise InputError(f"{reader_base.printable_path(path)}, {where}: {error}") from error
        except _STRUCTURE_ERRORS:
            # A malformed note is reported when it is read.
            if resource.get("resourceType") in ("Patient", "Encounter"):
                faults.append(reader_base.skip(path, where, _BAD_STRUCTURE))
        kind = str(resource.get("resourceType"))[:40]
        if kind == "Observation" and resource.get("status") in WITHDRAWN:
            log.other_resources["withdrawn Observation"] += 1
        elif kind in ("Patient", "Encounter"):
            log.identity_resources[kind] += 1
        elif kind not in ("Bundle", "DocumentReference", "Observation"):
            log.other_resources[kind] += 1
    return references


def _replaces_others(resource: Resource) -> bool:
    """Return whether the resource is a valid, readable document that names documents it replaces."""
    if resource.get("resourceType") != "DocumentReference" or not resource.get("relatesTo") or _is_withdrawn(resource):
        return False
    with suppress(ValueError, *_STRUCTURE_ERRORS):
        return bool(_document_text(resource).strip())
    return False


def _is_withdrawn(resource: Resource) -> bool:
    return resource.get("status") in WITHDRAWN or resource.get("docStatus") in WITHDRAWN


def _read_notes(path: Path, references: FhirReferences) -> Iterator[ClinicalNote | reader_base.Skipped]:
    for where, resource in _read_resources(path):
        if isinstance(resource, reader_base.Skipped):
            yield resource
        elif resource.get("resourceType") == "DocumentReference":
            try:
                yield _build_note(resource, where, references)
            except (ValueError, *_STRUCTURE_ERRORS) as error:
                yield reader_base.skip(path, where, str(error) if isinstance(error, ValueError) else _BAD_STRUCTURE)


def _read_days(files: Sequence[tuple[Path, FhirReferences]]) -> Iterator[ClinicalNote | reader_base.Skipped]:
    days = _ObservationDays()
    for path, references in files:
        for where, resource in _read_resources(path):
            if isinstance(resource, reader_base.Skipped) or resource.get("resourceType") != "Observation":
                continue
            try:
                patient = fhir_references.find_patient(resource, references)
                days.add(resource, where, patient, fhir_references.find_encounter(resource, references))
            except (ValueError, *_STRUCTURE_ERRORS) as error:
                yield reader_base.skip(path, where, str(error) if isinstance(error, ValueError) else _BAD_STRUCTURE)
    _, references = files[0]
    for where, (patient, date, category, encounter), text in days.all():
        stay = references.stay(encounter)
        yield ClinicalNote(
            where=where,
            patient=patient,
            text=text,
            times=(date,),
            note_type=category,
            encounter=stay.encounter,
            # Independent of the text, so that a later export of the day replaces it.
            note_id=":".join((patient, date, encounter, category)),
            patient_name=references.names.get(patient, ""),
            admitted=stay.admitted,
            discharged=stay.discharged,
            more={"visit": stay.visit},
            is_error=not text,
        )


def _build_note(resource: Resource, where: str, references: FhirReferences) -> ClinicalNote:
    """Return the note of a DocumentReference. Raises ValueError if it has no patient, or no readable text."""
    patient = fhir_references.find_patient(resource, references)
    stay = references.stay(fhir_references.find_encounter(resource, references))
    context = resource.get("context")
    context_period = context.get("period") if isinstance(context, dict) else None
    period = context_period or resource.get("period") or {}
    status, note_id = str(resource.get("status") or ""), str(resource.get("id") or "")
    is_withdrawn = _is_withdrawn(resource)
    return ClinicalNote(
        where=where,
        patient=patient,
        text="(withdrawn)" if is_withdrawn and not resource.get("content") else _document_text(resource),
        # The time of writing is preferred to the time of the described events.
        times=(str(resource.get("date") or period.get("end") or period.get("start") or ""),),
        note_type=_concept_text(resource.get("type")),
        encounter=stay.encounter,
        note_id=note_id,
        patient_name=references.names.get(patient, ""),
        admitted=stay.admitted,
        discharged=stay.discharged,
        more={"status": status if status != "current" else "", "visit": stay.visit},
        is_error=is_withdrawn,
        is_superseded=status == "superseded" or (patient, note_id) in references.superseded,
    )


def _document_text(resource: Resource) -> str:
    """Return the text of the first plain attachment, else of the first HTML page."""
    attachments = [content["attachment"] for content in resource["content"] if content.get("attachment")]
    content_types = [str(attachment.get("contentType") or "text/plain").lower() for attachment in attachments]
    for accepted in (("text/plain",), ("text/html", "application/xhtml+xml")):
        for attachment, content_type in zip(attachments, content_types, strict=True):
            if content_type.partition(";")[0].strip() in accepted and attachment.get("data") is not None:
                return _decode_attachment(str(attachment["data"]), content_type)
    if any("data" not in attachment and "url" in attachment for attachment in attachments):
        raise ValueError("its text is at an address, and nothing is fetched; export it with the attachments' data")
    raise ValueError("has no attachment of plain text or HTML; export its text as one of them")


def _decode_attachment(data: str, content_type: str) -> str:
    """Return the text of an attachment: base64, as FHIR requires; or the text itself, as in some exports."""
    is_page = not content_type.startswith("text/plain")
    try:
        raw = base64.b64decode("".join(data.split()) if " " not in data else data, validate=True)
    except (binascii.Error, ValueError):
        return sandbox.page_text(data.encode()) if is_page else data
    if is_page:
        return sandbox.page_text(raw)
    charset = content_type.partition("charset=")[2].partition(";")[0].strip(" \"'") or "utf-8"
    try:
        return raw.decode(text_encoding(charset))
    except UnicodeDecodeError as error:
        place = f"at byte {error.start + 1}"
        raise ValueError(f"its text is not {charset} {place}; let contentType name its charset") from error
    except LookupError as error:
        raise ValueError("its contentType names an unknown charset; save it as UTF-8") from error


def _read_resources(path: Path) -> Iterator[tuple[str, Resource | reader_base.Skipped]]:
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
        if isinstance(item, reader_base.Skipped):
            yield item.where, item
        else:
            yield from _unpack_bundle(path, f"line {item[0]}", item[1])


def _unpack_bundle(path: Path, where: str, resource: Resource) -> Iterator[tuple[str, Resource | reader_base.Skipped]]:
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


class _ObservationDays:
    """Group observations by day. Of several with one id the latest is used: by `meta.lastUpdated`, else by order."""

    def __init__(self) -> None:
        self._lines: dict[_DayKey, dict[str, tuple[str, str]]] = {}
        self._places: dict[_DayKey, str] = {}
        self._latest: dict[tuple[str, str], tuple[str, _DayKey]] = {}
        self._count = 0

    def add(self, observation: Mapping[str, Any], where: str, patient: str, encounter: str) -> None:
        """Add an observation of a patient. Raises ValueError if it has no value."""
        period = observation.get("effectivePeriod") or {}
        times = (observation.get("effectiveDateTime"), observation.get("effectiveInstant"), period.get("start"))
        time = str(next(filter(None, (*times, observation.get("issued"))), ""))
        parsed = parse_note_time(time)
        date = parsed[0] if parsed else time
        day, clock = (date[:10], date[11:]) if parsed else (date, "")
        names = map(_concept_text, as_list(observation.get("category")))
        category = next(filter(None, names), "observations").replace("-", " ").lower()
        key = (patient, day, "laboratory results" if category == "laboratory" else category, encounter)
        text = ""
        if observation.get("status") not in WITHDRAWN:
            line = _format_observation(observation)
            text = f"{clock} {line}" if clock else line
        self._count += 1
        observation_id = str(observation.get("id") or f"\0{self._count}")
        updated = str((observation.get("meta") or {}).get("lastUpdated") or "")
        previous_update, previous_key = self._latest.get((patient, observation_id), ("", key))
        if previous_update and updated and updated < previous_update:
            return
        self._lines.setdefault(previous_key, {}).pop(observation_id, None)
        self._lines.setdefault(key, {})[observation_id] = (clock, text)
        self._latest[patient, observation_id] = (updated, key)
        self._places.setdefault(key, where)

    def all(self) -> Iterator[tuple[str, _DayKey, str]]:
        """Yield place, key and text of each day, in the order of its first observation.

        The text has a line for each observation, sorted by time, those without one first. It is empty if all of them
        were withdrawn or moved to another day.
        """
        for key, lines in self._lines.items():
            texts = (text for _, text in sorted(lines.values(), key=itemgetter(0)))
            yield self._places[key], key, "\n".join(filter(None, texts))


def _format_observation(observation: Mapping[str, Any]) -> str:
    """Return a line: `Hemoglobin: 9.1 g/dL (low; reference 12 to 16 g/dL)`. Raises ValueError if it has no value."""
    values = [_format_value(observation)]
    for component in observation.get("component") or []:
        if text := _format_value(component):
            values.append(f"{_concept_text(component.get('code'))}: {text}")
    value = "; ".join(filter(None, values))
    if not value:
        raise ValueError("has no value that can be read")
    remarks = list(map(_concept_text, as_list(observation.get("interpretation"))))
    for reference in observation.get("referenceRange") or []:
        if text := _format_range(reference):
            remarks.append(f"reference {text}")
    if observation.get("status") in ("preliminary", "registered", "corrected", "amended"):
        remarks.append(str(observation["status"]))
    line = f"{_concept_text(observation.get('code')) or 'Observation'}: {value}"
    if any(remarks):
        line += f" ({'; '.join(filter(None, remarks))})"
    for note in observation.get("note") or []:
        if note.get("text"):
            line += f" {note['text']}"
    return line


def _concept_text(concept: Any) -> str:
    """Return the words of a CodeableConcept: its text, else the first coding's display, else its code."""
    if not isinstance(concept, dict):
        return ""
    codings = [coding for coding in as_list(concept.get("coding")) if isinstance(coding, dict)]
    words = [concept.get("text")]
    for key in ("display", "code"):
        words += [coding.get(key) for coding in codings]
    return str(next(filter(None, words), "")).strip()


def _format_value(observation: Mapping[str, Any]) -> str:
    for key, value in observation.items():
        if not key.startswith("value") or value is None:
            continue
        if isinstance(value, bool):
            return "yes" if value else "no"
        if not isinstance(value, dict):
            return str(value)
        if "low" in value or "high" in value:
            return _format_range(value)
        if "numerator" in value:
            return f"{_format_quantity(value['numerator'])} / {_format_quantity(value.get('denominator') or {})}"
        if "value" in value:
            return _format_quantity(value)
        return _concept_text(value) or str(value.get("start") or "")
    absent = _concept_text(observation.get("dataAbsentReason"))
    return f"not available ({absent})" if absent else ""


def _format_quantity(quantity: Mapping[str, Any]) -> str:
    parts = (quantity.get("comparator"), quantity.get("value"), quantity.get("unit") or quantity.get("code"))
    return " ".join(str(part) for part in parts if part not in (None, ""))


def _format_range(interval: Mapping[str, Any]) -> str:
    if interval.get("text"):
        return str(interval["text"])
    low, high = _format_quantity(interval.get("low") or {}), _format_quantity(interval.get("high") or {})
    if low and high:
        return f"{low} to {high}"
    if low:
        return f"at least {low}"
    return f"at most {high}" if high else ""
