"""Our own: BriefContext without its preflight, its reduce call streamed as always. See `rivals.measured`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from epicrisis.answering.strategies.brief_context import brief_context
from epicrisis.answering.strategy_context import Context
from epicrisis.core.answers import Event, ModelCalled, Usage
from epicrisis.core.types import Hit, Passage, Question, Ranking, Scope
from epicrisis.models.chat.loading import add_layers, load_chat
from epicrisis.settings.settings import AnswerOptions, ModelSettings
from rivals.measured import Answer, Job, run


@asynccontextmanager
async def prepared(job: Job) -> AsyncIterator[Answer]:
    """Answers all questions at once, the model's layers shared; tokens as the events tell them."""
    settings = ModelSettings(name=f"{job.url}#{job.model}", concurrency=job.limit)
    model = add_layers(load_chat(settings, Path()), settings)
    passages = [
        Passage(id=f"d{i}#0", document_id=f"d{i}", ordinal=0, start=0, end=len(text), text=text)
        for i, text in enumerate(job.documents)
    ]
    ranking = Ranking(tuple(Hit(passage, 1.0, rank) for rank, passage in enumerate(passages)), "made")
    used: list[Usage] = []

    def emit(event: Event) -> None:
        if isinstance(event, ModelCalled):
            used.append(event.usage)

    async def retrieve(_: Question) -> Ranking:
        return ranking

    roles = dict.fromkeys(("writer", "map", "reduce"), model)
    context = Context(
        options=AnswerOptions(citing="quotes", describe_sources=False, partition=job.partition),
        models=roles,
        scope=Scope(),
        emit=emit,
        retrieve=retrieve,
    )

    async def answer(questions: Sequence[str]) -> tuple[int, list[str]]:
        used.clear()
        answers = await asyncio.gather(*(brief_context(Question(text), context) for text in questions))
        total = sum(used, Usage())
        return total.prompt_tokens + total.completion_tokens, [answer.text for answer in answers]

    yield answer
    await model.aclose()


run(["epicrisis", "openai"], "concurrency of the model's settings", prepared)
