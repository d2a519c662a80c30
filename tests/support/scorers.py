"""A reward, an NLI model and a verifier without a download, and the contract checks of their protocols."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from epicrisis.core.errors import ContextOverflow
from epicrisis.core.protocols import NliModel, RewardModel, SupportScore, Vectors, Verifier
from epicrisis.testing.hashing_encoder import require

_WORD = re.compile(r"\w+")


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.lower()))


class TermOverlapRewardModel:
    """Scores each attribute as the share of new words in the answer, 0 to 1."""

    def __init__(self, attributes: Sequence[str] = ("truthfulness", "helpfulness"), max_words: int = 1000) -> None:
        self.attributes = tuple(attributes)
        self._max_words = max_words

    def score(self, question: str, answer: str) -> Mapping[str, float]:
        length = len(question.split()) + len(answer.split())
        if length > self._max_words:
            raise ContextOverflow(f"{length} words are more than {self._max_words}: score shorter answers")
        words = _words(answer)
        return dict.fromkeys(self.attributes, len(words - _words(question)) / max(1, len(words)))


class TermOverlapNli:
    """Scores entailment as the share of the hypothesis in the premise, or contradiction if only one has `not`."""

    def probabilities(self, pairs: Sequence[tuple[str, str]]) -> Vectors:
        rows = np.zeros((len(pairs), 3), dtype=np.float32)
        for row, (premise, hypothesis) in zip(rows, pairs, strict=True):
            words, stated = _words(premise), _words(hypothesis)
            shared = len(words & stated) / max(1, len(stated))
            contradicts = ("not" in words) != ("not" in stated)
            row[1], row[2 if contradicts else 0] = 1 - shared, shared
        return rows


class TermOverlapVerifier:
    """Scores support as the share of the claim's words in the sentences, and contradiction as `TermOverlapNli` does.

    A claim of more than `max_words` words is a failure.
    """

    name = "term-overlap"

    def __init__(self, max_words: int = 1000) -> None:
        self._max_words = max_words

    async def verify(self, pairs: Sequence[tuple[str, str]]) -> list[SupportScore]:
        scores: list[SupportScore] = []
        rows = TermOverlapNli().probabilities(pairs).astype(float).tolist()
        for (_, claim), (supported, _, contradicted) in zip(pairs, rows, strict=True):
            if len(claim.split()) > self._max_words:
                scores.append(SupportScore(failure=f"the claim has more than {self._max_words} words: shorten it"))
            else:
                scores.append(SupportScore(supported, contradicted))
        return scores


async def check_verifier(verifier: Verifier) -> None:
    """Check the contract of `Verifier`. Raises AssertionError with the violated clause."""
    sentences = "Aspirin lowered the risk of stroke in adults.\nBleeding was rare."
    pairs = [(sentences, "Aspirin lowered the risk of stroke."), (sentences, "Zebras graze."), (sentences, "x")]
    scores = await verifier.verify(pairs)
    require(len(scores) == len(pairs), "one score for each pair")
    for score in scores:
        require(0 <= score.supported <= 1, "support is a probability")
        require(0 <= score.contradicted <= 1, "contradiction is a probability")
        require(score.supported + score.contradicted <= 1 + 1e-4, "both add up to at most 1")
        require(not score.failure or score.supported == score.contradicted == 0, "a failure has no probabilities")
    again = await verifier.verify(pairs[::-1])
    for score, other in zip(scores, reversed(again), strict=True):
        require(abs(score.supported - other.supported) < 1e-3, "scores follow their pairs")
    require(list(await verifier.verify([])) == [], "no pairs give no scores")
    require(bool(verifier.name), "a verifier has a name")
    long = await verifier.verify([(sentences, "warfarin " * 100_000)])
    require("warfarin" not in long[0].failure, "a failure holds none of the text")


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
