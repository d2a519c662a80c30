"""The type of a study by its publication types, MeSH terms and words."""

from __future__ import annotations

import pytest

from epicrisis.study_types import STUDY_TYPES, find_study_type


@pytest.mark.parametrize(
    ("types", "mesh", "expected"),
    [
        (["Journal Article", "Randomized Controlled Trial"], ["Humans"], "randomised-trial"),
        (["Meta-Analysis", "Randomized Controlled Trial"], [], "systematic-review"),
        (["Review", "Practice Guideline"], [], "guideline"),
        (["Review"], ["Animals"], "narrative-review"),
        (["Randomized Controlled Trial"], ["Animals", "Dogs"], "laboratory"),
        (["Randomized Controlled Trial"], ["Animals", "Humans"], "randomised-trial"),
        (["Journal Article"], ["Cohort Studies*"], "cohort"),
        (["Journal Article"], ["Retrospective Studies", "Case-Control Studies"], "case-control"),
        (["Journal Article"], ["Lung Neoplasms/epidemiology", "Cross-Sectional Studies"], "cross-sectional"),
        (["Case Reports"], ["Humans"], "case-report"),
        (["Preprint"], [], "preprint"),
        (["Clinical Trial Protocol", "Randomized Controlled Trial"], [], "protocol"),
    ],
)
def test_publication_types_and_mesh_decide_the_study_type(types: list[str], mesh: list[str], expected: str) -> None:
    match = find_study_type({"publication_types": types, "mesh": mesh}, title="A randomised trial in mice")
    assert match is not None
    assert match.type == expected
    assert match.basis in ("publication type", "MeSH")


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("Aspirin in rats: a randomized study", "laboratory"),
        ("Vitamin D in rats: a systematic review", "systematic-review"),
        ("Effect of X on Y: a double-blind, placebo-controlled study", "randomised-trial"),
        ("A case of thyroid storm", "case-report"),
        ("Updated efficacy results of the PEPI-Malawi trial", "clinical-trial"),
        ("Protocol for a randomised trial of exercise", "protocol"),
    ],
)
def test_title_decides_and_label_says_so_without_other_terms(title: str, expected: str) -> None:
    match = find_study_type({}, title)
    assert match is not None
    assert match.type == expected
    assert match.label.endswith("(by its title)")


def test_abstract_decides_if_the_title_says_nothing() -> None:
    match = find_study_type({}, "Fluids in surgery", "Patients were randomly assigned to two groups.")
    assert match is not None
    assert (match.type, match.basis) == ("randomised-trial", "abstract")


def test_words_that_show_no_type_give_none() -> None:
    assert find_study_type({}, "Fluids in surgery", "Fluids are given.") is None


@pytest.mark.parametrize("value", [None, "Review", 7, [7, None], {"a": 1}])
def test_unexpected_metadata_is_ignored(value: object) -> None:
    assert find_study_type({"publication_types": value, "mesh": value}) is None


def test_each_type_has_one_row_and_a_label_of_its_own() -> None:
    assert len({row.type for row in STUDY_TYPES}) == len({row.label for row in STUDY_TYPES}) == len(STUDY_TYPES)
