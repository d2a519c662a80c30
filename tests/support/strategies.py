"""What the tests of the strategies share: passages, a context over a scripted model, and replies in JSON."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from epicrisis.answering.strategy_context import Context
from epicrisis.core.answers import Answer, Event
from epicrisis.core.prompts import unfence
from epicrisis.core.protocols import ChatModel, ChatRequest
from epicrisis.core.types import Hit, Passage, Preflight, Question, Ranking, Scope
from epicrisis.settings.settings import AnswerOptions
from epicrisis.testing.chat import Script, ScriptedModel

T = TypeVar("T")

QUESTION = Question("Does aspirin prevent stroke?", options={"A": "yes", "B": "no"}, form="choice")
OPEN_QUESTION = Question("Does aspirin prevent stroke?")
NOT_FOUND = json.dumps({"result": {"found": False}})


def passages(n: int, words: int = 0) -> tuple[Passage, ...]:
    """`n` passages d0#0, d1#0...; each begins 100 characters into its document. `words`: so many more words in each."""
    made = []
    for i in range(n):
        text = f"Trial {i} found that aspirin lowers risk number {i}." + " more" * words
        made.append(
            Passage(
                id=f"d{i}#0",
                document_id=f"d{i}",
                ordinal=0,
                start=100,
                end=100 + len(text),
                text=text,
                title=f"Title {i}",
                date="2015",
            )
        )
    return tuple(made)


def said(**fields: Any) -> str:
    """A reply that found something."""
    return json.dumps({"result": {"found": True, **fields}})


def finding(number: int = 1, text: str = "It helps.", choice: str | None = "A", quote: str = "") -> str:
    """A map reply about document `number` of its part."""
    quotes = [{"doc": number, "quote": quote}] if quote else []
    return said(quotes=quotes, finding=text, choice=choice)


def stage_of(request: ChatRequest) -> str:
    """`map`, `reduce` or the strategy's name: by the fields that the request's schema asks for."""
    schema = request.schema or {}
    properties = schema["properties"]
    found = properties["result"]["anyOf"][0]["properties"]
    if "finding" in found:
        return "map"
    if "span" in found:
        return "extract"
    if "claims" in found:
        return "reduce" if "\n[finding 1] " in request.messages[-1].content else "rag"
    if "quotes" in found:
        return "rag"
    if "reasoning" in properties:
        return "chain-of-thought"
    return "reduce" if "<documents>" in request.messages[-1].content else "closed-book"


def items_of(request: ChatRequest) -> list[str]:
    """The documents or findings that a request shows."""
    return unfence(request.messages[-1].content)


def stages(model: ScriptedModel) -> list[str]:
    return [stage_of(request) for request in model.requests]


_RENAMED = {"voting": "votes", "refining": "refine"}
_OPTIONS = {*AnswerOptions.model_fields, *_RENAMED} - {"preflight", "examples", "scope"}
"""What a context takes from its options."""


@dataclass
class World:
    """A context, the events it emitted, and the number of searches."""

    context: Context
    events: list[Event] = field(default_factory=list)
    searches: list[Question] = field(default_factory=list)

    def of(self, kind: type[T]) -> list[T]:
        """The events of one kind, in order."""
        return [event for event in self.events if isinstance(event, kind)]


def world(
    model: ChatModel,
    found: Sequence[Passage],
    *,
    verdict: Preflight | None = None,
    scope: Scope | None = None,
    models: Mapping[str, ChatModel] | None = None,
    **more: Any,
) -> World:
    """A context whose search finds these passages and whose every role is played by the model."""
    events: list[Event] = []
    searches: list[Question] = []

    async def retrieve(question: Question) -> Ranking:
        searches.append(question)
        return Ranking(tuple(Hit(passage, 1.0 / (rank + 1), rank) for rank, passage in enumerate(found)), "dense")

    async def preflight(question: Question) -> Preflight:
        assert verdict is not None
        return verdict

    settings = {_RENAMED.get(name, name): more.pop(name) for name in list(more) if name in _OPTIONS}
    context = Context(
        options=AnswerOptions(citing="quotes", describe_sources=False, unverified="keep", count="documents").model_copy(
            update=settings
        ),
        models={**dict.fromkeys(("writer", "map", "reduce"), model), **(models or {})},
        scope=scope or Scope(),
        emit=events.append,
        retrieve=retrieve,
        preflight=preflight if verdict else None,
        **more,
    )
    return World(context, events, searches)


def by_stage(**scripts: str | Script) -> Script:
    """A script that answers each stage in its own way: a text, or a function of the request."""

    def script(request: ChatRequest) -> str:
        reply = scripts[stage_of(request).replace("-", "_")]
        return reply if isinstance(reply, str) else reply(request)

    return script


def verdict(agree: bool) -> Preflight:
    return Preflight(
        rankings_agree=agree,
        value=0.5 if agree else 0.0,
        n=3,
        threshold=0.2,
        depth=16,
        dense_top=("d0#0",),
        bm25_top=("d0#0",),
        reason="because",
    )


def run(strategy: Any, asked: World, question: Question = QUESTION) -> Answer:
    """The strategy's answer."""
    answer = asyncio.run(strategy(question, asked.context))
    assert isinstance(answer, Answer)
    return answer


def maps(model: ScriptedModel) -> list[ChatRequest]:
    return [request for request in model.requests if stage_of(request) == "map"]


def reduces(model: ScriptedModel) -> list[ChatRequest]:
    return [request for request in model.requests if stage_of(request) == "reduce"]


def trials_in(request: ChatRequest) -> list[int]:
    """Which of the passages a request shows, in order."""
    return [int(number) for number in re.findall(r"Trial (\d+) found", request.messages[-1].content)]


def per_part(special: dict[int, str | Exception], rest: str = NOT_FOUND) -> Script:
    """A map script: what it says of the part that holds trial i, and of the other parts."""

    def script(request: ChatRequest) -> str:
        reply = next((special[trial] for trial in trials_in(request) if trial in special), rest)
        if isinstance(reply, Exception):
            raise reply
        return reply

    return script


def quoting(trial: int, place: int, choice: str | None = "A") -> str:
    """A map reply that quotes trial `trial`, which is document `place` of its part."""
    return finding(place, f"Trial {trial} says so.", choice, f"aspirin lowers risk number {trial}")
