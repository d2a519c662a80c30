"""Directions of effect read by rules from sentences of trial reports."""

from __future__ import annotations

import pytest

from epicrisis.reading.comparisons import Comparison, read_comparison
from epicrisis.reading.direction_rules import Direction, find_direction

PAIN = Comparison("pain", "ketamine", "placebo")
SURVIVAL = Comparison("survival", "ketamine", "placebo")


@pytest.mark.parametrize(
    ("text", "direction"),
    [
        ("Pain was significantly lower with ketamine than with placebo.", "decreased"),
        ("Pain was significantly higher in the placebo group (p < 0.01).", "decreased"),
        ("Pain was significantly higher in the placebo group than in the ketamine group.", "decreased"),
        ("Compared with placebo, ketamine reduced pain.", "decreased"),
        ("Pain improved with ketamine.", "decreased"),
        ("Pain got worse with ketamine.", "increased"),
        ("There was a greater reduction of pain with ketamine.", "decreased"),
        ("There was a smaller reduction of pain with ketamine.", "increased"),
        ("Pain was lower with ketamine, but this difference was not statistically significant.", "no-difference"),
        ("Pain did not differ between the groups (p = 0.3).", "no-difference"),
        ("Pain was similar in both groups.", "no-difference"),
        ("Pain fell with ketamine (p = 0.21).", "no-difference"),
        ("Ketamine didn't reduce pain.", "no-difference"),
        ("Pain: 3.1 with ketamine vs. 5.2 with placebo (p = 0.01).", "decreased"),
        ("Pain occurred in 41% (n = 20) with placebo and 22% (n = 11) with ketamine (p = 0.02).", "decreased"),
        ("Pain: odds ratio 0.61 (95% CI 0.41-0.92).", "decreased"),
        ("Pain: odds ratio 0.81 (95% CI 0.41-1.32).", "no-difference"),
        ("Nausea was more frequent with ketamine, whereas pain was less frequent.", "decreased"),
        ("Ketamine was effective in reducing pain.", "decreased"),
        ("We aimed to assess whether ketamine reduces pain.", "none"),
        ("To determine if ketamine can reduce pain.", "none"),
        ("It remains unclear if ketamine reduces pain.", "none"),
        ("Pain was lower with ketamine, whether or not it was given early.", "decreased"),
        ("Pain was assessed after 24 hours.", "none"),
        ("", "none"),
    ],
)
def test_direction_of_unwanted_outcome(text: str, direction: Direction) -> None:
    assert find_direction(text, PAIN) == direction


@pytest.mark.parametrize(
    ("text", "direction"),
    [
        ("Deferring radiotherapy improved survival.", "decreased"),
        ("Delaying the use of radiotherapy improved survival.", "decreased"),
        ("Deferred radiotherapy was associated with better survival.", "decreased"),
        ("Survival improved when radiotherapy was deferred.", "decreased"),
        ("Omitting radiotherapy reduced survival.", "increased"),
        ("Withholding radiotherapy did not affect survival.", "no-difference"),
        ("Survival was better with deferred radiotherapy than with immediate radiotherapy.", "decreased"),
        ("Survival was better with immediate radiotherapy than with deferred radiotherapy.", "increased"),
        ("Compared with deferred radiotherapy, immediate radiotherapy improved survival.", "increased"),
        ("Compared with immediate radiotherapy, deferred radiotherapy improved survival.", "decreased"),
        ("Radiotherapy improved survival by delaying progression.", "increased"),
        ("Deferring surgery improved survival after radiotherapy.", "increased"),
    ],
)
def test_effect_of_withheld_intervention_is_turned_round(text: str, direction: Direction) -> None:
    assert find_direction(text, read_comparison("Does radiotherapy improve survival?")) == direction


def test_withholding_that_is_asked_about_is_the_intervention() -> None:
    comparison = read_comparison("Does deferring radiotherapy improve survival?")
    assert find_direction("Deferring radiotherapy improved survival.", comparison) == "increased"


@pytest.mark.parametrize(
    ("question", "text", "direction"),
    [
        ("Does low-dose aspirin improve survival?", "Low-dose aspirin improved survival.", "increased"),
        ("Does a low dose of aspirin improve survival?", "A low dose of aspirin improved survival.", "increased"),
        ("Does delayed cord clamping prevent anaemia?", "Delayed cord clamping reduced anaemia.", "decreased"),
        ("Does radiotherapy improve survival?", "High-dose radiotherapy reduced survival.", "decreased"),
        ("Does aspirin affect bleeding?", "Bleeding was higher with aspirin.", "increased"),
    ],
)
def test_word_in_name_of_intervention_is_no_direction(question: str, text: str, direction: Direction) -> None:
    assert find_direction(text, read_comparison(question)) == direction


def test_better_wanted_outcome_is_increase() -> None:
    assert find_direction("Survival improved with ketamine.", SURVIVAL) == "increased"


@pytest.mark.parametrize(
    ("question", "comparison"),
    [
        (
            "Is the risk of falls higher, lower, or the same when comparing tai chi to usual care?",
            Comparison("risk of falls", "tai chi", "usual care"),
        ),
        ("What is the effect of tea compared with water on sleep?", Comparison("sleep", "tea", "water")),
        ("Does aspirin prevent stroke?", Comparison("stroke", "aspirin")),
        ("Who described epicrisis?", Comparison("Who described epicrisis")),
    ],
)
def test_comparison_of_question(question: str, comparison: Comparison) -> None:
    assert read_comparison(question) == comparison


def test_effective_in_reducing_unlisted_outcome_is_decrease() -> None:
    question = "Does chlorhexidine reduce omphalitis, compared with dry cord care?"
    text = "Chlorhexidine was effective in reducing the risk of omphalitis."
    assert find_direction(text, read_comparison(question)) == "decreased"
