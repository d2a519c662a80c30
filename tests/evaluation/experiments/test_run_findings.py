"""Test findings from folders of runs: unfinished, different, or without an arm."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from epicrisis.core.errors import InputError
from epicrisis.evaluation.analysis.findings import Findings
from epicrisis.evaluation.experiments.placement import PLACES
from epicrisis.evaluation.experiments.run_findings import read_findings
from epicrisis.evaluation.runs.run_folder import RECORDS
from epicrisis.pipeline.recording.case import Condition
from tests.support.run_folders import QUESTIONS, Outcome, folder, recipe

FEW = QUESTIONS[:9]
ARMS = ("rag", "brief-context", "closed-book")


def make_conditions(arms: Sequence[str] = ARMS) -> list[Condition]:
    sample: list[Condition] = [{"arm": arm, "repeat": 0} for arm in arms if arm == "closed-book"]
    for arm in arms:
        if arm != "closed-book":
            sample += [{"arm": arm, "k": 8, "place": place, "repeat": 0} for place in PLACES]
    return sample


def is_right_at_ends(i: int, at: Condition) -> Outcome:
    return at.get("place") in (0, 100) or (at["arm"] == "brief-context" and i % 2 == 0)


def write_positions_run(path: Path, arms: Sequence[str] = ARMS, protocol: str = "corrected", **fields: Any) -> Path:
    result: dict[str, Any] = {
        "questions": FEW,
        "conditions": make_conditions(arms),
        "name": "positions",
        "arguments": {"arms": list(arms), "ks": [8], "places": list(PLACES), "protocol": protocol, "repeats": 1},
    }
    return folder(path, is_right_at_ends, **{**result, **fields})


def findings_by_name(*paths: Path) -> Mapping[str, Findings]:
    return {finding.experiment: finding for finding in read_findings(paths)}


@pytest.mark.slow
def test_read_findings_of_positions_run_includes_conflicts_and_cost(tmp_path: Path) -> None:
    result = findings_by_name(write_positions_run(tmp_path / "run"))
    assert list(result) == ["positions", "conflicts", "cost"]
    for item in result.values():
        assert item.sources[0].complete
        assert all(any("Protocol corrected" in note for note in table.notes) for table in item.tables)
        assert all(any("one is chosen by the seed and placed" in note for note in table.notes) for table in item.tables)
        assert not any("not complete" in conclusion or "Warning" in conclusion for conclusion in item.conclusions)


@pytest.mark.slow
def test_read_findings_of_several_runs_uses_runs_with_required_arms(tmp_path: Path) -> None:
    """One without closed book does not hide what the other tells."""
    complete_run = write_positions_run(tmp_path / "whole", made_with=recipe("qwen"))
    short = write_positions_run(tmp_path / "short", ("rag", "brief-context"), made_with=recipe("llama"))
    result = findings_by_name(complete_run, short)
    names = {name: [source.name for source in item.sources] for name, item in result.items()}
    assert names == {"positions": ["qwen", "llama"], "conflicts": ["qwen", "llama"], "cost": ["qwen"]}
    assert list(findings_by_name(write_positions_run(tmp_path / "rag", ("rag",)))) == ["positions"]


@pytest.mark.slow
def test_read_findings_of_unfinished_run_states_missing_cases(tmp_path: Path) -> None:
    """Down to its first record, whose arm may be any."""
    cases = len(FEW) * len(make_conditions())
    for remaining in (cases - 1, cases // 2):
        path = write_positions_run(tmp_path / str(remaining), unasked=remaining)
        for name, item in findings_by_name(path).items():
            assert item.tables, name
            assert not item.sources[0].complete
            assert item.conclusions[0].startswith(
                f"qwen is not complete: of its {cases} cases {remaining} have no record yet, and 0 failed. "
                "A mean is over"
            )


def test_read_findings_counts_failed_cases_as_unfinished(tmp_path: Path) -> None:
    path = folder(
        tmp_path / "run",
        lambda i, at: "failed" if i == 0 else True,
        questions=FEW,
        conditions=make_conditions(("rag",)),
        name="positions",
        arguments={"arms": ["rag"]},
    )
    (result,) = read_findings([path])
    assert "0 have no record yet, and 5 failed" in result.conclusions[0]
    averages, places, *_ = result.tables
    assert [(share.value, share.n, share.unscored) for share in averages.column("share right")] == [(40 / 45, 45, 0)]  # type: ignore[union-attr]
    assert averages.column("failed") == (5,)
    assert places.column("failed") == (1,) * 5
    bounds = [(interval.low, interval.high) for interval in averages.column("share right, bounds")]  # type: ignore[union-attr]
    assert bounds == [(40 / 45, 1.0)]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["published", "as-coded", "as-coded-mixtral"])
def test_read_findings_prints_notes_of_protocol_with_its_prompts(tmp_path: Path, name: str) -> None:
    arguments = {"arms": list(ARMS), "ks": [8], "places": list(PLACES), "protocol": name, "repeats": 1}
    prompts = {"name": "gpt-3.5", "hash": "0" * 12}
    path = write_positions_run(tmp_path / "run", arguments={**arguments, "prompts": prompts})
    for table in findings_by_name(path)["positions"].tables:
        assert any(note.startswith(f"Protocol {name}: ") for note in table.notes)
        assert any(note.startswith("Prompts ") for note in table.notes)


@pytest.mark.slow
def test_read_findings_of_older_run_prints_that_prompts_were_ours(tmp_path: Path) -> None:
    path = write_positions_run(tmp_path / "run", protocol="as-coded")
    for table in findings_by_name(path)["positions"].tables:
        assert any(note.startswith("Protocol as-coded, in a run made before it had") for note in table.notes)
        assert not any(note.startswith("Prompts of the notebooks") for note in table.notes)


@pytest.mark.slow
def test_read_findings_of_different_protocols_warns(tmp_path: Path) -> None:
    one = write_positions_run(tmp_path / "one")
    other = write_positions_run(tmp_path / "other", protocol="published", sha256="7" * 64)
    result = findings_by_name(one, other)["positions"]
    assert [source.name for source in result.sources] == ["qwen (one)", "qwen (other)"]
    assert result.conclusions[0] == (
        "Warning: qwen (one) and qwen (other) are shown side by side but not compared: they differ in protocol, "
        "question set."
    )
    for table in result.tables:
        assert any(note.startswith("qwen (one): Protocol corrected") for note in table.notes)
        assert any(note.startswith("qwen (other): Protocol published") for note in table.notes)
        assert sum("missing text is an error" in note for note in table.notes) == 1, "what both have in common"


@pytest.mark.slow
def test_read_findings_of_two_models_has_no_warning(tmp_path: Path) -> None:
    paths = [write_positions_run(tmp_path / name, made_with=recipe(name)) for name in ("qwen", "llama")]
    assert not any("Warning" in conclusion for conclusion in findings_by_name(*paths)["positions"].conclusions)


@pytest.mark.slow
def test_read_findings_is_independent_of_record_order(tmp_path: Path) -> None:
    """Many calls at once end as they will."""
    first = write_positions_run(tmp_path / "a" / "run")
    second = write_positions_run(tmp_path / "b" / "run")
    lines = (second / RECORDS).read_text("utf-8").splitlines(keepends=True)
    random.Random(3).shuffle(lines)
    (second / RECORDS).write_text("".join(lines), "utf-8")
    for one, other in zip(read_findings([first]), read_findings([second]), strict=True):
        assert one.tables == other.tables
        assert one.conclusions == other.conclusions


@pytest.mark.slow
def test_read_findings_of_plain_runs_is_independent_of_record_order(tmp_path: Path) -> None:
    result = [folder(tmp_path / "a", lambda i, _: i % 3 > 0), folder(tmp_path / "b", lambda i, _: i % 4 > 0)]
    before = read_findings(result)
    for path in result:
        lines = (path / RECORDS).read_text("utf-8").splitlines(keepends=True)
        (path / RECORDS).write_text("".join(reversed(lines)), "utf-8")
    assert [finding.tables for finding in read_findings(result)] == [item.tables for item in before]
    assert before[0].experiment == "compare"


def test_read_findings_of_integration_has_cost_by_arm(tmp_path: Path) -> None:
    """Preflight's share among it."""
    sample: list[Condition] = [
        {"arm": arm, "dataset": "own", "k": 16, "repeat": 0}
        for arm in ("rag", "brief-context", "brief-context+preflight")
    ]
    path = folder(
        tmp_path / "run",
        lambda i, _: i % 2 == 0,
        questions=FEW,
        conditions=sample,
        name="integration",
        arguments={"arms": [item["arm"] for item in sample], "protocol": "corrected"},
    )
    (result,) = read_findings([path])
    took = result.tables[-1]
    assert (took.title, took.source) == ("What it took", "qwen")
    assert any("Protocol corrected" in note for note in took.notes)
    assert not any("placed" in note for note in took.notes), "nothing is"
    assert {row[:3] for row in took.rows} == {(item["arm"], 16, len(FEW)) for item in sample}


def test_read_findings_of_unknown_experiment_raises_input_error(tmp_path: Path) -> None:
    path = write_positions_run(tmp_path / "run", name="telepathy")
    with pytest.raises(InputError, match="a run of telepathy, which this program does not know: update it"):
        read_findings([path])


@pytest.mark.slow
def test_read_findings_serializes_to_json(tmp_path: Path) -> None:
    from epicrisis.core.serialization import to_json

    text = json.dumps(to_json(read_findings([write_positions_run(tmp_path / "run")])))
    assert '"lost in the middle"' in text
