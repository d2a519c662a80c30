"""Notes of patients from FHIR (R4, R5): bundles (JSON) and NDJSON of DocumentReference and Observation.

A DocumentReference is a note: its first attachment that is plain text, else HTML. Observations of one patient, day,
category and encounter are one note, a line each: alone each is a few words that no search finds by its sense, and by
the day is how a ward reads them; their own reports, where a hospital writes such, are DocumentReferences already.
Patients' names and the dates of stays come from Patient and Encounter resources of all files that are read together
(see `fhir_references`): bulk exports have files for each type. Other resources are counted and not read. Nothing is
fetched: an attachment that is only an address is left out, and named.

Observations are held until the end of the last file, a few hundred bytes each. Does not know what becomes of a note:
see `notes_record`.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from epicrisis.corpus import fhir_observation, fhir_references, jsonl, sandbox
from epicrisis.corpus.compression import READ_ERRORS, check_unpacks, describe_read_error, open_packed
from epicrisis.corpus.fhir_observation import WITHDRAWN
from epicrisis.corpus.fhir_references import FhirReferences
from epicrisis.corpus.json_checks import check_value_count
from epicrisis.corpus.note_documents import ClinicalNote, NoteCleaning, build_items
from epicrisis.corpus.reader_base import (
    DeletedDocument,
    FileFingerprint,
    PatientIdentity,
    ReaderItem,
    Skipped,
    append_fingerprint,
    check_file,
    printable_path,
)
from epicrisis.corpus.text_encodings import text_encoding
from epicrisis.errors import InputError

LARGEST = 512 * 1024 * 1024
"""Bytes of a bundle, which is parsed as a whole; NDJSON is read line by line."""
_LOOKED_AT = 4096
_NOT_BUILT = (AttributeError, KeyError, TypeError, IndexError)
_NO_FHIR = "not FHIR in JSON: a bundle, or one resource a line, each with its resourceType"
_LOOK = "not built as FHIR says; look at this resource"


def is_fhir(path: Path) -> bool:
    """True for a JSON file that begins as a FHIR resource does."""
    try:
        with open_packed(path) as file:
            start = file.read(_LOOKED_AT).removeprefix(b"\xef\xbb\xbf").lstrip()
    except READ_ERRORS:
        return False
    return start.startswith(b"{") and b'"resourceType"' in start


def read_file(path: Path, name: str, treatment: NoteCleaning | None = None) -> Iterator[ReaderItem]:
    """`read_files` of one file, without its mark and without who the patients are."""
    found = read_files([(path, name)], treatment or NoteCleaning())
    return (item for item in found if not isinstance(item, FileFingerprint | PatientIdentity))


def read_files(files: Sequence[tuple[Path, str]], treatment: NoteCleaning) -> Iterator[ReaderItem]:
    """The notes of all (path, name): DocumentReferences file by file, then the days of observations, then the marks.

    A file that cannot be unpacked to its end, or is no FHIR beside others that are, is left out whole: of a garbled one
    even the lines before the damage may be wrong. Raises InputError, before the first note, where no file is FHIR, and
    where two patients or encounters could not be told apart.
    """
    files, left_out = _readable(files)
    yield from left_out
    if not files:
        return
    shared = FhirReferences()
    wrong: list[Skipped] = []
    read_of = [(path, _learned(path, shared, treatment, wrong)) for path, _ in files]
    yield from wrong
    yield from fhir_references.patient_identities(shared)
    if not treatment.keep_superseded:
        fhir_references.mark_superseded(known for _, known in read_of)
        # An earlier addition may have brought them.
        yield from (DeletedDocument(f"note:{own}", patient=whose) for whose, own in sorted(shared.superseded))
    whole: list[ReaderItem] = []
    for (path, name), (_, known) in zip(files, read_of, strict=True):
        for item in append_fingerprint(path, build_items(path, name, partial(_notes, path, known), treatment)):
            if isinstance(item, FileFingerprint):
                whole.append(item)
            else:
                yield item
    path, name = files[-1]
    # Lines of values hold no template: they are read once.
    yield from build_items(path, name, lambda: _days(read_of), replace(treatment, keep_boilerplate=True))
    yield from whole


def _readable(files: Sequence[tuple[Path, str]]) -> tuple[list[tuple[Path, str]], list[Skipped]]:
    """Return the files that can be read, and why each other cannot. Raises InputError where none of them is FHIR."""
    readable: list[tuple[Path, str]] = []
    left_out: list[Skipped] = []
    others = 0
    for path, name in files:
        check_file(path)
        try:
            check_unpacks(path)
        except READ_ERRORS as error:
            left_out.append(Skipped(printable_path(path), "", describe_read_error(error)))
            continue
        if is_fhir(path):
            readable.append((path, name))
        else:
            others += 1
            left_out.append(Skipped(printable_path(path), "", _NO_FHIR))
    if others == len(files):
        raise InputError(f"{left_out[0].path}: {_NO_FHIR}")
    return readable, left_out


def _learned(path: Path, shared: FhirReferences, treatment: NoteCleaning, wrong: list[Skipped]) -> FhirReferences:
    """What the file says besides its notes, `shared` with the others; counts the resources that are no notes."""
    known = replace(shared, addresses={}, replacing=[])
    others: Counter[str] = treatment.ledger.other_resources
    for where, found in _resources(path):
        if not isinstance(found, Skipped):
            try:
                fhir_references.record_resource(found, known)
                if _replaces(found):
                    known.replacing.append(found)
            except ValueError as error:
                raise InputError(f"{printable_path(path)}, {where}: {error}") from error
            except _NOT_BUILT:
                # A note is named where it is read.
                if found.get("resourceType") in ("Patient", "Encounter"):
                    wrong.append(Skipped(printable_path(path), where, _LOOK))
            kind = str(found.get("resourceType"))[:40]
            if kind == "Observation" and found.get("status") in WITHDRAWN:
                others["withdrawn Observation"] += 1
            elif kind in ("Patient", "Encounter"):
                treatment.ledger.told[kind] += 1
            elif kind not in ("Bundle", "DocumentReference", "Observation"):
                others[kind] += 1
    return known


def _replaces(found: Mapping[str, Any]) -> bool:
    """Whether the document stands in the place of others: it names them, counts, and can be read."""
    if found.get("resourceType") != "DocumentReference" or not found.get("relatesTo"):
        return False
    if found.get("status") in WITHDRAWN or found.get("docStatus") in WITHDRAWN:
        return False
    try:
        return bool(_text(found).strip())
    except (ValueError, *_NOT_BUILT):
        return False


def _notes(path: Path, known: FhirReferences) -> Iterator[ClinicalNote | Skipped]:
    for where, found in _resources(path):
        if isinstance(found, Skipped):
            yield found
        elif found.get("resourceType") == "DocumentReference":
            try:
                yield _note(found, where, known)
            except ValueError as error:
                yield Skipped(printable_path(path), where, str(error))
            except _NOT_BUILT:
                yield Skipped(printable_path(path), where, _LOOK)


def _days(read_of: Sequence[tuple[Path, FhirReferences]]) -> Iterator[ClinicalNote | Skipped]:
    days = fhir_observation.ObservationDays()
    for path, known in read_of:
        for where, found in _resources(path):
            if isinstance(found, Skipped) or found.get("resourceType") != "Observation":
                continue
            try:
                days.add(
                    found,
                    where,
                    fhir_references.find_patient(found, known),
                    fhir_references.find_encounter(found, known),
                )
            except ValueError as error:
                yield Skipped(printable_path(path), where, str(error))
            except _NOT_BUILT:
                yield Skipped(printable_path(path), where, _LOOK)
    _, known = read_of[0]
    for day in days.all():
        stay = known.stay(day.encounter)
        yield ClinicalNote(
            where=day.where,
            patient=day.patient,
            text=day.text,
            times=(day.date,),
            note_type=day.category,
            encounter=stay.encounter,
            note_id=day.id,
            patient_name=known.names.get(day.patient, ""),
            admitted=stay.admitted,
            discharged=stay.discharged,
            more={"visit": stay.visit},
            is_error=not day.text,
        )


def _note(found: Mapping[str, Any], where: str, known: FhirReferences) -> ClinicalNote:
    """Raises ValueError where it has no patient, or no text that can be read here."""
    patient, stay = fhir_references.find_patient(found, known), known.stay(fhir_references.find_encounter(found, known))
    held = found.get("context") if isinstance(found.get("context"), dict) else {}
    period = (held or {}).get("period") or found.get("period") or {}
    status = str(found.get("status") or "")
    withdrawn = status in WITHDRAWN or found.get("docStatus") in WITHDRAWN
    return ClinicalNote(
        where=where,
        patient=patient,
        text="(withdrawn)" if withdrawn and not found.get("content") else _text(found),
        # The time of the note before that of what it tells of.
        times=(str(found.get("date") or period.get("end") or period.get("start") or ""),),
        note_type=fhir_observation.concept_text(found.get("type")),
        encounter=stay.encounter,
        note_id=str(found.get("id") or ""),
        patient_name=known.names.get(patient, ""),
        admitted=stay.admitted,
        discharged=stay.discharged,
        more={"status": status if status != "current" else "", "visit": stay.visit},
        is_error=withdrawn,
        is_superseded=status == "superseded" or (patient, str(found.get("id") or "")) in known.superseded,
    )


def _text(found: Mapping[str, Any]) -> str:
    attachments = [content["attachment"] for content in found["content"] if content.get("attachment")]
    kinds = [str(each.get("contentType") or "text/plain").lower() for each in attachments]
    for wanted in (("text/plain",), ("text/html", "application/xhtml+xml")):
        for each, kind in zip(attachments, kinds, strict=True):
            if kind.partition(";")[0].strip() in wanted and each.get("data") is not None:
                return _decoded(str(each["data"]), kind)
    if any("data" not in each and "url" in each for each in attachments):
        raise ValueError("its text is at an address, and nothing is fetched; export it with the attachments' data")
    raise ValueError("has no attachment of plain text or HTML; export its text as one of them")


def _decoded(data: str, kind: str) -> str:
    """The text of an attachment: base64, as FHIR says; or the text itself, as some exports have it."""
    is_page = not kind.startswith("text/plain")
    try:
        raw = base64.b64decode("".join(data.split()) if data.count(" ") == 0 else data, validate=True)
    except (binascii.Error, ValueError):
        return sandbox.page_text(data.encode()) if is_page else data
    if is_page:
        return sandbox.page_text(raw)
    charset = kind.partition("charset=")[2].partition(";")[0].strip(" \"'") or "utf-8"
    try:
        return raw.decode(text_encoding(charset))
    except UnicodeDecodeError as error:
        raise ValueError(
            f"its text is not {charset} at byte {error.start + 1}; let contentType name its charset"
        ) from error
    except LookupError as error:
        raise ValueError("its contentType names a charset that is not known; save it as UTF-8") from error


# -- the file's resources -------------------------------------------------------------------------------------------


def _resources(path: Path) -> Iterator[tuple[str, Mapping[str, Any] | Skipped]]:
    """Each resource with its place; those of bundles one by one."""
    if not _is_lines(path):
        try:
            whole = _whole(path)
        except ValueError as error:
            yield "", Skipped(printable_path(path), "", str(error))
            return
        yield from _unpacked(path, "", whole)
        return
    for item in jsonl.read_objects(path):
        if isinstance(item, Skipped):
            yield item.where, item
        else:
            yield from _unpacked(path, f"line {item[0]}", item[1])


def _unpacked(path: Path, where: str, found: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any] | Skipped]]:
    if found.get("resourceType") != "Bundle":
        yield where or "resource 1", found
        return
    entries = found.get("entry")
    if not isinstance(entries, list) or not entries:
        yield where, Skipped(printable_path(path), where, "the bundle has no entries; export it with its resources")
        return
    for number, entry in enumerate(entries, 1):
        place = ", ".join(part for part in (where, f"entry {number}") if part)
        resource = entry.get("resource") if isinstance(entry, dict) else None
        if isinstance(resource, dict):
            yield place, {**resource, "fullUrl": entry.get("fullUrl")}
        else:
            yield place, Skipped(printable_path(path), place, "holds no resource; export the bundle with its resources")


def _is_lines(path: Path) -> bool:
    """True where the first line is an object of its own and another follows."""
    with open_packed(path) as file:
        first = file.readline(LARGEST)
        if not file.readline(2):
            return path.name.lower().removesuffix(".gz").endswith((".ndjson", ".jsonl"))
    try:
        check_value_count(first)
        return isinstance(json.loads(first.decode("utf-8-sig")), dict)
    except (ValueError, RecursionError):
        return False


def _whole(path: Path) -> Mapping[str, Any]:
    """Raises ValueError with the reason."""
    from epicrisis.corpus.json_checks import find_json_fault

    try:
        with open_packed(path) as file:
            raw = file.read(LARGEST + 1)
        if len(raw) > LARGEST:
            raise ValueError(f"larger than {LARGEST // 2**20} MB; export it as NDJSON, one resource a line")
        check_value_count(raw)
        value = json.loads(raw.decode("utf-8-sig"))
    except READ_ERRORS as error:
        raise ValueError(describe_read_error(error)) from error
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 at byte {error.start + 1}; save the file as UTF-8") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at character {error.pos + 1}; export it again") from error
    except RecursionError as error:
        raise ValueError("nested too deep to be read; export it again") from error
    if not isinstance(value, dict):
        raise ValueError("not a FHIR resource; a bundle is one JSON object")  # noqa: TRY004
    if wrong := find_json_fault(value):
        raise ValueError(wrong)
    return value
