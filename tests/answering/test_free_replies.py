"""Reading of replies in a format of the model's choice."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epicrisis.answering.stated_choice import FreeReply, read_free_reply

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
def test_free_reply_choice_is_parsed(reply: str, options: Mapping[str, str], choice: str) -> None:
    assert read_free_reply(reply, options) == FreeReply("answered", choice)


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
def test_free_reply_with_two_or_no_choices_is_unparsed(reply: str) -> None:
    assert read_free_reply(reply, VERDICTS) == FreeReply("unparsed")


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
def test_free_reply_without_answer_abstains(reply: str) -> None:
    assert read_free_reply(reply, VERDICTS) == FreeReply("abstained")


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
def test_error_message_as_reply_is_failed(reply: str) -> None:
    assert read_free_reply(reply, VERDICTS) == FreeReply("failed")


@pytest.mark.parametrize("reply", ["An error of the method is likely: the answer is A.", "Errors are rare, so B. no"])
def test_reply_mentioning_errors_is_not_failed(reply: str) -> None:
    assert read_free_reply(reply, VERDICTS).state != "failed"


@pytest.mark.parametrize("reply", ["", " \n", "...", "{}"])
def test_empty_free_reply_is_failed(reply: str) -> None:
    assert read_free_reply(reply, VERDICTS) == FreeReply("failed")


LETTERS = st.sampled_from("ABCD")


@given(LETTERS, st.sampled_from(['{"answer_choice": "%s"}', "The answer is %s.", "**Answer:** (%s)", "%s", "x\n%s"]))
def test_any_stated_choice_is_parsed(letter: str, form: str) -> None:
    assert read_free_reply(form % letter, DRUGS) == FreeReply("answered", letter)
    assert read_free_reply(form % f"{letter}. {DRUGS[letter]}", DRUGS) == FreeReply("answered", letter)


@given(LETTERS, LETTERS)
def test_disagreeing_statements_are_no_choice(one: str, other: str) -> None:
    expected = FreeReply("answered", one) if one == other else FreeReply("unparsed")
    assert read_free_reply(f"The answer is {one}. Final answer: {other}", DRUGS) == expected
    assert read_free_reply(f'{{"answer_choice": "{one}"}}\n{{"answer_choice": "{other}"}}', DRUGS) == expected


@pytest.mark.slow
@given(st.text(), st.dictionaries(LETTERS, st.text(min_size=1), min_size=2))
def test_parsed_letter_occurs_in_reply(reply: str, options: dict[str, str]) -> None:
    read_as = read_free_reply(reply, options)
    assert (read_as.choice is not None) == (read_as.state == "answered")
    assert read_as.choice is None or read_as.choice in options
    if read_as.choice is not None:
        option = options[read_as.choice]
        text = option.casefold().strip("()[]{}\"'*_.,:;\\ \t\r\n")
        # Of options with the same text the first one is returned.
        stated = [letter.casefold() for letter, other in options.items() if other == option]
        assert any(letter in reply.casefold() for letter in (*stated, text))


@pytest.mark.slow
@pytest.mark.parametrize(
    "piece", ["the answer is ", '"choice": "', '"choice": [', "A.\n", "select ", "option ", '\\"', "*"]
)
def test_long_reply_is_parsed_in_linear_time(piece: str) -> None:
    """A pattern that tries every beginning against every end would run into the test's timeout."""
    assert read_free_reply(piece * (400_000 // len(piece)), VERDICTS).choice in (None, "A")
