"""Test kappa and alpha against published examples, and cases where they are undefined."""

from __future__ import annotations

import random

import numpy as np
import pytest

from epicrisis.evaluation.analysis.agreement import cohens_kappa, krippendorffs_alpha, measure_agreement


def parse_ratings(*rows: str) -> list[dict[int, str]]:
    """Return one mapping of units to ratings per line; a dot is a missing rating."""
    return [{unit: value for unit, value in enumerate(row.split()) if value != "."} for row in rows]


# Krippendorff, Computing Krippendorff's Alpha-Reliability (2011), section C: four observers, twelve units.
FOUR = parse_ratings(
    "1 2 3 3 2 1 4 1 2 . . .",
    "1 2 3 3 2 2 4 1 2 5 . 3",
    ". 3 3 3 2 3 4 2 2 5 1 .",
    "1 2 3 3 2 4 4 1 2 5 1 .",
)
# Krippendorff, section A: two observers, nominal data without gaps in binary form.
BINARY = parse_ratings("0 1 0 0 0 0 0 0 1 0", "1 1 1 0 0 1 0 0 0 0")
# The three coders of the encyclopedia's article on the coefficient, much copied in software's tests.
THREE = parse_ratings(
    ". . . . . 3 4 1 2 1 1 3 3 . 3",
    "1 . 2 1 3 3 4 3 . . . . . . .",
    ". . 2 1 3 4 4 . 2 1 1 3 3 . 4",
)


@pytest.mark.parametrize(("given", "alpha"), [(FOUR, 0.743), (BINARY, 0.095), (THREE, 0.691)])
def test_alpha_matches_published_examples(given: list[dict[int, str]], alpha: float) -> None:
    result = measure_agreement(given)
    assert result.alpha.value == pytest.approx(alpha, abs=5e-4)
    assert result.alpha.interval is not None
    assert result.alpha.interval.low < alpha < result.alpha.interval.high


def test_agreement_ignores_units_with_one_rating() -> None:
    result = measure_agreement(FOUR)
    assert (result.raters, result.units) == (4, 11)
    assert result.kappa is None


def test_kappa_matches_textbook_table() -> None:
    # 20 yes yes, 5 yes no, 10 no yes, 15 no no: 0.4.
    ratings = [("yes", "yes")] * 20 + [("yes", "no")] * 5 + [("no", "yes")] * 10 + [("no", "no")] * 15
    result = measure_agreement([{i: pair[rater] for i, pair in enumerate(ratings)} for rater in range(2)])
    assert result.kappa is not None
    assert result.kappa.value == pytest.approx(0.4)
    assert result.raw.value == pytest.approx(0.7)
    assert result.raw.n == 50
    assert result.kappa.interval is not None
    assert result.kappa.interval.low == pytest.approx(0.15, abs=0.05)
    assert result.kappa.interval.high == pytest.approx(0.64, abs=0.05)


@pytest.mark.slow
def test_agreement_of_equal_ratings_is_one_and_of_random_ratings_zero() -> None:
    dice = random.Random(0)
    same = {unit: dice.choice("ab") for unit in range(400)}
    other = {unit: dice.choice("ab") for unit in range(400)}
    alike, apart = measure_agreement([same, same]), measure_agreement([same, other])
    assert alike.kappa is not None
    assert alike.kappa.value == 1 == alike.alpha.value
    assert apart.alpha.value == pytest.approx(0, abs=0.1)


def test_agreement_without_variation_or_shared_units_has_no_coefficient() -> None:
    one_word = measure_agreement([{1: "tie", 2: "tie"}, {1: "tie", 2: "tie"}])
    assert one_word.kappa is not None
    assert (one_word.kappa.value, one_word.alpha.value, one_word.alpha.interval) == (None, None, None)
    assert one_word.raw.value == 1
    nothing = measure_agreement([{1: "a"}, {2: "a"}])
    assert (nothing.units, nothing.raw.n, nothing.alpha.value) == (0, 0, None)
    with pytest.raises(ValueError, match="at least two raters"):
        measure_agreement([{1: "a"}])


def test_coefficients_of_stacked_tables_match_single_tables() -> None:
    tables = np.random.default_rng(0).integers(0, 9, size=(20, 3, 3)).astype(np.float64)
    tables = tables + tables.swapaxes(1, 2)
    for of in (cohens_kappa, krippendorffs_alpha):
        assert of(tables) == pytest.approx([float(of(table)) for table in tables])
