"""Test BERTScore against manual calculation and the package bert-score on 400 real pairs."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from epicrisis.core.protocols import TokenVectors
from epicrisis.evaluation.metrics.neural import BertScore, Unscored, bertscore_name, compute_bert_scores
from epicrisis.models.encoders import load_token_encoder
from tests.evaluation.metrics.pairs import summaries
from tests.support import tiny_models
from tests.support.encoders import HashingTokenEncoder

VECTORS = {"[": (0.0, 2.0), "a": (3.0, 0.0), "b": (0.6, 0.8), "c": (-1.0, 0.0)}


class Letters:
    """Encode each letter as a token, after one special token."""

    name = "letters"

    def encode_tokens(self, texts: Sequence[str]) -> tuple[TokenVectors, ...]:
        return tuple(
            TokenVectors(
                np.array([VECTORS[letter] for letter in f"[{text}"], dtype=np.float32),
                np.array([False] + [True] * len(text)),
            )
            for text in texts
        )


def compute_figures(gold: str, answer: str) -> tuple[float, float, float]:
    (score,) = compute_bert_scores(Letters(), [(gold, answer)])
    assert isinstance(score, BertScore)
    return score.precision, score.recall, score.f1


def test_bert_scores_match_manual_calculation() -> None:
    # c finds the special token (cosine 0) rather than a (-1), and b does (0.8): it is found, and not counted.
    assert compute_figures("ab", "c") == pytest.approx((0, (0 + 0.8) / 2, 0), abs=1e-7)
    assert compute_figures("a", "bb") == pytest.approx((0.8, 0.6, 2 * 0.8 * 0.6 / 1.4), abs=1e-7)
    assert compute_figures("ab", "ab") == pytest.approx((1, 1, 1))


def test_bertscore_name_has_model_layer_and_options() -> None:
    assert bertscore_name(HashingTokenEncoder()) == "bertscore-f1[hashing_no-idf]"


def test_bert_scores_of_long_or_empty_text_are_unscored() -> None:
    encoder, long = HashingTokenEncoder(max_tokens=10), "word " * 9
    scores = compute_bert_scores(
        encoder, [("fever", "fever"), ("fever", long), (long, "fever"), ("fever", " "), ("", "fever")]
    )
    assert [isinstance(item, Unscored) for item in scores] == [False, True, True, True, True]
    assert isinstance(scores[1], Unscored)
    assert scores[1].reason == "11 tokens are more than 10: compare shorter texts"
    assert isinstance(scores[3], Unscored)
    assert scores[3].reason == "one of the two texts has no token"
    assert compute_bert_scores(encoder, []) == ()


def test_bert_scores_of_many_pairs_keep_order() -> None:
    encoder = HashingTokenEncoder()
    pairs = [(f"word{number} x", f"word{number} {'x' if number % 3 else 'other'}") for number in range(150)]
    scores = compute_bert_scores(encoder, pairs)
    assert [isinstance(item, BertScore) and item.f1 > 0.999 for item in scores] == [bool(n % 3) for n in range(150)]


@pytest.mark.torch
@pytest.mark.data
@pytest.mark.parametrize("layer", [1, 2])
def test_bert_scores_match_package_on_real_pairs(tmp_path: Path, data_folder: Path, layer: int) -> None:
    """By a network of random weights whose vocabulary is the summaries' own words."""
    import torch
    from bert_score import BERTScorer

    pairs = summaries(data_folder)
    words = sorted({word for pair in pairs for text in pair for word in re.findall(r"\w+|[^\w\s]", text.lower())})
    tiny_models.make_bert(tmp_path, 3, words)
    config = tmp_path / "tokenizer_config.json"
    # Without it the package asks the tokenizer for a window that no integer holds.
    config.write_text(json.dumps(json.loads(config.read_text("utf-8")) | {"model_max_length": 512}), encoding="utf-8")
    (tmp_path / "model.json").write_text(
        json.dumps({"settings": {"layer": layer, "max_tokens": 512}}), encoding="utf-8"
    )
    scores = compute_bert_scores(load_token_encoder(str(tmp_path), tmp_path), pairs)
    figures = np.array([[item.precision, item.recall, item.f1] for item in scores if isinstance(item, BertScore)])
    assert len(figures) == 400
    scorer = BERTScorer(model_type=str(tmp_path), num_layers=layer, device="cpu")
    theirs = scorer.score([answer for _, answer in pairs], [gold for gold, _ in pairs])
    assert np.abs(figures - torch.stack(theirs, dim=1).double().numpy()).max() < 1e-6
    assert float(np.ptp(figures[:, 2])) > 0.3
