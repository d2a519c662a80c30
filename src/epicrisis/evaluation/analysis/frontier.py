"""The accuracy-cost frontier: the points without a better one in both, and how sure this is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

RESAMPLES = 1000

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class FrontierPoint:
    """One system among those compared."""

    cost: float
    score: float
    is_on_frontier: bool
    share_of_resamples: float
    """The share of resamples of the questions, 0 to 1, in which the point is on the frontier."""


def find_frontier(costs: Sequence[float], scores: Sequence[float]) -> list[bool]:
    """Return for each point whether it is on the frontier.

    A point is not on it if another one costs at most as much and scores at least as high, and is better in one of the
    two. Points that are equal in both are on it together.
    """
    return [bool(value) for value in _undominated(np.array([costs], float), np.array([scores], float))[0]]


def compare_points(
    costs: Sequence[Sequence[float]], scores: Sequence[Sequence[float]], seed: int = 0
) -> list[FrontierPoint]:
    """Return the points of systems, by their mean cost and score. Each row has a system's figures by question.

    All rows are about the same questions in the same order, which are resampled together.
    """
    cost_table, score_table = np.array(costs, float), np.array(scores, float)
    questions = cost_table.shape[1]
    picks = np.random.default_rng(seed).integers(questions, size=(RESAMPLES, questions))
    weights = np.zeros((RESAMPLES, questions))
    np.add.at(weights, (np.arange(RESAMPLES)[:, None], picks), 1.0)
    shares = _undominated(weights @ cost_table.T / questions, weights @ score_table.T / questions).mean(axis=0)
    mean_costs, mean_scores = cost_table.mean(axis=1), score_table.mean(axis=1)
    on_frontier = find_frontier(mean_costs.tolist(), mean_scores.tolist())
    points: list[FrontierPoint] = []
    for index, is_on_frontier in enumerate(on_frontier):
        point = FrontierPoint(float(mean_costs[index]), float(mean_scores[index]), is_on_frontier, float(shares[index]))
        points.append(point)
    return points


def _undominated(costs: Floats, scores: Floats) -> npt.NDArray[np.bool_]:
    """Return which points are on the frontier. Each row is one set of points."""
    # Sums in another order differ in the last digits: equal points must stay equal.
    costs, scores = costs.round(9), scores.round(9)
    cheaper, better = costs[:, :, None] < costs[:, None, :], scores[:, :, None] > scores[:, None, :]
    no_dearer, no_worse = costs[:, :, None] <= costs[:, None, :], scores[:, :, None] >= scores[:, None, :]
    dominates = no_dearer & no_worse & (cheaper | better)
    undominated: npt.NDArray[np.bool_] = np.logical_not(np.any(dominates, axis=1))
    return undominated
