"""Reading replies: what counts, what does not, and that nothing else is ever raised."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from epicrisis.answering.reply_parsing import (
    ANSWER_CHARACTERS,
    MAX_QUOTES,
    MAX_SOURCES,
    QUOTE_CHARACTERS,
    REASONING_CHARACTERS,
    AnswerFormat,
    ParsedReply,
    TextStream,
)
from epicrisis.answering.structured_request import Unreadable

OPTIONS = {"A": "yes", "B": "no", "C": "maybe"}
CHOICE = AnswerFormat(OPTIONS)
MAP = AnswerFormat(OPTIONS, text_field="finding", documents=2, choice_may_be_null=True)
OPEN = AnswerFormat({})
REDUCE = AnswerFormat(OPTIONS, sources=3)
FORMS = [CHOICE, MAP, OPEN, REDUCE, AnswerFormat(OPTIONS, documents=1, reasoning=True)]


def js(**result: Any) -> str:
    return json.dumps({"result": {"found": True, **result}})


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        (js(answer="It does.", choice="A"), "A"),
        (js(answer="It does.", choice="a"), "A"),
        (js(answer="It does.", choice=" (B) "), "B"),
        (js(answer="It does.", choice="B."), "B"),
        (js(answer="It does.", choice="B. no"), "B"),
        (js(answer="It does.", choice="(B) no"), "B"),
        (js(answer="It does.", choice="B: whatever"), "B"),
        (js(answer="It does.", choice="No"), "B"),
        (js(answer="It does.", choice="maybe."), "C"),
        (js(answer="The answer is A.", choice="A"), "A"),
        (js(answer="More likely than option B.", choice="A"), "A"),
        (js(answer="It does.", choice="A", extra=1), "A"),
        (json.dumps({"answer": "It does.", "choice": "A"}), "A"),
        (json.dumps({"found": True, "answer": "It does.", "choice": "A"}), "A"),
        ("```json\n" + js(answer="It does.", choice="B") + "\n```", "B"),
        ("Here it is: " + js(answer="It does.", choice="B") + " I hope it helps.", "B"),
        ("{not json} " + js(answer="It does.", choice="B"), "B"),
        ('{"note": 1} ' + js(answer="It does.", choice="B"), "B"),
        (js(answer="It does.", choice="B") + js(answer="Yes it does.", choice="B"), "B"),
        ('{"result": {"found": true, "answer": "two\nlines", "choice": "B"}}', "B"),
        ("The answer is B", "B"),
        ("the answer is: B.", "B"),
        ("Answer: **C**", "C"),
        ("The correct choice would be (B).", "B"),
        ("the answer is option B, because of that", "B"),
        ("Option C", "C"),
        ("Option A is wrong, so the answer is B.", "B"),
        ("The answer is B. I say it again: the answer is B.", "B"),
        ("B", "B"),
        ("b", "B"),
        (" (B) ", "B"),
        ("B.", "B"),
        ("(B) no", "B"),
        ("B) no", "B"),
        ("B: because the trial says so", "B"),
        ("no", "B"),
        ("Maybe.", "C"),
        ("**Answer:** B", "B"),
        ("**Answer**: (B) no", "B"),
        ("The answer is **B**.", "B"),
        ("**Answer: C.** It is not known.", "C"),
        ("Answer:\n\nB", "B"),
        ("The answer is no.", "B"),
        ("**Answer:** maybe, for want of trials", "C"),
        ("Option A is correct.", "A"),
        ("Option A is incorrect. Option B is the best answer, since it was tried.", "B"),
        ("A is wrong and B is correct", "B"),
        ("The wrong answer is A. The right answer is B.", "B"),
        ("I choose option B because of the trial.", "B"),
    ],
)
def test_stated_choice_is_parsed(text: str, choice: str) -> None:
    reply = CHOICE.parse(text)
    assert (reply.has_answer, reply.choice) == (True, choice)
    assert reply.text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is empty"),
        ("   \n", "is empty"),
        ("...", "broken JSON"),
        (js(answer="It does.", choice="D"), "the choice is none of the options"),
        (js(answer="It does.", choice="yes and no"), "the choice is none of the options"),
        (js(answer="It does.", choice="A. no"), "none of the options"),
        (js(answer="It does.", choice=1), "neither a letter nor null"),
        (js(answer="It does.", choice=["A"]), "neither a letter nor null"),
        (js(answer="It does."), "states no choice"),
        (js(answer="", choice="A"), "has no answer"),
        (js(answer=" - ", choice="A"), "has no answer"),
        (js(answer=None, choice="A"), "has no answer"),
        (js(choice="A"), "has no answer"),
        (json.dumps({"choice": "A"}), "has no answer"),
        (js(answer="The answer is B.", choice="A"), "different choices: A, B"),
        (js(answer="A", choice="A") + js(answer="B", choice="B"), "several answers"),
        (js(answer="A", choice="A") + '{"result": {"found": false}}', "several answers"),
        (json.dumps({"result": "A"}), "not an object"),
        (json.dumps({"result": None}), "not an object"),
        (json.dumps({"result": {"found": "false", "answer": "x", "choice": "A"}}), "whether it found"),
        (json.dumps({"result": {"found": 1, "answer": "x", "choice": "A"}}), "whether it found"),
        (json.dumps({"result": {}}), "has no answer"),
        (js(answer="It does.", choice="A")[:-20], "broken JSON"),
        ("Sure: " + js(answer="It does.", choice="A")[:-20], "broken JSON"),
        ("```json\n" + js(answer="The answer is B", choice="A")[:-10], "broken JSON"),
        ('["A"]', "broken JSON"),
        ("The answer is A. No, the answer is B.", "2 choices"),
        ("Option A or option B", "2 choices"),
        ("The answer is D", "no choices"),
        ("The answer is a matter of debate", "no choices"),
        ("A small trial says so", "no choices"),
        ("It is unclear.", "no choices"),
        ("yes or no", "2 choices"),
        ("Option A is incorrect", "no choices"),
        ("Option A isn't supported by any document.", "no choices"),
        ("Option (A) would be too early to say.", "no choices"),
        ("This rules out option A.", "no choices"),
        ("It is not option A.", "no choices"),
        ("The incorrect answer is A.", "no choices"),
        ("Option A is incorrect, unlike option B", "2 choices"),
        ("A is correct. B is correct.", "2 choices"),
        ("The answer is A, that is: the answer is no.", "2 choices"),
        ("A is correct if the trial was blind", "no choices"),
        ("Group A is the best known", "no choices"),
        ("The answer is no longer known", "no choices"),
    ],
)
def test_reply_without_choice_is_unreadable(text: str, why: str) -> None:
    with pytest.raises(Unreadable, match=why):
        CHOICE.parse(text)


EFFECTS = AnswerFormat({"A": "lower", "B": "higher", "C": "no difference"})


@pytest.mark.parametrize(
    "text",
    [
        "Answer: A or B",
        "Answer: A/B",
        "Answer: A and C",
        "Answer: A, B",
        "Answer: A, B and C",
        "Answer: A & B",
        "Answer: (A) or (B)",
        "Answer: **A** or **B**",
        "Answer: A (lower) or B (higher)",
        "The answer is A or C.",
        "The answer is either A or B",
        "Answer: A and option B",
        "Option A or B",
        "A or C is correct.",
        "A or B",
        "A/B",
        "A) or B)",
        "A. lower or B. higher",
        "C. no difference - higher",
        "Answer: C. no difference - higher",
        "Answer: C - higher",
        js(answer="It fell.", choice="A or B"),
        js(answer="It fell.", choice="A/B"),
        js(answer="It rose.", choice="C. no difference - higher"),
        js(answer="higher", choice="C"),
        js(answer="C. no difference - higher", choice="C"),
        js(answer="Answer: A or B", choice="B"),
        "Answer: A; C",
        "Answer: A or possibly B",
        "Answer: A, or maybe B",
        "Answer: A (or B)",
        "Answer: A, possibly B",
        "Answer: A | B",
        "Answer: A as well as C",
        "Answer: A plus C",
        "Answer: A - or B",
        js(answer="A or B", choice="A"),
        js(answer="Both A and B", choice="A"),
        js(answer="Options A and B are correct", choice="A"),
        js(answer="No difference - higher", choice="C"),
        js(answer="Option A", choice="B"),
        js(answer="A is correct.", choice="B"),
        js(answer="A - lower", choice="B"),
        js(answer="The answer is lower.", choice="B"),
    ],
)
def test_two_choices_in_one_statement_are_unreadable(text: str) -> None:
    with pytest.raises(Unreadable):
        EFFECTS.parse(text)


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("Answer: A, because B is wrong", "A"),
        ("Answer: A, and B is wrong", "A"),
        ("Answer: A since B and C are wrong", "A"),
        ("The answer is A, not B.", "A"),
        ("Answer: A. Lower, and B was excluded.", "A"),
        ("Answer: B\nOption A or C would be wrong.", "B"),
        ("Answer: C. no difference (higher was not seen)", "C"),
        ("Answer: C. no difference, neither higher nor lower", "C"),
        ("Answer: C, no difference; not higher", "C"),
        (js(answer="lower", choice="A"), "A"),
        (js(answer="There was no difference, not higher.", choice="C"), "C"),
        (js(answer="A: it was lower.", choice="A"), "A"),
        ("The answer is B, and A and C can be excluded.", "B"),
        ("Answer: B; A and C are wrong", "B"),
        ("**B.** Higher", "B"),
        ("Answer: `B`", "B"),
        ("[B]", "B"),
        ("<answer>B</answer>", "B"),
        ("So it is $\\boxed{\\text{B}}$.", "B"),
        ("Option B - higher", "B"),
        (js(answer="It rose.", choice="B - higher"), "B"),
        (js(answer="It rose.", choice="B (higher)"), "B"),
        (js(answer="It rose.", choice="Option B"), "B"),
        (js(answer="It rose.", choice="Answer: B"), "B"),
        (js(answer="C. difficile was found, and it rose.", choice="B"), "B"),
        (js(answer="B. fragilis was found.", choice="A"), "A"),
        (js(answer="Vitamin B is the best.", choice="A"), "A"),
    ],
)
def test_choice_with_other_options_in_reasons_is_parsed(text: str, choice: str) -> None:
    assert EFFECTS.parse(text).choice == choice


def test_option_text_containing_another_option_is_parsed() -> None:
    form = AnswerFormat({"A": "aspirin", "B": "heparin", "C": "aspirin and heparin"})
    for text in ("Answer: C. aspirin and heparin", "C. aspirin and heparin", "aspirin and heparin"):
        assert form.parse(text).choice == "C"
    assert form.parse("Answer: A. aspirin, given early").choice == "A"


def test_option_text_with_two_letters_is_parsed() -> None:
    form = AnswerFormat({"A": "aspirin", "B": "heparin", "C": "A and B"})
    for text in ("The answer is A and B.", "A and B", js(answer="The answer is A and B.", choice="C")):
        assert form.parse(text).choice == "C"


def test_reply_with_too_many_quotations_is_unreadable() -> None:
    quotes = [{"doc": 1, "quote": "a b c"}] * 51
    with pytest.raises(Unreadable, match="51 places"):
        MAP.parse(js(finding="It does.", choice="A", quotes=quotes))


def test_escaped_lone_surrogate_becomes_replacement_character() -> None:
    assert OPEN.parse('{"answer": "a \\ud800 b \\ud83d\\ude00"}').text == "a \ufffd b \U0001f600"


@pytest.mark.parametrize("choice", [None, "", "null", "None", " null "])
def test_missing_choice_is_allowed_by_form(choice: str | None) -> None:
    reply = MAP.parse(js(finding="It bears on it.", choice=choice, quotes=[]))
    assert reply == ParsedReply(has_answer=True, text="It bears on it.")
    assert CHOICE.parse(js(answer="It bears on it.", choice=choice)) == ParsedReply(
        has_answer=False, text="It bears on it."
    )


def test_reply_without_answer_is_parsed() -> None:
    for form in FORMS:
        assert form.parse('{"result": {"found": false}}') == ParsedReply(has_answer=False)
        assert form.parse('{"result": {"found": false, "answer": "x", "choice": "Q"}}') == ParsedReply(has_answer=False)


def test_letter_has_precedence_over_option_text() -> None:
    """Blood groups: option A reads "B", option B reads "A"."""
    form = AnswerFormat({"A": "B", "B": "A", "C": "AB"})
    for letter in "ABC":
        assert form.parse(js(answer="That group.", choice=letter)).choice == letter
        assert form.parse(letter).choice == letter
    assert form.parse("AB").choice == "C"


def test_options_with_equal_text_are_one_choice() -> None:
    form = AnswerFormat({"A": "other", "B": "same", "C": "same "})
    for reply in ("same", "B", "C", "The answer is C.", "B and C: the answer is B, the answer is C."):
        assert form.parse(reply).choice == "B"
    assert form.parse(js(answer="The answer is B.", choice="C")).choice == "B"
    assert form.parse(js(answer="other", choice="A")).choice == "A"


def test_option_texts_equal_except_case_are_ambiguous() -> None:
    with pytest.raises(Unreadable):
        AnswerFormat({"A": "same", "B": "Same"}).parse("same")


def test_open_question_accepts_prose() -> None:
    assert OPEN.parse(" It does, in adults. ") == ParsedReply(has_answer=True, text="It does, in adults.")
    assert OPEN.parse(js(answer=" It does. ")) == ParsedReply(has_answer=True, text="It does.")
    assert OPEN.parse("Levels below {5} count.").text == "Levels below {5} count."
    for broken in ('{"result": {"found": tr', 'Here: {"result": {"found": true, "answer": "It'):
        with pytest.raises(Unreadable, match="broken JSON"):
            OPEN.parse(broken)


def test_valid_quotes_are_parsed() -> None:
    quotes = [
        {"doc": 1, "quote": " words "},
        {"doc": 2, "quote": "other"},
        {"doc": 1, "quote": "words"},
        {"doc": 0, "quote": "x"},
        {"doc": 3, "quote": "x"},
        {"doc": -1, "quote": "x"},
        {"doc": "1", "quote": "x"},
        {"doc": True, "quote": "x"},
        {"doc": 1.0, "quote": "x"},
        {"doc": 1, "quote": " "},
        {"doc": 1, "quote": None},
        {"doc": 1},
        {"quote": "x"},
        "x",
        None,
    ]
    assert MAP.parse(js(finding="It does.", choice="A", quotes=quotes)).quotes == ((1, "words"), (2, "other"))
    for strange in ("words", {"doc": 1}, None, 3):
        assert MAP.parse(js(finding="It does.", choice="A", quotes=strange)).quotes == ()
    assert CHOICE.parse(js(answer="It does.", choice="A", quotes=quotes)).quotes == (), "none were asked for"


def test_valid_sources_are_parsed() -> None:
    reply = REDUCE.parse(js(answer="It does.", choice="A", sources=[3, 1, 3, 0, 4, -1, "2", True, 2.0, None]))
    assert reply.sources == (3, 1)
    for strange in ("12", {"1": 2}, None, 3):
        assert REDUCE.parse(js(answer="It does.", choice="A", sources=strange)).sources == ()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["A", "B", "no"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["result", "found", "answer", "finding", "choice", "quotes", "sources", "doc", "quote"])
            | st.text(max_size=3),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)
fragments = st.lists(
    st.sampled_from(
        ['{"result": ', '{"found": true, ', '"answer": "x', '"', "}", "{", "[", "]", "```", "choice", "A", "\\", "\n"]
    )
)


@pytest.mark.slow
@given(st.text() | json_values.map(json.dumps) | fragments.map("".join), st.sampled_from(FORMS))
@example('{"a":' * 1_500, OPEN)
@example("[" * 1_500, CHOICE)
@example('{"result": {"found": true, "answer": ' + "9" * 5000 + "}}", OPEN)
def test_parsing_raises_only_unreadable(text: str, form: AnswerFormat) -> None:
    try:
        reply = form.parse(text)
    except Unreadable:
        return
    assert reply.choice is None or reply.choice in form.options
    assert all(1 <= number <= form.documents for number, _ in reply.quotes)
    assert all(1 <= number <= form.sources for number in reply.sources)
    assert not reply.has_answer or reply.text
    assert not (reply.has_answer and form.options and reply.choice is None and not form.choice_may_be_null)


# -- the schema ----------------------------------------------------------------------------------------------------


def satisfies(value: Any, schema: dict[str, Any]) -> bool:
    """Whether the value keeps the schema: the few words of JSON schema that are used here, and no others."""
    assert set(schema) <= {
        "type",
        "enum",
        "anyOf",
        "properties",
        "required",
        "additionalProperties",
        "items",
        "minItems",
        "maxItems",
        "minLength",
        "maxLength",
    }
    kinds: dict[str, type] = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}
    if "anyOf" in schema:
        return any(satisfies(value, branch) for branch in schema["anyOf"])
    if "enum" in schema and not any(
        value is each or (value == each and type(value) is type(each)) for each in schema["enum"]
    ):
        return False
    if "type" in schema and type(value) is not kinds[schema["type"]]:
        return False
    if isinstance(value, dict):
        inner = schema["properties"]
        assert schema["required"] == list(inner)
        assert schema["additionalProperties"] is False
        return set(value) == set(inner) and all(satisfies(value[name], inner[name]) for name in inner)
    if isinstance(value, list):
        sized = schema["minItems"] <= len(value) <= schema["maxItems"]
        return sized and all(satisfies(item, schema["items"]) for item in value)
    if isinstance(value, str) and "maxLength" in schema:
        return bool(schema["minLength"] <= len(value) <= schema["maxLength"])
    return True


def longest(form: AnswerFormat) -> dict[str, Any]:
    """The longest reply that the form allows."""
    found: dict[str, Any] = {"found": True}
    if form.documents:
        found["quotes"] = [{"doc": form.documents, "quote": "q" * QUOTE_CHARACTERS}] * MAX_QUOTES
    if form.sources:
        found["sources"] = [form.sources] * MAX_SOURCES
    found[form.text_field] = "x" * ANSWER_CHARACTERS
    if form.options:
        found["choice"] = "B"
    reply: dict[str, Any] = {"reasoning": "r" * REASONING_CHARACTERS} if form.reasoning else {}
    return {**reply, "result": found}


@pytest.mark.parametrize("form", FORMS)
def test_longest_reply_matches_schema_and_token_limit(form: AnswerFormat) -> None:
    reply = longest(form)
    assert satisfies(reply, form.schema())
    text = json.dumps(reply)
    assert form.parse(text).has_answer
    assert len(text) <= 2 * form.max_tokens, "two characters a token are enough"
    assert list(form.schema()["properties"]) == list(reply), "reasons come before what they lead to"
    assert list(form.schema()["properties"]["result"]["anyOf"][0]["properties"]) == list(reply["result"])
    nothing = {**reply, "result": {"found": False}}
    assert satisfies(nothing, form.schema())
    assert json.loads(json.dumps(form.schema())) == form.schema()


@pytest.mark.parametrize(
    ("form", "change"),
    [
        (CHOICE, {"choice": "D"}),
        (CHOICE, {"choice": None}),
        (CHOICE, {"answer": ""}),
        (CHOICE, {"answer": "x" * (ANSWER_CHARACTERS + 1)}),
        (CHOICE, {"found": False}),
        (CHOICE, {"quotes": []}),
        (CHOICE, {"sources": [1]}),
        (MAP, {"quotes": []}),
        (MAP, {"quotes": [{"doc": 3, "quote": "x"}]}),
        (MAP, {"quotes": [{"doc": 1, "quote": ""}]}),
        (MAP, {"quotes": [{"doc": 1, "quote": "x"}] * (MAX_QUOTES + 1)}),
        (MAP, {"answer": "x"}),
        (REDUCE, {"sources": []}),
        (REDUCE, {"sources": [4]}),
        (REDUCE, {"sources": [1] * (MAX_SOURCES + 1)}),
        (REDUCE, {"choice": None}),
    ],
)
def test_schema_rejects_changed_reply(form: AnswerFormat, change: dict[str, Any]) -> None:
    reply = longest(form)
    assert satisfies(reply, form.schema())
    assert not satisfies({**reply, "result": {**reply["result"], **change}}, form.schema())


def test_map_reply_without_choice_is_parsed() -> None:
    reply = longest(MAP)
    reply["result"]["choice"] = None
    assert satisfies(reply, MAP.schema())


# -- streaming -----------------------------------------------------------------------------------------------------


def streamed(field: str, pieces: list[str]) -> str:
    stream = TextStream(field)
    return "".join(stream.feed(piece) for piece in pieces)


def split(text: str, cuts: list[int]) -> list[str]:
    places = sorted({cut % (len(text) + 1) for cut in cuts})
    return [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]


real_text = st.text(st.characters(exclude_categories=["Cs"])) | st.lists(
    st.sampled_from(['"', "\\", "\n", "\u00e9", "\U0001f600", "answer", '"answer": "', "}", "u", "\x00", " "])
).map("".join)


@pytest.mark.slow
@given(real_text, real_text, st.booleans(), st.sampled_from(["", " ", "\n", "```json\n"]), st.lists(st.integers(0)))
@example("\U0001f600x", "", True, "", list(range(200)))
@example('a "b" \\ \n c', 'x "answer": "y', True, " ", list(range(200)))
def test_stream_yields_field_for_any_chunks(
    text: str, reasoning: str, ascii_only: bool, before: str, cuts: list[int]
) -> None:
    reply = {
        "reasoning": reasoning,
        "result": {"found": True, "quotes": [{"quote": "answer"}], "answer": text, "choice": "A"},
    }
    whole = before + json.dumps(reply, ensure_ascii=ascii_only)
    assert streamed("answer", split(whole, cuts)) == text
    assert streamed("finding", split(whole, cuts)) == ""


@pytest.mark.slow
@given(real_text.filter(lambda text: not text.lstrip().startswith(("{", "`"))), st.lists(st.integers(0)))
def test_stream_of_prose_is_unchanged(text: str, cuts: list[int]) -> None:
    assert streamed("answer", split(text, cuts)) == text.lstrip()


def test_stream_yields_text_immediately() -> None:
    stream = TextStream("answer")
    pieces = ['{"result": {"ans', 'wer" : "It do', "es", "\\", 'n"', ', "choice": "A"}}']
    assert [stream.feed(piece) for piece in pieces] == ["", "It do", "es", "", "\n", ""]


def _by_words(options: dict[str, str], choice: str | None, text: str = "It was seen in 40 people.") -> str | None:
    form = AnswerFormat(options, sentences=3)
    claims = [{"text": text, "sentences": [1]}]
    return form.parse(json.dumps({"result": {"found": True, "claims": claims, "choice": choice}})).choice


def test_schema_of_numbered_reply_offers_words_of_options_once() -> None:
    form = AnswerFormat({"A": "yes", "B": "no", "C": "no"}, sentences=3)
    fields = form.schema()["properties"]["result"]["anyOf"][0]["properties"]
    assert fields["choice"] == {"enum": ["yes", "no"]}


@pytest.mark.parametrize("letter", "ABC")
def test_option_named_by_words_is_chosen_even_if_they_look_like_letters_or_null(letter: str) -> None:
    options = {"A": "B", "B": "none", "C": "A"}
    assert _by_words(options, options[letter]) == letter


def test_numbered_reply_that_names_a_letter_is_still_read() -> None:
    assert _by_words({"A": "yes", "B": "no"}, "B") == "B"


def test_null_choice_of_numbered_reply_is_no_answer() -> None:
    assert _by_words({"A": "yes", "B": "no"}, None) is None


def test_numbered_reply_whose_claim_states_another_option_is_unreadable() -> None:
    with pytest.raises(Unreadable, match="different choices"):
        _by_words({"A": "yes", "B": "no"}, "no", "The answer is yes.")
