"""A reward model and an NLI model without a download, and the contract checks of both protocols."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from epicrisis.errors import ContextOverflow
from epicrisis.protocols import NliModel, RewardModel, Vectors
from epicrisis.testing.encoders import require

_WORD = re.compile(r"\w+")


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.lower()))


class TermOverlapRewardModel:
    """Scores each attribute as the share of new words in the answer, 0 to 1."""

    def __init__(self, attributes: Sequence[str] = ("truthfulness", "helpfulness"), max_words: int = 1000) -> None:
        self._attributes = tuple(attributes)
        self._max_words = max_words

    @property
    def attributes(self) -> tuple[str, ...]:
        return self._attributes

    def score(self, question: str, answer: str) -> Mapping[str, float]:
        length = len(question.split()) + len(answer.split())
        if length > self._max_words:
            raise ContextOverflow(f"{length} words are more than {self._max_words}: score shorter answers")
        words = _words(answer)
        return dict.fromkeys(self._attributes, len(words - _words(question)) / max(1, len(words)))


class TermOverlapNli:
    """Scores entailment as the share of the hypothesis in the premise, or contradiction if only one has `not`."""

    def probabilities(self, pairs: Sequence[tuple[str, str]]) -> Vectors:
        rows = [self._row(_words(premise), _words(hypothesis)) for premise, hypothesis in pairs]
        return np.array(rows, dtype=np.float32).reshape(len(pairs), 3)

    def _row(self, premise: set[str], hypothesis: set[str]) -> tuple[float, float, float]:
        shared = len(premise & hypothesis) / max(1, len(hypothesis))
        contradicts = ("not" in premise) != ("not" in hypothesis)
        return (0.0, 1 - shared, shared) if contradicts else (shared, 1 - shared, 0.0)


def check_reward_model(model: RewardModel) -> None:
    """Check the contract of `RewardModel`. Raises AssertionError with the violated clause."""
    question, answer = "Does aspirin prevent stroke?", "It lowers the risk in adults."
    rewards = model.score(question, answer)
    require(tuple(rewards) == model.attributes != (), "one reward for each attribute, in order")
    require(all(map(np.isfinite, rewards.values())), "every reward is finite")
    require(rewards == model.score(question, answer), "the same texts have the same rewards")
    require(rewards != model.score(question, "Aspirin does prevent stroke."), "rewards go by the answer")
    require(len(model.score("", "")) == len(model.attributes), "empty texts have rewards")
    try:
        model.score(question, "warfarin " * 100_000)
    except ContextOverflow as error:
        require("warfarin" not in str(error), "an error holds none of the text")
    else:
        raise AssertionError("an answer that does not fit is rejected, not cut")


def check_nli(model: NliModel) -> None:
    """Check the contract of `NliModel`. Raises AssertionError with the violated clause."""
    pairs = [("Aspirin lowers the risk.", "The risk is lower."), ("It rains.", "It does not rain."), ("", "")]
    probabilities = model.probabilities(pairs)
    require(probabilities.shape == (3, 3), f"the shape is (3, 3), got {probabilities.shape}")
    require(probabilities.dtype == np.float32, f"the type is float32, got {probabilities.dtype}")
    require(
        bool((probabilities >= 0).all()) and np.allclose(probabilities.sum(axis=1), 1, atol=1e-4),
        "rows are probabilities",
    )
    require(np.allclose(probabilities[::-1], model.probabilities(pairs[::-1]), atol=1e-4), "rows follow their pairs")
    require(model.probabilities([]).shape == (0, 3), "no pairs give (0, 3)")
