"""Load real pairs of texts to measure: summaries of visits by people and by models."""

from __future__ import annotations

import csv
from pathlib import Path


def summaries(data: Path) -> list[tuple[str, str]]:
    """Return the 400 pairs (reference, automatic summary) of MTS-Dialog's validation set."""
    path = data / "judge" / "MTS-Dialog-Automatic-Summaries-ValidationSet.csv"
    with path.open(encoding="utf-8-sig", newline="") as file:
        return [(row["Reference Summary"], row["Automatic Summary"]) for row in csv.DictReader(file)]
