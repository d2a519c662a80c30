"""Preferences of a model between two answers. It sees each pair in both orders, which reveals a preference for a place.

The prompt holds the answers as fenced data, without their arms and authors.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import filterfalse, product
from pathlib import Path
from typing import Any

from pydantic import model_validator

from epicrisis.answering.structured_request import ModelClient
from epicrisis.core.answers import Failure, Usage
from epicrisis.core.errors import InputError
from epicrisis.core.prompts import Prompt, fence, render
from epicrisis.evaluation.grading.blind_pairs import BlindPair
from epicrisis.evaluation.grading.grader import (
    PROMPTS,
    GradeLine,
    Grader,
    GradeState,
    GradeStore,
    read_grades,
    verdict_format,
)
from epicrisis.evaluation.grading.human_verdicts import (
    CHOICES,
    ORDERS,
    PreferredAnswer,
    PresentationOrder,
    swap_places,
)
from epicrisis.system.concurrency import store_results

FORMAT = verdict_format(CHOICES, 400)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairGrade:
    """The grade of one pair in one order."""

    pair: str
    order: PresentationOrder
    state: GradeState
    choice: PreferredAnswer | None = None
    """The preferred answer by its place in this order."""
    reason: str = ""
    failure: Failure | None = None
    usage: Usage = field(default_factory=Usage)

    @property
    def key(self) -> tuple[str, PresentationOrder]:
        return self.pair, self.order


class _PairLine(GradeLine[PairGrade]):
    @model_validator(mode="after")
    def _check(self) -> _PairLine:
        if (self.grade.choice is None) == (self.grade.state == "judged"):
            raise ValueError("a choice without a verdict, or the reverse")
        return self


@dataclass(frozen=True, slots=True)
class PairVerdict:
    """A judge's verdict on a pair from both orders: a tie if they disagree."""

    original: PairGrade
    swapped: PairGrade

    @property
    def state(self) -> GradeState:
        """`failed` if a request failed, `unparsed` if a reply could not be read. Neither is a tie."""
        states = {self.original.state, self.swapped.state}
        if "failed" in states:
            return "failed"
        return "unparsed" if "unparsed" in states else "judged"

    @property
    def consistent(self) -> bool | None:
        """Whether both orders prefer the same answer, or none. None unless both were judged."""
        if self.original.choice is None or self.swapped.choice is None:
            return None
        return self.original.choice == swap_places(self.swapped.choice)

    @property
    def choice(self) -> PreferredAnswer | None:
        """The preferred answer of the pair as people see it. None unless both orders were judged."""
        if self.state != "judged":
            return None
        return self.original.choice if self.consistent else "tie"


def render_prompt(question: str, first: str, second: str) -> Prompt:
    """Return the prompt that shows the two answers in this order."""
    return render(PROMPTS, "judge", question=question, answers=fence([first, second]))


def preference_grader(client: ModelClient) -> Grader[PreferredAnswer]:
    """Return the model as a grader of pairs."""
    return Grader(client, render_prompt("", "", "").template, FORMAT)


def open_preference_store(path: Path, grader: Grader[PreferredAnswer]) -> GradeStore[PairGrade]:
    """Open this grader's file to add to it. Raises InputError as `GradeStore` does."""
    return GradeStore(path, _PairLine, grader.recipe)


def grade_pairs(
    pairs: Iterable[BlindPair], grader: Grader[PreferredAnswer], store: GradeStore[PairGrade]
) -> AsyncGenerator[PairGrade, None]:
    """Grade each pair in both orders, and yield the grades that were missing. Raises as `run_concurrently` does."""

    async def grade_pair(item: tuple[BlindPair, PresentationOrder]) -> PairGrade:
        pair, order = item
        answers = (pair.first, pair.second) if order == "shown" else (pair.second, pair.first)
        grade = await grader.grade(render_prompt(pair.question, *answers))
        return PairGrade(
            pair=pair.id,
            order=order,
            state=grade.state,
            choice=grade.value,
            reason=grade.reason,
            failure=grade.failure,
            usage=grade.usage,
        )

    missing = list(filterfalse(lambda item: store.is_done((item[0].id, item[1])), product(pairs, ORDERS)))
    return store_results(missing, grade_pair, store.add, grader.client.concurrency)


def read_pair_verdicts(path: Path, pairs: Sequence[BlindPair]) -> tuple[dict[str, Any], dict[str, PairVerdict]]:
    """Read a judge's recipe, and its verdicts by pair if it graded the pair in both orders.

    Raises InputError if the file holds anything else, grades of several judges, or grades of other pairs.
    """
    recipe, grades = read_grades(path, _PairLine)
    if {grade.pair for grade in grades.values()}.difference(pair.id for pair in pairs):
        raise InputError(f"{path} holds verdicts on other pairs: give the folder of the judged pairs")
    verdicts = {}
    for pair in pairs:
        original, swapped = (grades.get((pair.id, order)) for order in ORDERS)
        if original is not None and swapped is not None:
            verdicts[pair.id] = PairVerdict(original, swapped)
    return recipe, verdicts
