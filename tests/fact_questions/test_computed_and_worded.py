"""Computed answers beside the words of a chat model: the state, the computed sentence, and contradictions."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from docx import Document

from epicrisis.core.answers import Answer, Claim
from epicrisis.evaluation.grading.scored_answers import answer_from_record
from epicrisis.evaluation.runs.outcomes import score_record
from epicrisis.pipeline.recording.answer_record import RunRecord
from epicrisis.pipeline.recording.runner import build_record
from epicrisis.records.fact_questions.contradictions import mark_contradictions
from epicrisis.report.answer_content import build_answer_content
from epicrisis.report.answer_word import to_word
from epicrisis.server.api.mcp_results import build_tool_answer, describe_answer
from epicrisis.server.api.openai_reply import describe_outcome, write_reply
from epicrisis.server.libraries.question_completion import CompletedQuestion
from epicrisis.server.page.answer_view import build_answer_view
from epicrisis.server.page.rendering import render
from epicrisis.server.state.stored_answers import StoredAnswer
from epicrisis.testing.chat import ScriptedModel
from tests.fact_questions.test_computed_answers import COURSE, Chart, answer_of, medication, shown_texts

QUESTION = "What is the last creatinine?"
STATEMENT = "The last Creatinine is 1.9 mg/dL, of 2150-03-05."
NOTHING = {"result": {"found": False}}


def worded(tmp_path: Path, reply: object, question: str = QUESTION, chart: Chart = COURSE, **options: Any) -> Answer:
    """Return the answer of a model with this reply about a chart and a note."""
    model = ScriptedModel(lambda request: json.dumps(reply), context_tokens=100_000)
    return answer_of(tmp_path, chart, question, model, **{"strategy": "rag", **options})


def claims(*texts: str) -> object:
    """Return the reply with these claims, each of which names the first sentence."""
    return {"result": {"found": True, "claims": [{"text": text, "sentences": [1]} for text in texts]}}


def page_of(answer: Answer) -> str:
    view = build_answer_view(StoredAnswer(id="1", answer=answer, passages=(), library="library", owner="owner", at=0.0))
    return render("answer", view=view, exports=())


def forms(answer: Answer) -> dict[str, str]:
    """Return every form in which a reader sees an answer, without the questions and cards of sources."""
    screen, markdown, html, _ = shown_texts(answer)
    word = Document(io.BytesIO(to_word(build_answer_content(answer))))
    completed = CompletedQuestion(answer.question.text)
    return {
        "screen": screen,
        "markdown": markdown.replace("\\", ""),
        "html": html,
        "word": "\n".join(paragraph.text for paragraph in word.paragraphs),
        "page": page_of(answer),
        "openai": write_reply(answer, completed, "https://host/answers/1", ()).content.replace("\\", ""),
        "mcp": describe_answer(answer),
    }


def test_abstaining_model_beside_computed_answer_is_answered(tmp_path: Path) -> None:
    answer = worded(tmp_path, NOTHING)
    assert (answer.state, answer.text) == ("answered", STATEMENT)
    assert [(claim.text, claim.is_computed) for claim in answer.claims] == [(STATEMENT, True)]
    assert answer.model_outcome is not None
    assert (answer.model_state, answer.model_outcome.state) == ("abstained", "abstained")
    assert answer.confidence is None


@pytest.mark.slow
@pytest.mark.parametrize(
    "reply", [NOTHING, claims("The creatinine was measured."), claims(STATEMENT, "She slept well.")]
)
def test_every_form_shows_the_computed_sentence_once_and_cited(tmp_path: Path, reply: object) -> None:
    answer = worded(tmp_path, reply)
    number = answer.claims[0].citations[-1]
    for name, text in forms(answer).items():
        assert text.count("The last Creatinine is 1.9 mg/dL, of 2150-03-05") == 1, name
        if name != "page":
            assert f"{STATEMENT} {''.join(map('[{}]'.format, answer.claims[0].citations))} (computed)" in text, name
        assert ("found no answer" in text) == (reply is NOTHING), name
        assert "No answer" not in text, name
    assert f'popovertarget="card-{number}"' in page_of(answer)


@pytest.mark.slow
def test_evidence_shows_the_computed_sentence_once_and_cited(tmp_path: Path) -> None:
    answer = answer_of(tmp_path, COURSE, QUESTION)
    for name, text in forms(answer).items():
        assert text.count("The last Creatinine is 1.9 mg/dL, of 2150-03-05") == 1, name


def test_page_shows_many_sources_of_a_computed_sentence_as_a_range(tmp_path: Path) -> None:
    chart = Chart()
    for number in range(1, 7):
        chart = chart.lab(f"2150-03-0{number}", f"1.{number}")
    answer = answer_of(tmp_path, chart, "creatinine trend")
    page = page_of(answer)
    verdict = page[page.index('class="verdict') : page.index("</section>", page.index('class="verdict'))]
    assert verdict.count('class="cite"') == 2
    assert " … <" in verdict


@pytest.mark.slow
def test_reason_for_no_computed_answer_is_shown_once(tmp_path: Path) -> None:
    chart = Chart().lab("2150-01", "1.1").lab("2150-01-20", "2.4")
    answer = answer_of(tmp_path, chart, QUESTION)
    for name, text in forms(answer).items():
        assert text.count("Each of 2 values may be the last one") == 1, name


def test_every_program_is_told_the_same_state(tmp_path: Path) -> None:
    answer = worded(tmp_path, NOTHING)
    tool = build_tool_answer(answer)
    outcome = describe_outcome(answer, CompletedQuestion(QUESTION), "", (), "library")
    assert [tool.state, outcome["state"]] == ["answered", "answered"]
    assert [tool.text, outcome["text"]] == [STATEMENT, STATEMENT]
    assert [tool.model_state, outcome["model_state"]] == ["abstained", "abstained"]
    data = json.loads(shown_texts(answer)[3])
    assert (data["state"], data["text"], data["model_outcome"]["state"]) == ("answered", STATEMENT, "abstained")


def test_evaluation_counts_the_abstention_of_the_model(tmp_path: Path) -> None:
    record = RunRecord.model_validate(build_record(worded(tmp_path, NOTHING), {}).to_json())
    assert score_record(record).state == "abstained"
    scored = answer_from_record(record)
    assert (scored.ending, scored.answer) == ("abstained", "")
    assert scored.computed is not None


def test_evaluation_reads_the_words_of_the_model_alone(tmp_path: Path) -> None:
    record = build_record(worded(tmp_path, claims("The creatinine is 1.9 mg/dL.")), {})
    scored = answer_from_record(record)
    assert (scored.ending, scored.answer) == ("answered", "The creatinine is 1.9 mg/dL.")


def test_untrusted_answer_of_the_model_is_shown_beside_the_computed_one(tmp_path: Path) -> None:
    answer = worded(tmp_path, claims("The documents do not state what the creatinine is."))
    assert (answer.state, answer.model_state) == ("answered", "abstained")
    assert answer.withheld is not None
    for name, text in forms(answer).items():
        assert "is not trusted" in text, name
        assert "do not state what the creatinine is" in text, name


def test_missing_entry_is_no_answer_in_place_of_the_model(tmp_path: Path) -> None:
    answer = worded(tmp_path, NOTHING, "Has she ever taken metformin?", medication("2150-01-02", "start"))
    assert (answer.state, answer.model_outcome) == ("abstained", None)
    assert answer.computed is not None
    for name, text in forms(answer).items():
        assert text.count("No structured entry names “metformin”") == 1, name


def test_missing_entry_stands_behind_the_answer_from_the_notes(tmp_path: Path) -> None:
    reply = claims("She took metformin for years.")
    answer = worded(tmp_path, reply, "Has she ever taken metformin?", medication("2150-01-02", "start"))
    assert [claim.text for claim in answer.claims] == ["She took metformin for years."]


def test_failed_model_leaves_the_computed_answer_readable_and_the_state_failed(tmp_path: Path) -> None:
    model = ScriptedModel(lambda request: "", context_tokens=100_000)
    answer = answer_of(tmp_path, COURSE, QUESTION, model, strategy="rag")
    assert answer.state == "unparsed"
    for name, text in forms(answer).items():
        assert text.count("The last Creatinine is 1.9 mg/dL, of 2150-03-05") == 1, name
        assert "No answer of the chat model (unparsed)" in text, name


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["mark", "withhold"])
def test_other_number_of_the_model_is_warned_of(tmp_path: Path, policy: str) -> None:
    """A claim that contradicts a computed answer is marked and never withheld."""
    answer = worded(tmp_path, claims("The last creatinine is 3.4 mg/dL."), unsupported=policy)
    assert answer.state == "answered"
    for name, text in forms(answer).items():
        assert text.index("1.9 mg/dL") < text.index("3.4 mg/dL"), name
        assert "The chat model contradicts the computed answer" in text, name
        assert "CONTRADICTS the computed answer" in text, name


@pytest.mark.parametrize(
    ("question", "result"),
    [
        ("What is the last creatinine?", {"The last creatinine is 2.2 mg/dL.": True, "It is 1.9 mg/dL now.": False}),
        ("What is the last creatinine?", {"It fell from 2.4 mg/dL to 1.9 mg/dL.": False, "It is fine [3].": False}),
        ("What is the last creatinine?", {"On 2150-03-04 it was measured 2 times.": False}),
        ("What is the last creatinine?", {"It is 1.9 mg/dL.": False, "Her latest one was 3.4 mg/dL.": True}),
        ("What is the last creatinine?", {"It is 1.9 mg/dL.": False, "Before, it was 3.4 mg/dL.": False}),
        ("How many times was creatinine measured?", {"It was measured 5 times.": True}),
        ("How many times was creatinine measured?", {"It was measured three times, up to 2.4 mg/dL.": False}),
        ("How much did creatinine change since 2150-03-04?", {"It fell from 2.4 to 1.9 mg/dL.": False}),
        ("highest creatinine", {"The highest creatinine was 3.4 mg/dL.": True}),
        ("highest creatinine", {"The documents do not report the creatinine.": True}),
    ],
)
def test_claim_with_another_value_contradicts(question: str, result: dict[str, bool]) -> None:
    computed = COURSE.ask(question)
    assert computed is not None
    marked = mark_contradictions(tuple(map(Claim, result)), computed, question)
    assert {claim.text: claim.support == "contradicted" for claim in marked} == result


@pytest.mark.parametrize(
    ("question", "text", "is_contradicted"),
    [
        ("When was lisinopril started?", "Lisinopril was started on 2150-01-05.", True),
        ("When was lisinopril started?", "Lisinopril was started on January 2, 2150.", False),
        ("Has she ever taken lisinopril?", "No, she never took it.", True),
        ("Has she ever taken lisinopril?", "Yes, since 2150.", False),
        ("Is she on lisinopril?", "No.", True),
        ("current medications", "Lisinopril. She is not on warfarin.", False),
    ],
)
def test_claim_with_another_day_or_a_denial_contradicts(question: str, text: str, is_contradicted: bool) -> None:
    computed = medication("2150-01-02", "start").ask(question)
    assert computed is not None
    (claim,) = mark_contradictions((Claim(text),), computed, question)
    assert (claim.support == "contradicted") is is_contradicted


def test_blood_counts_and_pressures_are_compared_by_number() -> None:
    chart = Chart().add("laboratory", "White cell count", "2150-01-02", "8.1", "10*3/uL", codes=("loinc:6690-2",))
    question = "last white cell count"
    computed = chart.ask(question)
    assert computed is not None
    marked = mark_contradictions(
        (Claim("It is 8.1 K/uL."), Claim("The last count is 9.9 x10^3/uL.")), computed, question
    )
    assert [claim.support for claim in marked] == ["not-checked", "contradicted"]
