"""Solved questions as earlier turns of the conversation (Medprompt's few-shot examples).

Each is asked in the words of the prompt file that asks the question itself, and answered in the form that its reply
must have: where it has no options, so is an example that has some. Texts of examples are data: escaped like a
document's.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from epicrisis.answering.baselines import PROMPTS
from epicrisis.answering.strategy_context import Context
from epicrisis.answers import ExamplesFound, Notice
from epicrisis.prompts import Prompt, escape, render
from epicrisis.protocols import Message
from epicrisis.types import Example, Examples


def announce(context: Context, found: Examples) -> None:
    """Tells of them, without their texts, and what their search has to say."""
    models = tuple(sorted({each.model for each in found.examples}))
    context.emit(ExamplesFound(tuple(each.id for each in found.examples), found.left_out, models))
    for note in found.notes:
        context.emit(Notice("search", f"solved questions: {note}"))


def with_examples(prompt: Prompt, template: str, examples: Sequence[Example], *, openly: bool = False) -> Prompt:
    """The prompt with the examples between its system message and the question, the best one nearest to it.

    `openly`: the question has no options, and the examples are shown without theirs.
    """
    system, *asked = prompt.messages
    turns: list[Message] = []
    for example in reversed([_opened(each) if openly else each for each in examples]):
        (_, question) = render(PROMPTS, template, question=example.text, options=example.options).messages
        turns += [question, Message("assistant", json.dumps(_reply(example), ensure_ascii=False))]
    return replace(prompt, messages=(system, *turns, *asked))


def _opened(example: Example) -> Example:
    """Without options, the right one's text its answer."""
    if example.choice is None:
        return example
    return replace(example, options={}, choice=None, answer=example.options[example.choice])


def _reply(example: Example) -> dict[str, object]:
    result: dict[str, object] = {"found": True, "answer": escape(example.answer)}
    if example.choice is not None:
        result["choice"] = example.choice
    return {"reasoning": escape(example.reasoning), "result": result} if example.reasoning else {"result": result}
