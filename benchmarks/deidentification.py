"""Measure the recall and precision of de-identification: on generated notes, and on role-played visits.

    python benchmarks/deidentification.py generated 10000
    python benchmarks/deidentification.py visits "$EPICRISIS_DATA/visits"

The generated notes have identifiers at known places. The visits (ACI-Bench) have no labels: their metadata name the
patient and the doctor, so the recall of these names is known, and other replacements are only counted.
"""

from __future__ import annotations

import csv
import re
import sys
import time
from collections import Counter
from pathlib import Path

from epicrisis.deidentification.deidentifier import Deidentifier, PatientIdentifiers
from epicrisis.evaluation.analysis.statistics import wilson
from epicrisis.evaluation.synthesis.deidentification_recall import count_recall, make_measurement, summarize_recall

SEED = 20_260
NAME_COLUMNS = ("patient_firstname", "patient_familyname", "doctor_name")


def measure_generated(notes: int) -> None:
    """Print recall by kind and by form, precision, and the notes with a leak."""
    start = time.perf_counter()
    counts = count_recall(notes, SEED)
    seconds = time.perf_counter() - start
    measurement = make_measurement(counts)
    milliseconds = seconds / measurement.notes * 1000
    print(f"{measurement.notes} notes of {measurement.patients} patients, {milliseconds:.0f} ms each")
    print(f"precision by characters {measurement.precision:.4f}; notes with a leak {measurement.notes_with_leak}")
    labels = ["all", *measurement.kinds, *sorted(label for label in counts.by_patient if ":" in label)]
    for label, row in summarize_recall(counts, labels).items():
        print(f"| {label} | {row.planted} | {row.missed} | {row.recall:.4f} | {row.lower:.4f} to {row.upper:.4f} |")


def measure_visits(folder: Path) -> None:
    """Print how many names of the metadata are replaced, with and without registered names, and all replacements."""
    for is_registered in (True, False):
        names = found = notes = leaking = 0
        kinds: Counter[str] = Counter()
        right = 0
        for table in sorted(folder.glob("*_metadata.csv")):
            people = {row["encounter_id"]: row for row in csv.DictReader(table.open(encoding="utf-8"))}
            texts = table.with_name(table.name.replace("_metadata", ""))
            for row in csv.DictReader(texts.open(encoding="utf-8")):
                person = people[row["encounter_id"]]
                words = {
                    word.casefold() for column in NAME_COLUMNS for word in re.findall(r"\w+", person[column] or "")
                }
                name = f"{person['patient_firstname']} {person['patient_familyname']}".strip()
                known = PatientIdentifiers(row["encounter_id"], (name,) if is_registered and name else ())
                text = row["note"]
                deidentifier = Deidentifier(b"0" * 32, known)
                deidentifier.learn(text)
                spans = deidentifier.find(text)
                notes += 1
                kinds.update(span.kind for span in spans)
                right += sum(text[span.start : span.end].casefold() in words for span in spans if span.kind == "name")
                leaks = 0
                for match in re.finditer(r"[A-Za-z]+", text):
                    if match[0].casefold() in words and match[0][0].isupper():
                        is_found = any(span.start <= match.start() and match.end() <= span.end for span in spans)
                        names, found, leaks = names + 1, found + is_found, leaks + (not is_found)
                leaking += leaks > 0
        interval = wilson(found, names)
        print(
            f"registered {is_registered}: {notes} notes, {found} of {names} names of the metadata replaced "
            f"({found / names:.4f}, {interval.low:.4f} to {interval.high:.4f}), {leaking} notes with a leak; replaced: "
            f"{dict(kinds.most_common())}; {right} of {kinds['name']} replaced names are in the metadata"
        )


if __name__ == "__main__":
    if sys.argv[1] == "generated":
        measure_generated(int(sys.argv[2]))
    else:
        measure_visits(Path(sys.argv[2]))
