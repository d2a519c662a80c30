"""Sentences that contain the names of a question and speak of something else."""

from __future__ import annotations

import pytest

from epicrisis.reading.comparisons import read_comparison
from epicrisis.reading.directions import find_effect
from epicrisis.reading.mentions import is_outcome_turned

TITLE = "A randomised trial"

FREEDOM = [
    ("Does valproate reduce seizures?", "Valproate significantly increased seizure freedom at 12 months (P=0.003)."),
    ("Does valproate reduce seizures?", "Valproate significantly increased freedom from seizures (P=0.003)."),
    ("Does valproate reduce seizures?", "The share of seizure-free patients was significantly higher with valproate."),
    ("Does valproate reduce seizures?", "Valproate significantly increased seizure-free days (P=0.003)."),
    ("Does valproate reduce seizures?", "More patients remained free of seizures with valproate (P=0.003)."),
    ("Does rituximab reduce relapse?", "Rituximab significantly increased relapse-free survival (P=0.003)."),
    ("Does rituximab reduce relapse?", "Rituximab significantly prolonged time to first relapse (P=0.003)."),
    ("Does rituximab reduce relapse?", "Rituximab significantly increased survival without relapse (P=0.003)."),
    ("Does rituximab reduce relapse?", "Rituximab significantly delayed relapse (P=0.003)."),
    ("Does apixaban reduce stroke?", "Apixaban significantly increased stroke-free survival (P=0.003)."),
    ("Does apixaban reduce stroke?", "Apixaban significantly increased freedom from stroke (P=0.003)."),
    ("Does apixaban reduce stroke?", "Apixaban significantly increased protection against stroke (P=0.003)."),
    ("Does apixaban reduce stroke?", "Apixaban significantly increased the prevention of recurrent stroke (P=0.003)."),
    ("Does apixaban reduce stroke?", "Absence of stroke was significantly more frequent with apixaban (P=0.003)."),
    ("Does apixaban reduce stroke?", "Avoidance of stroke was significantly higher with apixaban (P=0.003)."),
    ("Does apixaban reduce stroke?", "Apixaban significantly increased stroke- and bleeding-free days (P=0.003)."),
    ("Does apixaban reduce stroke?", "Apixaban significantly increased non-stroke admissions (P=0.003)."),
    ("Does melatonin reduce delirium?", "Melatonin significantly increased delirium-free days (P=0.003)."),
    ("Does melatonin reduce delirium?", "Days with no delirium were significantly more with melatonin (P=0.003)."),
    ("Does ketamine reduce pain?", "Ketamine significantly increased pain relief (P=0.003)."),
    ("Does ketamine reduce pain?", "Relief of pain was significantly greater with ketamine (P=0.003)."),
    ("Does ketamine reduce pain?", "Ketamine significantly increased the pain threshold (P=0.003)."),
    ("Does ketamine reduce pain?", "Ketamine significantly increased pain tolerance (P=0.003)."),
    ("Does ketamine reduce pain?", "The improvement in pain was significantly greater with ketamine (P<0.001)."),
    ("Does ketamine reduce pain?", "The reduction in pain was significantly smaller with ketamine (P=0.003)."),
    ("Does ketamine reduce pain?", "Ketamine significantly increased pain reduction (P=0.003)."),
    ("Does ketamine reduce pain?", "Pain reduction was significantly greater with ketamine (P=0.003)."),
    ("Does sertraline reduce depression?", "Sertraline significantly increased depression remission (P=0.003)."),
    ("Does sertraline reduce depression?", "Sertraline significantly increased recovery from depression (P=0.003)."),
    ("Does semaglutide reduce body weight?", "Semaglutide significantly increased body weight loss (P<0.001)."),
    ("Does semaglutide reduce body weight?", "Weight loss was significantly greater with semaglutide (P<0.001)."),
    ("Does teriparatide reduce fractures?", "Teriparatide significantly increased fracture healing (P=0.003)."),
    ("Does zinc reduce symptoms?", "Zinc significantly increased symptom resolution (P=0.003)."),
    ("Does zinc reduce symptoms?", "Symptoms resolved significantly faster with zinc (P=0.003)."),
    ("Does remdesivir reduce viral load?", "Remdesivir significantly increased viral clearance (P=0.003)."),
    ("Does varenicline reduce smoking?", "Varenicline significantly increased smoking cessation (P=0.003)."),
    ("Does varenicline reduce smoking?", "Significantly more patients quit smoking with varenicline (P=0.003)."),
    ("Does vitamin A reduce infection?", "Vitamin A significantly increased resistance to infection (P=0.003)."),
    ("Does amlodipine lower blood pressure?", "Amlodipine significantly increased blood pressure control (P=0.003)."),
    ("Does exenatide reduce glycaemia?", "Exenatide significantly increased glycaemic control (P=0.003)."),
    ("Does vaccination reduce influenza?", "Vaccination significantly increased influenza antibodies (P=0.01)."),
    # The question is about freedom, the sentence is not.
    ("Does valproate improve seizure freedom?", "Valproate significantly reduced seizures (P=0.003)."),
    ("Does rituximab improve relapse-free survival?", "Rituximab significantly reduced relapse (P=0.003)."),
    ("Does ketamine improve pain relief?", "Ketamine significantly reduced pain (P=0.003)."),
    ("Does zinc shorten time to recovery?", "Zinc significantly increased recovery (P=0.003)."),
    ("Does zinc improve recovery?", "Zinc significantly reduced time to recovery (P=0.003)."),
]


@pytest.mark.parametrize(("question", "sentence"), FREEDOM)
def test_direction_of_freedom_from_the_outcome_is_not_said(question: str, sentence: str) -> None:
    assert is_outcome_turned(sentence, read_comparison(question))
    effect = find_effect(question, sentence, TITLE)
    assert effect is None


@pytest.mark.parametrize(
    ("question", "sentence"),
    [
        ("Does valproate improve seizure freedom?", "Freedom from seizures was significantly higher with valproate."),
        ("Does valproate improve seizure freedom?", "More patients were without seizures with valproate (P=0.003)."),
        ("Does olaparib increase time to progression?", "Time to progression was longer with olaparib (P<0.001)."),
        ("Does olaparib increase time to progression?", "Olaparib significantly delayed progression (P<0.001)."),
        ("Does olaparib improve progression-free survival?", "Progression-free survival was longer with olaparib."),
        ("Does metformin reduce insulin resistance?", "Metformin significantly reduced insulin resistance (P<0.001)."),
        ("Does semaglutide increase weight loss?", "Patients lost more weight with semaglutide (P<0.001)."),
        ("Does a weight-loss diet reduce body weight?", "The weight-loss diet significantly reduced body weight."),
        ("Does aspirin reduce stroke?", "Aspirin reduced stroke significantly without increasing bleeding (P=0.003)."),
        ("Does aspirin cause bleeding?", "Aspirin reduced stroke without an excess of bleeding (P=0.003)."),
        ("Does ketamine reduce pain?", "There was a significantly greater reduction in pain with ketamine (P=0.003)."),
        ("Does ketamine reduce pain?", "Ketamine resulted in a significant improvement in pain (P=0.003)."),
        ("Does ketamine reduce pain?", "Pain control groups had significantly more pain (P=0.003)."),
    ],
)
def test_sentence_on_what_is_asked_is_not_turned(question: str, sentence: str) -> None:
    assert not is_outcome_turned(sentence, read_comparison(question))


@pytest.mark.parametrize(
    ("question", "sentence", "direction"),
    [
        (
            "Does valproate improve seizure freedom?",
            "Valproate significantly increased seizure freedom (P<0.01).",
            "increased",
        ),
        (
            "Does rituximab improve relapse-free survival?",
            "Rituximab increased relapse-free survival (P<0.01).",
            "increased",
        ),
        (
            "Does ketamine improve pain relief?",
            "Pain relief was significantly higher with ketamine (P<0.01).",
            "increased",
        ),
        (
            "Does varenicline increase smoking cessation?",
            "Varenicline increased smoking cessation (P<0.01).",
            "increased",
        ),
        (
            "Does tranexamic acid reduce blood loss?",
            "Tranexamic acid significantly reduced blood loss (P<0.01).",
            "decreased",
        ),
        (
            "Does ketamine reduce pain?",
            "Pain was significantly lower with ketamine than in controls (P<0.01).",
            "decreased",
        ),
        (
            "Does ketamine reduce pain?",
            "Pain relief did not differ between ketamine and placebo (P=0.4).",
            "no-difference",
        ),
    ],
)
def test_direction_of_the_asked_outcome_is_said(question: str, sentence: str, direction: str) -> None:
    effect = find_effect(question, sentence, TITLE)
    assert effect is not None
    assert effect.direction == direction
