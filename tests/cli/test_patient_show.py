"""`epicrisis patient show`: one patient's record at a glance."""

from __future__ import annotations

import json
from pathlib import Path

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
