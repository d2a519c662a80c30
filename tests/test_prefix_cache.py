"""BriefContext on the embedded model: what its prompts begin with alike is computed once. By the server's own count."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from epicrisis.answering.map_reduce import map_reduce
from epicrisis.answering.strategies.rag import rag
from epicrisis.answering.strategy_context import Context
from epicrisis.core.answers import Event, ModelCalled
from epicrisis.core.protocols import ChatReply, ChatRequest, DeltaCallback
from epicrisis.core.types import Hit, Passage, Question, Ranking, Scope
from epicrisis.models.chat.embedded import EmbeddedModel
from epicrisis.models.chat.layers import Layer
from epicrisis.settings.settings import AnswerOptions
from tests.support.replies import fill

pytestmark = pytest.mark.models

QUESTION = Question(
    "A 67-year-old woman with hypertension and a stroke two years ago takes aspirin. She has had no bleeding. Does a "
    "second antiplatelet drug for longer than three months lower her risk of another stroke more than it harms her?",
    options={"A": "yes", "B": "no"},
    form="choice",
)
TEXTS = tuple(
    f"In trial {i} the treated group of {i}00 patients had fewer strokes than the group on placebo during two years, "
    "while bleeding was more frequent from the fourth month on and mortality did not differ."
    for i in range(8)
)
PASSAGES = tuple(
    Passage(id=f"d{i}#0", document_id=f"d{i}", ordinal=0, start=0, end=len(text), text=text, title=f"Trial {i}")
    for i, text in enumerate(TEXTS)
)
RANKING = Ranking(tuple(Hit(passage, 1 / (rank + 1), rank) for rank, passage in enumerate(PASSAGES)), "dense")
AROUND = 24
"""More tokens than the fence, the first label and the chat template of one map prompt add to its documents."""


class _Reads(Layer):
    """The embedded model reads the prompt, and a fake says what it replies: how long that is, is no matter here."""

    async def complete(self, request: ChatRequest, on_delta: DeltaCallback | None = None) -> ChatReply:
        reply = await self._inner.complete(replace(request, max_tokens=1, schema=None))
        text = json.dumps(fill(request.schema or {}, {"found": True, "quotes": [], "sources": [1]}, "It does."))
        return replace(reply, text=text, finish_reason="stop")


def computed(home: Path, partitions: int, *, prefix_cache: bool = True) -> dict[str, list[int]]:
    """By stage, the tokens of each prompt that were computed; 0 partitions: plain RAG."""
    calls: list[ModelCalled] = []

    def emit(event: Event) -> None:
        if isinstance(event, ModelCalled):
            calls.append(event)

    async def retrieve(_: Question) -> Ranking:
        return RANKING

    async def run() -> None:
        file = home / "models" / "smollm2-135m" / "model.gguf"
        model = _Reads(EmbeddedModel(file, "smollm2-135m", 4096, threads=1, prefix_cache=prefix_cache))
        models = dict.fromkeys(("writer", "map", "reduce"), model)
        context = Context(
            options=AnswerOptions(
                citing="quotes", describe_sources=False, partition=len(PASSAGES) // max(1, partitions)
            ),
            models=models,
            scope=Scope(),
            emit=emit,
            retrieve=retrieve,
        )
        try:
            answer = await (map_reduce(QUESTION, context, PASSAGES) if partitions else rag(QUESTION, context))
        finally:
            await model.aclose()
        assert answer.state == "answered"

    asyncio.run(run())
    stages: dict[str, list[int]] = {}
    for call in calls:
        tokens = call.usage.prompt_tokens - call.usage.cached_tokens
        stages.setdefault(call.stage.split()[0], []).append(tokens)
    return stages


@pytest.fixture(scope="module")
def whole(model_home: Path) -> int:
    """What plain RAG computes."""
    (tokens,) = computed(model_home, 0)["rag"]
    return tokens


@pytest.mark.long
@pytest.mark.parametrize("partitions", [2, 8])
def test_prefix_cache_makes_map_cost_equal_rag(model_home: Path, whole: int, partitions: int) -> None:
    parts = computed(model_home, partitions)
    assert len(parts["map"]) == partitions
    assert sum(parts["map"]) <= whole + partitions * AROUND


@pytest.mark.long
def test_map_and_reduce_without_prefix_cache_compute_more(model_home: Path, whole: int) -> None:
    parts, anew = computed(model_home, 2), computed(model_home, 2, prefix_cache=False)
    assert sum(anew["map"]) > whole + 2 * AROUND
    assert anew["reduce"][0] - parts["reduce"][0] > len(QUESTION.text) // 6, "reduce begins with the question as well"
