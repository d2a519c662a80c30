"""Our reading of replies, the files they come in, and what is counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epicrisis.answers import Answer
from epicrisis.errors import InputError
from epicrisis.evaluation.rescoring.readings import SCORINGS, Reading
from epicrisis.evaluation.rescoring.released_replies import Replied, read_outputs, recorded, released
from epicrisis.evaluation.rescoring.scores import is_right, readings, score
from epicrisis.evaluation.rescoring.stated_choice import read
from epicrisis.types import AnswerState, Question

DRUGS = {"A": "Aspirin", "B": "D-dimer", "C": "B cells", "D": "None of the above"}
VERDICTS = {"A": "yes", "B": "no", "C": "maybe"}


@pytest.mark.parametrize(
    ("reply", "options", "choice"),
    [
        # In a field, JSON or nearly.
        ('{"step_by_step_thinking": "Option A is wrong.", "answer_choice": "B"}', DRUGS, "B"),
        ('{"step_by_step_thinking": "the "molar tooth" sign", "answer_choice": "C. maybe"}', VERDICTS, "C"),
        ('{"step_by_step_thinking": "not A. yes, the answer is C" "answer_choice": "C"}', VERDICTS, "C"),
        ("{'answer_choice': 'Option B'}", DRUGS, "B"),
        ("answer_choice: B", DRUGS, "B"),
        ('{"answer_choice": ["B"]}', DRUGS, "B"),
        ('{"answer_choice": "D-dimer"}', DRUGS, "B"),
        ('{"answer_choice": "B cells"}', DRUGS, "C"),
        ('{"answer_choice": "(C) B cells, because"}', DRUGS, "C"),
        ('{"answer_choice": "None of the above"}', DRUGS, "D"),
        ('{"answer_choice": "c)"}', DRUGS, "C"),
        ('{"result": {"found": true, "answer": "It is.", "choice": "A", "sources": [1]}}', VERDICTS, "A"),
        ('{"answer": "B"}', DRUGS, "B"),
        # In words.
        ("The answer is B.", DRUGS, "B"),
        ("**Answer:** B", DRUGS, "B"),
        ("So the final answer: **(C) B cells**", DRUGS, "C"),
        ("The correct answer to this question is no, since", VERDICTS, "B"),
        ("The most likely answer would be C, B cells.", DRUGS, "C"),
        ("Therefore, the answer is\nB", DRUGS, "B"),
        ("A is a drug. B is the correct answer.", DRUGS, "B"),
        ("I would choose option C.", DRUGS, "C"),
        (r"so $\boxed{\text{B}}$", DRUGS, "B"),
        ("The answer is A because it thins the blood", DRUGS, "A"),
        ("the answer choice is B. no, as we need more information.", VERDICTS, "B"),
        # As it stands.
        ("B", DRUGS, "B"),
        (" (b) ", DRUGS, "B"),
        ("B. D-dimer", DRUGS, "B"),
        ("D-dimer", DRUGS, "B"),
        ("No.", VERDICTS, "B"),
        ("No, because it was not shown.", VERDICTS, "B"),
        ("We weigh them.\n\nC: B cells", DRUGS, "C"),
        ("C. It follows from the passage.\nIt is known.", DRUGS, "C"),
    ],
)
def test_a_stated_choice(reply: str, options: Mapping[str, str], choice: str) -> None:
    assert read(reply, options) == Reading("answered", choice)


@pytest.mark.parametrize(
    "reply",
    [
        '{"answer_choice": "A/B"}',
        '{"answer_choice": "A or C"}',
        '{"answer_choice": "A, B and C"}',
        '{"answer_choice": ["A", "B"]}',
        '{"answer_choice": "Both A and C"}',
        '{"answer_choice": "B. yes"}',
        '{"answer_choice": "E"}',
        '{"answer_choice": "All of the above"}',
        '{"answer_choice": ""}',
        '{"answer_choice": []}',
        '{"answer_choice": "A"} no: {"answer_choice": "B"}',
        "The answer is A. No, the answer is B.",
        "Option A is incorrect.",
        "The answer is not B.",
        "A patient of 45 years.",
        "A. yes\nB. no\nC. maybe",
        "yes\nno",
        "Nothing that bears on it.",
        "B cells and T cells are meant.",
    ],
)
def test_two_choices_or_none_are_no_choice(reply: str) -> None:
    assert read(reply, VERDICTS) == Reading("unparsed")


@pytest.mark.parametrize(
    "reply",
    [
        '{"answer_choice": "None of the above"}',
        '{"answer_choice": "None"}',
        '{"answer_choice": "Cannot be determined"}',
        '{"answer_choice": "Unknown"}',
        '{"answer_choice": "Not enough information"}',
        '{"answer_choice": "No information is given"}',
        '{"answer_choice": "N/A"}',
        '{"answer_choice": "E. None of the above"}',
        '{"answer_choice": "Not mentioned in the documents"}',
        '{"answer_choice": "The answer is not provided"}',
        '{"answer_choice": "The information is not available"}',
        '{"answer_choice": null}',
        '{"result": {"found": false}}',
        "The answer cannot be determined from the documents.",
        "I don't know.",
        '{"answer_choice": "Data insufficient"}',
        '{"answer_choice": "The data are insufficient"}',
        '{"answer_choice": "The evidence is inconclusive"}',
        '{"answer_choice": "There is insufficient information"}',
        '{"answer_choice": "There is not enough evidence to answer"}',
        '{"answer_choice": "The question cannot be answered"}',
        '{"answer_choice": "Further research is needed"}',
        '{"answer_choice": "Lack of evidence"}',
        '{"answer_choice": "Not sure"}',
        '{"answer_choice": "Neither of the options"}',
        '{"answer_choice": "The answer is not among the options"}',
        "Data insufficient",
    ],
)
def test_who_says_there_is_no_answer_abstains(reply: str) -> None:
    assert read(reply, VERDICTS) == Reading("abstained")


@pytest.mark.parametrize(
    "reply",
    [
        "The response was filtered due to the prompt triggering Azure OpenAI's content management policy.",
        "Error: The response was filtered due to the prompt.",
        "content_filter",
        "Error code: 400 - {'error': {'message': 'too long'}}",
        "openai.error.InvalidRequestError: This model's maximum context length is 4097 tokens.",
        "HTTPSConnectionPool(host='api.openai.com', port=443): Read timed out.",
        "Request timed out.",
        "Connection error.",
        '{"error": {"message": "Rate limit reached", "type": "tokens"}}',
        'Bad gateway. {"error":{"code":502}}',
        "503 Service Unavailable",
        "<html><head><title>502 Bad Gateway</title>",
    ],
)
def test_message_of_a_failed_call_in_place_of_a_reply_is_failed(reply: str) -> None:
    assert read(reply, VERDICTS) == Reading("failed")


@pytest.mark.parametrize("reply", ["An error of the method is likely: the answer is A.", "Errors are rare, so B. no"])
def test_reply_that_speaks_of_errors_is_not_failed(reply: str) -> None:
    assert read(reply, VERDICTS).state != "failed"


@pytest.mark.parametrize("reply", ["", " \n", "...", "{}"])
def test_nothing_came_back(reply: str) -> None:
    assert read(reply, VERDICTS) == Reading("failed")


LETTERS = st.sampled_from("ABCD")


@given(LETTERS, st.sampled_from(['{"answer_choice": "%s"}', "The answer is %s.", "**Answer:** (%s)", "%s", "x\n%s"]))
def test_whatever_is_stated_is_read(letter: str, form: str) -> None:
    assert read(form % letter, DRUGS) == Reading("answered", letter)
    assert read(form % f"{letter}. {DRUGS[letter]}", DRUGS) == Reading("answered", letter)


@given(LETTERS, LETTERS)
def test_two_statements_agree_or_are_none(one: str, other: str) -> None:
    expected = Reading("answered", one) if one == other else Reading("unparsed")
    assert read(f"The answer is {one}. Final answer: {other}", DRUGS) == expected
    assert read(f'{{"answer_choice": "{one}"}}\n{{"answer_choice": "{other}"}}', DRUGS) == expected


@given(st.text(), st.dictionaries(LETTERS, st.text(min_size=1), min_size=2))
def test_no_letter_comes_from_nowhere(reply: str, options: dict[str, str]) -> None:
    read_as = read(reply, options)
    assert (read_as.choice is not None) == (read_as.state == "answered")
    assert read_as.choice is None or read_as.choice in options
    if read_as.choice is not None:
        text = options[read_as.choice].casefold().strip("()[]{}\"'*_.,:;\\ \t\r\n")
        assert read_as.choice.casefold() in reply.casefold() or text in reply.casefold()


# -- files of replies -----------------------------------------------------------------------------------------------


def question(key: str, gold: str | None = "A", options: Mapping[str, str] = VERDICTS) -> Question:
    return Question(text=f"{key}?", options=options, form="choice", id=key, gold=gold)


def test_released_replies(tmp_path: Path) -> None:
    path = tmp_path / "replies.jsonl"
    path.write_text('{"id": "q2", "outputs": []}\n{"id": "q1", "outputs": ["A", "B"]}\n{"id": "q3", "outputs": ["C"]}')
    asked = [question("q1"), question("q2")]
    assert released(asked, read_outputs(path)) == (Replied(asked[0], ("A", "B")), Replied(asked[1], ()))
    with pytest.raises(InputError, match=r"2 of 3 questions have no reply \(q4, q5\): give the replies to these very"):
        released([question("q4"), asked[0], question("q5")], read_outputs(path))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"id": "q1"}', "line 2: not a released reply"),
        ('{"id": "q1", "outputs": "A"}', "line 2: not a released reply"),
        ('{"id": "q1", "outputs": [null]}', "line 2: not a released reply"),
        ('{"id": "q0", "outputs": []}', "line 2: its id was there before"),
        ("{", "line 2: not JSON"),
    ],
)
def test_a_broken_line_is_an_error(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "replies.jsonl"
    path.write_text(f'{{"id": "q0", "outputs": ["A"]}}\n{line}\n')
    with pytest.raises(InputError, match=said):
        read_outputs(path)


def test_a_folder_as_mirage_releases_it(tmp_path: Path) -> None:
    (tmp_path / "test_clinical_knowledge-001.json").write_text('["A"]')
    (tmp_path / "dev_0009b2fd-7e72.json").write_text("[]")
    assert read_outputs(tmp_path) == {"clinical_knowledge-001": ("A",), "0009b2fd-7e72": ()}
    (tmp_path / "test_x.json").write_text('{"A": 1}')
    with pytest.raises(InputError, match=r"test_x.json: not a JSON list of texts"):
        read_outputs(tmp_path)
    (tmp_path / "notes.json").write_text("[]")
    with pytest.raises(InputError, match=r"notes.json: name the folder of one run, its files called test_<id>.json or"):
        read_outputs(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"no file called test_<id>.json or dev_<id>.json in it"):
        read_outputs(tmp_path / "empty")


@pytest.mark.parametrize(
    ("state", "choice", "text", "outputs"),
    [
        ("answered", "B", "It is not.", ("B",)),
        ("abstained", None, "None bears on it: Option B", ("None bears on it: Option B",)),
        ("unparsed", None, "", ("",)),
        ("failed", None, "", ()),
    ],
)
def test_records_of_ones_own_keep_their_reading(
    state: AnswerState, choice: str | None, text: str, outputs: tuple[str, ...]
) -> None:
    answer = Answer(question("q"), "rag", state, text, choice)
    assert recorded(answer) == Replied(question("q"), outputs, Reading(state, choice))


# -- counting -------------------------------------------------------------------------------------------------------

RUN = (
    Replied(question("q2", "A"), ()),  # after q1: 2024 gives it q1's A
    Replied(question("q1", "A"), ('{"answer_choice": "A"}',)),
    Replied(question("q3", "A"), ('{"answer_choice": "Unknown"}',)),
    Replied(question("q4", "B"), ('{"answer_choice": "A or B"}',)),
    Replied(question("q5", "B", {"A": "x", "B": "y"}), ("The answer is A.",)),
)


def test_all_scorings_side_by_side() -> None:
    ours, early, now = (score(RUN, scoring) for scoring in SCORINGS)
    assert (ours.scoring, early.scoring, now.scoring) == SCORINGS
    chance = (4 / 3 + 1 / 2) / 5
    assert (ours.right, ours.wrong, ours.abstained, ours.unparsed, ours.failed) == (1, 1, 1, 1, 1)
    assert (ours.accuracy, ours.accuracy_scored) == (0.2, 0.5)
    assert ours.chance == early.chance == pytest.approx(chance)
    assert (early.right, early.wrong, early.by_default) == (3, 2, 3)
    assert (now.right, now.wrong, now.failed, now.by_default) == (2, 2, 1, 2)
    assert (early.accuracy, now.accuracy, now.accuracy_scored) == (0.6, 0.4, 0.5)


@given(
    st.lists(
        st.tuples(st.lists(st.sampled_from(["A", "B", "?", "Unknown", "A/B"]), max_size=2), st.sampled_from("ABC"))
    )
)
def test_every_question_is_counted_once(rows: list[tuple[list[str], str]]) -> None:
    run = [Replied(question(str(n), gold), tuple(outputs)) for n, (outputs, gold) in enumerate(rows)]
    if not run:
        return
    for each in (score(run, scoring) for scoring in SCORINGS):
        assert each.n == len(run) == each.right + each.wrong + each.abstained + each.unparsed + each.failed
        read_by = zip(run, readings(run, each.scoring), strict=True)
        marks = [is_right(replied.question, reading, each.scoring) for replied, reading in read_by]
        assert each.right == marks.count(True)
        assert each.accuracy * each.n == pytest.approx(each.right)


def test_a_recorded_reading_is_ours() -> None:
    run = (Replied(question("q", "B"), ("A",), Reading("answered", "B")),)
    assert [each.right for each in (score(run, scoring) for scoring in SCORINGS)] == [1, 0, 0]


def test_options_of_one_text_are_equal_for_us_and_not_for_mirages_program() -> None:
    asked = Question("Which?", {"A": "same", "B": "same", "C": "other"}, "choice", id="q", gold="B")
    run = [Replied(asked, ('{"answer_choice": "A"}',)), Replied(replace(asked, id="r"), ("same",))]
    assert score(run, "ours").right == 2
    assert [is_right(asked, Reading("answered", "A"), scoring) for scoring in SCORINGS] == [True, False, False]
    assert score(run, "ours").chance == pytest.approx(2 / 3)


def test_no_letter_no_share_of_the_scored() -> None:
    assert score([Replied(question("q"), ())], "ours").accuracy_scored is None


@pytest.mark.parametrize("odd", [question("q", None), Question(text="Why?", id="q", gold="Because.")])
def test_what_cannot_be_scored_by_letters_is_said(odd: Question) -> None:
    with pytest.raises(InputError, match="1 of 2 questions have no options or no gold letter"):
        score([Replied(question("p"), ()), Replied(odd, ("A",))], "ours")
    with pytest.raises(InputError, match="no question to score"):
        score([], "ours")


@pytest.mark.parametrize(
    "piece", ["the answer is ", '"choice": "', '"choice": [', "A.\n", "select ", "option ", '\\"', "*"]
)
def test_a_long_reply_is_read_in_one_pass(piece: str) -> None:
    """A pattern that tries every beginning against every end would run into the test's timeout."""
    assert read(piece * (400_000 // len(piece)), VERDICTS).choice in (None, "A")
