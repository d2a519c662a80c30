"""Test what sentences say of a claim: supported, contradicted, or nothing that can be told."""

from __future__ import annotations

import pytest

from epicrisis.core.types import SupportState
from epicrisis.library.engines.word_index import analyze_words
from epicrisis.reading.support import (
    CitedSentence,
    check_claim,
    find_missing_drugs,
    find_missing_numbers,
    find_missing_subject,
    is_copied,
    shares_direction,
    states_result,
)

TRIAL = CitedSentence("Pain was significantly lower with aspirin than with placebo (p < 0.001).")


@pytest.mark.parametrize(
    ("claim", "state", "reason"),
    [
        ("Aspirin reduces pain.", "supported", ""),
        ("Aspirin is better than placebo for pain.", "supported", ""),
        ("Pain was lower with aspirin than with placebo.", "supported", ""),
        ("Aspirin increases pain.", "contradicted", "it speaks of an increase, its sentence of a decrease"),
        ("Aspirin does not reduce pain.", "contradicted", "it speaks of no difference, its sentence of a decrease"),
        (
            "Placebo is better than aspirin for pain.",
            "contradicted",
            "it speaks of a decrease, its sentence of an increase",
        ),
        ("Aspirin does not increase pain.", "not-checked", ""),
        ("Aspirin reduces fever.", "not-checked", ""),
        ("Ozone reduces pain.", "not-checked", ""),
        ("Aspirin is better than ozone for pain.", "not-checked", ""),
        ("Lack of aspirin reduces pain.", "not-checked", ""),
        ("Aspirin is cheap.", "not-checked", ""),
    ],
)
def test_check_claim_compares_outcome_and_direction(claim: str, state: SupportState, reason: str) -> None:
    check = check_claim(claim, [TRIAL])
    assert (check.state, check.reason, check.is_verbatim) == (state, reason, False)


def test_check_claim_with_the_other_side_alone_shows_nothing() -> None:
    sentence = CitedSentence("There was no significant difference in pain with placebo (P > 0.05).", "Aspirin for pain")
    assert check_claim("Aspirin reduces pain compared with placebo.", [sentence]).state == "not-checked"


def test_check_claim_with_a_sentence_that_reads_otherwise_with_the_sides_exchanged_shows_nothing() -> None:
    sentence = CitedSentence(
        "At week 24, patients receiving memantine added to donepezil significantly outperformed those receiving "
        "placebo added to donepezil in measures of cognition (P < 0.0001), function (P = 0.02), and global status "
        "(P = 0.010), with standardised mean differences (SMDs) of 0.36, 0.21, and 0.23, respectively."
    )
    claim = "placebo increases cognition, function, global status compared with memantine 20 mg/day + donepezil."
    assert check_claim(claim, [sentence]).state == "not-checked"


def test_check_claim_of_a_comparison_is_not_read_by_its_words() -> None:
    sentence = CitedSentence("Incidence for 10/66 dementia was 1.4 to 2.7 times higher than that for DSM-IV dementia.")
    claim = "Incidence of DSM-IV dementia is higher than the incidence of 10/66 dementia."
    assert check_claim(claim, [sentence]).state == "not-checked"


def test_check_claim_with_another_outcome_in_the_clause_shows_nothing() -> None:
    sentence = CitedSentence("Pioglitazone use in adults was not associated with an increased risk of bladder cancer.")
    claim = "Pioglitazone use in adults is not associated with an increased risk of prostate cancer."
    assert check_claim(claim, [sentence]).state == "not-checked"


def test_check_claim_with_the_same_words_and_another_negation_is_contradicted() -> None:
    sentence = CitedSentence(
        "There was no association with 8 other cancers; ever use of pioglitazone was associated with increased risk of "
        "prostate cancer (HR, 1.13)."
    )
    check = check_claim("Pioglitazone use is not associated with an increased risk of prostate cancer.", [sentence])
    assert (check.state, check.reason) == ("contradicted", "it contains a negation, its sentence none")
    fragility = CitedSentence("Treatment with pyridostatin decreases telomere fragility in mutant cells, as was seen.")
    negated = "Pyridostatin does not increase telomere fragility in mutant cells."
    assert check_claim(negated, [fragility]).state == "not-checked"


def test_check_claim_with_opposite_of_a_word_shows_nothing() -> None:
    sentence = CitedSentence("Acute pain was significantly lower with aspirin than with placebo (p < 0.001).")
    assert check_claim("Aspirin reduces chronic pain.", [sentence]).state == "not-checked"


def test_check_claim_with_sentence_about_an_aim_shows_nothing() -> None:
    sentence = CitedSentence("We aimed to show that aspirin reduces the pain of adults after surgery.")
    assert check_claim("Aspirin reduces the pain of adults in surgery.", [sentence]).state == "not-checked"


def test_check_claim_of_sentences_that_disagree_shows_nothing() -> None:
    other = CitedSentence("Aspirin did not reduce pain compared with placebo (p = 0.60).")
    assert check_claim("Aspirin reduces pain.", [other]).state == "contradicted"
    assert check_claim("Aspirin reduces pain.", [TRIAL, other]).state == "not-checked"


def test_check_claim_reads_abbreviations_of_the_document() -> None:
    sentence = CitedSentence("PIP was significantly lower with ozone than with placebo (p < 0.001).")
    claim = "Ozone reduces peak inspiratory pressure."
    assert check_claim(claim, [sentence]).state == "not-checked"
    explained = CitedSentence(sentence.text, document="Peak inspiratory pressure (PIP) was recorded.")
    assert check_claim(claim, [explained]).state == "supported"


WORDS = "Autophagy in liver cells protects mice from obesity induced by a rich diet"


@pytest.mark.parametrize(
    ("claim", "state"),
    [
        ("Autophagy in liver cells of mice protects from obesity induced by diet.", "supported"),
        ("Autophagy in liver cells of mice protects from obesity induced by diet 5.", "not-checked"),
        ("Autophagy in liver cells of mice only protects from obesity induced by diet.", "not-checked"),
        ("Autophagy in kidney cells of rats protects from asthma induced by diet.", "not-checked"),
        ("Autophagy in liver cells of mice does not protect from obesity induced by diet.", "not-checked"),
        ("Loss of autophagy in liver cells of mice protects from obesity induced by diet.", "not-checked"),
        ("Autophagy in liver cells of mice is found in obesity with a rich diet.", "not-checked"),
    ],
)
def test_check_claim_with_nearly_the_same_words(claim: str, state: SupportState) -> None:
    assert check_claim(claim, [CitedSentence(f"{WORDS}.")]).state == state


def test_check_claim_with_the_same_words_and_the_opposite_direction_is_contradicted() -> None:
    sentence = CitedSentence("Treatment with pyridostatin increases telomere fragility in mutant cells, as was seen.")
    check = check_claim("Pyridostatin decreases telomere fragility in mutant cells.", [sentence])
    assert (check.state, check.reason) == ("contradicted", "it says the opposite of its sentence")


@pytest.mark.parametrize(
    ("claim", "result"),
    [
        ("lowered the risk of stroke", True),
        ("Lowered  the risk of STROKE.", True),
        ("of stroke", False),
        ("lowered the risk of stroke by 1", False),
        ("owered the risk of", False),
    ],
)
def test_is_copied_needs_complete_words(claim: str, result: bool) -> None:
    assert is_copied(claim, "Aspirin lowered the risk of stroke by 12 %.") is result


def test_is_copied_needs_words_that_the_sentence_states_itself() -> None:
    assert not is_copied(
        "Aspirin lowers the risk of stroke.", "It is generally assumed that aspirin lowers the risk of stroke."
    )
    assert is_copied("Aspirin lowers the risk of stroke.", "In adults, aspirin lowers the risk of stroke.")


def test_check_claim_on_no_effect_needs_all_its_words() -> None:
    sentence = CitedSentence("Communication with terminally ill patients is a main responsibility of physicians.")
    assert check_claim("Communication with terminally ill patients can be taught.", [sentence]).state == "not-checked"


@pytest.mark.parametrize(("verb", "state"), [("reduced", "supported"), ("could reduce", "not-checked")])
def test_check_claim_with_an_unsure_sentence_shows_nothing(verb: str, state: SupportState) -> None:
    sentence = CitedSentence(f"Aspirin {verb} pain in adults after surgery.")
    assert check_claim("In adults aspirin reduced pain after surgery.", [sentence]).state == state


def test_check_claim_of_copied_words_is_verbatim() -> None:
    check = check_claim("aspirin than with placebo", [TRIAL])
    assert (check.state, check.is_verbatim) == ("supported", True)


def test_find_missing_numbers_looks_into_sentences_and_context() -> None:
    claim = "It fell by 12 % in 2,000 adults over 3 years."
    assert find_missing_numbers(claim, "It fell by 9 %.") == ["12 %", "2,000", "3 years"]
    assert find_missing_numbers(claim, "It fell by 12 % in 2,000 adults.", "Adults over 3 years") == []
    assert find_missing_numbers("It fell by 12 %.", "It fell (p < 0.001).") == ["12 %"]
    dose = "100 mg of aspirin lowered pain by 12 %."
    assert find_missing_numbers(dose, "It fell.", document="They took 100 mg. Pain fell by 12 %.") == ["12 %"]
    assert find_missing_numbers("BRCA 1 matters in two studies.", "BRCA 1 matters.") == []


def test_find_missing_drugs_ignores_case_and_plural() -> None:
    assert find_missing_drugs("Statins and Warfarin help.", "A statin helps.") == ["Warfarin"]


@pytest.mark.parametrize(
    ("claim", "missing"),
    [
        ("Gleevec caused muscle pain in adults.", ["Gleevec"]),
        ("Gleevec reduces muscle pain.", ["Gleevec"]),
        ("Statins caused rhabdomyolysis in adults.", []),
        ("Anaesthesia causes pain.", []),
        ("Treatment caused pain.", []),
        ("Gleevec against pain.", []),
    ],
)
def test_find_missing_subject_names_words_that_the_text_lacks(claim: str, missing: list[str]) -> None:
    text = "A statin caused muscle pain in adults under anesthesia."
    assert find_missing_subject(claim, text, analyze_words) == missing


@pytest.mark.parametrize(
    ("sentence", "heading", "result"),
    [
        ("Mortality was lower with aspirin (p = 0.01).", "", True),
        ("Aspirin prevents stroke in men.", "", True),
        ("We aimed to compare aspirin with placebo.", "", False),
        ("This study was funded by the National Institute of Health.", "", False),
        ("Patients were randomised to aspirin or placebo.", "", False),
        ("Of the patients who were randomised, 12 % died.", "", True),
        ("Patients received aspirin.", "Results", True),
        ("Aspirin is a drug.", "Methods", False),
        ("The foundation gave the tablets.", "Funding", False),
        ("Does aspirin prevent stroke?", "", False),
    ],
)
def test_states_result_refuses_aims_methods_and_funding(sentence: str, heading: str, result: bool) -> None:
    assert states_result(sentence, heading) is result


@pytest.mark.parametrize(
    ("claim", "sentence"),
    [
        ("Valproate reduces seizures.", "Valproate significantly increased seizure freedom at 12 months (P=0.003)."),
        ("Valproate increases seizures.", "Valproate significantly increased seizure freedom at 12 months (P=0.003)."),
        ("Folic acid increases birth defects.", "Folic acid antagonists significantly increased birth defects."),
        ("Aspirin reduces bleeding.", "Omeprazole significantly reduced bleeding in aspirin users (P<0.001)."),
    ],
)
def test_sentence_on_freedom_or_another_exposure_says_nothing_of_a_claim(claim: str, sentence: str) -> None:
    assert check_claim(claim, [CitedSentence(sentence)]).state == "not-checked"
    assert not shares_direction(claim, CitedSentence(sentence))
