"""Test conflicts among parts: the paper's example through the whole path, and counts by manual calculation."""

from __future__ import annotations

import asyncio
import hashlib
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from epicrisis.core.errors import EndpointRejected
from epicrisis.core.protocols import ChatRequest
from epicrisis.core.types import AnswerState, Passage, Question, Ranking
from epicrisis.evaluation.analysis import statistics
from epicrisis.evaluation.analysis.statistics import sign_test
from epicrisis.evaluation.analysis.table import Table
from epicrisis.evaluation.experiments import positions
from epicrisis.evaluation.experiments.arms import Study
from epicrisis.evaluation.experiments.conflicts import (
    RULES,
    PartialChoice,
    PartitionedCase,
    conflicts_table,
    partitioned_cases,
    parts_table,
    rules_table,
    split_arms,
)
from epicrisis.evaluation.experiments.study_protocols import PROTOCOLS
from epicrisis.evaluation.runs.outcomes import Outcome
from epicrisis.evaluation.runs.run_folder import RECORDS
from epicrisis.pipeline.overrides import RunOverrides
from epicrisis.pipeline.recording.answer_record import RunRecord, read_records
from epicrisis.pipeline.recording.case import Case
from epicrisis.retrieval.rankings import rank_in_order
from epicrisis.testing.chat import ScriptedModel
from tests.support.experiments import answer, build_cases, evidence, near, questions, reader, row
from tests.support.position_biased_reader import u_curve
from tests.support.strategies import NOT_FOUND, by_stage, finding, said, stage_of

OPTIONS = {"A": "yes", "B": "no", "C": "maybe"}
SPECIALTY = Question(
    "The promise of specialty pharmaceuticals: are they worth the price?",
    options=OPTIONS,
    form="choice",
    id="18507507",
    gold="A",
    gold_documents=("pubmed:18507507",),
)


# -- PubMedQA 18507507, where BriefContext fails and plain RAG succeeds -----------------------------------------------


def make_abstracts() -> Ranking:
    """Return eight abstracts: the key document first, the two that the paper names in the second half."""
    texts = {
        "18507507": ("2008", "For the right patients the costly drugs are good value."),
        "1": ("2001", "Costs of drugs rise."),
        "2": ("2002", "Payers ask for evidence."),
        "3": ("2003", "Adherence was measured."),
        "28911475": ("2017", "Whether the price is justified remains open."),
        "24991326": ("2014", "Benefits and costs are uncertain."),
        "4": (None, "A survey of pharmacists."),
        "5": ("2005", "Claims data were linked."),
    }
    result = [
        Passage(
            id=f"pubmed:{pmid}#0", document_id=f"pubmed:{pmid}", ordinal=0, start=0, end=len(text), text=text, date=date
        )
        for pmid, (date, text) in texts.items()
    ]
    return rank_in_order(result, "dense", {"k": 8})


def read_half(request: ChatRequest) -> str:
    """Reply to each half as in the paper's example."""
    if "good value" in request.messages[-1].content:
        return finding(1, "They can be worth it.", "A", "good value")
    return finding(1, "It is not settled.", "C", "remains open")


def run_paper_example(tmp_path: Path, **scripts: Any) -> list[RunRecord]:
    model = ScriptedModel(
        by_stage(
            **{
                "map": read_half,
                "reduce": said(sources=[2], answer="It is uncertain.", choice="C"),
                "rag": said(quotes=[], answer="Yes.", choice="A"),
                **scripts,
            }
        )
    )
    cases = [
        Case(
            SPECIALTY,
            {"arm": arm, "k": 8, "place": 0, "repeat": 0},
            RunOverrides(options={"strategy": arm, "partition": 4}, ranking=make_abstracts(), preflight=False),
        )
        for arm in ("brief-context", "rag")
    ]
    asyncio.run(answer(cases, model, tmp_path / "run"))
    return list(read_records(tmp_path / "run" / RECORDS))


def test_conflicts_table_counts_example_of_paper_as_loss(tmp_path: Path) -> None:
    cases, rag = split_arms(run_paper_example(tmp_path))
    (case,) = cases
    assert case.stated == (PartialChoice("A", 1, 20081231, True), PartialChoice("C", 1, 20171231, False))
    assert case.conflict
    assert (case.final, case.gold) == ("C", "A")
    table = conflicts_table(cases, rag, ("k", "place"))
    (cells, _) = table.rows
    text = row(table, 8, 0)
    assert cells[:2] == (8, 0)
    assert (text["read in parts"], text["conflicts"], text["wrong"], text["right"]) == (1, 1, 1, 0)
    assert (text["win"], text["tie"], text["lose"], text["not compared"]) == (0, 0, 1, 0)
    assert text["resolved"].value == 0
    assert text["RAG right"].value == 1


def test_rules_table_of_example_follows_newest_and_last_part(tmp_path: Path) -> None:
    cases, _ = split_arms(run_paper_example(tmp_path))
    table = rules_table(cases)
    followed = {name: (row(table, name)["speaks"], row(table, name)["followed"]) for name in RULES}
    assert {name: mean.value for name, (speaks, mean) in followed.items() if speaks} == {
        "first part": 0,
        "last part": 1,
        "newest quoted passage": 1,
        "part with the key document": 0,
    }
    assert [name for name, (speaks, _) in followed.items() if not speaks] == [
        "majority of the parts",
        "most quotations",
    ]
    key = row(table, "part with the key document")
    assert (key["rule right"].value, key["answer right"].value, key["difference to the rule"].value) == (1, 0, -1)


def test_partitioned_cases_with_failed_or_empty_part_have_no_conflict(tmp_path: Path) -> None:
    def silent(request: ChatRequest) -> str:
        return finding(1, "Worth it.", "A", "good value") if "good value" in request.messages[-1].content else NOT_FOUND

    def failing(request: ChatRequest) -> str:
        if "good value" in request.messages[-1].content:
            return finding(1, "Worth it, or not.", None)
        raise EndpointRejected("the endpoint refused the request: check the key")

    cases, _ = split_arms(run_paper_example(tmp_path / "silent", map=silent))
    (case,) = cases
    assert (len(case.stated), case.undecided, case.nothing, case.failed) == (1, 0, 1, 0)
    assert not case.conflict
    cases, _ = split_arms(run_paper_example(tmp_path / "failing", map=failing))
    (case,) = cases
    assert (case.stated, case.undecided, case.nothing, case.failed) == ((), 1, 0, 1)
    assert not case.conflict


# -- by hand ----------------------------------------------------------------------------------------------------------


def make_case(
    number: int,
    stated: str,
    final: str | None,
    gold: str = "A",
    *,
    state: AnswerState = "answered",
    place: int = 0,
    **fields: Any,
) -> PartitionedCase:
    right = final == gold if state == "answered" else None
    outcome = Outcome(
        question=f"q{number}",
        condition={"arm": "brief-context", "place": place},
        state=state,
        right=right,
        chance=1 / 3,
    )
    return PartitionedCase(
        outcome=outcome,
        final=final,
        gold=gold,
        stated=tuple(PartialChoice(choice, 1, None, False) for choice in stated),
        **{"undecided": 0, "nothing": 0, "unparsed": 0, "failed": 0, **fields},
    )


def make_rag_outcome(number: int, right: bool | None, *, state: AnswerState = "answered", place: int = 0) -> Outcome:
    return Outcome(
        question=f"q{number}", condition={"arm": "rag", "place": place}, state=state, right=right, chance=1 / 3
    )


CASES = (
    make_case(0, "AB", "A"),  # win
    make_case(1, "ABB", "B"),  # lose, by the majority
    make_case(2, "BA", "A"),  # tie, both right
    make_case(3, "BC", "B"),  # tie, both wrong: no part has it
    make_case(4, "AA", "A"),  # they agree
    make_case(5, "A", "A"),  # one alone
    make_case(6, "AC", None, state="abstained"),  # RAG right: lose
    make_case(7, "AB", None, state="failed"),  # RAG right: lose
    make_case(8, "AB", "A"),  # RAG failed: win
    make_case(9, "AB", "C", place=100),  # an answer no part stated; RAG was not asked
    make_case(0, "AB", "A", place=100),  # win, the same question elsewhere
)
RAG = (
    make_rag_outcome(0, False),
    make_rag_outcome(1, True),
    make_rag_outcome(2, True),
    make_rag_outcome(3, False),
    make_rag_outcome(4, False),
    make_rag_outcome(5, True),
    make_rag_outcome(6, True),
    make_rag_outcome(7, True),
    make_rag_outcome(8, None, state="failed"),
    make_rag_outcome(0, None, state="unparsed", place=100),
)


def test_conflicts_table_matches_manual_counts() -> None:
    table = conflicts_table(CASES, RAG, ("place",))
    names = (
        "read in parts",
        "conflicts",
        "right",
        "wrong",
        "abstained",
        "unparsed",
        "failed",
        "win",
        "tie",
        "lose",
        "not compared",
    )
    assert [row(table, 0)[name] for name in names] == [9, 7, 3, 2, 1, 0, 1, 2, 2, 3, 0]
    assert [row(table, 100)[name] for name in names] == [2, 2, 1, 1, 0, 0, 0, 1, 0, 0, 1]
    assert [row(table, "all")[name] for name in names] == [11, 9, 4, 3, 1, 0, 1, 3, 2, 3, 1]
    resolved, rival = row(table, 0)["resolved"], row(table, 0)["RAG right"]
    assert (resolved.value, resolved.n, resolved.unscored) == (pytest.approx(3 / 7), 7, 0)
    assert (rival.n, rival.unscored) == (7, 0)
    difference = row(table, "all")["difference to RAG"]
    assert (difference.n, difference.clusters, difference.value) == (8, 7, 0)


@pytest.mark.long
def test_conflicts_table_without_effect_has_nominal_false_alarms(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most 16 of 200 seeds, where BriefContext and plain RAG are right as often: any row of the table counts."""
    monkeypatch.setattr(statistics, "RESAMPLES", 200)
    alarms = 0
    for seed in range(200):
        dice = random.Random(seed)
        at = [(number, place) for number in range(30) for place in (0, 50, 100)]
        ours = [make_case(number, "AB", dice.choice("AB"), place=place) for number, place in at]
        theirs = [make_rag_outcome(number, dice.random() < 0.5, place=place) for number, place in at]
        table = conflicts_table(ours, theirs, ("place",))
        alarms += min(p for p in table.column("p (Holm)") if isinstance(p, float)) < 0.05
    assert 1 <= alarms <= 16


def test_conflicts_table_corrects_its_tests_together() -> None:
    """Twelve questions won at one place, six won and six lost at the other."""
    ours = [
        make_case(i, "AB", "A" if place == 0 or i % 2 else "B", place=place) for place in (0, 50) for i in range(12)
    ]
    theirs = [make_rag_outcome(i, place == 50 and i % 2 == 0, place=place) for place in (0, 50) for i in range(12)]
    table = conflicts_table(ours, theirs, ("place",))
    first, second = row(table, 0), row(table, 50)
    assert first["difference to RAG"].p == pytest.approx(sign_test(12, 0))
    assert first["p (Holm)"] == pytest.approx(3 * sign_test(12, 0))
    assert (second["win"], second["lose"]) == (6, 6)
    assert second["p (Holm)"] == 1
    assert "3 comparisons" in " ".join(table.notes)


def test_rules_table_matches_manual_counts() -> None:
    said = rules_table(CASES)
    majority = row(said, "majority of the parts")
    assert (majority["speaks"], majority["followed"].value, majority["rule right"].value) == (1, 1, 0)
    first = row(said, "first part")
    # First part / answer: 0 A/A, 1 A/B, 2 B/A, 3 B/B, 8 A/A, 9 A/C, 0 again A/A; two conflicts have no answer.
    assert (first["speaks"], first["no answer"]) == (9, 2)
    assert (first["followed"].value, first["followed"].n) == (pytest.approx(4 / 7), 7)
    assert first["rule right"].value == pytest.approx(7 / 9)
    assert any("In 1 the answer is a choice that no part stated" in note for note in said.notes)
    # Nine conflicts, q0 twice.
    assert "Guessing among the options would be right in 33.3 % of the 8 questions." in said.notes


@pytest.mark.parametrize(
    ("rule", "parts", "choice"),
    [
        ("majority of the parts", [("A", 1, None), ("B", 1, None), ("B", 1, None)], "B"),
        ("majority of the parts", [("A", 1, None), ("B", 1, None)], None),
        ("newest quoted passage", [("A", 1, 2001), ("B", 1, 2000), ("B", 1, None)], "A"),
        ("newest quoted passage", [("A", 1, 2001), ("B", 1, 2001)], None),
        ("newest quoted passage", [("A", 1, 2001), ("A", 1, 2001), ("B", 0, None)], "A"),
        ("newest quoted passage", [("A", 1, None), ("B", 1, None)], None),
        ("most quotations", [("A", 0, None), ("B", 3, None), ("A", 2, None)], "B"),
        ("first part", [("B", 0, None), ("A", 3, None)], "B"),
        ("last part", [("B", 0, None), ("A", 3, None)], "A"),
        ("part with the key document", [("B", 0, None), ("A", 3, None)], None),
    ],
)
def test_rule_returns_expected_choice(
    rule: str, parts: Sequence[tuple[str, int, int | None]], choice: str | None
) -> None:
    assert RULES[rule]([PartialChoice(*part, key=False) for part in parts]) == choice


def test_key_document_rule_returns_choice_of_one_key_part() -> None:
    rule = RULES["part with the key document"]
    assert rule([PartialChoice("A", 1, None, False), PartialChoice("B", 1, None, True)]) == "B"
    assert rule([PartialChoice("A", 1, None, True), PartialChoice("B", 1, None, True)]) is None


def test_parts_table_matches_manual_counts() -> None:
    cases = (
        *CASES[:3],
        make_case(4, "AA", "A", nothing=2),
        make_case(5, "", None, state="failed", unparsed=1, failed=2, undecided=1),
        make_case(6, "A", "A"),
    )
    table = parts_table(cases, ("place",))
    assert table.rows[-1] == ("all", 6, 2 + 3 + 2 + 2 + 1, 1, 2, 1, 2, 1, 1, 1, 3)
    assert table.rows[0][1:] == table.rows[-1][1:]


# -- which records ----------------------------------------------------------------------------------------------------


def test_conflicts_table_with_missing_arm_compares_nothing(tmp_path: Path) -> None:
    """As in a run that was broken off: nothing is compared, and what there is is told."""
    records = run_paper_example(tmp_path)
    ours, rival = split_arms([record for record in records if record.arm == "brief-context"])
    cells = row(conflicts_table(ours, rival))
    assert (cells["conflicts"], cells["not compared"]) == (1, 1)
    assert cells["win"] == cells["tie"] == cells["lose"] == 0
    assert cells["difference to RAG"] is None
    table = conflicts_table(*split_arms([record for record in records if record.arm == "rag"]))
    assert row(table)["read in parts"] == 0
    assert not any("nan" in note for note in table.notes)


def test_split_arms_without_conditions_uses_strategy(tmp_path: Path) -> None:
    records = [
        record.model_copy(update={"key": record.question_key, "condition": {}})
        for record in run_paper_example(tmp_path)
    ]
    cases, rival = split_arms(records)
    table: Table = conflicts_table(cases, rival)
    assert dict(zip(table.columns, table.rows[0], strict=True))["lose"] == 1


def test_partitioned_cases_leave_out_questions_answered_in_one_prompt(tmp_path: Path) -> None:
    assert len(partitioned_cases(run_paper_example(tmp_path))) == 1


# -- known answers, through the whole path ----------------------------------------------------------------------------


def draw_choice(*parts: object) -> float:
    return int.from_bytes(hashlib.sha256("\0".join(map(str, parts)).encode()).digest()[:8], "big") / 2**64


def find_choice(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    assert match is not None
    return match[1]


def reply_with_conflicts(request: ChatRequest) -> str:
    """Reply with the gold letter for a part with the key, else half of the time with a wrong one. Reduce follows
    the first part; plain RAG is right four times in five."""
    prompt = request.messages[-1].content
    number = int(find_choice(r"Does drug (\d+) help", prompt))
    gold, wrong = "ABC"[number % 3], "ABC"[(number + 1) % 3]
    match stage_of(request):
        case "rag":
            return said(quotes=[], answer="So.", choice=gold if draw_choice("rag", number) < 0.8 else wrong)
        case "reduce":
            return said(sources=[], answer="So.", choice=find_choice(r"\(option ([A-C])\)", prompt))
    if "tells it here" in prompt:
        return finding(1, "The trial tells it.", gold)
    return finding(1, "A study tells otherwise.", wrong) if draw_choice("map", prompt) < 0.5 else NOT_FOUND


@pytest.mark.long
def test_rules_table_detects_reader_that_follows_first_part(tmp_path: Path) -> None:
    n = 60
    study = Study(evidence(), PROTOCOLS["corrected"])
    sample = build_cases(positions, questions(n), study, ks=(8,), places=(0, 100), arms=("rag", "brief-context"))
    asyncio.run(answer(sample, ScriptedModel(reply_with_conflicts), tmp_path / "run"))
    cases, rival = split_arms(read_records(tmp_path / "run" / RECORDS))
    table = conflicts_table(cases, rival, ("place",))
    first, last = row(table, 0), row(table, 100)
    # The key is read in the first part at the one place, in the last at the other.
    assert first["resolved"].value == 1
    assert last["resolved"].value == 0
    assert (first["lose"], last["win"]) == (0, 0)
    for cells in (first, last):
        assert near(cells["conflicts"] / n, 0.5, n)
        assert near(cells["RAG right"].value, 0.8, cells["conflicts"])
    assert first["difference to RAG"].interval.low > 0 > last["difference to RAG"].interval.high
    assert first["p (Holm)"] < 0.05
    followed = {name: row(rules_table(cases), name)["followed"] for name in ("first part", "last part")}
    assert (followed["first part"].value, followed["last part"].value) == (1, 0)
    assert row(rules_table(cases), "part with the key document")["rule right"].value == 1


@pytest.mark.slow
def test_conflicts_table_of_consistent_reader_has_no_conflict(tmp_path: Path) -> None:
    sample = questions(12)
    study = Study(evidence(), PROTOCOLS["corrected"])
    result = build_cases(positions, sample, study, ks=(8,), places=(50,), arms=("rag", "brief-context"))
    asyncio.run(answer(result, reader(sample, u_curve()), tmp_path / "run"))
    cases, rival = split_arms(read_records(tmp_path / "run" / RECORDS))
    table = conflicts_table(cases, rival)
    (cells,) = [dict(zip(table.columns, item, strict=True)) for item in table.rows]
    assert (cells["read in parts"], cells["conflicts"], cells["difference to RAG"]) == (12, 0, None)
