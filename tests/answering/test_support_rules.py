"""Test the rules that find what the sentences of a claim do not say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epicrisis.answering.support_rules import SupportRule, apply_rules, find_directions, word_overlap

ALL: tuple[SupportRule, ...] = ("number", "direction", "negation", "drug", "population")
TEMPLATES = (
    "Aspirin lowered mortality by {} %.",
    "Patients took {} mg of metformin a day.",
    "The dose was at least {} mg.",
    "More than {} patients died.",
    "Follow-up was {} months.",
    "Creatinine rose to {} mg/dL in the treated group.",
    "The hazard ratio was {} in women.",
)


def rules_of(claim: str, evidence: str, context: str = "") -> list[str]:
    return [finding.rule for finding in apply_rules(claim, evidence, context, ALL)]


@pytest.mark.parametrize(
    ("claim", "evidence", "rules"),
    [
        ("It fell by 12 %.", "It fell by 9 %.", ["number"]),
        ("They took 5 mg.", "They took 5 g.", ["number"]),
        ("They took 500 mg.", "They took 0.5 g.", []),
        ("Patients were above 60 years.", "The mean age was 65 years.", []),
        ("More than 7 % died.", "More than 5 % died.", ["number"]),
        ("The dose was 7 to 10 mg.", "The dose was 5 to 10 mg.", ["number"]),
        ("Two trials agree.", "The trials agree.", []),
        ("BRCA 1 carriers are at risk.", "BRCA1 carriers are at risk.", []),
        ("It raised mortality.", "It lowered mortality.", ["direction"]),
        ("It raised mortality.", "It had no effect on mortality.", ["direction", "negation"]),
        ("It lowered mortality.", "It lowered mortality and increased bleeding.", []),
        ("It did not help.", "It did help.", ["negation"]),
        ("Warfarin was given.", "A drug was given.", ["drug"]),
        ("Warfarin was given.", "Apixaban and warfarin were given.", []),
        ("It helps children.", "It helps adults.", ["population"]),
        ("It helps children.", "It helps children and adults.", []),
        ("Patients improved.", "Rats improved.", ["population"]),
    ],
)
def test_rules_find_what_sentences_do_not_say(claim: str, evidence: str, rules: list[str]) -> None:
    assert rules_of(claim, evidence) == rules


def test_numbers_and_drugs_of_the_question_are_known() -> None:
    claim, evidence = "In adults over 65 years warfarin was safe.", "It was safe."
    assert rules_of(claim, evidence) == ["number", "drug"]
    assert rules_of(claim, evidence, "Is warfarin safe in adults over 65 years?") == []


def test_only_precise_rules_apply_by_default() -> None:
    assert apply_rules("Warfarin did not help children.", "It did help adults.") == ()


def test_number_finding_names_the_other_number_of_the_same_unit() -> None:
    (finding,) = apply_rules("It fell by 12 %.", "It fell by 9 % in 30 patients.")
    assert (finding.reason, finding.opposed) == ("its sentences do not say 12 %, but 9 %", True)
    (finding,) = apply_rules("It fell by 12 %.", "It fell.")
    assert (finding.reason, finding.opposed) == ("its sentences do not say 12 %", False)


def test_direction_finding_is_opposed() -> None:
    (finding,) = apply_rules("It raised mortality.", "It lowered mortality.")
    assert finding.opposed
    assert finding.reason == "it speaks of increase, its sentences of decrease"


@pytest.mark.parametrize(
    ("text", "directions"),
    [
        ("There was no significant difference in risk.", {"no difference"}),
        ("It was not associated with a higher risk.", {"no difference", "increase"}),
        ("It reduced pain and improved sleep.", {"decrease", "increase"}),
        ("The trial began in May.", set()),
    ],
)
def test_find_directions_reads_no_difference_first(text: str, directions: set[str]) -> None:
    assert find_directions(text) == directions


@pytest.mark.slow
@given(st.text(max_size=200))
def test_text_never_has_a_finding_against_itself(text: str) -> None:
    assert apply_rules(text, text, rules=ALL) == ()
    assert word_overlap(text, text) == 1


@pytest.mark.slow
@given(st.sampled_from(TEMPLATES), st.integers(1, 500), st.integers(2, 9))
def test_sentence_with_another_number_is_always_found(template: str, number: int, factor: int) -> None:
    sentence = template.format(number)
    assert rules_of(template.format(number * factor), sentence) == ["number"]
    assert rules_of(sentence, template.format(number * factor)) == ["number"]
    assert rules_of(sentence, sentence) == []


def test_word_overlap_is_share_of_content_words() -> None:
    assert word_overlap("Aspirin lowered the risk.", "The aspirin was cheap.") == pytest.approx(1 / 3)
    assert word_overlap("", "anything") == 1
