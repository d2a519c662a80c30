"""Measure the CPU seconds for reading FHIR: 2,000 notes as lines, and 2,000 notes with 8,000 results in bundles.

    python benchmarks/fhir_reading.py

The child process that parses other formats is not used, and nothing is written to a library. Prints CPU seconds.
"""

from __future__ import annotations

import base64
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from epicrisis.core.types import Document
from epicrisis.corpus.readers.sources import read_sources
from epicrisis.corpus.records.note_documents import NoteCleaning

NOTES, BUNDLES = 2_000, 20
TEXT = (
    "Patient seen today. Lungs are clear, heart regular. Plan: continue lisinopril 10 mg daily, recheck potassium. "
    * 25
)


def build_note(number: int, patient: int) -> dict[str, Any]:
    """Return a DocumentReference with 2.8 KB of text."""
    data = base64.b64encode(f"Note {number}. {TEXT}".encode()).decode()
    return {
        "resourceType": "DocumentReference",
        "id": f"d{number}",
        "status": "current",
        "subject": {"reference": f"Patient/p{patient}"},
        "date": "2150-03-04T10:00:00+01:00",
        "type": {"text": "Progress note"},
        "content": [{"attachment": {"contentType": "text/plain", "data": data}}],
    }


def build_result(number: int, patient: int) -> dict[str, Any]:
    """Return an Observation of a laboratory."""
    return {
        "resourceType": "Observation",
        "id": f"o{number}",
        "status": "final",
        "category": [{"coding": [{"code": "laboratory"}]}],
        "code": {"text": "Creatinine", "coding": [{"system": "http://loinc.org", "code": "2160-0"}]},
        "subject": {"reference": f"Patient/p{patient}"},
        "effectiveDateTime": f"2150-03-{1 + number % 28:02}T08:{number % 60:02}:00+01:00",
        "valueQuantity": {"value": 1.0 + number % 10 / 10, "unit": "mg/dL"},
    }


def write_lines(folder: Path) -> None:
    """Write the notes as NDJSON."""
    lines = (json.dumps(build_note(number, number % BUNDLES)) + "\n" for number in range(NOTES))
    (folder / "DocumentReference.ndjson").write_text("".join(lines), encoding="utf-8")


def write_bundles(folder: Path) -> None:
    """Write the notes and results of each patient as a bundle."""
    for patient in range(BUNDLES):
        resources = [build_note(patient * 100 + number, patient) for number in range(NOTES // BUNDLES)]
        resources += [build_result(patient * 400 + number, patient) for number in range(4 * NOTES // BUNDLES)]
        entries = [{"resource": resource} for resource in resources]
        bundle = {"resourceType": "Bundle", "type": "collection", "entry": entries}
        (folder / f"{patient}.json").write_text(json.dumps(bundle), encoding="utf-8")


def main() -> None:
    """Print the CPU seconds for both forms, the least of three times each."""
    for name, write in (("lines", write_lines), ("bundles", write_bundles)):
        with tempfile.TemporaryDirectory() as path:
            write(Path(path))
            seconds: list[float] = []
            for _ in range(3):
                started = time.process_time()
                items = read_sources([Path(path)], cleaning=NoteCleaning())
                documents = sum(isinstance(item, Document) for item in items)
                seconds.append(time.process_time() - started)
        least = min(seconds)
        print(f"{name}: {documents:,} documents, {least:.2f} s of CPU, {least / NOTES * 1000:.2f} ms a note")


if __name__ == "__main__":
    main()
