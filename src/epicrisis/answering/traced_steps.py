"""Measure a question and its steps along the path of the evidence as spans."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

from epicrisis.answering.strategy_context import Context
from epicrisis.core.answers import Answer
from epicrisis.system.telemetry import is_recording, span, traced

_STEPS = {
    "retrieve": "retrieve",
    "record": "read record",
    "preflight": "preflight",
    "select_sentences": "select sentences",
    "examples": "find examples",
}
"""The name of the span of each step of a context."""


def trace_steps(context: Context) -> Context:
    """Return the context with its steps measured. Calls of models are measured by `Context.call_model`."""
    if not is_recording():
        return context
    steps: dict[str, Any] = {}
    for attribute, name in _STEPS.items():
        step = getattr(context, attribute)
        if step is not None:
            steps[attribute] = traced(name)(step)
    return replace(context, **steps)


async def trace_question(strategy: str, work: Coroutine[Any, Any, Answer]) -> Answer:
    """Return the answer, and measure the work as a span with its outcome."""
    with span("question", {"epicrisis.strategy": strategy}) as step:
        answer = await work
        step.set({"epicrisis.state": answer.state, "epicrisis.citations": len(answer.citations)})
        if answer.failure is not None:
            # The name of a class.
            step.fail(answer.failure.kind if answer.failure.kind.isidentifier() else "failed")
        return answer
