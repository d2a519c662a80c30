"""Test what is read of the effect that a claim states."""

from __future__ import annotations

import pytest

from epicrisis.reading.claims import EffectClaim, are_opposed, compares, list_signs, read_claim
from epicrisis.reading.comparisons import Comparison
from epicrisis.reading.directions import Effect


@pytest.mark.parametrize(
    ("text", "parts", "direction"),
    [
        ("Aspirin reduces the risk of stroke.", ("risk of stroke", "Aspirin", ""), "decreased"),
        ("Aspirin may improve survival compared with placebo.", ("survival", "Aspirin", "placebo"), "increased"),
        ("Compared with placebo, aspirin reduced stroke.", ("stroke", "aspirin", "placebo"), "decreased"),
        ("The study found that aspirin worsens pain.", ("pain", "aspirin", ""), "increased"),
        ("Stroke was less frequent with aspirin than with placebo.", ("Stroke", "aspirin", "placebo"), "decreased"),
        ("Aspirin is better than placebo for pain.", ("pain", "Aspirin", "placebo"), "decreased"),
        ("Aspirin is superior to placebo in reducing stroke.", ("stroke", "Aspirin", "placebo"), "decreased"),
        ("Aspirin is inferior to ozone in reducing stroke.", ("stroke", "Aspirin", "ozone"), "increased"),
        ("Aspirin led to a significant reduction in fever.", ("fever", "Aspirin", ""), "decreased"),
        ("Smoking is associated with a higher risk of stroke.", ("risk of stroke", "Smoking", ""), "increased"),
        ("Xylitol had no effect on caries.", ("caries", "Xylitol", ""), "no-difference"),
        ("Xylitol does not affect caries.", ("caries", "Xylitol", ""), "no-difference"),
        ("Mortality did not differ between X1 and Y1.", ("Mortality", "X1", "Y1"), "no-difference"),
        ("No significant difference in pain was found between X1 and Y1.", ("pain", "X1", "Y1"), "no-difference"),
        ("No difference was found between X1 and Y1 in pain.", ("pain", "X1", "Y1"), "no-difference"),
        (
            "Pressure support ventilation (PSV) reduces fever.",
            ("fever", "Pressure support ventilation PSV", ""),
            "decreased",
        ),
    ],
)
def test_read_claim_finds_parts_and_direction(text: str, parts: tuple[str, str, str], direction: Effect) -> None:
    assert read_claim(text) == EffectClaim(Comparison(*parts), direction)


def test_read_claim_of_negated_direction_is_no_difference() -> None:
    claim = read_claim("Semaglutide does not reduce cardiovascular events.")
    assert claim == EffectClaim(Comparison("cardiovascular events", "Semaglutide"), "no-difference", "decreased")
    assert read_claim("Pain was not reduced by aspirin.") == EffectClaim(
        Comparison("Pain", "aspirin"), "no-difference", "decreased"
    )


@pytest.mark.parametrize(
    "text",
    [
        "Aspirin is cheap.",
        "Aspirin affects the platelets.",
        "Does aspirin reduce stroke?",
        "It is not proven that candy reduces the risk of diabetes.",
        "Aspirin reduces fever and increases bleeding.",
        "Abstinence was more effective after 26 weeks of treatment.",
        "It is lower in the group.",
        "Aspirin reduces " + "fever and pain " * 30,
    ],
)
def test_read_claim_of_other_forms_reads_nothing(text: str) -> None:
    assert read_claim(text) is None


@pytest.mark.parametrize(
    ("claim", "other", "is_opposed"),
    [
        ("Aspirin reduces stroke.", "Aspirin increases stroke.", True),
        ("Aspirin reduces stroke.", "Aspirin does not reduce stroke.", True),
        ("Aspirin does not reduce stroke.", "Aspirin does not increase stroke.", False),
        ("Aspirin is better than ozone for pain.", "Ozone is better than aspirin for pain.", True),
        ("Aspirin reduces stroke.", "Aspirin reduces stroke.", False),
        ("Aspirin reduces stroke.", "Aspirin increases bleeding.", False),
        ("Aspirin reduces stroke.", "Ozone increases stroke.", False),
    ],
)
def test_are_opposed_compares_directions_of_one_outcome(claim: str, other: str, is_opposed: bool) -> None:
    ours, theirs = read_claim(claim), read_claim(other)
    assert ours is not None
    assert theirs is not None
    assert are_opposed(ours, theirs) is is_opposed


def test_list_signs_reads_nouns_and_verbs() -> None:
    assert list_signs("Enhanced suppression and better sleep") == {"up", "down", "better"}


def test_compares_needs_a_second_side() -> None:
    assert compares("X was lower than Y.")
    assert not compares("X was lower.")
