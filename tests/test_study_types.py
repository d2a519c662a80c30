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


@pytest.mark.parametrize(
    "title",
    [
        "Mendelian randomisation of urate and gout",
        "Urate and gout: a two-sample Mendelian randomization study",
        "Statins in old age: emulation of a target trial",
        "Surgery for sciatica: the need for randomized trials",
        "Enrolment of women in randomized controlled trials of heart failure",
        "Dropout in double-blind, placebo-controlled trials",
        "Critical appraisal of systematic reviews in dentistry",
    ],
)
def test_title_about_trials_of_others_leaves_the_abstract_unread(title: str) -> None:
    assert find_study_type({}, title, "Patients were randomised.") is None


@pytest.mark.parametrize(
    ("title", "abstract", "expected"),
    [
        ("Zinc: a systematic review", "", "systematic-review"),
        ("Zinc in adults", "We searched MEDLINE.", "narrative-review"),
        ("Zinc in randomised trials", "", "narrative-review"),
    ],
)
def test_review_of_a_database_is_systematic_if_its_title_says_so(title: str, abstract: str, expected: str) -> None:
    match = find_study_type({"publication_types": ["Review"]}, title, abstract)
    assert match is not None
    assert match.type == expected


@pytest.mark.parametrize(
    ("title", "abstract", "expected"),
    [
        ("Coffee and cancer: an umbrella review of meta-analyses", "", "systematic-review"),
        ("Zinc: a rapid review", "", None),
        ("Re: Zinc for colds", "Patients were randomised to zinc.", "opinion"),
        ("Zinc for colds: authors' reply", "We randomised 100 adults.", "opinion"),
        ("Zinc for colds", "We read with great interest the article by Doe. Adults were randomised.", "opinion"),
        ("Zinc for colds", "In this issue, Doe and others randomised 100 adults.", "opinion"),
        ("Zinc for colds", "Colds are common. Thirty Wistar rats were randomly divided into groups.", "laboratory"),
        ("Zinc for colds", "Zinc helps mice. Adults were randomly assigned to zinc.", "randomised-trial"),
        ("Re-treatment with zinc", "Adults were randomised to zinc.", "randomised-trial"),
    ],
)
def test_reviews_of_reviews_letters_and_animals_are_no_trials_of_people(
    title: str, abstract: str, expected: str | None
) -> None:
    match = find_study_type({}, title, abstract)
    assert (match and match.type) == expected


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


@pytest.mark.parametrize(
    ("title", "abstract", "expected"),
    [
        ("Non-randomised comparison of X and Y", "120 patients chose X or Y. They were randomised later.", None),
        ("A non-randomized controlled trial of X", "Patients were randomised later.", "clinical-trial"),
        ("A nonrandomized trial of X", "", "clinical-trial"),
        ("A quasi-randomised trial of X", "", "clinical-trial"),
        ("Reply to Smith et al.: a randomised trial", "We thank them.", "opinion"),
        ("Comment on: a randomised trial of X", "", "opinion"),
        ("Two randomised, double-blind trials of X", "", "randomised-trial"),
    ],
)
def test_title_that_denies_or_discusses_a_randomised_trial_is_of_none(
    title: str, abstract: str, expected: str | None
) -> None:
    match = find_study_type({}, title, abstract)
    assert (match and match.type) == expected


@pytest.mark.parametrize(
    ("abstract", "expected"),
    [
        ("This was not a randomized trial. Groups were compared.", None),
        ("Patients were not randomised. Randomised groups differ less.", None),
        ("Groups were compared without randomisation, unlike in a randomised trial.", None),
        ("We used two-sample Mendelian randomisation.", None),
        ("We emulated a randomised trial in the records of 20,000 veterans.", None),
        ("Randomised trials have shown no benefit. We reviewed the charts of 120 patients.", None),
        ("A large, randomised, controlled trial is needed. We treated 12 patients.", None),
        ("X was safe. A larger randomised trial might show a benefit.", None),
        ("X was safe. Use in a randomised trial should follow.", None),
        ("In a large randomised trial, we compared X with Y.", "randomised-trial"),
        ("X was better. A randomised trial is warranted.", None),
        ("A previous randomised trial showed a benefit. We followed 300 patients.", None),
        ("We thank Smith et al. for their letter on our randomised trial.", None),
        ("Significance was found by a randomisation test.", None),
        ("Randomised trials are needed. In this retrospective study, X was safe.", "cohort"),
        ("Two studies were done. We searched MEDLINE for randomised trials.", "systematic-review"),
        ("Previous randomised trials were small. We randomised 320 patients.", "randomised-trial"),
        ("Patients were randomised to X for a further 8 weeks if needed.", "randomised-trial"),
        ("Participants were allocated 1:1 by computer to X or placebo.", "randomised-trial"),
        ("We did a double-blind, placebo-controlled trial.", "randomised-trial"),
        ("After randomisation, 12 patients withdrew.", "randomised-trial"),
    ],
)
def test_abstract_shows_a_randomised_trial_only_by_its_own_words(abstract: str, expected: str | None) -> None:
    match = find_study_type({}, "X for Y", abstract)
    assert (match and match.type) == expected


@pytest.mark.parametrize(
    ("abstract", "expected", "basis"),
    [
        ("We randomised 320 patients.", "randomised-trial", "abstract"),
        ("All patients received omeprazole.", "clinical-trial", "title"),
        ("In this retrospective study, X was safe.", "clinical-trial", "title"),
    ],
)
def test_abstract_says_whether_a_trial_was_randomised(abstract: str, expected: str, basis: str) -> None:
    match = find_study_type({}, "Omeprazole trial", abstract)
    assert match is not None
    assert (match.type, match.basis) == (expected, basis)


def test_words_that_show_no_type_give_none() -> None:
    assert find_study_type({}, "Fluids in surgery", "Fluids are given.") is None


@pytest.mark.parametrize("value", [None, "Review", 7, [7, None], {"a": 1}])
def test_unexpected_metadata_is_ignored(value: object) -> None:
    assert find_study_type({"publication_types": value, "mesh": value}) is None


def test_each_type_has_one_row_and_a_label_of_its_own() -> None:
    assert len({row.type for row in STUDY_TYPES}) == len({row.label for row in STUDY_TYPES}) == len(STUDY_TYPES)


@pytest.mark.parametrize(
    "title",
    [
        *("Response to Smith: zinc for colds", "Response to Smith et al.: zinc", 'Response to "Zinc for colds"'),
        *(
            "Response to the letter by Smith",
            "In response to the authors",
            "Response to: zinc",
            "Reply: zinc for colds",
            "Zinc for colds - Reply",
        ),
        *("Zinc for colds: response", "Response from the authors", "Comment: zinc", "Comments on zinc for colds"),
        *("Letter: zinc", "Correspondence: zinc", "Discussion of: zinc", "Invited commentary: zinc", "Rebuttal: zinc"),
        *(
            "Correction: zinc for colds",
            "Author Correction: zinc for colds: a randomised trial",
            "Errata",
            "Erratum: zinc",
        ),
        *("Corrigendum to zinc", "Addendum: zinc randomised trial", "Retraction: zinc for colds: a randomised trial"),
        *("Expression of concern: zinc for colds: a randomised trial", "Editorial: zinc"),
    ],
)
def test_reply_comment_or_notice_is_no_trial(title: str) -> None:
    match = find_study_type({}, title, "Our trial randomised 100 adults.")
    assert match is None or match.type == "opinion"


@pytest.mark.parametrize("name", ["Published Erratum", "Retraction of Publication", "Expression of Concern"])
def test_notice_by_its_publication_type_has_no_type(name: str) -> None:
    assert find_study_type({"publication_types": [name]}, "Zinc for colds: a randomised trial") is None


@pytest.mark.parametrize(
    "title",
    [
        *(
            "Response to vaccination: a randomised trial",
            "Response to zinc in adults",
            "Zinc: effect on immune response",
        ),
        *(
            "Correction of anemia",
            "In response to stress",
            "Correction of vitamin D deficiency: a randomised trial",
            "Zinc and immune response",
        ),
    ],
)
def test_response_and_correction_of_a_body_are_those_of_a_trial(title: str) -> None:
    match = find_study_type({}, title, "Our trial randomised 100 adults.")
    assert match is not None
    assert match.type == "randomised-trial"
