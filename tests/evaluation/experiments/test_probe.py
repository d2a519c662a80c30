"""Test the two answers of the probe with a reader of known blind spot."""

from __future__ import annotations

from pathlib import Path

import pytest

from epicrisis.core.types import Passage, Question, Ranking
from epicrisis.evaluation.analysis.table import Table
from epicrisis.evaluation.experiments import positions, probe
from epicrisis.evaluation.experiments.arms import Study
from epicrisis.evaluation.experiments.cloze import draw_questions
from epicrisis.evaluation.experiments.study_protocols import PROTOCOLS
from epicrisis.evaluation.experiments.token_costs import case_costs
from epicrisis.evaluation.runs.run_folder import RECORDS
from epicrisis.pipeline.recording.answer_record import read_records
from epicrisis.retrieval.rankings import rank_in_order
from tests.support import experiments
from tests.support.experiments import build_cases
from tests.support.position_biased_reader import KeyPassage, PositionCurve, position_biased_reader, u_curve

N = 40
OWN = [
    experiments.passage(
        f"own:{i}", f"In the trial of drug {i}x the risk was lower in {i + 10} patients of the whole town."
    )
    for i in range(N)
]


def run_probe(curve: PositionCurve, folder: Path) -> tuple[Table, ...]:
    dataset, keys = draw_questions(OWN, N)

    def retrieve(question: Question, k: int) -> Ranking:
        others: list[Passage] = [
            experiments.passage(f"doc:{question.id}:{j}", f"Study {j} saw {j} towns.") for j in range(30)
        ]
        return rank_in_order([keys[question.id], *others][:k], "dense", {"k": k})

    evidence = probe.use_key_passages(experiments.evidence(retrieve=retrieve, gold_passages=lambda _: {}), keys)
    study = Study(evidence, PROTOCOLS["corrected"])
    cases = build_cases(positions, dataset.questions, study, ks=(16,), places=probe.PLACES, arms=probe.ARMS)
    reader = position_biased_reader(
        {q.text: KeyPassage(keys[q.id].text, q.gold or "") for q in dataset.questions}, curve
    )
    outcomes = experiments.run(cases, reader, folder)
    return probe.tables({"reader": outcomes}, {"reader": case_costs(read_records(folder / RECORDS))})


def map_answers(table: Table) -> dict[str, str]:
    return {str(row[2]): str(row[3]) for row in table.rows}


@pytest.mark.long
def test_probe_of_reader_losing_middle_recommends_map_reduce(tmp_path: Path) -> None:
    findings = map_answers(run_probe(u_curve(edge=0.95, dip=0.75), tmp_path)[0])
    assert findings["Does it lose the middle?"].startswith("Yes: at the ends it is right more often")
    assert findings["Is map-reduce worth it?"].startswith("Yes, it answers better: +")
    assert "times the tokens" in findings["Is map-reduce worth it?"]


@pytest.mark.long
def test_probe_of_reader_without_knowledge_warns_first(tmp_path: Path) -> None:
    """A reader of nothing loses no middle."""
    notes = run_probe(lambda place, documents: 0.0, tmp_path)[0].notes
    assert notes[0].startswith("reader: right in 0.0 % with that passage alone, in 0.0 % without any.")


@pytest.mark.long
def test_probe_of_perfect_reader_shows_no_need_of_map_reduce(tmp_path: Path) -> None:
    findings = map_answers(run_probe(lambda place, documents: 1.0, tmp_path)[0])
    assert findings["Does it lose the middle?"].startswith("Not shown")
    assert findings["Is map-reduce worth it?"].startswith("Not shown: +0.0 points")
    assert findings["Is map-reduce worth it?"].endswith("until more questions show otherwise.")


@pytest.mark.long
def test_probe_of_reader_preferring_middle_reports_reverse(tmp_path: Path) -> None:
    findings = map_answers(run_probe(lambda place, documents: 0.95 if 0 < place < documents - 1 else 0.1, tmp_path)[0])
    assert findings["Does it lose the middle?"].startswith("No, the reverse")


@pytest.mark.slow
def test_use_key_passages_replaces_gold_document_by_key_passage() -> None:
    dataset, keys = draw_questions(OWN, 1)
    (question,) = dataset.questions
    evidence = probe.use_key_passages(experiments.evidence(), keys)
    assert evidence.gold_passages(question) == {keys[question.id].document_id: (keys[question.id],)}
    other = experiments.questions(1)[0]
    assert evidence.gold_passages(other) == experiments.evidence().gold_passages(other)
