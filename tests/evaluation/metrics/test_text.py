"""Test exact match and token F1 against manual calculation and torchmetrics' SQuAD on real spans."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from epicrisis.evaluation.metrics.text import exact_match, normalize_answer, token_f1


def load_spans(data: Path) -> list[tuple[str, list[str]]]:
    """Return pairs (answer, references) of COVID-QA: each span with its paper's next one, and with a part of itself."""
    pairs: list[tuple[str, list[str]]] = []
    for paper in json.loads((data / "covid_qa" / "200423_covidQA.json").read_text("utf-8"))["data"]:
        golds = [qa["answers"][0]["text"] for part in paper["paragraphs"] for qa in part["qas"]]
        for gold, other in pairwise(golds):
            words = gold.split()
            pairs += [(other, [gold]), (" ".join(words[len(words) // 3 :]).upper(), [other, gold]), (gold, [gold])]
    return pairs[:300]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  Mitral-valve, (an) A.B. regurgitation!", "mitralvalve ab regurgitation"),
        ("theatre", "theatre"),
        ("\tAn ", ""),
        ("5 mg", "5 mg"),
    ],
)
def test_normalize_answer_returns_expected_text(text: str, expected: str) -> None:
    assert normalize_answer(text) == expected


def test_exact_match_compares_normalized_texts() -> None:
    assert exact_match("The cat.", ["dog", "a CAT"]) == 1
    assert exact_match("cats", ["cat"]) == 0


def test_token_f1_counts_repeated_words() -> None:
    assert token_f1("pain pain pain", ["pain in the chest"]) == pytest.approx(2 * 1 / (3 + 3))
    assert token_f1("chest pain", ["no", "the pain in the chest", "pain"]) == pytest.approx(2 * 2 / (2 + 3))
    assert token_f1("fever", ["cough"]) == 0
    assert token_f1("the", ["a"]) == 0


@pytest.mark.parametrize("metric", [exact_match, token_f1])
def test_text_metrics_without_reference_raise_value_error(metric: object) -> None:
    assert callable(metric)
    with pytest.raises(ValueError, match="no right answer"):
        metric("yes", [])


@pytest.mark.torch
@pytest.mark.data
def test_text_metrics_match_torchmetrics_on_real_spans(data_folder: Path) -> None:
    from torchmetrics.functional.text import squad

    pairs, partial = load_spans(data_folder), 0
    assert len(pairs) == 300
    for answer, golds in pairs:
        reference = squad(
            [{"prediction_text": answer, "id": "0"}],
            [{"answers": {"text": golds, "answer_start": [0] * len(golds)}, "id": "0"}],
        )
        assert exact_match(answer, golds) == pytest.approx(float(reference["exact_match"]) / 100, abs=1e-6)
        assert token_f1(answer, golds) == pytest.approx(float(reference["f1"]) / 100, abs=1e-6)
        partial += 0 < token_f1(answer, golds) < 1
    assert partial > 100
