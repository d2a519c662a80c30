"""Ratios with intervals, as the sentences of abstracts state them."""

from __future__ import annotations

import pytest

from epicrisis.report.stated_ratios import find_ratio


@pytest.mark.parametrize(
    ("sentence", "measure", "text", "level"),
    [
        (
            "Severe omphalitis was reduced by 75% (incidence rate ratio 0.25, 95% CI 0.12-0.53; 13 infections/4839).",
            "incidence rate ratio",
            "0.25 (0.12 to 0.53)",
            "95",
        ),
        ("It was lower (relative risk 0.76 [95% CI 0.55-1.04]).", "relative risk", "0.76 (0.55 to 1.04)", "95"),
        ("A reduction (risk ratio [RR]=0·58, 95% CI 0·41–0·82; p=0·002).", "risk ratio", "0.58 (0.41 to 0.82)", "95"),
        ("Less infection in the group (RR 0.35, 0.15-0.81).", "risk ratio", "0.35 (0.15 to 0.81)", ""),
        (
            "The adjusted odds ratio was 2.9 (95% confidence interval, 1.1 to 7.9).",
            "adjusted odds ratio",
            "2.9 (1.1 to 7.9)",
            "95",
        ),
        ("aHR 1.09; 99% CI: 0.92, 1.29", "adjusted hazard ratio", "1.09 (0.92 to 1.29)", "99"),
        ("Hazard ratio for death, 0.95; 95% CI, 0.83 to 1.08.", "hazard ratio", "0.95 (0.83 to 1.08)", "95"),
    ],
)
def test_ratio_of_a_sentence_is_read_with_its_interval(sentence: str, measure: str, text: str, level: str) -> None:
    ratio = find_ratio(sentence)
    assert ratio is not None
    assert (ratio.measure, ratio.text, ratio.level) == (measure, text, level)


@pytest.mark.parametrize(
    "sentence",
    [
        "The odds ratio was 0.38.",
        "Pain or fever occurred in 12 of 30-40 women.",
        "Mortality was 12% (95% CI 8-16%) or 0.5 of the others.",
        "OR 0.5 (95% CI 0.6 to 0.9)",
        "The relative risk was 0.0 (0.0 to 0.0).",
        "RR 0.80, which is 20-30 % less",
    ],
)
def test_sentence_without_ratio_and_fitting_interval_has_none(sentence: str) -> None:
    assert find_ratio(sentence) is None


SCREENING = (
    "Screening with tomosynthesis found more cancers (relative risk 1.14, 95% CI 1.02 to 1.28) and fewer interval "
    "cancers (relative risk 0.67, 95% CI 0.50 to 0.90)."
)


@pytest.mark.parametrize(
    ("sentence", "outcome", "text"),
    [
        (SCREENING, "interval cancers", "0.67 (0.50 to 0.90)"),
        (SCREENING, "deaths", None),
        (SCREENING, "cancers", None),
        ("Stroke: HR 0.80 (0.70-0.91). Bleeding: HR 1.40 (1.10-1.78).", "bleeding", "1.40 (1.10 to 1.78)"),
        ("The risks were RR 1.14 (1.02-1.28) for cancers and 0.67 (0.50-0.90) for deaths.", "deaths", None),
        ("Deaths fell (RR 0.80, 0.70-0.91).", "mortality", "0.80 (0.70 to 0.91)"),
    ],
)
def test_ratio_of_several_is_that_of_the_outcome_or_none(sentence: str, outcome: str, text: str | None) -> None:
    ratio = find_ratio(sentence, outcome)
    assert (ratio and ratio.text) == text
