"""Seconds of CPU that each scoring takes for 30,000 released replies: MIRAGE's of GPT-3.5, over and over.

EPICRISIS_DATA=... python benchmarks/scoring.py
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path

from epicrisis.evaluation.datasets.load import load_dataset
from epicrisis.evaluation.rescoring.scores import SCORINGS, pair_with_replies, read_released_replies, score_replies

REPLIES = 30_000
RUNS = {"mirage/pubmedqa": "gpt35_cot_pubmedqa.jsonl", "mirage/bioasq": "gpt35_cot_bioasq.jsonl"}


def main() -> None:
    """Prints a line a scoring."""
    data = Path(os.environ["EPICRISIS_DATA"])
    replied = [
        each
        for name, file in RUNS.items()
        for each in pair_with_replies(
            load_dataset(name, data, data).questions, read_released_replies(data / "mirage" / file)
        )
    ]
    many = [
        replace(each, question=replace(each.question, id=f"{number}-{each.question.id}"))
        for number, each in enumerate(islice(cycle(replied), REPLIES))
    ]
    for scoring in SCORINGS:
        start = time.process_time()
        found = score_replies(many, scoring)
        print(f"{scoring}: {found.n:,} replies in {time.process_time() - start:.2f} s")


if __name__ == "__main__":
    main()
