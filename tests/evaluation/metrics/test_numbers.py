"""Test the comparison of numbers: units, ranges, bounds, blood pressures, dates, and how they are found."""

from __future__ import annotations

import csv
import math
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epicrisis.core.quantities import DIASTOLIC, SYSTOLIC, find_quantities
from epicrisis.evaluation.metrics.numbers import NumberComparison, NumberScore, compare_numbers, score_numbers

LED = "The patient's blood pressure at discharge was "
TABLE_12 = {
    "sbp": LED + "SBP in the 80–90s.",
    "exact": LED + "107/76.",
    "range": LED + "80–100s/55–70s.",
    "both": LED + "107/59 to 80–100s/55–70s.",
}


def count_kinds(found: NumberComparison) -> dict[str, int]:
    kinds = {
        "matched": found.matched,
        "vague": found.vague,
        "contradicted": found.contradicted,
        "incomparable": found.incomparable,
        "missing": found.missing,
        "extra": found.extra,
    }
    return {kind: len(item) for kind, item in kinds.items() if item}


@pytest.mark.parametrize(
    ("gold", "answer", "score", "kinds"),
    [
        ("sbp", "sbp", 1, {"matched": 1}),
        # What the study's judge gives 0 and BERTScore 0.90.
        ("sbp", "exact", 0, {"contradicted": 1, "extra": 1}),
        ("sbp", "range", 1, {"matched": 1, "extra": 1}),
        ("sbp", "both", 1, {"matched": 1, "extra": 3}),
        ("exact", "sbp", 0, {"contradicted": 1, "missing": 1}),
        ("exact", "exact", 1, {"matched": 2}),
        # 30 mmHg wide around 107, and 25 around 76: true, and says little.
        ("exact", "range", 0.5, {"vague": 2}),
        ("exact", "both", 0.75, {"matched": 1, "vague": 1, "extra": 2}),
        ("range", "sbp", 0.5, {"matched": 1, "missing": 1}),
        # Within the right range.
        ("range", "exact", 1, {"matched": 2}),
        ("range", "range", 1, {"matched": 2}),
        ("range", "both", 1, {"matched": 2, "extra": 2}),
        ("both", "sbp", 0.25, {"matched": 1, "missing": 3}),
        ("both", "exact", 0.75, {"matched": 3, "missing": 1}),
        ("both", "range", 0.75, {"matched": 2, "vague": 2}),
        ("both", "both", 1, {"matched": 4}),
    ],
)
def test_compare_numbers_matches_table_12_of_study(gold: str, answer: str, score: float, kinds: dict[str, int]) -> None:
    result = compare_numbers(TABLE_12[answer], TABLE_12[gold])
    assert count_kinds(result) == kinds
    assert result.recall == score


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("100.4 F", "38 C"),
        ("38.0 °C", "a temperature of 100.4 degrees Fahrenheit"),
        ("68 kg", "150 lbs"),
        ("180 cm", "70.9 inches"),
        ("1 day", "24 hours"),
        ("two weeks", "14 days"),
        ("1 year", "12 months"),
        ("500 mg", "0.5 g"),
        ("0.25 mg", "250 mcg"),
        ("100 mg/dL", "1 g/L"),
        ("5 mcg/kg/min", "0.3 mg/kg/hr"),
        ("1,250 mL", "1.25 L"),
        ("30 tablets of Dilaudid", "thirty pills"),
        ("30 tablets", "30"),
        ("1.5 tablets", "1 1/2 tablets"),
        ("half a tablet", "0.5 tabs"),
        ("25 units", "twenty-five units"),
        ("twice daily", "BID"),
        ("q6h", "every six hours"),
        ("three times a day", "TID"),
        ("80 bpm", "80 beats per minute"),
        ("80-90", "between 80 and 90"),
        ("80-90", "from 80 to 90"),
        ("80-90", "85"),
        ("82", "in the 80s"),
        ("> 5", "7"),
        ("at least 5", "5 or more"),
        ("more than 100 mg", "> 0.1 g"),
        ("about 80", "84"),
        ("1.18", "1.2"),
        ("strength 5/5", "strength of 5 out of 5"),
        ("systolic 120", "120/80"),
        ("BP 120/80", "120 over 80 mmHg"),
        ("March 4, 2150", "2150-03-04"),
        ("March 4, 2150", "03/04/2150"),
        ("March 2150", "on 2150-03-04"),
        ("2150-03-04", "4 Mar 2150 10:30"),
        ("10:30 pm", "22:30"),
        ("58-year-old", "58 years"),
        ("45%", "45 percent"),
        ("creatinine 1.2 mg/dL, potassium 4.5 mEq/L", "potassium was 4.5 mEq/L and creatinine 1.2 mg/dL"),
        ("BP 120/80", "BP 130/85 on admission, and 120/80 later"),
        ("from 16 to 25 mEq/L", "it rose from 16 mEq/L to 25 mEq/L"),
        ("from 16 to 25 mEq/L", "16, later 25 mEq/L"),
        ("from 3 to 5 days", "4 days"),
        ("85", "it ranged from 80 to 90"),
        ("a T-score of -2.8", "-2.8"),
        ("a T-score of minus 2.8", "(-2.8)"),
        ("18 of 30 points", "18/30"),
        ("1", "There was only one admission."),
    ],
)
def test_compare_numbers_accepts_equal_quantities_in_other_words(gold: str, answer: str) -> None:
    result = compare_numbers(answer, gold)
    assert result.recall == 1, result


@pytest.mark.parametrize(
    ("gold", "answer", "kind"),
    [
        ("30 tablets", "20 tablets", "contradicted"),
        ("SBP in the 80-90s", "SBP 110", "contradicted"),
        ("12.5 mg", "12 mg", "contradicted"),
        ("1", "1.4", "contradicted"),
        ("5.4", "5", "contradicted"),
        ("5", "> 5", "contradicted"),
        ("2150-03-04", "2150-03-05", "contradicted"),
        ("2150-03-04", "2150", "contradicted-or-missing"),
        ("strength 5/5", "strength 4/5", "contradicted"),
        ("pain 7/10", "pain 7/20", "missing"),
        ("twice daily", "daily", "contradicted"),
        ("5 mg", "5 mL", "missing"),
        ("6 months", "6 days", "missing"),
        ("SBP in the 80-90s", "heart rate 85", "missing"),
        ("diastolic 80", "systolic 80", "missing"),
        ("5 mg", "some", "missing"),
        ("-2.5 mmol/L", "2.5 mmol/L", "contradicted"),
        ("a T-score of minus 2.8 at the hip", "a T-score of 2.8 at the hip", "contradicted"),
        ("2", "one admission", "missing"),
        ("glucose 5.5 mmol/L", "glucose 99 mg/dL", "incomparable"),
        ("potassium 4 mEq/L", "potassium 16 mg/dL", "incomparable"),
    ],
)
def test_compare_numbers_reports_missing_and_contradicted_quantities(gold: str, answer: str, kind: str) -> None:
    result = compare_numbers(answer, gold)
    if kind == "contradicted-or-missing":
        assert result.recall == 0
        return
    assert count_kinds(result).get(kind) == 1, result
    assert result.recall == (None if kind == "incomparable" else 0)


@pytest.mark.parametrize(
    ("gold", "answer", "precision", "recall", "f1"),
    [
        ("5 mg", "5 mg", 1, 1, 1),
        ("5 mg", "5 mg and 7 mg", 0.5, 1, 2 / 3),
        ("5 mg and 7 mg", "5 mg", 1, 0.5, 2 / 3),
        ("5 mg", "7 mg", 0, 0, 0),
        ("5 mg", "5 mg, that is 5 mg or 0.005 g, in 9 mL", 1 / 2, 1, 2 / 3),
        ("a temperature of 98.6 F", "a temperature of 98.6 F (37 C)", 1, 1, 1),
        ("between 2 and 4 L", "2 to 30 L", 0.5, 0.5, 0.5),
        ("5 mg", "none was given", None, 0, 0),
        # Of another dimension that depends on the substance: neither right nor wrong.
        ("5 mg/dL and 7 mL", "0.3 mmol/L and 7 mL", 1, 1, 1),
    ],
)
def test_number_precision_counts_additional_quantities(
    gold: str, answer: str, precision: float | None, recall: float, f1: float
) -> None:
    score = score_numbers(answer, [gold])
    assert score is not None
    assert score.precision == precision, compare_numbers(answer, gold)
    assert score.recall == recall
    assert score.f1 == pytest.approx(f1)


@pytest.mark.parametrize("answer", ["5 mg [1]", "5 mg [doc 2, 3]", "5 mg [doc 1, doc 12][finding 3]"])
def test_score_numbers_ignores_citation_markers(answer: str) -> None:
    assert score_numbers(answer, ["5 mg"]) == NumberScore(1.0, 1.0)


def test_score_numbers_uses_reference_of_best_f1() -> None:
    score = score_numbers("5 mg and 7 mg", ["5 mg", "5 mg, later 7 mg", "9 mg"])
    assert score == NumberScore(1.0, 1.0)


def test_compare_numbers_with_exchanged_values_contradicts() -> None:
    result = compare_numbers("creatinine 4.5, potassium 1.2", "creatinine 1.2, potassium 4.5")
    assert count_kinds(result) == {"contradicted": 2}
    assert [pair.gold.label for pair in result.contradicted] == ["creatinine", "potassium"]


@pytest.mark.parametrize(
    ("gold", "answer"),
    [("7", "> 5"), ("82", "50-120"), ("80-90", "85-95"), ("2150-03-04", "March 2150"), ("80-90", "60-120")],
)
def test_compare_numbers_with_wide_range_is_vague(gold: str, answer: str) -> None:
    result = compare_numbers(answer, gold)
    assert count_kinds(result) == {"vague": 1}
    assert result.recall == 0.5


def test_score_numbers_without_quantities_is_none() -> None:
    assert compare_numbers("5 mg", "pneumonia").recall is None
    assert compare_numbers("", "").recall is None
    assert score_numbers("5 mg", []) is None
    assert score_numbers("5 mg", ["pneumonia"]) is None
    assert score_numbers("5 mg", ["6 mg", "pneumonia", "0.005 g"]) == NumberScore(1.0, 1.0)
    assert score_numbers("none was given", ["6 mg"]) == NumberScore(0.0, None)


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("from 8.0 to 10.0 g/dL", "from 10.0 to 8.0 g/dL"),
        ("from 8.0 to 10.0 g/dL", "9 g/dL"),
        ("from 54 to 30", "from 30 to 54"),
        ("raised from 50 mg to 100 mg", "lowered from 100 mg to 50 mg"),
        ("raised from 50 mg to 100 mg", "75 mg"),
    ],
)
def test_compare_numbers_does_not_read_change_as_range(gold: str, answer: str) -> None:
    assert compare_numbers(answer, gold).recall == 0


def test_score_numbers_of_literal_reference_is_one() -> None:
    assert score_numbers("One admission.", ["1", "one admission"]) == NumberScore(1.0, 1.0)
    assert score_numbers("one admission", ["one admission"]) is None, "no quantity is read there"


@pytest.mark.parametrize(
    ("text", "low", "high", "unit"),
    [
        ("80-90s", 80, 99, ""),
        ("in the 100s", 100, 109, ""),
        ("80s to 90s", 80, 99, ""),
        ("5 mg to 10 mg", 5, 10, "mg"),
        ("between 80 and 90 mg", 80, 90, "mg"),
        ("> 5 g", math.nextafter(5, math.inf) * 1000, math.inf, "mg"),
        ("no more than 3 g", -math.inf, 3000, "mg"),
        ("at least 1,250.5 mL", 1250.5, math.inf, "mL"),
        ("up to 2 L", -math.inf, 2000, "mL"),
        ("3 days or less", -math.inf, 72, "h"),
        ("2-3 weeks", 336, 504, "h"),
        ("base excess of -2.5", -2.5, -2.5, ""),
        ("7-8/10", 7, 8, "of 10"),
        ("x3 days", 72, 72, "h"),
        ("3rd", 3, 3, "ordinal"),
        ("at 8 p.m.", 1200, 1200, "time of day"),
        ("q8h", 3 / 24, 3 / 24, "/h"),
        (".5 mg", 0.5, 0.5, "mg"),
    ],
)
def test_find_quantities_reads_one_quantity(text: str, low: float, high: float, unit: str) -> None:
    (result,) = find_quantities(text)
    assert result.low == pytest.approx(low)
    assert result.high == pytest.approx(high)
    assert result.unit == unit


def test_find_quantities_reads_both_sides_of_blood_pressure() -> None:
    assert [
        (quantity.low, quantity.high, quantity.unit) for quantity in find_quantities("BP was 80–100s/55–70s mmHg")
    ] == [
        (80, 109, SYSTOLIC),
        (55, 79, DIASTOLIC),
    ]
    assert [quantity.unit for quantity in find_quantities("losartan 100/25 mg")] == ["", "mg"]


@pytest.mark.parametrize(
    "text",
    ["vitamin B12", "L4-5", "COVID-19", "HbA1c", "T2-weighted", "5HT3", "one of them", "no one", "in daily living"],
)
def test_find_quantities_ignores_names(text: str) -> None:
    assert find_quantities(text) == ()


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("HR 80, RR of 18", ["hr", "rr"]),
        ("Creatinine was 1.2 and then 1.5", ["creatinine", "creatinine"]),
        ("He left. 5 mg", [""]),
        ("metoprolol 25 mg BID", ["metoprolol", "metoprolol"]),
    ],
)
def test_find_quantities_labels_words_before_number(text: str, labels: list[str]) -> None:
    assert [quantity.label for quantity in find_quantities(text)] == labels


# -- what holds of every text ---------------------------------------------------------------------------------------

PIECES = st.sampled_from(
    [
        "SBP",
        "in the",
        "80-90s",
        "107/76",
        "creatinine",
        "1.2",
        "mg",
        "mg/dL",
        "to",
        "and",
        "between",
        "> 5",
        "about",
        "2150-03-04",
        "03/04/2150",
        "March 2150",
        "10:30",
        "BID",
        "two tablets",
        "half",
        "1/2",
        "5/5",
        "100.4 F",
        "-2.5",
        "%",
        "1,250",
        "or more",
        ".",
        "/",
        "-",
        "9" * 400,
        "0",
        "q6h",
        "1st",
    ]
)


@pytest.mark.slow
@given(st.one_of(st.text(), st.lists(PIECES).map(" ".join), st.lists(PIECES).map("".join)))
def test_compare_numbers_of_text_with_itself_is_complete(text: str) -> None:
    result = compare_numbers(text, text)
    assert result.recall == (1 if find_quantities(text) else None)
    assert not result.extra
    for quantity in find_quantities(text):
        assert text[quantity.start : quantity.end] == quantity.text


@pytest.mark.slow
@given(st.lists(PIECES).map(" ".join), st.lists(PIECES).map(" ".join))
def test_compare_numbers_assigns_each_quantity_once(answer: str, gold: str) -> None:
    result = compare_numbers(answer, gold)
    held = len(result.matched) + len(result.vague) + len(result.contradicted) + len(result.incomparable)
    assert held + len(result.missing) == len(find_quantities(gold))
    assert result.recall is None or 0 <= result.recall <= 1
    assert result.precision is None or 0 <= result.precision <= 1
    if (score := score_numbers(answer, [gold])) is not None and score.precision is not None:
        low, high = sorted((score.precision, score.recall))
        assert low - 1e-9 <= score.f1 <= high + 1e-9 or score.f1 == 0


@pytest.mark.slow
@pytest.mark.data
def test_find_quantities_finds_every_number_of_real_notes(data_folder: Path) -> None:
    """A number that stands free lies within a quantity, and the note says all that it says."""
    path = data_folder / "visits" / "valid.csv"
    with path.open(encoding="utf-8", newline="") as file:
        notes = [row["note"] for row in csv.DictReader(file)]
    free = re.compile(r"(?<![\w.,/'-])\d+(?:\.\d+)?(?![\w/'-]|[.,]\d)")
    numbers = 0
    for text in notes:
        quantities = find_quantities(text)
        for match in free.finditer(text):
            numbers += 1
            assert any(item.start <= match.start() and match.end() <= item.end for item in quantities), match
        result = compare_numbers(text, text)
        assert result.recall == (1 if quantities else None)
        assert not result.extra
    assert numbers > 100
