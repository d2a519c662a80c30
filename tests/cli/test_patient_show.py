"""`epicrisis patient show`: one patient's record at a glance."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from epicrisis.core.clinical_facts import FACTS, ClinicalFact, write_facts
from epicrisis.core.types import Document
from epicrisis.library.write.ingest import add_documents, open_or_create
from epicrisis.testing.hashing_encoder import HashingEncoder
from tests.cli.conftest import Run
from tests.support.chart_documents import CHART_DOCUMENTS


def test_patient_show_prints_the_chart_of_that_patient_only(tmp_path: Path, run: Run) -> None:
    with open_or_create(tmp_path / "ward", HashingEncoder(64), "hashing", 0) as library:
        add_documents(library, CHART_DOCUMENTS, HashingEncoder(64))
    shown = run("patient", "show", tmp_path / "ward", "p1")
    assert shown.exit_code == 0, shown.stderr
    assert "furosemide 40 mg daily (ended), 2150-03-02 to 2150-06-01, 2 entries" in shown.stdout
    assert "2150-03-01 to 2150-03-07  stay s1, 2 documents" in shown.stdout
    assert "2150-06-02" not in shown.stdout
    chart = json.loads(run("patient", "show", tmp_path / "ward", "p1", "--json").stdout)
    assert chart["facts"] == 7
    unknown = run("patient", "show", tmp_path / "ward", "p7")
    assert unknown.exit_code == 2
    assert "library patients" in unknown.stderr


def test_patient_show_prints_a_stay_that_goes_on_without_an_end(tmp_path: Path, run: Run) -> None:
    stay = ClinicalFact("encounter", "Inpatient", end=9, event="start", time="2150-03-01", encounter="s1", source="e/1")
    metadata = {FACTS: write_facts([stay]), "encounter": "s1", "admitted": "2150-03-01"}
    begun = Document("note:s1", "Inpatient", date="2150-03-01", patient="p1", metadata=metadata)
    later = Document("note:2", "Feels well.", date="2150-03-04", patient="p1", metadata={"encounter": "s1"})
    with open_or_create(tmp_path / "ward", HashingEncoder(64), "hashing", 0) as library:
        add_documents(library, [begun, later], HashingEncoder(64))
    assert "since 2150-03-01  stay s1, 2 documents" in run("patient", "show", tmp_path / "ward", "p1").stdout


def test_patient_show_says_since_only_of_what_goes_on(tmp_path: Path, run: Run) -> None:
    rows = [
        ("Asthma", "start", "2150-03-01", "active"),
        ("Gout", "start", "2150-03-01", ""),
        ("Gout", "end", None, "resolved"),
        ("Migraine", "end", "2150-03-02", "resolved"),
        ("Epilepsy", "state", "2150-03-01", "refuted"),
    ]
    facts, lines, offset = [], [], 0
    for name, event, day, status in rows:
        line = f"{event} {name}"
        place: Any = {"start": offset, "end": offset + len(line), "event": event, "time": day}
        facts.append(ClinicalFact("problem", name, status=status, source=name, **place))
        lines.append(line)
        offset += len(line) + 1
    document = Document(
        "note:1", "\n".join(lines), date="2150-03-02", patient="p1", metadata={FACTS: write_facts(facts)}
    )
    with open_or_create(tmp_path / "ward", HashingEncoder(64), "hashing", 0) as library:
        add_documents(library, [document], HashingEncoder(64))
    shown = run("patient", "show", tmp_path / "ward", "p1").stdout
    assert [line.strip() for line in shown.split("\n")[3:7]] == [
        "Asthma (current), since 2150-03-01, 1 entry",
        "Gout (ended), from 2150-03-01, end unknown, 2 entries",
        "Migraine (ended), until 2150-03-02, 1 entry",
        "Epilepsy (withdrawn: refuted), 2150-03-01, 1 entry",
    ]
