"""Sample sizes and populations are words of the text, at their place, or missing."""

from __future__ import annotations

import time

import pytest

from epicrisis.answering.study_details import find_population, find_sample_size
from tests.support.pages import demo_documents


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("We randomised 1776 women at high risk.", "1776 women"),
        ("The trial enrolled 17,187 people within 24 hours.", "17,187 people"),
        ("In 2104 patients treated with 6 mg, mortality fell by 12 %.", "2104 patients"),
        ("A cohort (n = 281) was followed for 12 years.", "n = 281"),
        ("Compared with 40 % of the patients, the dose was 100 mg for 30 days.", None),
        ("Aspirin lowered the risk by 62 %.", None),
        ("Stroke occurs in 15,000 adults a year. A total of 340 patients were studied.", "340 patients"),
        ("A previous trial of 400 women showed benefit. We randomised 100 women.", "100 women"),
        ("Samples taken prior to diagnosis in 429 women were read.", "429 women"),
        ("We screened 900 patients and randomised 300.", None),
        ("Sixty patients took it; 12 patients dropped out.", None),
        ("It fell in 40 patients on X and rose in 60. We had randomised 1000 patients.", "1000 patients"),
        ("", None),
        ("Patients (n=71) received metformin and 72 placebo.", None),
        ("Patients received metformin (n = 71) or placebo (n = 72).", None),
        ("Patients were assigned to metformin (n = 71) or placebo.", None),
        ("Patients took vitamin C (74 patients) or placebo (68 patients).", None),
        ("A total of 71 patients were assigned to metformin and 72 to placebo.", None),
        ("In the metformin group (n=71) pain fell.", None),
        ("They were in two groups of 50 patients each.", None),
        ("We randomised 143 patients to metformin (n=71) or placebo (n=72).", "143 patients"),
        ("We randomised 143 patients: 71 to metformin and 72 to placebo.", "143 patients"),
        ("Of 143 patients, 71 received metformin and 72 placebo.", "143 patients"),
        ("We randomised 143 patients to metformin and 72 hours of rest.", "143 patients"),
        ("Adults (n=143) were randomised to metformin or placebo.", "n=143"),
    ],
)
def test_sample_size_is_stated_words_or_none(text: str, size: str | None) -> None:
    detail = find_sample_size(text)
    assert (None if detail is None else detail.text) == size


@pytest.mark.parametrize(
    ("text", "population"),
    [
        ("It gave 301 adults with suspected meningitis to dexamethasone.", "adults with suspected meningitis"),
        ("Older patients with heart failure were assigned to placebo.", "Older patients with heart failure"),
        ("It included 19 trials with 71,108 patients.", None),
        ("Aspirin lowered the risk.", None),
    ],
)
def test_population_is_stated_words_or_none(text: str, population: str | None) -> None:
    detail = find_population(text)
    assert (None if detail is None else detail.text) == population


def test_details_of_demo_stand_at_their_place_and_most_sizes_are_found() -> None:
    documents = demo_documents()
    sizes = 0
    for document in documents:
        for detail in (find_sample_size(document.text), find_population(document.text)):
            assert detail is None or document.text[detail.start : detail.end] == detail.text
        sizes += find_sample_size(document.text) is not None
    assert sizes >= 0.7 * len(documents)


@pytest.mark.slow
@pytest.mark.parametrize("piece", ["patients with ", "1,234 ", "in 99 very ", "n = ", "of a total of about ", "aged "])
def test_long_hostile_text_takes_little_time(piece: str) -> None:
    text = piece * (100_000 // len(piece))
    start = time.process_time()
    find_sample_size(text)
    find_population(text)
    assert time.process_time() - start < 5
