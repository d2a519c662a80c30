"""Test the context-retrieval experiments with models of known votes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from epicrisis.core.errors import InputError
from epicrisis.core.protocols import ChatRequest
from epicrisis.core.types import Example, Examples, Question
from epicrisis.evaluation.analysis.grouping import STATES
from epicrisis.evaluation.experiments import ensembles, medprompt, model_comparison
from epicrisis.evaluation.experiments.arms import Study
from epicrisis.evaluation.experiments.passage_source import PassageSource
from epicrisis.evaluation.experiments.study_protocols import PROTOCOLS
from epicrisis.evaluation.experiments.vote_sampling import COT, SC, SHUFFLED, ZERO, usage_table
from epicrisis.evaluation.runs.run_folder import RECORDS
from epicrisis.pipeline.recording.answer_record import read_records
from epicrisis.settings.tables import VoteSettings
from epicrisis.testing.chat import ScriptedModel
from tests.support.experiments import build_cases, row, run
from tests.support.position_biased_reader import build_voter
from tests.support.replies import fill

OPTIONS = {"A": "gout", "B": "scurvy", "C": "rickets", "D": "measles"}
N = 80


def questions(n: int = N) -> list[Question]:
    return [
        Question(f"Case {i}: what is it?", options=OPTIONS, form="choice", id=str(i), gold="ABCD"[i % 4])
        for i in range(n)
    ]


def make_biased_model(asked: Sequence[Question], first: float) -> ScriptedModel:
    """Return a model that is right except for a bias to the first option."""
    beliefs = {q.text: {text: float(letter == q.gold) for letter, text in q.options.items()} for q in asked}
    return build_voter(beliefs, first=first)


def test_ensembles_cases_have_one_condition_each_with_most_votes_first() -> None:
    cases = build_cases(ensembles, questions(1), Study(PassageSource(), PROTOCOLS["corrected"], 2, 5), votes=(1, 4))
    conditions = [(case.condition["arm"], case.condition.get("votes"), case.condition["repeat"]) for case in cases]
    assert conditions == [
        (ZERO, None, 0),
        (ZERO, None, 1),
        (COT, None, 0),
        (COT, None, 1),
        (SC, 4, 0),
        (SC, 4, 1),
        (SC, 1, 0),
        (SC, 1, 1),
        (SHUFFLED, 4, 0),
        (SHUFFLED, 4, 1),
        (SHUFFLED, 1, 0),
        (SHUFFLED, 1, 1),
    ]
    assert [case.treatment.options["seed"] for case in cases[:2]] == [5, 6]
    shuffled = next(case for case in cases if case.condition["arm"] == SHUFFLED)
    assert shuffled.treatment.options["votes"] == VoteSettings(n=4, shuffle=True)
    with pytest.raises(InputError, match="no arm is called magic: known are zero-shot, chain-of-thought"):
        build_cases(ensembles, questions(1), arms=("magic",))
    with pytest.raises(InputError, match="question 'x' has no options or no gold letter"):
        build_cases(ensembles, [Question("Why?", id="x")])


@pytest.mark.slow
def test_ensembles_cases_vary_temperature_for_one_number_of_votes(tmp_path: Path) -> None:
    """The one that is set is not asked twice; where it is varied the other tables are of that one alone."""
    sample = questions(6)
    cases = build_cases(ensembles, sample, votes=(3, 1), temperatures=(1.0, 0.7, 0.3), arms=(COT, SHUFFLED))
    first = [case for case in cases if case.question == sample[0]]
    votes_and_temperatures = [(case.condition.get("votes"), case.condition.get("temperature")) for case in first]
    assert votes_and_temperatures == [(None, None), (3, None), (1, None), (3, 0.3), (3, 1.0)]
    result = [case.treatment.options["votes"].temperature for case in first if "votes" in case.treatment.options]
    assert result == [0.7, 0.7, 0.3, 1.0]
    outcomes = run(cases, make_biased_model(sample, 0.6), tmp_path / "run")
    *others, by_temperature = ensembles.tables({"voter": outcomes})
    assert [cells[1:4] for cells in by_temperature.rows] == [(SHUFFLED, 3, t) for t in ("as set", 0.3, 1.0)]
    conditions = [row(by_temperature, "voter", SHUFFLED, 3, t) for t in ("as set", 0.3, 1.0)]
    assert [sum(cells[state] for state in STATES) for cells in conditions] == [6, 6, 6]
    without = ensembles.tables({"voter": [outcome for outcome in outcomes if "temperature" not in outcome.condition]})
    assert [item.rows for item in without] == [other.rows for other in others]


@pytest.mark.long
def test_ensembles_tables_show_shuffling_removes_order_bias(tmp_path: Path) -> None:
    """60 % of the votes go to what stands first: unshuffled they win where it is wrong, however many there are."""
    sample = questions()
    outcomes = run(build_cases(ensembles, sample, votes=(1, 12)), make_biased_model(sample, 0.6), tmp_path / "run")
    methods, shuffling, by_votes = ensembles.tables({"voter": outcomes})
    few, many = (row(by_votes, "voter", SC, n)["share right"].value for n in (1, 12))
    assert few < 0.75
    assert many < 0.6, "more votes make the bias surer"
    assert row(by_votes, "voter", SHUFFLED, 12)["share right"].value > 0.95
    gain = row(shuffling, "voter", 12)
    assert gain["difference to options as they are"].value > 0.35
    assert gain["p (Holm)"] < 0.001
    assert row(methods, "voter", ZERO, None)["share right"].value == 0.25, "the most probable is what stands first"
    took = usage_table({"voter": read_records(tmp_path / "run" / RECORDS)}, ("arm", "votes"))
    assert row(took, "voter", SC, 12)["calls"].value == 12
    assert row(took, "voter", COT, None)["calls"].value == 1


@pytest.mark.long
def test_ensembles_tables_show_no_gain_by_shuffling_for_unbiased_model(tmp_path: Path) -> None:
    sample = questions()
    cases = build_cases(ensembles, sample, votes=(4,), arms=(COT, SC, SHUFFLED))
    _, shuffling, _ = ensembles.tables({"voter": run(cases, make_biased_model(sample, 0.0), tmp_path / "run")})
    assert row(shuffling, "voter", 4)["difference to options as they are"].value == 0


# -- solved questions -------------------------------------------------------------------------------------------------


def make_helped_model(asked: Sequence[Question]) -> ScriptedModel:
    """Return a model that knows half of the answers and reads the others from an example."""
    by_text = {q.text: q for q in asked}

    def script(request: ChatRequest) -> str:
        question = next(q for text, q in by_text.items() if text in request.messages[-1].content)
        right = question.options[question.gold or ""]
        visible = any(f"It is {right}." in turn.content for turn in request.messages if turn.role == "assistant")
        knows = visible or int(question.id) % 2 == 0
        lines = request.messages[-1].content.splitlines()
        letter = next(line[0] for line in lines if line.endswith(f". {right}") and line[1] == ".")
        values = {"found": True, "choice": letter} if knows else {"found": False}
        return json.dumps(fill(request.schema or {"type": "object"}, values, "It is so."))

    return ScriptedModel(script, name="helped", probabilities=lambda _: {"A": 0.4, "B": 0.3, "C": 0.2, "D": 0.1})


def show_answer(question: Question) -> Examples:
    right = question.options[question.gold or ""]
    return Examples(
        (
            Example(
                id=f"near/{question.id}",
                text="Another case?",
                answer=f"It is {right}.",
                options=OPTIONS,
                choice=question.gold,
            ),
        )
    )


def show_nothing(question: Question) -> Examples:
    return Examples(
        (Example(id="far/0", text="Another case?", answer="It is nothing.", options=OPTIONS, choice="A"),), ("leaked",)
    )


@pytest.mark.slow
def test_medprompt_tables_compare_examples_with_same_votes_without_examples(tmp_path: Path) -> None:
    sample = questions(40)
    sources = {"near": show_answer, "near+reranker": show_nothing, "random": show_nothing}
    cases = build_cases(medprompt, sample, examples=sources, votes=(4,))
    assert len(cases) == 40 * 4
    by_examples, which = medprompt.tables({"m": run(cases, make_helped_model(sample), tmp_path / "run")})
    assert row(by_examples, "m", "none")["share right"].value == 0.5
    near = row(by_examples, "m", "near")
    assert (near["share right"].value, near["difference to no examples"].value) == (1.0, 0.5)
    assert row(by_examples, "m", "random")["difference to no examples"].value == 0
    assert [cells[1] for cells in which.rows] == ["near+reranker", "random"]
    assert row(which, "m", "random")["difference to the first library, or without reranker"].value == -0.5
    with pytest.raises(InputError, match="give a library of them with --examples NAME=LIBRARY"):
        build_cases(medprompt, sample, examples={})


def test_medprompt_cases_select_controls_by_arm(tmp_path: Path) -> None:
    sources = {"near": show_answer, "random": show_nothing, "fixed": show_nothing}

    def shown(*arms: str) -> list[object]:
        cases = build_cases(medprompt, questions(1), examples=sources, votes=(2,), arms=arms)
        return [case.condition["examples"] for case in cases]

    assert shown("none", "retrieved") == ["none", "near"]
    assert shown("fixed", "random") == ["random", "fixed"]
    with pytest.raises(InputError, match="no arm is called magic: known are none, retrieved, random, fixed"):
        shown("magic")
    sample = questions(4)
    alone = run(
        build_cases(medprompt, sample, examples=sources, votes=(2,), arms=["none"]),
        make_helped_model(sample),
        tmp_path / "run",
    )
    assert [table.title for table in medprompt.tables({"m": alone})] == ["Accuracy by the examples that are shown"]


@pytest.mark.slow
def test_models_tables_compare_with_one_prediction_and_with_same_votes(tmp_path: Path) -> None:
    """Errata P6: most of a gain over one prediction may be the votes'."""
    sample = {"one": questions(20), "two": questions(24)}
    cases = build_cases(model_comparison, sample, examples={"near": show_answer}, votes=(4,))
    outcomes = run(cases, make_helped_model(questions(24)), tmp_path / "run")
    gains, alone, board = model_comparison.tables({"m": outcomes})
    assert row(gains, "m", "one", "medprompt")["difference to zero-shot"].value == 0.75
    assert row(gains, "m", "one", SHUFFLED)["difference to zero-shot"].value == 0.25
    assert row(alone, "m", "two", "medprompt")[f"difference to {SHUFFLED}"].value == 0.5
    assert [cells[1] for cells in board.rows] == ["medprompt", SHUFFLED, ZERO]
    assert row(board, "m", "medprompt")["average"] == 1.0
    voted = [outcome for outcome in outcomes if outcome.condition["arm"] != ZERO]
    gains, _, board = model_comparison.tables({"m": voted})
    assert row(gains, "m", "one", "medprompt")["difference to zero-shot"] is None
    assert [cells[1] for cells in board.rows] == ["medprompt", SHUFFLED]
    with pytest.raises(InputError, match="over one library of solved questions"):
        build_cases(model_comparison, sample, examples={"a": show_answer, "b": show_nothing})
