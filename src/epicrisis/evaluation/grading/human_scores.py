"""Scores of people to calibrate judges with: MTS-Dialog's summaries, and LLMBar's pairs of answers.

The first is abachaa/MTS-Dialog, ManualScores (Ben Abacha et al., EACL 2023); the second is princeton-nlp/LLMBar (Zeng
et al., ICLR 2024).
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from epicrisis.core.errors import InputError
from epicrisis.core.types import Passage
from epicrisis.corpus.base.reader_base import check_file, printable_path
from epicrisis.evaluation.grading.blind_pairs import BlindPair
from epicrisis.evaluation.grading.human_verdicts import PreferredAnswer
from epicrisis.evaluation.grading.scored_answers import ScoredAnswer

SUMMARIES = "MTS-Dialog-Automatic-Summaries-ValidationSet.csv"
SCORES = "MTS-Dialog-Manual-Scores4CorrelationStudy.csv"
PAIRS = Path("llmbar", "LLMBar")

RATES = ("FactualPrecision", "FactualRecall", "FactualF1", "HallucinationRate", "OmissionRate")
TASK = "Sum up this talk between a doctor and a patient as one section of a clinical note."

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Summary:
    """An automatic summary with the shares that people counted."""

    answer: ScoredAnswer
    """The summary as an answer: the reference note is the reference, the conversation is the passage of its prompt."""
    conversation: str
    """The conversation's id. Four systems summarized each, so four summaries are one cluster."""
    scores: Mapping[str, float]
    """By RATES, 0 to 1; less is better for the last two. Without the rates that people did not give (two summaries have
    -1 for a rate of omission)."""


@dataclass(frozen=True, slots=True)
class PreferencePair:
    """Two answers to one instruction; people prefer one of them."""

    pair: BlindPair
    right: PreferredAnswer
    """`1` or `2`."""
    subset: str
    """`Natural`, or `Adversarial/Neighbor` and others with a worse answer that looks better."""


def read_summaries(folder: Path) -> tuple[Summary, ...]:
    """Read the 400 summaries. The file of scores names no summary; its rows have the order of the summaries.

    Raises InputError if a file is missing or broken, or if the two differ in length.
    """
    texts, scores = _read_csv(folder / SUMMARIES), _read_csv(folder / SCORES)
    if len(texts) != len(scores) or not texts:
        raise InputError(f"{printable_path(folder)}: {SUMMARIES} and {SCORES} differ in length: download both again")
    summaries = []
    for number, (row, counted) in enumerate(zip(texts, scores, strict=True), 1):
        try:
            rates = {name: float(counted[name]) for name in RATES}
            if not all(rate == -1 or 0 <= rate <= 1 for rate in rates.values()):
                raise ValueError("a share lies outside 0 and 1")
            text, document_id = row["Dialogue"], f"mts-dialog:{row['ID']}"
            answer = ScoredAnswer(
                key=f"mts-dialog:{number}",
                question=TASK,
                references=(row["Reference Summary"].strip(),),
                answer=row["Automatic Summary"].strip(),
                question_key=document_id,
                given=(
                    Passage(
                        id=f"{document_id}#0", document_id=document_id, ordinal=0, start=0, end=len(text), text=text
                    ),
                ),
            )
            summaries.append(Summary(answer, row["ID"], {name: rate for name, rate in rates.items() if rate >= 0}))
        except (KeyError, ValueError):
            raise InputError(
                f"{printable_path(folder)}, row {number}: is not a summary with its scores: download both files again"
            ) from None
    return tuple(summaries)


def read_preference_pairs(folder: Path) -> tuple[PreferencePair, ...]:
    """Read the 419 pairs by subset. Raises InputError if a file is missing or broken."""
    paths = sorted((folder / PAIRS).glob("**/dataset.json"))
    if not paths:
        raise InputError(f"{printable_path(folder)}: has no {PAIRS.as_posix()}: give the folder of LLMBar's files")
    choices: Mapping[Any, PreferredAnswer] = {1: "1", 2: "2"}
    pairs: list[PreferencePair] = []
    for path in paths:
        subset = path.parent.relative_to(folder / PAIRS).as_posix()
        try:
            rows: list[Any] = json.loads(path.read_bytes())
            for number, row in enumerate(rows):
                texts = row["input"], row["output_1"], row["output_2"]
                digest = hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:8]
                pair = BlindPair(f"{subset}:{number}:{digest}", *map(str, texts))
                pairs.append(PreferencePair(pair, choices[row["label"]], subset))
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            raise InputError(f"{printable_path(path)}: is not a list of judged pairs: download it again") from None
    return tuple(pairs)


def sample_items(items: Sequence[T], n: int | None, seed: int) -> tuple[T, ...]:
    """Return a random sample of `n` items in their order. A smaller sample is part of a larger one.

    Returns all items without `n`, or if there are not more.
    """
    if n is None or n >= len(items):
        return tuple(items)
    places = sorted(range(len(items)), key=lambda place: hashlib.sha256(f"{seed}:{place}".encode()).digest())
    return tuple(items[place] for place in sorted(places[:n]))


def _read_csv(path: Path) -> list[dict[str, str]]:
    check_file(path)
    try:
        return list(csv.DictReader(io.StringIO(path.read_bytes().decode("utf-8-sig"), newline=""), strict=True))
    except (UnicodeDecodeError, csv.Error):
        raise InputError(f"{printable_path(path)}: is not a CSV file in UTF-8: download it again") from None
