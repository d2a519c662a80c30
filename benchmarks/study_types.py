"""Does the best study type of a question's sources agree with the certainty that the review gave to the evidence?

    EPICRISIS_DATA=... python benchmarks/study_types.py

MedEvidence: each question has the abstracts of the studies that a Cochrane review used, and the review's certainty.
Sources have no title and no publication types here, so types come from the words of abstracts. The type is mapped to
the level at which GRADE starts: systematic reviews and randomised trials high, other trials moderate, cohorts and other
observational studies low, all others very low. Quadratically weighted kappa, bootstrap over reviews.
"""

from __future__ import annotations

import gzip
import json
import os
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np

from epicrisis.core.study_types import StudyType, find_study_type

LEVELS = ("very low", "low", "moderate", "high")
START: dict[StudyType, int] = {
    "systematic-review": 3,
    "randomised-trial": 3,
    "clinical-trial": 2,
    "cohort": 1,
    "case-control": 1,
    "cross-sectional": 1,
}
RESAMPLES = 2000


def weighted_kappa(pairs: list[tuple[int, int]]) -> float:
    """Return Cohen's kappa with quadratic weights, 0 without any variance."""
    x, y = np.array(pairs, dtype=float).T
    disagreement = ((x[:, None] - y[None, :]) ** 2).mean()
    return float(1 - ((x - y) ** 2).mean() / disagreement) if disagreement else 0.0


def main() -> None:
    """Print the table and the kappa."""
    by_review: dict[str, list[tuple[int, int]]] = defaultdict(list)
    table: Counter[tuple[str, str]] = Counter()
    unrated = untyped = 0
    path = Path(os.environ["EPICRISIS_DATA"]) / "med_evidence" / "development.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            row = json.loads(line)
            levels: list[int] = []
            for source in row["relevant_sources"]:
                article = row["sources"][source]
                match = find_study_type({}, article.get("title") or "", article["content"])
                if match is not None:
                    levels.append(START.get(match.type, 0))
            if row["evidence_certainty"] not in LEVELS:
                unrated += 1
            elif not levels:
                untyped += 1
                table["(none)", row["evidence_certainty"]] += 1
            else:
                best = max(levels)
                table[LEVELS[best], row["evidence_certainty"]] += 1
                by_review[row["original_review"]].append((best, LEVELS.index(row["evidence_certainty"])))
    pairs = [pair for review in by_review.values() for pair in review]
    reviews = list(by_review.values())
    random = np.random.default_rng(0)
    values: list[float] = []
    for _ in range(RESAMPLES):
        sample: list[tuple[int, int]] = []
        for place in random.integers(len(reviews), size=len(reviews)):
            sample += reviews[place]
        values.append(weighted_kappa(sample))
    low, high = np.percentile(values, [2.5, 97.5])
    print("best type starts at | certainty: " + ", ".join(LEVELS))
    for name in (*reversed(LEVELS), "(none)"):
        print(f"{name:9} | " + ", ".join(str(table[name, level]) for level in LEVELS))
    print(f"{len(pairs)} questions of {len(reviews)} reviews; {unrated} without a certainty, {untyped} without a type")
    print(f"weighted kappa {weighted_kappa(pairs):.2f} ({low:.2f} to {high:.2f})")


if __name__ == "__main__":
    main()
