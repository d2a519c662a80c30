"""Sentences that contain the names of a question and speak of something else."""

from __future__ import annotations

import pytest

from epicrisis.reading.comparisons import read_comparison
from epicrisis.reading.directions import find_effect
from epicrisis.reading.mentions import is_other_exposure, is_outcome_turned

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


OTHER = [
    # Another exposure.
    ("Does aspirin increase bleeding?", "Aspirin resistance significantly increased bleeding (P<0.001)."),
    (
        "Does folic acid reduce birth defects?",
        "Folic acid antagonists significantly increased birth defects (P<0.001).",
    ),
    ("Does metformin lower glucose?", "Metformin withdrawal significantly increased glucose (P<0.001)."),
    ("Does thrombolysis reduce mortality?", "Thrombolysis delay significantly increased mortality (P<0.001)."),
    ("Do statins reduce mortality?", "Statin intolerance significantly increased mortality (P<0.001)."),
    ("Do statins reduce mortality?", "Statin nonadherence significantly increased mortality (P<0.001)."),
    ("Do statins reduce mortality?", "Statin non-adherence was associated with significantly higher mortality."),
    ("Do statins reduce mortality?", "Statin therapy discontinuation significantly increased mortality (P<0.001)."),
    ("Do statins reduce mortality?", "Low adherence to statins significantly increased mortality (P<0.001)."),
    ("Does CPAP reduce mortality?", "Poor CPAP adherence significantly increased mortality (P<0.001)."),
    ("Does aspirin reduce mortality?", "Aspirin overdose significantly increased mortality (P<0.001)."),
    ("Does aspirin reduce mortality?", "Aspirin allergy significantly increased mortality (P<0.001)."),
    ("Does aspirin reduce mortality?", "Mortality was significantly higher without aspirin (P<0.001)."),
    ("Does vitamin D reduce falls?", "Vitamin D deficiency significantly increased falls (P<0.001)."),
    ("Does vitamin D reduce falls?", "Low vitamin D significantly increased falls (P<0.001)."),
    ("Does salt raise blood pressure?", "Salt restriction significantly reduced blood pressure (P<0.001)."),
    ("Does methotrexate reduce joint damage?", "Methotrexate failure significantly increased joint damage (P<0.001)."),
    ("Does heparin reduce thrombosis?", "Heparin-induced thrombocytopenia significantly increased thrombosis."),
    (
        "Do antipsychotics increase weight?",
        "Metformin significantly reduced antipsychotic-induced weight gain (P<0.001).",
    ),
    (
        "Does clopidogrel with aspirin reduce stroke compared with aspirin?",
        "Clopidogrel resistance raised stroke on aspirin.",
    ),
    # Another treatment of its users.
    ("Does aspirin increase bleeding?", "Omeprazole significantly reduced bleeding in aspirin users (P<0.001)."),
    ("Does aspirin increase bleeding?", "Omeprazole significantly reduced bleeding in patients on aspirin (P<0.001)."),
    ("Does aspirin increase bleeding?", "Omeprazole reduced bleeding among patients treated with low-dose aspirin."),
    ("Does aspirin increase bleeding?", "In aspirin users, omeprazole significantly reduced bleeding (P<0.001)."),
    ("Does aspirin increase bleeding?", "Bleeding was significantly reduced by omeprazole in aspirin users (P<0.001)."),
    (
        "Does insulin reduce mortality?",
        "Metformin significantly reduced mortality in insulin-treated patients (P=0.01).",
    ),
    (
        "Does chemotherapy reduce recurrence?",
        "Trastuzumab after adjuvant chemotherapy significantly reduced recurrence.",
    ),
    (
        "Does chemotherapy reduce recurrence?",
        "In addition to chemotherapy, trastuzumab significantly reduced recurrence.",
    ),
    ("Do statins reduce mortality?", "Ezetimibe significantly reduced mortality despite statins (P<0.001)."),
    ("Does surgery reduce mortality?", "Aspirin before surgery significantly reduced mortality (P=0.01)."),
    ("Does cisplatin cause kidney injury?", "Magnesium reduced kidney injury due to cisplatin (P=0.01)."),
    # Both sides had it, or the other side.
    ("Does prednisolone reduce mortality?", "Adding pentoxifylline to prednisolone significantly reduced mortality."),
    ("Does prednisolone reduce mortality?", "Pentoxifylline added to prednisolone significantly reduced mortality."),
    ("Does prednisolone reduce mortality?", "Pentoxifylline on top of prednisolone significantly reduced mortality."),
    ("Does prednisolone reduce mortality?", "Pentoxifylline plus prednisolone significantly reduced mortality."),
    (
        "Does prednisolone reduce mortality?",
        "Prednisolone and pentoxifylline reduced mortality compared with prednisolone alone.",
    ),
    (
        "Does prednisolone reduce mortality?",
        "Compared with prednisolone, pentoxifylline significantly reduced mortality.",
    ),
    (
        "Does prednisolone reduce mortality?",
        "Pentoxifylline significantly reduced mortality compared with prednisolone.",
    ),
    (
        "Does prednisolone reduce mortality?",
        "Mortality was significantly lower with pentoxifylline than with prednisolone.",
    ),
]


@pytest.mark.parametrize(("question", "sentence"), OTHER)
def test_direction_of_another_exposure_is_not_said(question: str, sentence: str) -> None:
    assert is_other_exposure(sentence, read_comparison(question))
    assert find_effect(question, sentence, TITLE) is None


@pytest.mark.parametrize(
    ("question", "sentence"),
    [
        ("Does aspirin reduce mortality?", "Mortality was lower with aspirin than with placebo (P<0.001)."),
        ("Does aspirin reduce mortality?", "Mortality was higher with placebo than with aspirin (P<0.001)."),
        ("Does aspirin reduce mortality?", "Placebo significantly increased mortality compared with aspirin."),
        ("Does aspirin reduce mortality?", "Mortality among aspirin users was lower than among non-users (P<0.001)."),
        ("Does aspirin reduce mortality?", "Mortality did not differ with or without aspirin (P=0.6)."),
        ("Does aspirin reduce stroke?", "Patients treated with aspirin had significantly fewer strokes (P<0.001)."),
        ("Does aspirin reduce stroke?", "Stroke was less frequent in patients treated with aspirin (P<0.001)."),
        ("Does aspirin reduce stroke?", "In patients taking aspirin, stroke was less frequent (P<0.001)."),
        ("Does aspirin reduce stroke?", "We found significantly fewer strokes in aspirin users (P<0.001)."),
        ("Does aspirin reduce stroke?", "Women who received aspirin had significantly less stroke (P<0.001)."),
        ("Does aspirin reduce stroke?", "In patients with diabetes, aspirin significantly reduced stroke (P<0.001)."),
        ("Does aspirin reduce stroke?", "Stroke was reduced by half in aspirin users (P<0.001)."),
        ("Does aspirin reduce stroke?", "Stroke was reduced with conventional care in aspirin users (P<0.001)."),
        ("Does aspirin reduce stroke?", "Aspirin added to clopidogrel significantly reduced stroke (P<0.001)."),
        ("Does aspirin reduce stroke?", "Adding aspirin to clopidogrel significantly reduced stroke (P<0.001)."),
        ("Does aspirin reduce stroke?", "Aspirin significantly reduced stroke compared with clopidogrel (P<0.001)."),
        ("Does aspirin reduce stroke?", "Aspirin reduced stroke in aspirin-resistant patients, too (P<0.001)."),
        ("Does aspirin reduce stroke?", "Aspirin significantly delays progression and reduces stroke."),
        ("Does morphine reduce pain?", "Symptom severity decreased after morphine, and pain was lower (P<0.001)."),
        ("Does morphine reduce pain?", "Severity decreased significantly after morphine (P<0.001)."),
        ("Does morphine reduce pain?", "After morphine, pain was significantly lower (P<0.001)."),
        ("Does exercise reduce blood pressure?", "The exercise-induced reduction in blood pressure was significant."),
        # The question names it.
        (
            "Does aspirin reduce stroke compared with clopidogrel?",
            "Clopidogrel increased stroke compared with aspirin.",
        ),
        (
            "Does aspirin reduce stroke compared with aspirin plus clopidogrel?",
            "Stroke was higher with clopidogrel and aspirin than with aspirin alone.",
        ),
        (
            "Does aspirin reduce stroke compared with clopidogrel?",
            "Stroke was lower with clopidogrel than with aspirin.",
        ),
        ("Do folic acid antagonists increase birth defects?", "Folic acid antagonists increased birth defects."),
        ("Does dietary salt reduction lower blood pressure?", "Salt reduction significantly reduced blood pressure."),
        ("Does vitamin D deficiency increase falls?", "Vitamin D deficiency significantly increased falls."),
        ("Does salt restriction lower blood pressure?", "Salt restriction significantly reduced blood pressure."),
        ("Does a low salt diet lower blood pressure?", "A low salt diet significantly reduced blood pressure."),
        ("Does metformin reduce weight gain?", "Metformin significantly reduced antipsychotic-induced weight gain."),
        (
            "Does omeprazole reduce bleeding in aspirin users?",
            "Omeprazole significantly reduced bleeding in aspirin users.",
        ),
        (
            "Does trastuzumab reduce recurrence?",
            "Trastuzumab after adjuvant chemotherapy significantly reduced recurrence.",
        ),
    ],
)
def test_sentence_on_the_intervention_is_of_no_other_exposure(question: str, sentence: str) -> None:
    assert not is_other_exposure(sentence, read_comparison(question))


@pytest.mark.parametrize(
    ("question", "sentence", "direction"),
    [
        (
            "Does aspirin reduce mortality?",
            "Mortality was significantly lower with aspirin than with placebo.",
            "decreased",
        ),
        (
            "Does aspirin reduce mortality?",
            "Compared with placebo, aspirin significantly reduced mortality.",
            "decreased",
        ),
        ("Does aspirin reduce pain?", "After aspirin, pain was significantly lower.", "decreased"),
        (
            "Do folic acid antagonists increase birth defects?",
            "Folic acid antagonists increased birth defects.",
            "increased",
        ),
        (
            "Does omeprazole reduce bleeding in aspirin users?",
            "Omeprazole significantly reduced bleeding in aspirin users.",
            "decreased",
        ),
    ],
)
def test_direction_under_the_asked_intervention_is_said(question: str, sentence: str, direction: str) -> None:
    effect = find_effect(question, sentence.removesuffix(".") + " (P<0.001).", TITLE)
    assert effect is not None
    assert effect.direction == direction


@pytest.mark.parametrize(
    "sentence",
    [
        "Mortality was reduced from 31.5% with late to 20.8% with early tracheostomy.",
        "Mortality decreased significantly from 31.5% (late tracheostomy) to 20.8% (early tracheostomy) (P=0.01).",
        "Mortality was significantly reduced to 20.8% with early from 31.5% with late tracheostomy.",
        "Mortality was lower at 20.8% with early tracheostomy, down from 31.5% with late tracheostomy (P=0.01).",
        "Mortality was significantly reduced from 31.5% in the late tracheostomy group to 20.8% in the early group.",
    ],
)
@pytest.mark.parametrize("ending", ["?", " compared with early tracheostomy?"])
def test_change_from_the_figure_of_the_asked_intervention_is_not_said(sentence: str, ending: str) -> None:
    question = f"Does late tracheostomy reduce mortality{ending}"
    assert find_effect(question, sentence, "Early versus late tracheostomy") is None


@pytest.mark.parametrize(
    "sentence",
    [
        "Mortality was reduced from 31.5% with early to 20.8% with late tracheostomy.",
        "Mortality was significantly reduced from 31.5% (before) to 20.8% (P=0.01) with late tracheostomy.",
        "Mortality was significantly reduced to 20.8% with late tracheostomy from 31.5% with early tracheostomy.",
    ],
)
def test_change_to_the_figure_of_the_asked_intervention_is_its_effect(sentence: str) -> None:
    comparison = read_comparison("Does late tracheostomy reduce mortality?")
    assert not is_other_exposure(sentence, comparison)
