"""What the tests of judging share: records of answered questions, as a run writes them, and a judge's replies."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from epicrisis.core.answers import Answer
from epicrisis.core.serialization import to_json
from epicrisis.core.types import AnswerState, Question
from epicrisis.evaluation.grading.blind_pairs import BlindPairs, make_pairs
from epicrisis.pipeline.recording.answer_record import RunRecord
from epicrisis.pipeline.recording.case import Case

ARMS = ("rag", "brief-context")
WRITER = "writer-model"


def record(question: Question, arm: str, text: str, state: AnswerState = "answered") -> dict[str, Any]:
    """A line of a run's records, as far as judging reads it."""
    case = Case(question, {"arm": arm})
    models = {role: {"name": WRITER} for role in ("writer", "map", "reduce")}
    answer = Answer(question=question, strategy=arm, state=state, text=text if state == "answered" else "")
    return {"key": case.key, "condition": case.condition, "recipe": {"models": models}, "answer": to_json(answer)}


def questions(n: int) -> list[Question]:
    return [Question(f"Does drug {i} help in disease {i}?", id=str(i), gold="It does.") for i in range(n)]


def records(n: int) -> list[dict[str, Any]]:
    """BriefContext's answers say `parts`, RAG's `whole`, so that a test knows whose is whose."""
    return [
        record(question, arm, f"Drug {question.id} {'whole' if arm == 'rag' else 'parts'} lowers the risk.")
        for question in questions(n)
        for arm in ARMS
    ]


def pair_records(lines: Iterable[Mapping[str, Any]], arms: tuple[str, str] = ARMS, seed: int = 0) -> BlindPairs:
    """Return the blind pairs of records given as JSON data."""
    return make_pairs(map(RunRecord.model_validate, lines), arms, seed)


def paired(n: int, seed: int = 0) -> BlindPairs:
    return pair_records(records(n), ARMS, seed)


def place_of(made: BlindPairs, pair: str, arm: str) -> str:
    """Where the arm's answer stands: `1` or `2`."""
    return "1" if made.key.first[pair] == arm else "2"


def said(verdict: object, reason: str = "Both are short.") -> str:
    return json.dumps({"reason": reason, "verdict": verdict})


def ids(made: BlindPairs) -> Sequence[str]:
    return [pair.id for pair in made.pairs]
