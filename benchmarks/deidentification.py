"""Measure the recall and precision of de-identification: on generated notes, role-played visits, and abstracts.

    python benchmarks/deidentification.py generated 10000
    python benchmarks/deidentification.py unusual 200 development
    python benchmarks/deidentification.py unusual 200 held-out
    python benchmarks/deidentification.py visits "$EPICRISIS_DATA/visits"
    python benchmarks/deidentification.py abstracts "$EPICRISIS_DATA/abstracts/abstracts.jsonl.gz"
    python benchmarks/deidentification.py spacy 100 development EN_CORE_WEB_SM_FOLDER

The generated notes have identifiers at known places: `generated` in usual forms, from the lists of the recognizers;
`unusual` in unusual forms, from lists and sentences that no recognizer has; nobody read the misses of `held-out`.
The visits (ACI-Bench) have no labels: their metadata name the patient and the doctor, so the recall of these names is
known, and other replacements are only counted. Abstracts identify nobody: nearly all that is replaced there is an
error. `spacy` adds the names and places of spaCy's model to those of the recognizers.
"""

from __future__ import annotations

import csv
import gzip
import json
import re
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, get_args

from epicrisis.evaluation.analysis.statistics import wilson
from epicrisis.evaluation.synthesis.deidentification_recall import (
    RecallCounts,
    count_recall,
    count_unusual_recall,
    summarize_recall,
)
from epicrisis.evaluation.synthesis.unusual_identifiers import KINDS, Half, draw_clinical_sentences
from epicrisis.privacy.deidentification.deidentifier import Deidentifier, PatientIdentifiers
from epicrisis.privacy.deidentification.spans import Identifier, merge_identifiers

SEED = 20_260
NAME_COLUMNS = ("patient_firstname", "patient_familyname", "doctor_name")


def measure_generated(notes: int) -> None:
    """Print recall by kind and by form, precision, and the notes with a leak."""
    start = time.perf_counter()
    counts = count_recall(notes, SEED)
    seconds = time.perf_counter() - start
    _print_counts(counts, seconds)
    kinds = [*summarize_recall(counts)]
    _print_rows(counts, ["all", *kinds, *sorted(label for label in counts.by_patient if ":" in label)])


def measure_unusual(patients: int, half: Half) -> None:
    """Print recall by kind of unusual identifiers, each once for a patient, and what is wrongly replaced."""
    start = time.perf_counter()
    counts = count_unusual_recall(patients * len(KINDS), SEED, half)
    _print_counts(counts, time.perf_counter() - start)
    _print_rows(counts, [f"{kind.identifier}: {kind.name}" for kind in KINDS.values()])
    sentences = draw_clinical_sentences(half)
    wrong = [sentence for sentence in sentences if Deidentifier(b"0" * 32, PatientIdentifiers("p")).find(sentence)]
    print(f"{len(wrong)} of {len(sentences)} clinical sentences without an identifier are changed")


def measure_spacy(patients: int, half: Half, folder: Path) -> None:
    """Print recall by kind with the names and places of a model of spaCy besides the recognizers'."""
    import spacy

    model: Any = spacy.load(folder, disable=["parser", "lemmatizer", "attribute_ruler"])
    kinds: dict[str, Any] = {"PERSON": "name", "GPE": "place", "LOC": "place", "FAC": "place", "ORG": "place"}
    labels = {"PERSON"} if "--names" in sys.argv else set(kinds)
    find = Deidentifier.find

    def find_more(self: Deidentifier, text: str) -> list[Identifier]:
        entities = [entity for entity in model(text).ents if entity.label_ in labels]
        found = [Identifier(entity.start_char, entity.end_char, kinds[entity.label_]) for entity in entities]
        return merge_identifiers([*find(self, text), *found])

    Deidentifier.find = find_more  # type: ignore[method-assign]
    measure_unusual(patients, half)


def measure_abstracts(path: Path) -> None:
    """Print the replacements by kind for 10,000 words of every twentieth abstract."""
    kinds: Counter[str] = Counter()
    words = 0
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            if number % 20:
                continue
            text = json.loads(line)["text"]
            deidentifier = Deidentifier(b"0" * 32, PatientIdentifiers("p"))
            deidentifier.learn(text)
            kinds.update(identifier.kind for identifier in deidentifier.find(text))
            words += len(text.split())
    rates = {kind: round(count / words * 10_000, 1) for kind, count in kinds.most_common()}
    print(f"{words} words; replaced for 10,000 words: {sum(rates.values()):.1f} {rates}")


def _print_counts(counts: RecallCounts, seconds: float) -> None:
    milliseconds = seconds / counts.notes * 1000
    precision = counts.right_characters / counts.replaced_characters
    print(f"{counts.notes} notes of {counts.patients} patients, {milliseconds:.0f} ms each")
    print(f"precision by characters {precision:.4f}; notes with a leak {counts.notes_with_leak}")


def _print_rows(counts: RecallCounts, labels: list[str]) -> None:
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
    halves: dict[str, Half] = {half: half for half in get_args(Half)}
    if sys.argv[1] == "generated":
        measure_generated(int(sys.argv[2]))
    elif sys.argv[1] == "unusual":
        measure_unusual(int(sys.argv[2]), halves[sys.argv[3]])
    elif sys.argv[1] == "spacy":
        measure_spacy(int(sys.argv[2]), halves[sys.argv[3]], Path(sys.argv[4]))
    elif sys.argv[1] == "abstracts":
        measure_abstracts(Path(sys.argv[2]))
    else:
        measure_visits(Path(sys.argv[2]))
