"""The type of a study by its publication types, MeSH terms and words."""

from __future__ import annotations

import pytest

from epicrisis.core.study_types import STUDY_TYPES, find_study_type


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
        ("Nisoldipine: design and rationale of a randomised trial", "protocol"),
        ("Amlodipine: a randomized, blinded clinical trial in 9 cats", "laboratory"),
        ("Guidelines on fitness for radical therapy in lung cancer", "guideline"),
        ("The application of growth factors: a review of 70 cases", "case-report"),
        ("Trial of aspirin: a retrospective chart review", "cohort"),
        ("A prospective, single-centre cohort study of statins", "cohort"),
    ],
)
def test_title_decides_and_label_says_so_without_other_terms(title: str, expected: str) -> None:
    match = find_study_type({}, title)
    assert match is not None
    assert match.type == expected
    assert match.label.endswith("(by its title)")


@pytest.mark.parametrize(
    "title",
    [
        "A secondary analysis of the V710-P003 trial",
        "A qualitative evaluation nested in the MANAS trial",
        "Fidelity to treatment delivery in a randomised feasibility trial",
        "The outcome of STOP-Hypertension-2 in relation to the 1999 hypertension guidelines",
        "Do pediatricians apply the 2009 guidelines for reflux?",
        "Early changes in longitudinal performance",
        "A prospective comparison of four study designs",
    ],
)
def test_title_about_a_trial_or_a_guideline_shows_no_type(title: str) -> None:
    assert find_study_type({}, title, "Patients were allocated.") is None


def test_title_of_a_trial_decides_before_mesh_of_its_follow_up() -> None:
    match = find_study_type({"mesh": ["Humans", "Follow-Up Studies"]}, "Aspirin: a randomised trial")
    assert match is not None
    assert (match.type, match.basis) == ("randomised-trial", "title")


def test_mesh_terms_in_lower_case_with_qualifiers_are_recognised() -> None:
    match = find_study_type({"mesh": ["humans", "double-blind method", "follow-up studies"]}, "Aspirin")
    assert match is not None
    assert (match.type, match.basis) == ("randomised-trial", "MeSH")


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
