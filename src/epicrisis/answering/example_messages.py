"""Solved questions as earlier turns of the conversation (Medprompt's few-shot examples).

Each example is rendered from the prompt file of the question itself and answered in the format of its reply. The texts
of examples are data, and are escaped like documents.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from epicrisis.answering.strategy_context import PROMPTS, Context
from epicrisis.answers import ExamplesFound, Notice
from epicrisis.prompts import Prompt, escape, render
from epicrisis.protocols import Message
from epicrisis.types import Example, Examples


def announce_examples(context: Context, examples: Examples) -> None:
    """Emit the ids of the examples, without their texts, and the notes of their search."""
    ids = tuple(example.id for example in examples.examples)
    models = tuple(sorted({example.model for example in examples.examples}))
    context.emit(ExamplesFound(ids, examples.left_out, models))
    for note in examples.notes:
        context.emit(Notice("search", f"solved questions: {note}"))


def add_examples(
    prompt: Prompt, template: str, examples: Sequence[Example], *, without_options: bool = False
) -> Prompt:
    """Return the prompt with the examples between its system message and the question, the best one last.

    `without_options` shows the examples without their options, for a question that has none.
    """
    system, *rest = prompt.messages
    turns: list[Message] = []
    for example in reversed(examples):
        if without_options:
            example = _remove_options(example)
        _, question = render(PROMPTS, template, question=example.text, options=example.options).messages
        turns += [question, Message("assistant", json.dumps(_build_reply(example), ensure_ascii=False))]
    return replace(prompt, messages=(system, *turns, *rest))


def _remove_options(example: Example) -> Example:
    if example.choice is None:
        return example
    return replace(example, options={}, choice=None, answer=example.options[example.choice])


def _build_reply(example: Example) -> dict[str, object]:
    result: dict[str, object] = {"found": True, "answer": escape(example.answer)}
    if example.choice is not None:
        result["choice"] = example.choice
    return {"reasoning": escape(example.reasoning), "result": result} if example.reasoning else {"result": result}
