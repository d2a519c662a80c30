"""Test the measurement of a run: once per answer, resumable, and repeated after a change."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from epicrisis.core.errors import BudgetExceeded, EndpointTimeout, InputError, ScopeViolation
from epicrisis.core.protocols import ChatRequest
from epicrisis.core.types import AnswerState, EvidenceSpan, Question
from epicrisis.evaluation.grading.measurements import (
    MEASURES,
    Measurer,
    check_shares,
    read_measured_cases,
    read_measurements,
    read_recipes,
    store_name,
)
from epicrisis.evaluation.grading.measurers import (
    bertscore_measurer,
    check_model_names,
    entailment_measurer_for,
    meteor_measurer,
    metric_name,
    notes_measurer,
    number_measurer,
    rubric_measurer,
    short_model_name,
    word_measurer,
)
from epicrisis.evaluation.grading.metric_tables import metric_model
from epicrisis.evaluation.grading.scored_answers import NoteTexts, read_answers
from epicrisis.testing.stores import MemoryStore
from tests.support.measuring import (
    GOLD,
    JUDGE,
    asker_of,
    citation,
    folder_of,
    graded,
    judged_by,
    measure_run,
    measured_by,
    note,
    question,
    record,
    requests_of,
    shown,
)
from tests.support.scorers import TermOverlapNli

CORRECTNESS = metric_name("judge-correctness", JUDGE)


def grade_by_length(request: ChatRequest) -> str:
    """Grade longer answers higher, at most 5."""
    return graded(min(5, len(shown(request)[2].split())))


def make_mixed_run(path: Path) -> Path:
    """Write a run with four measurable answers and five other cases."""
    choice = Question("Which?", options={"A": "40", "B": "80"}, form="choice", id="c", gold="A")
    lines = [record(question(i), text) for i, text in enumerate(("one", "one two", "one two three four"))]
    lines += [
        record(question(3, other_answers=("40 mg",)), "40 mg"),
        record(question(4), "", "abstained"),
        record(question(5), "", "failed", failure="ContextOverflow"),
        record(question(6, gold=""), "80 mg."),
        record(question(7, gold=None), "80 mg."),
        record(choice, "A"),
    ]
    return folder_of(path, lines)


def test_measure_run_measures_each_answer_once(tmp_path: Path) -> None:
    run = make_mixed_run(tmp_path)
    measured_by(run, word_measurer())
    asker = judged_by(run, grade_by_length)
    assert len(requests_of(asker)) == 4
    cases = read_measured_cases(run)
    assert [item.ending for item in cases] == ["answered"] * 4 + ["abstained", "over-window"] + ["answered"] * 3
    assert [item.values.get(CORRECTNESS) for item in cases] == [0.0, 0.25, 0.75, 0.25] + [None] * 5
    assert [item.values.get("exact-match") for item in cases[2:5]] == [0.0, 1.0, None], "one of several right answers"
    assert [item.unanswerable for item in cases].index(True) == 6
    assert cases[0].question == question(0).key
    again = judged_by(run, grade_by_length)
    assert requests_of(again) == [], "nothing is judged twice"


def test_measure_run_judge_sees_no_writer(tmp_path: Path) -> None:
    run = folder_of(tmp_path, [record(question(), "40 mg [1] (doc 2).", condition={"arm": "full-context"})])
    (request,) = requests_of(judged_by(run, grade_by_length))
    assert shown(request) == ["Which dose was given on day 0?", GOLD, "40 mg."]
    text = "".join(message.content for message in request.messages)
    assert not [name for name in ("writer-model", "full-context", question().key) if name in text]


def test_measure_run_interrupted_resumes_without_loss(tmp_path: Path) -> None:
    run = make_mixed_run(tmp_path)
    calls = iter(range(100))

    def spent(request: ChatRequest) -> str:
        if next(calls) == 2:
            raise BudgetExceeded("the budget is used up: give more")
        return grade_by_length(request)

    asker = asker_of(spent)
    with pytest.raises(BudgetExceeded):
        measured_by(run, rubric_measurer(asker))
    (path,) = (run / MEASURES).glob("*.jsonl")
    with path.open("a") as file:
        file.write('{"recipe": {"measurer"')
    asker = judged_by(run, grade_by_length)
    assert len(requests_of(asker)) == 2
    assert [measured_case.values.get(CORRECTNESS) for measured_case in read_measured_cases(run)[:4]] == [
        0.0,
        0.25,
        0.75,
        0.25,
    ]


def test_measure_run_measures_changed_answer_again(tmp_path: Path) -> None:
    run = folder_of(tmp_path, [record(question(i), "one two") for i in range(3)])
    judged_by(run, grade_by_length)
    folder_of(
        tmp_path, [record(question(0), "one two"), record(question(1), "one two three"), record(question(2), "one")]
    )
    assert [measured_case.values.get(CORRECTNESS) for measured_case in read_measured_cases(run)] == [
        0.25,
        None,
        None,
    ]
    assert len(requests_of(judged_by(run, grade_by_length))) == 2
    assert [measured_case.values.get(CORRECTNESS) for measured_case in read_measured_cases(run)] == [
        0.25,
        0.5,
        0.0,
    ]


def test_measure_run_ignores_measures_of_other_recipe(tmp_path: Path) -> None:
    run = folder_of(tmp_path, [record(question(i), "one two") for i in range(2)])
    judged_by(run, grade_by_length)
    other = asker_of(grade_by_length)
    other = type(other)(other.model, seed=7, model_recipe=other.model_recipe)
    files = measured_by(run, rubric_measurer(other))
    assert len(requests_of(other)) == 2
    assert [recipe["seed"] for recipe in read_recipes(run)] == [7]
    assert next(iter(files.values())).usage.calls == 2, "of this recipe alone"


def test_measure_run_failed_and_unreadable_verdicts_are_not_zero(tmp_path: Path) -> None:
    run = folder_of(tmp_path, [record(question(i), text) for i, text in enumerate(("down", "odd", "one two"))])

    def script(request: ChatRequest) -> str:
        if shown(request)[2] == "down":
            raise EndpointTimeout("too late: wait")
        return "no grade" if shown(request)[2] == "odd" else grade_by_length(request)

    judged_by(run, script)
    cases = read_measured_cases(run)
    assert [item.states.get(CORRECTNESS) for item in cases] == ["failed", "unparsed", None]
    assert [item.values.get(CORRECTNESS) for item in cases] == [None, None, 0.25]
    assert len(requests_of(judged_by(run, grade_by_length))) == 1, "the failed call alone is made again"
    assert [measured_case.states.get(CORRECTNESS) for measured_case in read_measured_cases(run)] == [
        None,
        "unparsed",
        None,
    ]


def test_entailment_measure_uses_reference_as_premise_and_best_reference(tmp_path: Path) -> None:
    sample = question(other_answers=("the dose was not 40 mg of furosemide",))
    run = folder_of(tmp_path, [record(sample, "the dose was 40 mg"), record(question(1), "not 40 mg")])
    measured_by(run, entailment_measurer_for(TermOverlapNli(), "models/term-overlap"))
    first, second = read_measured_cases(run)
    assert first.values["nli-entailment[term-overlap]"] == pytest.approx(1.0)
    assert second.values["nli-entailment[term-overlap]"] == 0.0
    assert second.values["nli-non-contradiction[term-overlap]"] == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("option", "unanswerable"),
    [
        ("The record does not say", True),
        ("The notes do not say.", True),
        ("the documents don't say", True),
        ("D. The record does not state when", True),
        ("Not documented in the record", True),
        ("The dose is not stated in the patient's medical record.", True),
        ("Not mentioned in the given notes", True),
        ("Cannot be determined from the notes provided", True),
        ("It cannot be answered from the record", True),
        ("80 mg", False),
        ("The notes do not mention any allergy", False),
        ("Cannot be treated by diet", False),
        ("Penicillin, which is not mentioned in the notes of 2150", False),
        ("The record of 2150 says 40 mg", False),
    ],
)
def test_choice_of_not_in_record_option_counts_as_abstention(tmp_path: Path, option: str, unanswerable: bool) -> None:
    sample = Question("Which?", options={"A": "40 mg", "B": option}, form="choice", id="c", gold="B")
    result: list[tuple[str, AnswerState, str | None]] = [
        ("B", "answered", "B"),
        ("A", "answered", "A"),
        ("", "abstained", None),
        ("", "unparsed", None),
    ]
    lines = [
        record(sample, text, state, choice=choice, condition={"repeat": i})
        for i, (text, state, choice) in enumerate(result)
    ]
    lines.append(record(sample, "", "failed", failure="ContextOverflow"))
    cases = read_measured_cases(folder_of(tmp_path, lines))
    assert {item.unanswerable for item in cases} == {unanswerable}
    name, expected = (
        ("abstained-rightly", [1.0, 0.0, 1.0, 0.0, 0.0]) if unanswerable else ("accuracy", [1.0, 0.0, None, None, None])
    )
    assert [item.values.get(name) for item in cases] == expected
    assert {*cases[0].values} == {name}


def test_abstention_is_right_for_unanswerable_open_question(tmp_path: Path) -> None:
    lines = [record(question(0, gold=""), "", "abstained"), record(question(1, gold=""), "40 mg")]
    cases = read_measured_cases(folder_of(tmp_path, lines))
    assert [item.values for item in cases] == [{"abstained-rightly": 1.0}, {"abstained-rightly": 0.0}]


def test_measured_cases_of_patient_share_cluster(tmp_path: Path) -> None:
    lines = [record(question(i, patient=who), "40 mg") for i, who in enumerate(("anna", "anna", None))]
    assert [measured_case.cluster for measured_case in read_measured_cases(folder_of(tmp_path, lines))] == [
        "anna",
        "anna",
        question(2).key,
    ]


def test_verified_span_is_measured_literally(tmp_path: Path) -> None:
    span = "Dose raised (doc 2) to 40 mg [1]"
    passage = note("anna", f"{span} today.")
    cited = [(citation(passage, span),), (citation(passage, span, False),), ()]
    lines = [
        record(question(i, patient="anna", form="extractive"), span, given=[passage], citations=item)
        for i, item in enumerate(cited)
    ]
    lines.append(record(question(3, patient="anna"), span, given=[passage], citations=cited[0]))
    assert [answer.answer for answer in read_answers(folder_of(tmp_path, lines))] == [span] + [
        "Dose raised to 40 mg"
    ] * 3


# -- evidence and notes -----------------------------------------------------------------------------------------------


def test_evidence_measure_requires_verified_overlapping_citation(tmp_path: Path) -> None:
    passage = note("anna", "He had 40 mg of furosemide.", start=100)
    place = EvidenceSpan(passage.document_id, 107, 112)
    cited = [citation(passage, "40 mg"), citation(passage, "40 mg", False), citation(passage, "furosemide")]
    lines = [
        record(
            question(i, patient="anna", form="extractive", evidence=(place,)), "40 mg", given=[passage], citations=[c]
        )
        for i, c in enumerate(cited)
    ]
    cases = read_measured_cases(folder_of(tmp_path, lines))
    assert [item.values["evidence"] for item in cases] == [1.0, 0.0, 0.0]
    assert [item.values["citations-verified"] for item in cases] == [1.0, 0.0, 1.0]


def test_evidence_recall_is_zero_for_empty_search_and_missing_without_search(tmp_path: Path) -> None:
    passage = note("anna", "He had 40 mg of furosemide.", start=100)
    sample = [question(i, patient="anna", evidence=(EvidenceSpan(passage.document_id, 107, 112),)) for i in range(3)]
    lines = [
        record(sample[0], given=[passage]),
        record(sample[1], "", "abstained", searched=True),
        record(sample[2], "40 mg"),
    ]
    assert [
        measured_case.values.get("evidence-recall") for measured_case in read_measured_cases(folder_of(tmp_path, lines))
    ] == [
        1.0,
        0.0,
        None,
    ]


def test_case_over_context_window_has_no_evidence_recall(tmp_path: Path) -> None:
    passage = note("anna", "He had 40 mg of furosemide.", start=100)
    sample = question(1, patient="anna", evidence=(EvidenceSpan(passage.document_id, 107, 112),))
    (case,) = read_measured_cases(folder_of(tmp_path, [record(sample, "", "over-window", given=[passage])]))
    assert case.ending == "over-window"
    assert "evidence-recall" not in case.values


def make_store(*texts: str) -> MemoryStore:
    import numpy as np

    from epicrisis.core.protocols import StoredDocument

    store = MemoryStore()
    for patient, text in zip(("anna", "ben"), texts, strict=False):
        passage = note(patient, text)
        store.add([StoredDocument(passage.document_id, "0" * 32, (passage,), np.ones((1, 2), np.float32))])
    return store


def reply_faithful(request: ChatRequest) -> str:
    notes = request.messages[-1].content
    return json.dumps({"reason": "x", "faithfulness": 5 if "40 mg" in notes.partition("</documents>")[0] else 1})


def test_notes_measure_judges_cited_notes_or_all_shown_notes(tmp_path: Path) -> None:
    mine, more = note("anna", "He had 40 mg."), note("anna", "No dose.", 2)
    sample = [question(i, patient="anna") for i in range(3)]
    lines = [
        record(sample[0], "40 mg", given=[more, mine], citations=[citation(mine, "40 mg")], texts=True),
        record(sample[1], "40 mg", given=[more], texts=True),
        record(sample[2], "40 mg"),
    ]
    run = folder_of(tmp_path, lines)
    asker = asker_of(reply_faithful)
    files = measured_by(run, notes_measurer(asker, NoteTexts()))
    name = metric_name("judge-faithful-to-notes", JUDGE)
    assert [measured_case.values.get(name) for measured_case in read_measured_cases(run)] == [1.0, 0.0, None]
    assert read_measured_cases(run)[2].states[name] == "unparsed", "nothing was given, so nothing can be said"
    (path,) = (run / MEASURES).glob("*.jsonl")
    assert [measurement.shown for measurement in read_measurements(path)[1].values()] == [
        "cited",
        "given",
        "",
    ]
    assert "No dose" not in requests_of(asker)[0].messages[-1].content
    assert list(files) == [f"judge-notes {JUDGE}"]


def test_notes_measure_reads_texts_from_library(tmp_path: Path) -> None:
    mine = note("anna", "He had 40 mg of furosemide.")
    run = folder_of(tmp_path, [record(question(patient="anna"), "40 mg", given=[mine])])
    (response,) = read_answers(run)
    assert [passage.text for passage in response.given] == [""]
    with pytest.raises(InputError, match="give the library"):
        measured_by(run, notes_measurer(asker_of(reply_faithful), NoteTexts()))
    asker = asker_of(reply_faithful)
    measured_by(run, notes_measurer(asker, NoteTexts(make_store(mine.text))))
    assert mine.text in requests_of(asker)[0].messages[-1].content


def test_notes_measure_with_notes_of_another_patient_raises(tmp_path: Path) -> None:
    other = note("ben", "He had 80 mg.")
    for texts, error in ((True, ScopeViolation), (False, InputError)):
        run = folder_of(tmp_path / str(texts), [record(question(patient="anna"), "80 mg", given=[other], texts=texts)])
        asker = asker_of(reply_faithful)
        with pytest.raises(error):
            measured_by(run, notes_measurer(asker, NoteTexts(make_store("He had 40 mg.", "He had 80 mg."))))
        assert requests_of(asker) == []


# -- files ------------------------------------------------------------------------------------------------------------


def test_read_measured_cases_with_damaged_file_names_line(tmp_path: Path) -> None:
    run = folder_of(tmp_path, [record(question(), "one")])
    judged_by(run, grade_by_length)
    (path,) = (run / MEASURES).glob("*.jsonl")
    line = json.loads(path.read_text())
    line["measure"]["values"][CORRECTNESS] = 3
    path.write_text(json.dumps(line) + "\n")
    with pytest.raises(
        InputError, match=r"line 1, does not belong to a file of measurements: repair or remove the line"
    ):
        read_measured_cases(run)


def test_check_shares_rejects_values_outside_0_and_1() -> None:
    assert check_shares({"x": 1 + 1e-9}) == {"x": 1.0}
    for value in (float("nan"), 1.1, -0.5):
        with pytest.raises(ValueError, match="x lie"):
            check_shares({"x": value})
    assert store_name("judge http://h/v1#a/b c") == "judge-http-h-v1-a-b-c.jsonl"


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("http://127.0.0.1:8000/v1", "127.0.0.1:8000"),
        ("http://127.0.0.1:8001/v1/", "127.0.0.1:8001"),
        ("https://user:***@gate.example.org/one/v1", "gate.example.org/one"),
        ("http://[::1]:80/v1#", "[::1]:80"),
        ("http://127.0.0.1:8000/v1#Org/qwen-3", "qwen-3"),
        ("/models/judge.gguf", "judge.gguf"),
        ("/models/nli/", "nli"),
        ("qwen2.5-coder-0.5b", "qwen2.5-coder-0.5b"),
    ],
)
def test_short_model_name_is_unambiguous(model: str, name: str) -> None:
    assert short_model_name(model) == name
    assert metric_model(metric_name("judge-correctness", model)) == name


def test_check_model_names_with_equal_short_names_raises_input_error() -> None:
    check_model_names("judges", ["http://a/v1", "http://b/v1", "http://a/v1#x", "http://a/v1"])
    with pytest.raises(InputError, match=r"two judges have the short name x \(http://a/v1#x and http://b/v1#x\)"):
        check_model_names("judges", ["http://a/v1#x", "http://b/v1#x"])


def test_measure_run_reports_each_measure(tmp_path: Path) -> None:
    heard: list[str] = []
    run = make_mixed_run(tmp_path)
    measurers: list[Measurer] = [word_measurer()]
    asyncio.run(measure_run(run, measurers, lambda made: heard.append(made.key)))
    assert heard == [answer.key for answer in read_answers(run) if answer.measurable]


@pytest.mark.slow
@pytest.mark.models
def test_meteor_and_bertscore_metric_names_have_variant(tmp_path: Path, model_home: Path) -> None:
    run = folder_of(tmp_path, [record(question(), GOLD), record(question(1), "Nothing of the kind")])
    measured_by(run, meteor_measurer(), bertscore_measurer("minilm", model_home))
    alike, other = read_measured_cases(run)
    for name in ("meteor[", "bertscore-f1[minilm"):
        (metric_name,) = [value for value in alike.values if value.startswith(name)]
        assert alike.values[metric_name] > 0.95 > other.values[metric_name]


def test_numbers_measure_of_answer_without_reference_number_is_missing(tmp_path: Path) -> None:
    lines = [record(question(0), "40 mg"), record(question(1), "80 mg"), record(question(2, gold="None."), "40 mg")]
    lines += [record(question(3), "40 mg and 80 mg"), record(question(4), "none")]
    run = folder_of(tmp_path, lines)
    measured_by(run, number_measurer())
    cases = read_measured_cases(run)
    assert [case.values.get("numbers-recall") for case in cases] == [1.0, 0.0, None, 1.0, 0.0]
    assert [case.values.get("numbers-precision") for case in cases] == [1.0, 0.0, None, 0.5, None]
    assert [case.values.get("numbers-f1") for case in cases] == [1.0, 0.0, None, pytest.approx(2 / 3), 0.0]
    assert cases[2].states == dict.fromkeys(("numbers-f1", "numbers-precision", "numbers-recall"), "unparsed")
