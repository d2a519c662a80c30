"""A model as judge: each pair in both orders, so that a preference for a place shows as what it is.

A line of its file is one reply, durable before it counts; a failed call is asked again by the next run, all else is
final. The answers stand in the fence of documents: they are data. Knows no arm, and not who wrote the answers.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from epicrisis.answering.structured_request import JsonFormat, ModelClient, Unreadable, read_object, text_schema
from epicrisis.answers import Failure, Usage
from epicrisis.errors import InputError
from epicrisis.evaluation.grading.blind_pairs import BlindPair
from epicrisis.evaluation.grading.grader import STATES, GradeState, GradeStore, read_grades
from epicrisis.evaluation.grading.human_verdicts import CHOICES, PreferredAnswer
from epicrisis.evaluation.runs.concurrency import run_concurrently
from epicrisis.prompts import Prompt, fence, render
from epicrisis.serialization import to_json

PROMPTS = "epicrisis.evaluation.grading.prompts"
REASON_CHARACTERS = 400

PresentationOrder: TypeAlias = Literal["shown", "swapped"]
"""As the pair is handed out to people, and the other way round."""
ORDERS: tuple[PresentationOrder, ...] = get_args(PresentationOrder)

_OTHER: Mapping[PreferredAnswer, PreferredAnswer] = {"1": "2", "2": "1", "tie": "tie"}


@dataclass(frozen=True, slots=True)
class PairGrade:
    """What came of one call."""

    pair: str
    order: PresentationOrder
    state: GradeState
    choice: PreferredAnswer | None = None
    """Of the answers as they stood in this order."""
    reason: str = ""
    failure: Failure | None = None
    usage: Usage = field(default_factory=Usage)

    @property
    def key(self) -> tuple[str, PresentationOrder]:
        return self.pair, self.order


@dataclass(frozen=True, slots=True)
class PairVerdict:
    """A judge's verdict on one pair: what both orders say, and a tie where they say two things."""

    shown: PairGrade
    swapped: PairGrade

    @property
    def state(self) -> GradeState:
        """`failed` where one of the calls failed, `unparsed` where one reply could not be read: neither is a tie."""
        states = {self.shown.state, self.swapped.state}
        return "failed" if "failed" in states else "unparsed" if "unparsed" in states else "judged"

    @property
    def consistent(self) -> bool | None:
        """Whether both orders prefer the same answer, or none; `None` unless it is judged."""
        if self.shown.choice is None or self.swapped.choice is None:
            return None
        return self.shown.choice == _OTHER[self.swapped.choice]

    @property
    def choice(self) -> PreferredAnswer | None:
        """Of the pair as it is handed out; `None` unless it is judged."""
        return (self.shown.choice if self.consistent else "tie") if self.state == "judged" else None


def recipe(asker: ModelClient) -> dict[str, Any]:
    """What decides the verdicts, beside the answers."""
    return {"judge": to_json(asker.model_recipe), "prompt": render_prompt("", "", "").template, "seed": asker.seed}


def render_prompt(question: str, first: str, second: str) -> Prompt:
    """The prompt that shows the two answers in this order."""
    return render(PROMPTS, "judge", question=question, answers=fence([first, second]))


def _read(reply: str) -> tuple[PreferredAnswer, str]:
    value = read_object(reply, "verdict")
    choice = next((each for each in CHOICES if each == str(value["verdict"]).strip().casefold()), None)
    if choice is None:
        raise Unreadable(f"the verdict is none of {', '.join(CHOICES)}")
    return choice, str(value.get("reason", ""))


FORM: JsonFormat[tuple[PreferredAnswer, str]] = JsonFormat(
    {"reason": text_schema(REASON_CHARACTERS), "verdict": {"enum": list(CHOICES)}}, REASON_CHARACTERS, _read
)


def open_preference_store(path: Path, asker: ModelClient) -> GradeStore[PairGrade]:
    """This judge's file, to be added to. Raises InputError as ReplyFile does."""
    return GradeStore(path, recipe(asker), _reply)


def _reply(**told: Any) -> PairGrade:
    """Raises TypeError, ValueError."""
    reply = PairGrade(**told)
    judged = reply.choice in CHOICES
    if reply.order not in ORDERS or reply.state not in STATES or judged != (reply.state == "judged"):
        raise ValueError("no verdict on a pair")
    return reply


async def grade_pairs(
    pairs: Iterable[BlindPair], asker: ModelClient, file: GradeStore[PairGrade]
) -> AsyncGenerator[PairGrade, None]:
    """The replies that were not there yet, as they come. Raises as `run_concurrently` does."""
    left = [(pair, order) for pair in pairs for order in ORDERS if not file.is_done((pair.id, order))]

    async def work(item: tuple[BlindPair, PresentationOrder]) -> PairGrade:
        return await _asked(asker, *item)

    # Left half-way it must end what it works on now, not when it is collected.
    async with aclosing(
        run_concurrently(left, work, file.append, lambda reply: reply.failure, asker.concurrency)
    ) as replies:
        async for reply in replies:
            yield reply


async def _asked(asker: ModelClient, pair: BlindPair, order: PresentationOrder) -> PairGrade:
    answers = (pair.first, pair.second) if order == "shown" else (pair.second, pair.first)
    said = await asker.request(render_prompt(pair.question, *answers), FORM)
    if said.value is None:
        state: GradeState = "failed" if said.failure else "unparsed"
        return PairGrade(pair.id, order, state, reason=said.unreadable or "", failure=said.failure, usage=said.usage)
    choice, reason = said.value
    return PairGrade(pair.id, order, "judged", choice, reason, usage=said.usage)


def read_pair_verdicts(path: Path, pairs: Sequence[BlindPair]) -> tuple[dict[str, Any], dict[str, PairVerdict]]:
    """A judge's recipe, and its verdicts by pair, of those that were asked in both orders.

    Raises InputError where the file holds something else, replies of several judges, or of a pair that is not there.
    """
    made, replies = read_grades(path, _reply)
    if {reply.pair for reply in replies.values()} - {pair.id for pair in pairs}:
        raise InputError(f"{path} holds verdicts on other pairs: name the folder of the pairs that were judged")
    return made, {
        pair.id: PairVerdict(replies[pair.id, "shown"], replies[pair.id, "swapped"])
        for pair in pairs
        if all((pair.id, order) in replies for order in ORDERS)
    }
