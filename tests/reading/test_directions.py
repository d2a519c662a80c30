"""Directions with a probability, and what makes a sentence one about something else."""

from __future__ import annotations

import pytest

from epicrisis.reading.comparisons import Comparison, read_comparison
from epicrisis.reading.direction_rules import read_rates
from epicrisis.reading.directions import describe_effect, find_effect, match_options, read_effect
from epicrisis.reading.opposites import count_opposites, list_opposites, names_other_kind, read_kinds

QUESTION = "Does low-dose aspirin lower the risk of preterm pre-eclampsia?"
TITLE = "Aspirin from the first trimester in women at high risk"
RATES = (
    "Pre-eclampsia before 37 weeks occurred in 1.6 % of the aspirin group and 4.3 % of the placebo group, an odds "
    "ratio of 0.38."
)


@pytest.mark.parametrize(
    ("text", "direction"),
    [
        ("1.6 % with aspirin and 4.3 % with placebo, odds ratio 0.38", "decreased"),
        ("4.3 % with placebo and 1.6 % with aspirin, odds ratio 2.69", "decreased"),
        ("4.3 % with aspirin and 1.6 % with placebo, odds ratio 2.69", "increased"),
        ("1.6 % with aspirin and 4.3 % with placebo, odds ratio 0.98", "none"),
        ("1.6 % and 4.3 %, odds ratio 0.38", "none"),
        ("1.6 % with aspirin and 1.8 % with placebo, odds ratio 0.90 (95 % CI 0.7 to 1.2)", "none"),
    ],
)
def test_rates_with_their_ratio_give_the_direction(text: str, direction: str) -> None:
    assert read_rates(text, Comparison("stroke", "aspirin", "placebo")) == direction


def test_directions_have_probabilities() -> None:
    comparison = read_comparison("Does aspirin reduce stroke?")
    effect = read_effect("The rates of stroke did not differ between aspirin and placebo (p = 0.4).", comparison)
    assert effect.direction == "no-difference"
    assert effect.is_sure
    assert not read_effect("Stroke is a disease.", comparison).is_sure


def test_sure_direction_of_the_asked_outcome_is_said() -> None:
    effect = find_effect(QUESTION, RATES, TITLE)
    assert effect is not None
    assert describe_effect(effect.direction) == "a decrease"


@pytest.mark.parametrize(
    ("sentence", "title"),
    [
        ("Pre-eclampsia at term did not differ between aspirin and placebo.", TITLE),
        ("The rate of death did not differ between aspirin and placebo.", TITLE),
        ("Preterm pre-eclampsia did not differ between the groups.", "Calcium in pregnancy"),
        ("The aim was to find out whether preterm pre-eclampsia does not differ with aspirin.", TITLE),
    ],
)
def test_sentence_on_something_else_has_no_direction(sentence: str, title: str) -> None:
    assert find_effect(QUESTION, sentence, title) is None


@pytest.mark.parametrize(
    ("question", "sentence", "count"),
    [
        ("Does it prevent preterm birth?", "Birth at term was as frequent.", 1),
        ("Does it prevent preterm birth?", "Preterm birth and birth at term were as frequent.", 0),
        ("Does it prevent birth?", "Birth at term was as frequent.", 0),
        ("Does it lower systolic pressure in women?", "Diastolic pressure fell in men.", 2),
    ],
)
def test_opposites_are_counted(question: str, sentence: str, count: int) -> None:
    assert count_opposites(list_opposites(question), sentence) == count


@pytest.mark.parametrize(
    ("question", "sentence", "title", "is_other"),
    [
        ("Does vitamin C prevent falls?", "Vitamin D prevented falls.", "", True),
        ("Does vitamin C prevent falls?", "It prevented falls.", "Vitamin D in women", True),
        ("Does vitamin C prevent falls?", "Vitamins D, E and C prevented falls.", "", False),
        ("Does vitamin C prevent falls?", "Vitamin C prevented falls.", "Vitamin D in women", False),
        ("Does vitamin C prevent falls?", "Falls were rare in vitamin deficiency.", "", False),
        ("Does vitamin D prevent falls?", "Vitamin D3 prevented falls.", "", False),
        ("Does vitamin B12 prevent falls?", "Vitamin B-6 prevented falls.", "", True),
        ("Does hepatitis B vaccine prevent death?", "Hepatitis A vaccine prevented death.", "", True),
        ("Does it help in type 2 diabetes?", "It helped in type II diabetes.", "", False),
        ("Does it help in type 2 diabetes?", "It helped in type I diabetes.", "", True),
        ("Does IL-6 rise?", "Interleukin-1 rose.", "", True),
        ("Does it help in stage 3 disease?", "It helped in stages III-IV.", "", False),
    ],
)
def test_letters_and_numbers_make_other_kinds(question: str, sentence: str, title: str, is_other: bool) -> None:
    assert names_other_kind(read_kinds(question), sentence, title) is is_other


def test_direction_of_another_vitamin_is_not_said() -> None:
    sentence = "Vitamin D did not reduce falls (RR 1.01, 95% CI 0.90-1.14)."
    assert find_effect("Does vitamin D prevent falls?", sentence, "Vitamin D and falls") is not None
    assert find_effect("Does vitamin C prevent falls?", sentence, "Vitamin D and falls") is None
    assert (
        find_effect("Does vitamin C prevent falls?", "Falls were not reduced (p = 0.8).", "Vitamin D and falls") is None
    )


@pytest.mark.parametrize(
    ("sentence", "direction"),
    [
        ("Mortality was 30.8% with early and 31.5% with late surgery (absolute risk reduction 0.7%).", None),
        ("Mortality fell more with late surgery (mean difference -0.7, 95% CI -5.4 to 6.7).", "no-difference"),
        ("Mortality was lower with late surgery (risk difference -2%, 95% CI -6% to 2%).", "no-difference"),
        ("Mortality was lower with late surgery (difference -2, 95% CI [−3.5, −0.5]; p = 0.01).", "decreased"),
        ("Mortality was lower with late surgery, with an absolute risk reduction of 4% (p = 0.01).", "decreased"),
    ],
)
def test_measure_in_parentheses_is_no_direction_and_its_interval_is_read(sentence: str, direction: str | None) -> None:
    effect = find_effect("Does late surgery reduce mortality?", sentence, "Late surgery")
    assert (None if effect is None else effect.direction) == direction


EARLIER = "Mortality was significantly lower with deferred than with early antiretroviral therapy (p = 0.01)."
EARLY = "Mortality was 45 % with early antiretroviral therapy and 30 % with deferred antiretroviral therapy, ratio 1.5."
TIMES = "The risk of mortality was almost 3 times as great in the early ART group versus the delayed ART group."


@pytest.mark.parametrize(
    ("timing", "direction"), [("early", "increased"), ("deferred", "decreased"), ("delayed", "decreased")]
)
@pytest.mark.parametrize("sentence", [EARLIER, EARLY, TIMES])
def test_early_and_deferred_treatment_are_not_confused(timing: str, direction: str, sentence: str) -> None:
    question = f"Does {timing} antiretroviral therapy reduce mortality?"
    effect = find_effect(question, sentence, "Timing of antiretroviral therapy in cryptococcal meningitis")
    assert effect is None or effect.direction == direction


@pytest.mark.parametrize(
    ("options", "letters"),
    [
        (["increased", "decreased", "no difference"], {"increased": "A", "decreased": "B", "no-difference": "C"}),
        (["The same", "Lower", "Uncertain", "Higher"], {"no-difference": "A", "decreased": "B", "increased": "D"}),
        (["No significant increase", "An increase"], {"no-difference": "A", "increased": "B"}),
        (["yes", "no", "maybe"], {}),
        (["lower", "reduced", "higher"], {}),
        (["more or less", "lower"], {}),
        (["higher", "uncertain"], {}),
    ],
)
def test_options_that_name_directions(options: list[str], letters: dict[str, str]) -> None:
    assert match_options(dict(zip("ABCD", options, strict=False))) == letters


@pytest.mark.parametrize(
    ("question", "direction"),
    [
        ("Does aspirin reduce the risk of stroke?", None),
        ("Does aspirin cause major bleeding?", "no-difference"),
    ],
)
def test_direction_of_another_part_of_the_sentence_is_not_said(question: str, direction: str | None) -> None:
    sentence = "Aspirin halved non-fatal stroke, and did not cause a significant excess of major bleeding."
    effect = find_effect(question, sentence, "Aspirin in suspected myocardial infarction")
    assert (effect and effect.direction) == direction
