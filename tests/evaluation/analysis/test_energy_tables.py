"""Test tables of hours, energy and CO2 of a run's sessions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from epicrisis.core.answers import Usage
from epicrisis.evaluation.analysis.energy_tables import make_energy_tables
from epicrisis.evaluation.analysis.table import Cell, Table
from epicrisis.evaluation.experiments.run_findings import graded_right, read_findings
from epicrisis.evaluation.runs.energy import EquipmentEnergy, SessionEnergy
from epicrisis.evaluation.runs.recorded_run import open_runs
from epicrisis.evaluation.runs.run_folder import MANIFEST, RECORDS, Run, read_manifest, write_manifest
from epicrisis.pipeline.recording.answer_record import read_records
from epicrisis.pipeline.recording.case import Case, Condition
from tests.support.correctness_marks import RIGHT, WRONG, marked_by, run_of
from tests.support.run_folders import QUESTIONS, Outcome, folder

MEASURED = EquipmentEnergy("processors", "measured", 1.8e6, "RAPL's counters of package-0")
ESTIMATED = EquipmentEnergy("processors", "estimated", 3.6e6, "processor seconds at 12 W a core")
UNKNOWN = EquipmentEnergy("endpoints", "unknown", None, "example.org is another machine")
HALF_RIGHT = tuple(i % 2 == 0 for i in range(len(QUESTIONS)))


def make_session(*parts: EquipmentEnergy, seconds: float = 1800.0, rate: float = 0.2) -> SessionEnergy:
    return SessionEnergy(seconds, rate, parts)


def make_run(path: Path, sessions: Sequence[SessionEnergy | None], ended: Sequence[Outcome] = HALF_RIGHT) -> Path:
    """Write a finished run with these sessions."""
    folder(path, lambda i, _: ended[i], questions=QUESTIONS[: len(ended)])
    manifest = read_manifest(path)
    sessions_with_energy = tuple(replace(manifest.sessions[0], taken=session) for session in sessions)
    write_manifest(path, replace(manifest, sessions=sessions_with_energy))
    return path


def read_energy_table(*paths: Path) -> Table:
    return make_energy_tables(open_runs(paths), graded_right)[0]


def read_energy_row(*paths: Path) -> Mapping[str, Cell]:
    table = read_energy_table(*paths)
    return dict(zip(table.columns, table.rows[0], strict=True))


def test_energy_table_sums_sessions_and_separates_measured_from_estimated(tmp_path: Path) -> None:
    """1.8 MJ measured and 3.6 MJ estimated are 0.5 and 1 kWh: of 40 questions, 20 right."""
    result = read_energy_row(
        make_run(tmp_path / "run", [make_session(MEASURED), make_session(ESTIMATED, seconds=3600, rate=0.4)])
    )
    assert result == {
        "run": "run",
        "hours": 1.5,
        "kWh measured": 0.5,
        "kWh estimated": 1.0,
        "kWh": 1.5,
        "kg CO2": 0.5,
        "kWh per 1,000 questions": 37.5,
        "Wh per right answer": 75.0,
        "questions": 40,
        "calls": 0,
        "replayed": 0,
        "sessions": 2,
        "unknown": None,
    }


def test_energy_table_reproduces_study_carbon_figure(tmp_path: Path) -> None:
    """Table 13: 962.48 kWh are 197.31 kg."""
    part = EquipmentEnergy("processors", "measured", 962.48 * 3.6e6, "the node's meter")
    run = make_run(tmp_path / "run", [make_session(part, rate=0.205)])
    assert read_energy_row(run)["kg CO2"] == pytest.approx(197.31, abs=0.005)
    assert any("0.205 (the context-retrieval study's, Table 13" in note for note in read_energy_table(run).notes)


@pytest.mark.parametrize(
    ("sessions", "unknown"),
    [
        ([make_session(MEASURED, UNKNOWN)], "endpoints"),
        ([make_session(MEASURED), None], "1 of 2 sessions"),
        ([make_session(MEASURED, UNKNOWN), None, None], "endpoints, 2 of 3 sessions"),
    ],
)
def test_energy_table_with_unknown_session_shows_no_total(
    tmp_path: Path, sessions: Sequence[SessionEnergy | None], unknown: str
) -> None:
    """What a killed session took was not written down."""
    result = read_energy_row(make_run(tmp_path / "run", sessions))
    assert (result["kWh measured"], result["kWh estimated"], result["unknown"]) == (0.5, None, unknown)
    for name in ("kWh", "kg CO2", "kWh per 1,000 questions", "Wh per right answer"):
        assert result[name] is None, name


def test_energy_table_without_right_answer_shows_no_energy_per_right_answer(tmp_path: Path) -> None:
    wrong: list[Outcome] = [False, "abstained", "failed", "unparsed"]
    result = read_energy_row(make_run(tmp_path / "run", [make_session(MEASURED)], wrong))
    assert (result["kWh per 1,000 questions"], result["Wh per right answer"]) == (125.0, None)


def test_energy_table_counts_graded_open_answers_as_right(tmp_path: Path) -> None:
    """Two of three were marked correct: 0.5 kWh for two."""
    path = make_run(tmp_path / "run", [make_session(MEASURED)], [True])
    run_of(path, [RIGHT, WRONG, RIGHT])
    assert read_energy_row(path)["Wh per right answer"] is None, "nobody marked them yet"
    marked_by(path)
    assert (read_energy_row(path)["questions"], read_energy_row(path)["Wh per right answer"]) == (3, 250.0)


def test_energy_table_ignores_session_without_calls(tmp_path: Path) -> None:
    """Such as one that nobody agreed to, or that found all answered."""
    result = read_energy_row(make_run(tmp_path / "run", [make_session(MEASURED), make_session(seconds=0)]))
    assert (result["kWh"], result["sessions"], result["unknown"]) == (0.5, 1, None)


@pytest.mark.slow
def test_energy_tables_of_runs_without_energy_are_empty(tmp_path: Path) -> None:
    path = make_run(tmp_path / "old", [None])
    manifest = json.loads((path / MANIFEST).read_text("utf-8"))
    for session in manifest["sessions"]:
        del session["taken"]
    (path / MANIFEST).write_text(json.dumps(manifest), "utf-8")
    assert make_energy_tables(open_runs([path])) == ()
    assert [table.title for table in read_findings([path])[0].tables] == ["The runs"]
    new = make_run(tmp_path / "new", [make_session(MEASURED)])
    assert read_energy_table(path, new).column("run") == ("new",)


@pytest.mark.slow
def test_energy_table_notes_state_each_source_once(tmp_path: Path) -> None:
    paths = [
        make_run(tmp_path / name, [make_session(MEASURED), make_session(ESTIMATED, UNKNOWN)]) for name in ("a", "b")
    ]
    notes = read_energy_table(*paths).notes
    for text in (
        "Measured, processors: RAPL's counters of package-0.",
        "Estimated, processors: processor seconds at 12 W a core.",
        "Unknown, endpoints: example.org is another machine.",
        "CO2: kg a kWh of electricity: 0.2.",
    ):
        assert notes.count(text) == 1, text


@pytest.mark.slow
def test_findings_of_plain_runs_include_energy_table(tmp_path: Path) -> None:
    paths = [make_run(tmp_path / name, [make_session(MEASURED)]) for name in ("a", "b")]
    (result,) = read_findings(paths)
    assert result.tables[-1].title == "Time, energy and CO2"
    assert result.tables[-1].column("run") == ("a", "b")


def test_run_records_energy_in_manifest(tmp_path: Path) -> None:
    path = make_run(tmp_path / "run", [make_session(MEASURED, UNKNOWN)])
    with Run.open(path, read_manifest(path).plan, [Case(question) for question in QUESTIONS]) as run:
        assert read_manifest(path).sessions[1].taken is None, "while it works, and where it is killed"
        run.record_energy(make_session(ESTIMATED))
    assert [session.taken for session in read_manifest(path).sessions] == [
        make_session(MEASURED, UNKNOWN),
        make_session(ESTIMATED),
    ]


# -- arms -------------------------------------------------------------------------------------------------------------


def make_run_with_arms(path: Path, *parts: EquipmentEnergy, seconds: Mapping[str, float]) -> Path:
    """Write a run of experiment conditions with the given seconds of calls by arm."""
    sample: list[Condition] = [{"arm": arm, "dataset": "own", "k": 8, "repeat": 0} for arm in seconds]
    folder(
        path,
        lambda i, at: at["arm"] == "rag" or i % 2 == 0,
        questions=QUESTIONS[:10],
        conditions=sample,
        name="integration",
        arguments={"arms": [*seconds], "protocol": "corrected"},
    )
    records = [record.to_json() for record in read_records(path / RECORDS)]
    for record in records:
        record["answer"]["usage"]["seconds"] = seconds[record["condition"]["arm"]]
    (path / RECORDS).write_text("".join(f"{json.dumps(record)}\n" for record in records), "utf-8")
    manifest = read_manifest(path)
    write_manifest(path, replace(manifest, sessions=(replace(manifest.sessions[0], taken=make_session(*parts)),)))
    return path


def test_energy_by_arm_is_divided_by_seconds_of_calls(tmp_path: Path) -> None:
    path = make_run_with_arms(tmp_path / "run", MEASURED, seconds={"rag": 1.0, "brief-context": 4.0})
    (result,) = read_findings([path])
    assert [table.title for table in result.tables[-2:]] == ["Time, energy and CO2", "Energy by arm"]
    assert [row[:5] for row in result.tables[-1].rows] == [
        ("qwen", "rag", 10, 10.0, 0.1),
        ("qwen", "brief-context", 10, 40.0, 0.4),
    ]
    assert result.tables[-1].column("kg CO2") == pytest.approx((0.02, 0.08))
    assert [row[6:] for row in result.tables[-1].rows] == [(10.0, 10.0), (40.0, 80.0)]


@pytest.mark.parametrize(
    ("parts", "seconds"),
    [
        ((MEASURED, UNKNOWN), {"rag": 1.0, "brief-context": 4.0}),
        ((MEASURED,), {"rag": 0.0, "brief-context": 0.0}),
        ((MEASURED,), {"rag": 1.0}),
    ],
)
def test_energy_by_arm_is_left_out_when_energy_or_seconds_are_unknown(
    tmp_path: Path, parts: Sequence[EquipmentEnergy], seconds: Mapping[str, float]
) -> None:
    (result,) = read_findings([make_run_with_arms(tmp_path / "run", *parts, seconds=seconds)])
    assert result.tables[-1].title == "Time, energy and CO2"


def test_energy_table_counts_replayed_replies(tmp_path: Path) -> None:
    path = make_run(tmp_path / "run", [make_session(MEASURED)])
    manifest = read_manifest(path)
    usage = Usage(calls=3, replayed_calls=37)
    write_manifest(path, replace(manifest, usage={"calls": usage.calls, "replayed_calls": usage.replayed_calls}))
    assert (read_energy_row(path)["calls"], read_energy_row(path)["replayed"]) == (3, 37)
