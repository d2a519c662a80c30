"""Confidence of an answer: one figure from everything that is known of how it came about.

The components are shares from 0 to 1:

* `parts`: the share of BriefContext's relevant parts with the answer's option.
* `votes`: of the votes with a choice, sampled or of passages read alone, those for the answer's option.
* `probability`: the next-token probability of the answer's letter among the letters.
* `claims`: of the checked claims, those that their sentences support. Sentences of documents shown as they are, by the
  strategy `evidence`, are no claims.

The figure is the mean of the known components. It orders answers; it is a probability only after calibration (Platt
1999), `1 / (1 + exp(-(intercept + slope * figure)))`.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from statistics import fmean

from epicrisis.answering.strategies.evidence import NAME as EVIDENCE
from epicrisis.answering.strategy import writes_citations
from epicrisis.core.answers import Answer, Confidence
from epicrisis.core.question_options import is_same_option
from epicrisis.core.types import CitingMode


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfidenceCalibration:
    """A fitted mapping from the confidence of answers to the probability that they are right.

    Raises ValueError for a parameter that is not finite.
    """

    slope: float
    intercept: float
    strategy: str
    """The strategy of the answers that it was fitted to."""
    models: tuple[str, ...]
    """Their chat models, sorted."""
    components: tuple[str, ...]
    """The components that they had."""
    n: int
    """The number of answers."""
    citing: CitingMode = "quotes"
    """How they cited, which changes the share of supported claims. Files without it are of answers that quoted."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.slope) and math.isfinite(self.intercept)):
            raise ValueError("slope and intercept must be finite")

    def probability(self, value: float) -> float:
        """Return the probability that an answer with this confidence is right, strictly between 0 and 1."""
        return 1 / (1 + math.exp(-min(max(self.intercept + self.slope * value, -700.0), 700.0)))

    def fits(self, strategy: str, models: Collection[str], citing: CitingMode) -> bool:
        """Return whether it was fitted to answers of this strategy and these models that cited in this way."""
        if citing != self.citing and writes_citations(strategy):
            return False
        return (strategy, sorted(models)) == (self.strategy, sorted(self.models))


def estimate_confidence(answer: Answer) -> Confidence | None:
    """Return the mean of the known components, with these; None for an answer without any or without an answer."""
    if answer.state != "answered":
        return None
    components: dict[str, float] = {}
    for name, share in (
        ("parts", _share_of_parts(answer)),
        ("votes" if answer.votes or answer.margin else "probability", _share_of_choice(answer)),
        ("claims", _share_of_claims(answer)),
    ):
        if share is not None:
            components[name] = share
    return Confidence(fmean(components.values()), components) if components else None


def add_confidence(answer: Answer, calibration: ConfidenceCalibration | None) -> Answer:
    """Return the answer with its confidence.

    The calibration applies to answers to questions with options, by its strategy, with no other components than those
    it was fitted to.
    """
    confidence = estimate_confidence(answer)
    if confidence is not None and calibration is not None:
        same = answer.strategy == calibration.strategy and set(confidence.components) <= set(calibration.components)
        if same and answer.choice is not None:
            confidence = replace(confidence, calibrated=calibration.probability(confidence.value))
    return replace(answer, confidence=confidence)


def _share_of_parts(answer: Answer) -> float | None:
    """Return None unless a relevant part chose an option. Parts that found nothing, or failed, do not count.

    The parts of isolated votes are counted as votes.
    """
    relevant = [partial for partial in answer.partials if partial.state == "relevant"]
    if answer.choice is None or answer.margin is not None or all(partial.choice is None for partial in relevant):
        return None
    options = answer.question.options
    return fmean(float(is_same_option(options, partial.choice, answer.choice)) for partial in relevant)


def _share_of_choice(answer: Answer) -> float | None:
    return None if answer.choice is None else answer.distribution.get(answer.choice)


def _share_of_claims(answer: Answer) -> float | None:
    if answer.strategy == EVIDENCE:
        return None
    claims = (*answer.claims, *answer.withheld_claims)
    checked = [claim for claim in claims if claim.checked_by and not claim.is_computed]
    return fmean(float(claim.support == "supported") for claim in checked) if checked else None
