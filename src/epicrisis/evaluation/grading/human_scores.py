"""What people have scored, to hold judges against: MTS-Dialog's summaries, and LLMBar's pairs of answers.

Reads files and knows no judge. Facts of the first: abachaa/MTS-Dialog, ManualScores (Ben Abacha et al., EACL 2023); of
the second: princeton-nlp/LLMBar (Zeng et al., ICLR 2024).
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from epicrisis.corpus.reader_base import check_file, printable_path
from epicrisis.errors import InputError
from epicrisis.evaluation.grading.blind_pairs import BlindPair
from epicrisis.evaluation.grading.human_verdicts import PreferredAnswer
from epicrisis.evaluation.grading.scored_answers import ScoredAnswer
from epicrisis.types import Passage

SUMMARIES = "MTS-Dialog-Automatic-Summaries-ValidationSet.csv"
SCORES = "MTS-Dialog-Manual-Scores4CorrelationStudy.csv"
PAIRS = Path("llmbar", "LLMBar")

RATES = ("FactualPrecision", "FactualRecall", "FactualF1", "HallucinationRate", "OmissionRate")
TASK = "Sum up this talk between a doctor and a patient as one section of a clinical note."

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Summary:
    """One automatic summary with the shares that people counted."""

    response: ScoredAnswer
    """As it is judged: the reference note is the reference, the talk is what it was given."""
    talk: str
    """The conversation's id: four systems summed up each, so four summaries are one cluster."""
    scores: Mapping[str, float]
    """By RATES, 0 to 1, those that people gave (two summaries have -1 for a rate of omission: none); of the last two
    less is better."""


@dataclass(frozen=True, slots=True)
class PreferencePair:
    """Two answers to one instruction, of which people prefer one."""

    pair: BlindPair
    right: PreferredAnswer
    """`1` or `2`."""
    subset: str
    """`Natural`, or `Adversarial/Neighbor` and others, where the worse one looks better."""


def read_summaries(folder: Path) -> tuple[Summary, ...]:
    """The 400 summaries. The file of scores names no summary: its rows are those of the other, in the same order.

    Raises InputError where one is missing, broken, or of another length.
    """
    texts, scores = _rows(folder / SUMMARIES), _rows(folder / SCORES)
    if len(texts) != len(scores) or not texts:
        raise InputError(f"{printable_path(folder)}: {SUMMARIES} and {SCORES} differ in length: fetch both again")
    made = []
    for number, (row, counted) in enumerate(zip(texts, scores, strict=True), 1):
        try:
            made.append(_summary(number, row, {name: float(counted[name]) for name in RATES}))
        except (KeyError, ValueError):
            raise InputError(
                f"{printable_path(folder)}, row {number}: is no summary with its scores: fetch both again"
            ) from None
    return tuple(made)


def _summary(number: int, row: Mapping[str, str], scores: Mapping[str, float]) -> Summary:
    """Raises KeyError, ValueError."""
    if not all(score == -1 or 0 <= score <= 1 for score in scores.values()):
        raise ValueError("a share lies outside 0 and 1")
    talk = row["Dialogue"]
    passage = Passage(f"mts-dialog:{row['ID']}#0", f"mts-dialog:{row['ID']}", 0, 0, len(talk), talk)
    response = ScoredAnswer(
        key=f"mts-dialog:{number}",
        question=TASK,
        references=(row["Reference Summary"].strip(),),
        answer=row["Automatic Summary"].strip(),
        question_key=f"mts-dialog:{row['ID']}",
        given=(passage,),
    )
    return Summary(response, row["ID"], {name: score for name, score in scores.items() if score >= 0})


def read_preference_pairs(folder: Path) -> tuple[PreferencePair, ...]:
    """The 419 pairs, by subset. Raises InputError where a file is missing or broken."""
    found = sorted((folder / PAIRS).glob("**/dataset.json"))
    if not found:
        raise InputError(
            f"{printable_path(folder)}: has no {PAIRS.as_posix()}: name the folder that holds LLMBar's files"
        )
    return tuple(each for path in found for each in _preferred(path, folder / PAIRS))


def _preferred(path: Path, root: Path) -> Iterator[PreferencePair]:
    subset = path.parent.relative_to(root).as_posix()
    try:
        rows: list[Any] = json.loads(path.read_bytes())
        for number, row in enumerate(rows):
            texts = row["input"], row["output_1"], row["output_2"]
            right: PreferredAnswer = {1: "1", 2: "2"}[row["label"]]  # type: ignore[assignment]
            digest = hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:8]
            yield PreferencePair(BlindPair(f"{subset}:{number}:{digest}", *map(str, texts)), right, subset)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise InputError(f"{printable_path(path)}: is no list of judged pairs: fetch it again") from None


def sample_items(items: Sequence[T], n: int | None, seed: int) -> tuple[T, ...]:
    """`n` of the items by seed, in their order; a smaller sample is part of a larger one. All without `n`, or where
    there are not so many."""
    if n is None or n >= len(items):
        return tuple(items)
    places = sorted(range(len(items)), key=lambda place: hashlib.sha256(f"{seed}:{place}".encode()).digest())
    return tuple(items[place] for place in sorted(places[:n]))


def _rows(path: Path) -> list[dict[str, str]]:
    check_file(path)
    try:
        return list(csv.DictReader(io.StringIO(path.read_bytes().decode("utf-8-sig"), newline=""), strict=True))
    except (UnicodeDecodeError, csv.Error):
        raise InputError(f"{printable_path(path)}: is no CSV file in UTF-8: fetch it again") from None
