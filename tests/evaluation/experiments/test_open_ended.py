"""Test the comparison on MedQ: both arms, verdicts of people and models, and the errata's figures."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from epicrisis.answering.structured_request import ModelClient
from epicrisis.core.errors import InputError
from epicrisis.core.prompts import unfence
from epicrisis.core.protocols import ChatRequest
from epicrisis.core.serialization import to_json
from epicrisis.core.types import Question
from epicrisis.evaluation.analysis.published import load_published
from epicrisis.evaluation.analysis.statistics import Mean, sign_test, wilson
from epicrisis.evaluation.experiments import open_ended
from epicrisis.evaluation.experiments.open_ended import Judging, conclusions, read_judging, tables
from epicrisis.evaluation.grading.blind_pairs import BlindPairs, make_pairs, write_pairs
from epicrisis.evaluation.grading.human_verdicts import HumanVerdict, PreferredAnswer
from epicrisis.evaluation.grading.preference import (
    grade_pairs,
    open_preference_store,
    preference_grader,
)
from epicrisis.evaluation.runs.run_folder import RECORDS
from epicrisis.pipeline.components import LibrarySearch
from epicrisis.pipeline.pipeline import Pipeline
from epicrisis.pipeline.recording.answer_record import read_records
from epicrisis.pipeline.recording.runner import RecordStore, answer_cases
from epicrisis.retrieval.retriever import Retriever
from epicrisis.settings.settings import ROLES, Settings
from epicrisis.testing.chat import ScriptedModel
from tests.support.experiments import build_cases, row
from tests.support.grading import ARMS, WRITER, pair_records, paired, place_of, record
from tests.support.grading import questions as open_questions
from tests.support.grading import said as verdict
from tests.support.library_documents import add, create, encoder
from tests.support.strategies import NOT_FOUND, finding, said, stage_of

OURS, RIVAL = "brief-context", "rag"


def choose_arm(made: BlindPairs, pair: str, arm: str | None) -> PreferredAnswer:
    return "tie" if arm is None else place_of(made, pair, arm)  # type: ignore[return-value]


def make_verdicts(made: BlindPairs, reviewer: str, arms: Sequence[str | None]) -> list[HumanVerdict]:
    """Return one reviewer's verdicts on the first pairs, by preferred arm."""
    pairs = made.pairs[: len(arms)]
    return [
        HumanVerdict(pair.id, reviewer, choose_arm(made, pair.id, arm)) for pair, arm in zip(pairs, arms, strict=True)
    ]


MEDQ = [OURS] * 14 + [RIVAL] * 6 + [None] * 28
"""The paper's 48 comparisons (errata B11)."""


# -- cases ------------------------------------------------------------------------------------------------------------


def test_cases_ask_each_question_of_both_arms() -> None:
    cases = build_cases(open_ended, open_questions(3))
    assert [case.condition["arm"] for case in cases] == [RIVAL, OURS] * 3
    assert all(case.treatment.strategy == case.condition["arm"] for case in cases)
    assert not any(case.treatment.preflight or case.treatment.ranking for case in cases)
    with pytest.raises(InputError, match="no question to ask"):
        build_cases(open_ended, [])


def reply_to_request(request: ChatRequest) -> str:
    """Abstain from question 1 if all passages are in one prompt; else name the arm in the reply."""
    text = request.messages[-1].content
    stage = stage_of(request)
    if stage == "rag":
        if "stroke" in text.partition("<documents>")[0]:
            return NOT_FOUND
        return said(quotes=[{"doc": 1, "quote": unfence(text)[0]}], answer="The whole says it helps [doc 1].")
    if stage == "map":
        return finding(choice=None, quote=unfence(text)[0].splitlines()[-1])
    return said(sources=[1], answer="The parts say it helps (finding 1).")


def test_open_ended_run_over_real_library_yields_verdicts(tmp_path: Path) -> None:
    """Errata C9: with a real library, real retrieval and real records."""
    with create(tmp_path / "library") as result:
        add(result, 0, 12)
    sample = [Question("What does aspirin do?", id="0", gold="x"), Question("What helps in stroke?", id="1", gold="y")]
    model = ScriptedModel(reply_to_request)

    async def run() -> None:
        from epicrisis.library.core.library_store import LibraryStore

        library = LibraryStore.open(tmp_path / "library")
        opened = LibrarySearch(library, Retriever(library, encoder()))
        async with Pipeline(
            Settings(k=8, citing="quotes", not_in_library="ask"), dict.fromkeys(ROLES, model), opened
        ) as pipeline:
            records = RecordStore(tmp_path / RECORDS, pipeline.recipe(), texts=False)
            async for _ in answer_cases(pipeline, build_cases(open_ended, sample), records):
                pass
        library.close()

    asyncio.run(run())
    made_pairs = make_pairs(read_records(tmp_path / RECORDS), ARMS, 0)
    (pair,) = made_pairs.pairs
    assert {pair.first, pair.second} == {"The whole says it helps.", "The parts say it helps."}
    assert list(made_pairs.key.left_out.values()) == [{RIVAL: "abstained", OURS: "answered"}]
    (answered,) = tables({"m": Judging(made_pairs)})
    assert [row(answered, "m", RIVAL)[name] for name in ("asked", "answered", "abstained")] == [2, 1, 1]
    assert row(answered, "m", OURS)["answered"] == 2
    assert any("1 question without a pair because an arm did not answer" in note for note in answered.notes)


# -- verdicts ---------------------------------------------------------------------------------------------------------


def test_verdicts_table_of_paper_counts_is_not_significant() -> None:
    pairs = paired(48)
    judging = Judging(pairs, tuple(make_verdicts(pairs, "experts", MEDQ)))
    _, verdicts, _, _ = tables({"GPT": judging})
    result = row(verdicts, "GPT", "experts")
    assert (result["judged"], result["better"], result["same"], result["worse"]) == (48, 14, 28, 6)
    assert result["p (Holm)"] == pytest.approx(0.115, abs=5e-4)
    share = result["share better"]
    assert isinstance(share, Mean)
    assert (share.n, share.unscored) == (48, 0)
    printed = load_published()["open-ended"].figure("percent", "better")
    assert 100 * share.value == pytest.approx(printed, abs=0.05)
    assert (round(share.interval.low, 3), round(share.interval.high, 3)) == (0.182, 0.432)
    decided = result["share of decided"]
    assert isinstance(decided, Mean)
    assert (decided.value, decided.n) == (0.7, 20)
    assert "a difference is not shown (exact sign test, p = 0.115 corrected)" in conclusions({"GPT": judging})[0]
    assert open_ended.EXPERIMENT.published == ("open-ended",)


def test_verdicts_table_of_clear_preference_is_significant() -> None:
    pairs = paired(40)
    for arm, better, worse in ((OURS, 30, 0), (RIVAL, 0, 30)):
        judging = Judging(pairs, tuple(make_verdicts(pairs, "anna", [arm] * 30 + [None] * 10)))
        result = row(tables({"m": judging})[1], "m", "anna")
        assert (result["better"], result["worse"]) == (better, worse)
        assert result["p (Holm)"] == pytest.approx(2 / 2**30)
        assert ": a difference is shown" in conclusions({"m": judging})[0]


def test_verdicts_table_tests_majority_and_counts_missing_verdicts() -> None:
    result = paired(4)
    people = (
        *make_verdicts(result, "anna", [OURS, OURS, RIVAL]),
        *make_verdicts(result, "ben", [OURS, RIVAL, RIVAL]),
        *make_verdicts(result, "chris", [OURS, None]),
    )
    verdicts = tables({"m": Judging(result, people)})[1]
    majority = row(verdicts, "m", "majority of 3 reviewers")
    # The second pair: one each; the fourth nobody judged.
    assert [majority[name] for name in ("judged", "not judged", "better", "same", "worse")] == [3, 1, 1, 1, 1]
    assert majority["p (Holm)"] == 1.0
    chris = row(verdicts, "m", "chris")
    assert (chris["judged"], chris["not judged"], chris["p (Holm)"]) == (2, 2, None)


def test_verdicts_table_counts_equal_answers_as_ties() -> None:
    questions = open_questions(3)
    records = pair_records(
        [record(item, arm, "It helps." if item.id == "0" else f"{arm} helps.") for item in questions for arm in ARMS],
        ARMS,
        0,
    )
    result = row(tables({"m": Judging(records, tuple(make_verdicts(records, "anna", [OURS, OURS])))})[1], "m", "anna")
    assert (result["judged"], result["better"], result["same"]) == (3, 2, 1)


def test_tables_without_verdicts_show_answers_only() -> None:
    result = tables({"m": Judging(paired(2))})
    assert [table.title for table in result] == ["What was answered"]
    assert conclusions({"m": Judging(paired(2))}) == ()


# -- agreement and place ----------------------------------------------------------------------------------------------


def test_agreement_table_compares_arms_not_places() -> None:
    result = paired(20)
    arms = [OURS] * 10 + [RIVAL] * 6 + [None] * 4
    judging = Judging(result, (*make_verdicts(result, "anna", arms), *make_verdicts(result, "ben", arms[:15])))
    (people,) = tables({"m": judging})[2].rows
    assert people[:4] == ("m", "people", 2, 15)
    assert people[5] == people[7] == 1.0
    assert people[6] is people[8] is None, "no spread to tell of"
    assert "m: people agree in 100.0 % of 15 pairs (Krippendorff's alpha 1.00)." in conclusions({"m": judging})


def test_positions_table_detects_reviewer_biased_by_place() -> None:
    pairs = paired(40)
    people = tuple(HumanVerdict(pair.id, "anna", "1") for pair in pairs.pairs)
    _, verdicts, _, positions = tables({"m": Judging(pairs, people)})
    result = row(verdicts, "m", "anna")
    assert (result["better"], result["worse"], result["p (Holm)"]) == (20, 20, 1.0)
    place = row(positions, "m", "anna")
    assert (place["first better"], place["second better"], place["consistent"]) == (40, 0, None)
    assert place["p (Holm)"] < 1e-9
    assert any("a preference is shown" in conclusion for conclusion in conclusions({"m": Judging(pairs, people)}))


def test_verdicts_without_preference_have_nominal_false_alarms() -> None:
    result = paired(48)
    alarms = 0
    for seed in range(200):
        dice = random.Random(seed)
        people = tuple(HumanVerdict(pair.id, "anna", dice.choice(("1", "2", "tie"))) for pair in result.pairs)
        arms = [result.key.preferred(item.pair, item.choice) for item in people]
        alarms += sign_test(arms.count(OURS), arms.count(RIVAL)) < 0.05
    assert alarms <= 16


def judge_by_model(made: BlindPairs, script: object, folder: Path, name: str = "judge") -> Path:
    path = folder / f"{name}.jsonl"

    async def run() -> None:
        asker = ModelClient(ScriptedModel(script), model_recipe={"name": name})  # type: ignore[arg-type]
        grader = preference_grader(asker)
        async for _ in grade_pairs(made.pairs, grader, open_preference_store(path, grader)):
            pass

    asyncio.run(run())
    return path


def make_judge(word: str) -> object:
    return lambda request: verdict("1" if word in unfence(request.messages[-1].content)[0] else "2")


def test_tables_from_files_show_judges_and_people(tmp_path: Path) -> None:
    result = paired(12)
    write_pairs(result, tmp_path / "judging")
    lines = [
        {"pair": item.pair, "verdict": item.choice} for item in make_verdicts(result, "anna", [OURS] * 8 + [RIVAL] * 4)
    ]
    anna = tmp_path / "anna.jsonl"
    anna.write_text("".join(json.dumps(line) + "\n" for line in lines))
    steady = judge_by_model(result, make_judge("parts"), tmp_path, "steady")
    first = judge_by_model(result, lambda _: verdict("1"), tmp_path, "first")
    mute = judge_by_model(result, lambda _: "no idea", tmp_path, WRITER)
    judging = read_judging(tmp_path / "judging", [anna], [steady, first, mute])
    _, verdicts, agreement, positions = tables({"m": judging})

    assert [row(verdicts, "m", "steady")[name] for name in ("better", "same", "worse")] == [12, 0, 0]
    assert [row(verdicts, "m", "first")[name] for name in ("better", "same", "worse")] == [0, 12, 0]
    assert [row(verdicts, "m", WRITER)[name] for name in ("judged", "not judged", "same")] == [0, 12, 0]
    assert row(verdicts, "m", WRITER)["share better"] is None
    # Four tests: anna 8 against 4, steady 12 against 0, the two others nothing.
    assert row(verdicts, "m", "steady")["p (Holm)"] == pytest.approx(4 * 2 / 2**12)
    assert any(f"{WRITER} wrote the answers that it judges" in note for note in verdicts.notes)

    place = {name: row(positions, "m", name) for name in ("steady", "first", WRITER)}
    assert [place["steady"][name] for name in ("first better", "second better", "consistent")] == [12, 12, 12]
    assert (place["steady"]["p (Holm)"], place["steady"]["share first"]) == (1.0, None)
    assert [place["first"][name] for name in ("first better", "inconsistent", "consistent")] == [24, 12, 0]
    # Two replies to a pair are one case: 12 pairs, not 24.
    assert place["first"]["share first"] == Mean(1.0, wilson(12, 12), 12)
    assert place["first"]["p (Holm)"] == pytest.approx(4 * 2 / 2**12)
    assert (place[WRITER]["unparsed"], place[WRITER]["failed"], place[WRITER]["share first"]) == (12, 0, None)

    names = [cells[1] for cells in agreement.rows]
    assert names[:3] == ["people and steady", "people and first", f"people and {WRITER}"]
    people_and_steady = dict(zip(agreement.columns, agreement.rows[0], strict=True))
    assert (people_and_steady["pairs"], people_and_steady["agreement"].value) == (12, pytest.approx(8 / 12))  # type: ignore[union-attr]
    # Either of them says one thing alone but anna: chance explains all of it.
    assert people_and_steady["Cohen's kappa"] == pytest.approx(0)


def test_tables_serialize_to_strict_json(tmp_path: Path) -> None:
    result = paired(3)
    empty = judge_by_model(result, lambda _: "no idea", tmp_path)
    write_pairs(result, tmp_path / "judging")
    judging = read_judging(tmp_path / "judging", (), [empty])
    text = json.dumps([to_json(table) for table in tables({"m": judging})], allow_nan=False)
    assert [table["title"] for table in json.loads(text)] == [table.title for table in tables({"m": judging})]


def test_verdicts_are_shown_by_specialty_of_the_question() -> None:
    """The paper's experts judge the questions of their specialty."""
    specialties = ["Dermatology", "Headache", "Diabetes"]
    lines = []
    for question in open_questions(12):
        asked = replace(question, category=specialties[int(question.id) % 3])
        lines += [record(asked, arm, f"{arm} says so.") for arm in ARMS]
    made = pair_records(lines)
    verdicts = []
    for pair in made.pairs:
        specialty = made.key.categories[made.key.questions[pair.id]]
        verdicts.append(
            HumanVerdict(pair.id, "Ann", choose_arm(made, pair.id, OURS if specialty == "Headache" else None))
        )
    by_specialty = next(
        table for table in tables({"m": Judging(made, tuple(verdicts))}) if table.title == "By specialty"
    )
    assert by_specialty.columns[:2] == ("specialty", "judge")
    assert [(cells[0], *cells[2:7]) for cells in by_specialty.rows] == [
        ("Dermatology", 4, 0, 0, 4, 0),
        ("Diabetes", 4, 0, 0, 4, 0),
        ("Headache", 4, 0, 4, 0, 0),
    ]
